"""Writes the damaged frames of a recording that has ended again, and keeps what lies after them.

    file     |---- whole ----|xx|--- whole ---|x|-- whole --|
    aside    |-- copied -----|put|-- copied --|put|- copied -| ... synced, then renamed over the file

One segment at a time. What is put comes from elsewhere, and is the caller's to have checked: frames that
belong there, as they were published; here they are stored as the rest of the recording is, with checksums or
without. A crash in between leaves a segment as it was, or whole.
"""

import numpy as np

from cluster.archive.recording_damage import bad_frame
from cluster.archive.segments import ZERO_CHUNK, SegmentFile, Segments
from cluster.log.checksum import Checksum, store_checksums
from cluster.protocol.catalog import RecordingDescriptor


class RecordingRepair:
    """The repair of one recording: ``position`` is where its first frame is missing, or its end."""

    def __init__(
        self, segments: Segments, descriptor: RecordingDescriptor, checksum: Checksum | None, position: int
    ) -> None:
        self.position = position
        self._segments = segments
        self._descriptor = descriptor
        self._checksum = checksum
        self._end = descriptor.stop_position
        self._aside: SegmentFile | None = None

    @property
    def is_done(self) -> bool:
        return self.position >= self._end

    @property
    def limit(self) -> int:
        """Up to where frames can be put at once."""
        base = self._segments.base_of(self.position)
        return min(base + self._segments.segment_length, self._end)

    def put(self, frames: np.ndarray) -> None:
        """Write whole frames at ``position``, and go on over what is whole. Raises OSError, LogDamaged."""
        base, limit = self._segments.base_of(self.position), self.limit
        assert 0 < len(frames) <= limit - self.position
        if self._aside is None:
            path = self._segments.next_path()
            if self._segments.files.exists(path):
                self._segments.files.unlink(path)
            self._aside = self._segments.create(path)
            self._copy(max(base, self._segments.start_position), self.position)
        if self._checksum is not None:
            frames = frames.copy()
            store_checksums(self._checksum, frames, 0, len(frames))
        self._aside.file.pwrite(frames.data, self.position - base)
        self.position += len(frames)
        whole_to = self._whole_to(self.position, limit)
        self._copy(self.position, whole_to)
        self.position = whole_to
        if whole_to == limit:
            self._put_in_place(base)
            self._find_next()

    def close(self) -> None:
        """End the repair; a segment that is not complete stays as it was."""
        if self._aside is not None:
            self._aside.close()
            self._aside = None
        self._segments.close()

    def _copy(self, position: int, end: int) -> None:
        assert self._aside is not None
        base = self._segments.base_of(position)
        while position < end:
            chunk_end = min(end, position + ZERO_CHUNK)
            self._aside.file.pwrite(self._segments.read(position, chunk_end), position - base)
            position = chunk_end

    def _put_in_place(self, base: int) -> None:
        assert self._aside is not None
        files, aside = self._segments.files, self._segments.next_path()
        self._aside.file.fullsync()
        self._aside.close()
        self._aside = None
        self._segments.forget(base)
        files.rename(aside, self._segments.path(base))
        files.sync_directory(self._segments.directory)

    def _find_next(self) -> None:
        """Go on to the next frame that is missing, in whatever segment, or to the end."""
        while self.position < self._end:
            limit = self.limit
            self.position = self._whole_to(self.position, limit)
            if self.position < limit:
                return

    def _whole_to(self, position: int, limit: int) -> int:
        """Where the frames from ``position`` on, within one segment, cease to be whole."""
        if position == limit or self._segments.base_of(position) not in self._segments.bases():
            return position
        damage = bad_frame(self._segments, self._descriptor, position, limit, self._checksum)
        return limit if damage is None else damage.position
