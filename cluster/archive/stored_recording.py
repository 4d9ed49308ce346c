"""A recording as it lies in the files of an archive, to be read: its log's own frames, each checked.

    start                                    append position
      |------------- whole frames ----------------|

Whoever writes it is a ``Recording`` (``recording.py``). Another process that knows how far the recording
goes reads it by this class alone.
"""

import zlib
from collections.abc import Iterator

import numpy as np

from cluster.archive import recording_words
from cluster.archive.files import Files
from cluster.archive.first_frame import read_first_frame
from cluster.archive.frame_walk import FrameWalk, log_params, next_frame_after
from cluster.archive.recording_damage import checksum_mismatch
from cluster.archive.segments import Segments
from cluster.errors import StorageError
from cluster.log.checksum import Checksum, restore_session_ids, verify_checksums
from cluster.log.scan import check_run, fault_at
from cluster.log.words import Word
from cluster.protocol.catalog import RecordingDescriptor
from cluster.protocol.frame import FRAME_ALIGNMENT, HEADER_LENGTH, DataFrameHeader, header_at

_READ_BYTES = 1024 * 1024


class StoredRecording:
    """Kept from ``start_position`` to ``append_position``, excluded; ``checksum`` is in its frames."""

    append_position = Word(recording_words.APPEND_POSITION)

    def __init__(
        self, files: Files, directory: str, descriptor: RecordingDescriptor, checksum: Checksum | None
    ) -> None:
        """``append_position`` is the descriptor's stop position until somebody knows better."""
        self._files = files
        self._directory = directory
        self.descriptor = descriptor
        self.words = np.zeros(recording_words.RECORDING_WORDS, np.int64)
        self._words = self.words.data
        self._params = log_params(descriptor)
        self.checksum = checksum
        self._segments = Segments(files, directory, descriptor)
        self.append_position = descriptor.stop_position

    @property
    def recording_id(self) -> int:
        return self.descriptor.recording_id

    @property
    def start_position(self) -> int:
        return self.descriptor.start_position

    @property
    def term_length(self) -> int:
        return self.descriptor.term_buffer_length

    @property
    def segment_length(self) -> int:
        return self.descriptor.segment_file_length

    @property
    def mtu(self) -> int:
        return self.descriptor.mtu_length

    @property
    def initial_term_id(self) -> int:
        return self.descriptor.initial_term_id

    @property
    def session_id(self) -> int:
        return self.descriptor.session_id

    @property
    def stream_id(self) -> int:
        return self.descriptor.stream_id

    def base_of(self, position: int) -> int:
        """Where the segment that holds a position begins."""
        return self._segments.base_of(position)

    # ---- reading

    def first_frame(self) -> bytes:
        """The first frame there ever was, which identifies a log; empty when it is not known."""
        if self.start_position > 0:
            return read_first_frame(self._files, self._directory, self.recording_id) or b""
        return self.read(0, HEADER_LENGTH).tobytes() if self.append_position else b""

    def read(self, position: int, max_length: int, out: np.ndarray | None = None) -> np.ndarray:
        """Whole frames from ``position`` on, as stored, at most ``max_length`` bytes but at least one frame.

        Empty at the end of the recording. ``out`` is used when it is large enough. With checksums on, they
        are verified and stand where session ids were.
        Raises ``LogDamaged``.
        """
        assert self.start_position <= position <= self.append_position
        end = min(position + max_length, self.append_position)
        data = self._read_range(position, end, out)
        whole = self._check(position, data)
        if whole == 0 and end < self.append_position:  # one frame is longer than was asked for
            length = max(self._header(position).aligned_length, HEADER_LENGTH)
            end = min(position + length, self.append_position)
            data = self._read_range(position, end, out)
            whole = self._check(position, data)
        if whole < len(data) and (whole == 0 or end == self.append_position):
            fault = fault_at(data, whole, len(data), position + whole, self._params, is_recording=True)
            what = f"no whole frame at log position {position + whole}: {fault}"
            raise self._segments.damage_at(position + whole, what)
        data = data[:whole]
        if self.checksum is not None:
            bad = verify_checksums(self.checksum, data, 0, len(data))
            if bad < len(data):
                raise checksum_mismatch(self._segments, position + bad, data[bad:], self.checksum)
        return data

    def read_published(self, position: int, max_length: int, out: np.ndarray | None = None) -> np.ndarray:
        """As ``read``, each frame with its session id, as it was published."""
        data = self.read(position, max_length, out)
        if self.checksum is not None:
            restore_session_ids(data, 0, len(data), self.session_id)
        return data

    def checksum_of_frames(self, end: int | None = None) -> int:
        """CRC-32 of all frames up to ``end``, each with its session id. Raises as ``read``."""
        end = self.append_position if end is None else end
        position, crc = self.start_position, 0
        while position < end:
            run = self.read_published(position, min(_READ_BYTES, end - position))
            crc = zlib.crc32(run.data, crc)
            position += len(run)
        return crc

    def _check(self, position: int, data: np.ndarray) -> int:
        """End of the frames that are in their places."""
        return check_run(data, 0, len(data), position, self._params, is_recording=True)

    def blocks(self, position: int, end: int, max_bytes: int) -> Iterator[tuple[int, np.ndarray]]:
        """Runs of whole frames up to ``end``, each with its position; files are closed after the last."""
        try:
            while position < end:
                found = [self.read(position, min(max_bytes, end - position))]
                length = len(found[0])
                yield position, found.pop()  # whoever takes it has it alone
                position += length
        finally:
            self.close_readers()

    def is_boundary(self, position: int) -> bool:
        """Whether a frame begins at ``position``, or the recording ends there.

        To be asked of what others name before it is read: they may be wrong, and a frame that is not where
        they say is no damage. Where no header of that place stands, the frames before it are walked: either
        they pass it over, or it is our own that is damaged. Raises LogDamaged.
        """
        is_inside = self.start_position <= position <= self.append_position
        if not is_inside or position % FRAME_ALIGNMENT:
            return False
        if position == self.append_position:
            return True
        params = self._params
        begin = max(position - position % self.term_length, self.start_position)
        end = min(position - position % self.term_length + self.term_length, self.append_position)
        try:
            before, after = position - HEADER_LENGTH, position + HEADER_LENGTH
            if next_frame_after(self._segments, params, before, after) == position:
                return True
            walk = FrameWalk(self._segments, params, begin, end)
            for _ in walk:
                if walk.position > position:
                    return False
        except OSError as error:
            path = self._segments.path(self._segments.base_of(position))
            raise StorageError(path, error.errno, "reading failed") from error
        raise walk.damage()

    def _read_range(self, position: int, end: int, out: np.ndarray | None) -> np.ndarray:
        length = end - position
        view = out[:length] if out is not None and len(out) >= length else np.empty(length, np.uint8)
        try:
            done = self._segments.read_into(position, view)
        except OSError as error:
            path = self._segments.path(self._segments.base_of(position))
            raise StorageError(path, error.errno, "reading failed") from error
        if done < length:
            raise self._segments.damage_at(position + done, f"the file ends before position {end}")
        return view

    def _header(self, position: int) -> DataFrameHeader:
        return header_at(self._read_range(position, position + HEADER_LENGTH, None))

    def _check_frame_begins(self, position: int) -> None:
        header = self._header(position)
        if header.frame_length <= 0 or header.term_offset != position & (self.term_length - 1):
            raise self._segments.damage_at(position, "no frame begins here")

    def close_readers(self) -> None:
        self._segments.close()
