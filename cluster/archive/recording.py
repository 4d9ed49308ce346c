"""One recording: the log as a file, appended to, synced, read, cut and purged.

    start                synced          appended               segment end      next segment's end
      |---- whole ---------|--- written ----|--- zeros ahead -----...|------- prepared -----|

The bytes are the log's own frames. Appending is one ``pwrite`` into a segment whose blocks exist already;
``sync`` makes all that was appended durable at once (group commit). Whoever counts a position towards a
quorum takes ``synced_position``. What both do each time is in ``append_and_sync.py``, over ``tables``; here
is what is rare.
"""

import errno
import os
from typing import Any, Protocol

import numpy as np

from cluster.archive import append_and_sync, recording_words
from cluster.archive.append_and_sync import RECORDING_MODULES
from cluster.archive.catalog_file import CatalogFile
from cluster.archive.files import Files
from cluster.archive.first_frame import keep_first_frame
from cluster.archive.page_cache import PageCache
from cluster.archive.recording_words import ARRAYS, RecordingTables
from cluster.archive.segments import SegmentFile, zero_tail
from cluster.archive.stored_recording import StoredRecording
from cluster.archive.sync_proof import NO_PROOF, SyncProofFile, remove_sync_proof
from cluster.errors import NO_SPACE, StorageError, StorageErrors
from cluster.log.checksum import Checksum
from cluster.log.kernel import kernel
from cluster.log.memory import BYTES, I64
from cluster.log.words import Word
from cluster.protocol.catalog import RecordingDescriptor
from cluster.protocol.frame import FRAME_ALIGNMENT

ZERO_WINDOW = 4 * 1024 * 1024  # bytes after the end that are kept zeroed while appending
ZERO_WINDOW_IDLE = 16 * 1024 * 1024  # and when there is nothing else to do
PREPARE_NEXT_AT = 0.5  # of a segment written: make the next one
PREPARE_TRIES = 16  # a segment's length, while the disk is full
SCRATCH_BYTES = 4 * 1024 * 1024  # at least
NO_BYTES = np.zeros(0, np.uint8)


# An array each: a tuple of them takes Python three times as long to hand over.
@kernel(I64(*ARRAYS, BYTES, I64, I64), modules=RECORDING_MODULES, nogil=True)
def _append(words, proof, calls, scratch, frames, begin, end):  # type: ignore[no-untyped-def]
    return append_and_sync.append_to_segment(
        RecordingTables(words, proof, calls, scratch), frames, begin, end
    )


@kernel(I64(*ARRAYS), modules=RECORDING_MODULES, nogil=True)
def _sync(words, proof, calls, scratch):  # type: ignore[no-untyped-def]
    return append_and_sync.sync_segment(RecordingTables(words, proof, calls, scratch))


class PositionCounter(Protocol):
    """What shows others how far a recording goes (counter type 100)."""

    def set(self, value: int) -> None: ...


class SyncTime(Protocol):
    """Shows others how long syncs take."""

    def count(self, duration_ns: int) -> None: ...


class RecordingWriter(StoredRecording):
    """The end of a recording that is appended to; the catalog, and where the recording ends, are its owner's.

    ``synced_position`` end of what the sync level promises. A failed write or sync raises ``StorageError``,
    and from then on every append and sync does: what the disk holds after ``synced_position`` is not trusted
    again, not even if it reads back well. ``position_counter`` follows ``synced_position``.
    ``cached_length`` is how many bytes before the end stay in the page cache; 0: what the kernel keeps.
    Where there is no space for the segment to come, appending fails only when the present one is full.
    ``tables`` are what the end is written by.
    """

    synced_position = Word(recording_words.SYNCED_POSITION)
    segment_base = Word(recording_words.SEGMENT_BASE)
    written_back = Word(recording_words.WRITTEN_BACK)
    unproven_crc = Word(recording_words.UNPROVEN_CRC)
    file_sync_level = Word(recording_words.SYNC_LEVEL)

    def __init__(
        self,
        files: Files,
        directory: str,
        descriptor: RecordingDescriptor,
        *,
        file_sync_level: int,
        checksum: Checksum | None,
        is_sparse: bool = False,
        cached_length: int = 0,
    ) -> None:
        super().__init__(files, directory, descriptor, checksum)
        assert descriptor.stop_position >= descriptor.start_position, "recover before use"
        self._is_sparse = is_sparse
        self.file_sync_level = file_sync_level
        self.synced_position = descriptor.stop_position
        self._page_cache = PageCache(self._segments, descriptor.stop_position, cached_length)
        self.position_counter: PositionCounter | None = None
        self.sync_time: SyncTime | None = None
        self.is_active = False
        self._failure: StorageError | None = None
        self.segment: SegmentFile | None = None
        self._next: SegmentFile | None = None
        self._prepare_from = 0  # position: no sooner is the next segment tried again
        self.proof: SyncProofFile | None = None
        self.is_tail_clean = False  # nothing lies after the end: it was cut, and then only appended to
        self._words[recording_words.SEGMENT] = -1
        self._words[recording_words.SEGMENT_LENGTH] = self.segment_length
        self._words[recording_words.CHECKSUM] = checksum or 0
        self._calls = files.calls
        self.tables = RecordingTables(self.words, NO_PROOF, self._calls.table, NO_BYTES)

    # ---- writing

    def activate(self, *, is_new: bool) -> None:
        """Open the end for appending; the catalog already says that the recording is active."""
        assert not self.is_active
        self.segment_base = self._segments.base_of(self.append_position)
        path = self._segments.path(self.segment_base)
        try:
            if is_new or not self._files.exists(path):
                self.segment = self._segments.create(path, is_sparse=self._is_sparse)
                self.segment.file.fullsync()
                self._files.sync_directory(self._directory)
            else:
                self.segment = self._segments.open_for_writing(self.segment_base)
                self.segment.file.datasync()
            if self.proof is None:
                self.begin_proof(self.session_id)
        except OSError as error:
            raise self.fail(error, path) from error
        self._words[recording_words.SEGMENT] = self.segment.file.fileno()
        self.tables = self.tables._replace(
            proof=NO_PROOF if self.proof is None else self.proof.words,
            scratch=np.empty(SCRATCH_BYTES, np.uint8),  # whose pages take no memory until they are used
        )
        self.synced_position = self.append_position
        self.unproven_crc = 0
        self.written_back = self.append_position
        self.is_tail_clean = True
        self.is_active = True
        self._show_position()

    def append(self, position: int, data: np.ndarray) -> int:
        """Write whole frames that begin at ``position``, the end of the recording; return the new end.

        ``data`` is bytes, aligned, padding written out, across terms and segments as it comes. Nothing is
        promised before ``sync``.
        """
        if self._failure is not None:
            raise self._failure
        assert self.is_active
        assert position == self.append_position
        length = len(data)
        assert length % FRAME_ALIGNMENT == 0
        if length > len(self.tables.scratch):
            self.tables = self.tables._replace(scratch=np.empty(length, np.uint8))
        end = position + length
        while self.append_position < end:
            if error_number := _append(*self.tables, data, self.append_position - position, length):
                raise self.fail_by(error_number)
            if self.append_position == self.segment_base + self.segment_length:
                self._roll_over()
        self._page_cache.let_go(end)
        if self.file_sync_level == 0:
            self._show_position()
        return end

    def sync(self) -> int:
        """Keep the sync level's promise (0 none, 1 fdatasync, 2 fsync); returns ``synced_position``."""
        if self._failure is not None:
            raise self._failure
        if self.synced_position < self.append_position:
            if error_number := _sync(*self.tables):
                raise self.fail_by(error_number)
            if self.sync_time is not None:
                self.sync_time.count(self._words[recording_words.SYNC_NS])
            self.prepare()
            self._show_position()
        return self.synced_position

    @property
    def may_be_lent(self) -> bool:
        """Whether others may append for it, as it would itself, at its ``segment``."""
        return self.is_active and self._failure is None and self.segment is not None

    @property
    def prepares_at(self) -> int:
        """The position from which on ``prepare`` has something to do."""
        assert self.segment is not None
        position = self._page_cache.due_at
        if self.file_sync_level == 0:
            return position
        if self.segment.zeroed_to < self.segment.length:
            position = min(position, self.segment_base + self.segment.zeroed_to - ZERO_WINDOW + 1)
        is_next_wanted = self._next is None or self._next.zeroed_to < min(ZERO_WINDOW, self._next.length)
        if not self._is_sparse and is_next_wanted:
            half = self.segment_base + int(self.segment.length * PREPARE_NEXT_AT)
            position = min(position, max(half, self._prepare_from))
        return position

    def prepare(self) -> None:
        """What appending and syncing do beside, for one who does them by himself. Raises StorageError."""
        self._page_cache.let_go(self.append_position)
        if self.file_sync_level == 0:
            return
        try:
            self._zero_ahead(ZERO_WINDOW)
        except OSError as error:
            raise self.fail(error) from error

    def do_work(self) -> int:
        """Make ready what appending will need, a little at a time; for turns with nothing else to do."""
        if not self.is_active or self._failure is not None:
            return 0
        try:
            return self._zero_ahead(ZERO_WINDOW_IDLE)
        except OSError as error:
            raise self.fail(error) from error

    def _roll_over(self) -> None:
        """Go on in the next segment, once the full one is durable: recovery looks at the highest alone."""
        assert self.segment is not None
        try:
            if self.file_sync_level > 0:
                self.segment.file.datasync()
            self.segment.close()
            if self._next is None:
                self._prepare_next()
            self.segment, self._next = self._next, None
            self.segment_base += self.segment_length
            path = self._segments.path(self.segment_base)
            assert not self._files.exists(path)
            self._files.rename(self._segments.next_path(), path)
            if (
                self.file_sync_level > 0
            ):  # the device may be busy with all that was written: up to half a second
                self._files.sync_directory(self._directory)
        except OSError as error:
            raise self.fail(error) from error
        assert self.segment is not None
        self._words[recording_words.SEGMENT] = self.segment.file.fileno()

    def _prepare_next(self) -> None:
        self._remove_next()
        self._next = self._segments.create(self._segments.next_path(), is_sparse=self._is_sparse)

    def _zero_ahead(self, window: int) -> int:
        """Do the one piece of preparation that is most urgent; return 1 if there was any."""
        assert self.segment is not None
        offset = self.append_position - self.segment_base
        if self.segment.zero_ahead(offset, window):
            return 1
        if not self._is_sparse and offset >= self.segment.length * PREPARE_NEXT_AT:
            if self._next is None:
                return int(self._prepare_next_if_there_is_room())
            return int(self._next.zero_ahead(0, window))
        return 0

    def _prepare_next_if_there_is_room(self) -> bool:
        """Make the next segment while the present one still has room; a full disk is no failure yet."""
        if self.append_position < self._prepare_from:
            return False
        try:
            self._prepare_next()
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            self._prepare_from = self.append_position + self.segment_length // PREPARE_TRIES
            return False
        return True

    def _show_position(self) -> None:
        if self.position_counter is not None:
            self.position_counter.set(self.synced_position)

    def fail(self, error: OSError | StorageError, path: str | None = None) -> StorageError:
        """Stop trusting the recording."""
        self.is_tail_clean = False
        if isinstance(error, StorageError):
            self._failure = error
        else:
            path = path or error.filename or self._segments.path(self.segment_base)
            self._failure = StorageError(path, error.errno, "writing the recording failed")
        return self._failure

    def fail_by(self, error_number: int) -> StorageError:
        """Stop trusting the recording, which a call failed. Raises what is no error of the system."""
        self._calls.raise_failure()
        return self.fail(OSError(error_number, os.strerror(error_number)))

    def begin_proof(self, session_id: int) -> None:
        """Begin to prove what ``session_id`` will append, lest an earlier life's proof come back."""
        if self.file_sync_level > 0:
            self.proof = SyncProofFile.create(
                self._files, self._directory, self.recording_id, session_id, self.append_position
            )

    def _remove_next(self) -> None:
        """Remove a segment that was prepared and not needed, in this life of the recording or before."""
        if self._files.exists(self._segments.next_path()):
            self._files.unlink(self._segments.next_path())

    def abandon(self) -> None:
        """Close the files and nothing else, as a process that dies does."""
        for part in (self.segment, self._next, self.proof):
            if part is not None:
                part.close()
        self.segment = self._next = self.proof = None
        self._words[recording_words.SEGMENT] = -1
        self.tables = self.tables._replace(proof=NO_PROOF, scratch=NO_BYTES)
        self.is_active = False


class Recording(RecordingWriter):
    """A recording of an archive; made by ``Archive``, active after ``create_recording`` or ``extend``."""

    def __init__(
        self,
        files: Files,
        directory: str,
        catalog: CatalogFile,
        descriptor: RecordingDescriptor,
        **options: Any,
    ) -> None:
        """``options`` are RecordingWriter's."""
        super().__init__(files, directory, descriptor, **options)
        self._catalog = catalog

    def fail(self, error: OSError | StorageError, path: str | None = None) -> StorageError:
        """Stop trusting the recording; the catalog gets the end of what was synced, if it can."""
        failure = super().fail(error, path)
        if self.file_sync_level > 0:
            try:
                self._catalog.stop(self.recording_id, self.synced_position)
            except StorageError:
                pass  # the proof file says the same to the next start
        return failure

    # ---- ending, cutting

    def change_session(self, session_id: int) -> None:
        """Let another publication write on at the end, without opening, creating or zeroing a file again.

        What was appended is safe first. Then one sync is for both: the catalog's entry, and the slot of the
        proof file that was handed to the device before it. Of these two a power cut may keep one. The old
        session has the other slot; the new one without a slot has its frames walked, all of which are
        safe, and nothing lies after them.
        """
        assert self.is_active and self.is_tail_clean
        self.sync()
        try:
            if self.proof is not None:
                self.proof.change_session(session_id, self.append_position)
            self.descriptor = self._catalog.extend(self.recording_id, session_id)
        except (OSError, StorageError) as error:
            raise self.fail(error) from error

    def stop(self, timestamp: int) -> None:
        """End the recording: synced, with its end and the time (epoch ms) in the catalog, or closed."""
        if not self.is_active:
            return
        try:
            if self._failure is None:
                self.sync()
                self.descriptor = self._catalog.stop(self.recording_id, self.append_position, timestamp)
                remove_sync_proof(self._files, self._directory, self.recording_id)
                self._remove_next()
        except OSError as error:
            raise self.fail(error) from error
        finally:
            self.abandon()

    def truncate(self, position: int) -> None:
        """Cut the recording at ``position``, the start of a frame, and go on from there if it is active.

        The order survives a crash at any point: the catalog's end is synced, the tail is zeroed and synced,
        later segments go, and only then may anything be appended. Files are not shortened.
        Raises ``LogDamaged`` before changing anything when no frame begins there.
        """
        if self._failure is not None:
            raise self._failure
        assert self.start_position <= position <= self.append_position
        assert position % FRAME_ALIGNMENT == 0
        if position == self.append_position:
            return
        self._check_frame_begins(position)
        was_active = self.is_active
        self.abandon()
        try:
            self.descriptor = self._catalog.stop(self.recording_id, position)
            self.append_position = self.synced_position = position
            self.cut_tail()
            self._remove_next()
            if was_active:
                self.begin_proof(self.session_id)
                self.descriptor = self._catalog.extend(self.recording_id, self.session_id)
            else:
                remove_sync_proof(self._files, self._directory, self.recording_id)
        except (OSError, StorageError) as error:
            raise self.fail(error) from error
        if was_active:
            self.activate(is_new=False)

    def cut_tail(self, *, into_new_file: bool = False) -> int:
        """Make everything after the end read as nothing, durably; return how many bytes were there.

        The catalog must already hold the end. A stop on a segment's boundary keeps an empty segment
        after it, which the verify tool insists on. After a failed sync the pages of the file are not to be
        overwritten but given up: ``into_new_file`` copies what is kept, and replaces the segment.
        """
        base = self._segments.base_of(self.append_position)
        cut = 0
        self._segments.forget(base)
        bases = self._segments.bases()
        if base in bases and into_new_file:
            self._segments.renew(base, self.append_position)
        elif base in bases:
            file = self._files.open(self._segments.path(base), write=True)
            try:
                cut += zero_tail(file, self.append_position - base, file.size())
                if cut:
                    file.datasync()
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                self._segments.renew(base, self.append_position)  # nothing after the end is needed
            finally:
                file.close()
        later = [other for other in bases if other > base]
        for other in reversed(later):
            cut += self.segment_length
            self._segments.unlink(other)
        if later:
            self._files.sync_directory(self._directory)
        return cut

    def purge_to(self, position: int) -> int:
        """Drop whole segments before ``position``; returns the new start, a segment's base."""
        assert position <= self.append_position
        base = self._segments.base_of(position)
        if base <= self.start_position:
            return self.start_position
        first = self.first_frame()
        with StorageErrors(self._directory, "purging failed", within=True):
            if self.start_position == 0:
                keep_first_frame(self._files, self._directory, self.recording_id, first)
            self.descriptor = self._catalog.set_start_position(self.recording_id, base)
            for other in self._segments.bases():
                if other < base:
                    self._segments.unlink(other)
            self._files.sync_directory(self._directory)
        return base
