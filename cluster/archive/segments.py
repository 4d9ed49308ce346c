"""Segment files of one recording: raw copies of its log's terms, cut into files of one length.

    <recording id>-<base position>.rec      byte at position p lies at offset p - base
    recording-<recording id>.next           the segment to come, made ready before it is needed

A segment gets its final name only when the one before is full: a reader, and the recovery of an unclean stop,
take the file with the highest base for the end of the log. Bases are counted from the start of the
term that holds the recording's start. Source: AeronArchive.segmentFileBasePosition, Archive.Configuration.
"""

from collections.abc import Iterator
from contextlib import closing

import numpy as np

from cluster.archive.files import File, Files
from cluster.errors import LogDamaged
from cluster.protocol.catalog import RecordingDescriptor, parse_segment_file_name, segment_file_name

ZERO_CHUNK = 1024 * 1024  # bytes of zeros written in one go: 0.2 ms, and one journal commit at the next sync
_ZERO_BYTES = bytes(ZERO_CHUNK)
_ZEROS = memoryview(_ZERO_BYTES)
PAGE = 4096
_OPEN_MAX = 4


def list_segments(files: Files, directory: str) -> dict[int, list[int]]:
    """Bases of the segment files in an archive directory, ascending, by recording id."""
    bases: dict[int, list[int]] = {}
    for name in files.list_directory(directory):
        if parsed := parse_segment_file_name(name):
            bases.setdefault(parsed[0], []).append(parsed[1])
    return {recording_id: sorted(found) for recording_id, found in bases.items()}


def segment_bases(files: Files, directory: str, recording_id: int) -> list[int]:
    """Bases of the segment files of one recording, ascending."""
    return list_segments(files, directory).get(recording_id, [])


class Segments:
    """Reads a recording's segments and makes new ones; knows nothing of what is in them.

    ``start_position`` moves when the head is purged; bases stay congruent, so either value works for
    arithmetic. Raises ``LogDamaged`` where a file is missing or ends too early, ``OSError`` for the disk.
    """

    def __init__(self, files: Files, directory: str, descriptor: RecordingDescriptor) -> None:
        term_length = descriptor.term_buffer_length
        self.files = files
        self.directory = directory
        self.recording_id = descriptor.recording_id
        self.segment_length = descriptor.segment_file_length
        assert self.segment_length % term_length == 0
        self.start_position = descriptor.start_position
        self.first_base = self.start_position - (self.start_position & (term_length - 1))
        self._open: dict[int, File] = {}

    def base_of(self, position: int) -> int:
        return self.first_base + (position - self.first_base) // self.segment_length * self.segment_length

    def path(self, base: int) -> str:
        return f"{self.directory}/{segment_file_name(self.recording_id, base)}"

    def damage_at(self, position: int, what: str) -> LogDamaged:
        """That of the byte at a log position, by its file and the offset in that."""
        base = self.base_of(position)
        return LogDamaged(self.path(base), position - base, what)

    def next_path(self) -> str:
        return f"{self.directory}/recording-{self.recording_id}.next"

    def bases(self) -> list[int]:
        """Bases of the files that are there, ascending."""
        return segment_bases(self.files, self.directory, self.recording_id)

    def file(self, base: int) -> File:
        """The segment, open for reading; the caller must not close it."""
        file = self._open.pop(base, None)
        if file is None:
            try:
                file = self.files.open(self.path(base))
            except FileNotFoundError:
                raise LogDamaged(self.path(base), None, "the segment file is missing") from None
            while len(self._open) >= _OPEN_MAX:  # the least recently used goes
                self._open.pop(next(iter(self._open))).close()
        self._open[base] = file
        return file

    def read_into(self, position: int, out: np.ndarray) -> int:
        """Fill ``out`` from ``position`` on, across segments; return the bytes read, fewer at the end."""
        done = 0
        while done < len(out):
            base = self.base_of(position + done)
            offset = position + done - base
            piece = min(len(out) - done, self.segment_length - offset)
            count = self.file(base).pread_into(out[done : done + piece].data, offset)
            done += count
            if count < piece:
                break
        return done

    def read(self, position: int, end: int) -> np.ndarray:
        """Exactly the bytes [``position``, ``end``)."""
        out = np.empty(end - position, np.uint8)
        done = self.read_into(position, out)
        if done < len(out):
            raise self.damage_at(position + done, f"the file ends before position {end}")
        return out

    def write_again(self, position: int, end: int) -> None:
        """Make [``position``, ``end``) durable as it reads, whatever became of earlier writes and syncs."""
        while position < end:
            base = self.base_of(position)
            with closing(self.files.open(self.path(base), write=True)) as file:
                while position < min(end, base + self.segment_length):
                    chunk_end = min(end, base + self.segment_length, position + ZERO_CHUNK)
                    file.pwrite(self.read(position, chunk_end), position - base)
                    position = chunk_end
                file.datasync()

    def create(self, path: str, *, is_sparse: bool = False) -> "SegmentFile":
        """A new segment at ``path``: its length reserved and its first bytes zeroed, or all of it a hole."""
        file = self.files.open(path, create=True)
        try:
            if is_sparse:
                file.resize(self.segment_length)
            else:
                file.allocate(self.segment_length)
        except OSError:
            file.close()
            self.files.unlink(path)
            raise
        segment = SegmentFile(file, self.segment_length, zeroed_to=self.segment_length if is_sparse else 0)
        segment.zero_ahead(0)
        return segment

    def renew(self, base: int, end: int, *, old_to: str | None = None) -> None:
        """Put a new file with the bytes [``base``, ``end``) in the place of a segment, durably.

        What is after ``end`` is gone with the old file, whose pages nobody trusts any more: a sync of them
        failed, or they cannot be read. The new one lies in other blocks of the device. ``old_to`` is a
        folder that gets the old file.
        """
        path, aside = self.path(base), self.next_path()
        if self.files.exists(aside):
            self.files.unlink(aside)
        with closing(self.create(aside)) as segment:
            position = max(base, self.start_position)
            while position < end:
                chunk_end = min(end, position + ZERO_CHUNK)
                segment.file.pwrite(self.read(position, chunk_end), position - base)
                position = chunk_end
            segment.file.fullsync()
        self.forget(base)
        if old_to is not None and self.files.exists(path):
            self.files.rename(path, f"{old_to}/{path.rpartition('/')[2]}")
        self.files.rename(aside, path)
        self.files.sync_directory(self.directory)

    def open_for_writing(self, base: int) -> "SegmentFile":
        """The existing segment of ``base``, extended to its full length."""
        file = self.files.open(self.path(base), write=True)
        if file.size() < self.segment_length:  # of a real archive's last segment, or one cut by a copy
            file.allocate(self.segment_length)
        return SegmentFile(file, self.segment_length, zeroed_to=0)

    def forget(self, base: int) -> None:
        """Close what reads the segment, which is about to be removed."""
        if (file := self._open.pop(base, None)) is not None:
            file.close()

    def unlink(self, base: int) -> None:
        self.forget(base)
        self.files.unlink(self.path(base))

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()


class SegmentFile:
    """A segment that is written, with zeros kept ahead of what is written.

    An overwrite of written blocks makes half the work for a sync of what a first write does, so zeros go out
    a few megabytes ahead, a chunk at a time. ``zeroed_to`` is where they end.
    """

    __slots__ = ("file", "length", "zeroed_to")

    def __init__(self, file: File, length: int, zeroed_to: int) -> None:
        self.file = file
        self.length = length
        self.zeroed_to = zeroed_to

    def zero_ahead(self, offset: int, window: int = ZERO_CHUNK) -> bool:
        """Write a chunk of zeros if fewer than ``window`` bytes after ``offset`` have them; say whether."""
        begin = max(self.zeroed_to, offset)
        if begin >= self.length or begin - offset >= window:
            return False
        end = min(begin + ZERO_CHUNK, self.length)
        self.file.pwrite(_ZEROS[: end - begin], begin)
        self.file.start_writeback(begin, end - begin)
        self.zeroed_to = end
        return True

    def close(self) -> None:
        self.file.close()


def nonzero_pages(file: File, offset: int, length: int) -> Iterator[tuple[int, int]]:
    """Ranges (offset, end) of [offset, length) that hold something else than zeros, to whole pages."""
    while offset < length:
        chunk = file.pread(min(ZERO_CHUNK, length - offset), offset)
        if not chunk:
            return
        if not _ZERO_BYTES.startswith(chunk):  # the quickest comparison
            for begin in range(0, len(chunk), PAGE):
                page = chunk[begin : begin + PAGE]
                if not _ZERO_BYTES.startswith(page):
                    yield offset + begin, offset + begin + len(page)
        offset += len(chunk)


def zero_tail(file: File, offset: int, length: int) -> int:
    """Make [offset, length) read as zeros; returns the bytes. Never shorter: who has it mapped would die."""
    rewritten = 0
    for begin, end in list(nonzero_pages(file, offset, length)):
        file.pwrite(_ZEROS[: end - begin], begin)
        rewritten += end - begin
    return rewritten
