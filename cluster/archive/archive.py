"""An archive directory: its catalog and recordings, opened by the one process that writes there.

    archive/archive.catalog     what recordings there are          catalog_file.py
            archive-mark.dat    who writes here, for Aeron's tools  mark_files.py
            archive.lock        who writes here, for the kernel     directory_lock.py
            0-0.rec ...         the recordings' segments            segments.py, recording.py

Source of the operations: Aeron's ArchiveConductor. What a power cut leaves of each is in docs/formats.md.
"""

import errno
import re
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from cluster.archive.catalog_checksum import checksum_named
from cluster.archive.catalog_file import CatalogFile
from cluster.archive.directory_lock import DirectoryLock
from cluster.archive.files import Files, OsFiles
from cluster.archive.frame_checksum import frame_checksum
from cluster.archive.frame_walk import FrameWalk, log_params, next_frame_after
from cluster.archive.mark_files import ArchiveMarkFile
from cluster.archive.page_cache import POSITION_MAX
from cluster.archive.recording import Recording
from cluster.archive.recording_damage import (
    Damage,
    damage_of_open_recording,
    drop_set_aside,
    first_damage,
    set_aside_segments,
)
from cluster.archive.recording_end import RecordingEnd, acknowledged_end, find_end
from cluster.archive.recording_repair import RecordingRepair
from cluster.archive.segments import PAGE, Segments, list_segments, segment_bases
from cluster.archive.sync_proof import read_sync_proof, remove_sync_proof, sync_proof_exists
from cluster.errors import ConfigurationError, LogDamaged, StorageErrors
from cluster.log.checksum import Checksum, restore_session_ids, verify_checksums
from cluster.protocol.catalog import (
    CATALOG_FILE_NAME,
    NULL_POSITION,
    NULL_TIMESTAMP,
    RecordingDescriptor,
    parse_segment_file_name,
)
from cluster.protocol.enums import RecordingState
from cluster.protocol.frame import is_term_length
from cluster.protocol.mark_file import ARCHIVE_MARK_FILE_NAME

SEGMENT_LENGTH_DEFAULT = 128 * 1024 * 1024
SEGMENT_LENGTH_MAX = 1024 * 1024 * 1024


class LentRecording(NamedTuple):
    """What a process has to know of a recording that it is to write."""

    descriptor: RecordingDescriptor
    checksum: Checksum | None
    file_sync_level: int


class Archive:
    """The recordings of a member; ``recovered`` lists ends that were found; damage stays as it is."""

    def __init__(
        self,
        directory: str,
        files: Files,
        lock: DirectoryLock,
        catalog: CatalogFile,
        *,
        file_sync_level: int,
        segment_length: int,
        checksum: Checksum | None,
        cached_length: int,
        has_all_pages: bool,
        epoch_ms: Callable[[], int],
    ) -> None:
        self.directory = directory
        self.recovered: list[RecordingEnd] = []
        self._damage: dict[int, Damage] = {}
        self.files = files
        self._checksum = checksum  # of new recordings
        self._lock = lock
        self._catalog = catalog
        self._sync_level = file_sync_level
        self._segment_length = segment_length
        self._cached_length = cached_length
        self._has_all_pages = has_all_pages
        self._epoch_ms = epoch_ms
        self._recordings: dict[int, Recording] = {}

    @classmethod
    def open(
        cls,
        directory: str,
        *,
        files: Files | None = None,
        file_sync_level: int = 1,
        segment_length: int = SEGMENT_LENGTH_DEFAULT,
        checksum: str | None = None,
        cached_length: int = 0,
        is_after_failure: bool = False,
        may_be_damaged: bool = False,
        has_all_pages: bool = False,
        epoch_ms: Callable[[], int],
    ) -> "Archive":
        """Open the directory, made when missing, and end recordings that never stopped.

        ``epoch_ms`` is asked for timestamps. ``checksum`` is what frames of new recordings will hold; those
        that exist keep what theirs hold. ``cached_length`` bytes before the end of each stay in the page
        cache; 0: what the kernel keeps. ``is_after_failure``: this process was refused a write or a sync
        here, so that files of recordings that were written then are given up for new ones.
        ``may_be_damaged``: a recording whose end damage hides is left as it is, not known by
        ``has_recording``, for ``find_damage`` to report; else LogDamaged says so. ``has_all_pages``: the
        process that wrote here died, and its machine did not. Raises DirectoryInUse, LogDamaged,
        StorageError, ConfigurationError.
        """
        if file_sync_level not in (0, 1, 2):
            raise ConfigurationError(f"file_sync_level {file_sync_level}: expected 0, 1 or 2")
        if not is_term_length(segment_length):
            raise ConfigurationError(
                f"segment_length {segment_length}: expected a power of two from 65536 to {SEGMENT_LENGTH_MAX}"
            )
        used = checksum_named(checksum)
        files = files or OsFiles()
        with StorageErrors(directory, "opening the archive failed", within=True):
            files.make_directory(directory)
            lock = DirectoryLock.take(files, directory, ARCHIVE_MARK_FILE_NAME, epoch_ms())
            try:
                if not files.exists(f"{directory}/{CATALOG_FILE_NAME}"):
                    CatalogFile.create(files, directory)
                catalog = CatalogFile.open(
                    files,
                    directory,
                    write=True,
                    sync_level=file_sync_level,
                    stale_checksum=used or Checksum.CRC_32C,
                )
                archive = cls(
                    directory,
                    files,
                    lock,
                    catalog,
                    file_sync_level=file_sync_level,
                    segment_length=segment_length,
                    checksum=used,
                    cached_length=cached_length,
                    has_all_pages=has_all_pages,
                    epoch_ms=epoch_ms,
                )
                archive._recover(is_after_failure, may_be_damaged)
            except BaseException:
                lock.release()
                raise
        return archive

    def _recover(self, is_after_failure: bool, may_be_damaged: bool) -> None:
        if self._sync_level > 0:
            self._catalog.write_again()
        deleted = {
            entry.descriptor.recording_id
            for entry in self._catalog.entries
            if entry.header.state is RecordingState.DELETED
        }
        if deleted:
            self._remove_files_of(deleted)
        bases = list_segments(self.files, self.directory)
        for entry in [entry for entry in self._catalog.entries if entry.is_valid]:
            recording_id = entry.descriptor.recording_id
            self._catalog.check_entry(entry, bases.get(recording_id, []))
            if entry.descriptor.stop_position == NULL_POSITION:
                self._find_end(entry.descriptor, is_after_failure, may_be_damaged)
            elif is_after_failure and sync_proof_exists(self.files, self.directory, recording_id):
                # The failed recording wrote its end into the catalog, but did not stop in order.
                self._cut_tail(recording_id, may_be_damaged, into_new_file=True)

    def _find_end(
        self, descriptor: RecordingDescriptor, is_after_failure: bool, may_be_damaged: bool
    ) -> None:
        """Give a recording that never stopped its end, or take note of the damage that hides it."""
        recording_id = descriptor.recording_id
        checksum = self.checksum_of(descriptor)
        proof = None
        with closing(Segments(self.files, self.directory, descriptor)) as segments:
            try:
                proof = read_sync_proof(self.files, self.directory, recording_id, descriptor.session_id)
                found = find_end(
                    segments,
                    descriptor,
                    proof,
                    checksum,
                    file_sync_level=self._sync_level,
                    whole_to=POSITION_MAX if self._has_all_pages else 0,
                )
            except (LogDamaged, OSError) as error:
                if not may_be_damaged or (isinstance(error, OSError) and error.errno != errno.EIO):
                    raise
                damage = damage_of_open_recording(segments, descriptor, proof, error, checksum)
                end = acknowledged_end(segments, descriptor, proof)
                self._damage[recording_id] = replace(damage, acknowledged_end=end)
                return
            if self._sync_level > 0 and found.unsynced_from >= 0 and not is_after_failure:
                segments.write_again(found.unsynced_from, found.stop_position)
        self._catalog.stop(recording_id, found.stop_position, self._epoch_ms())
        if self._cut_tail(recording_id, may_be_damaged, into_new_file=is_after_failure):
            self.recovered.append(found)

    def _cut_tail(self, recording_id: int, may_be_damaged: bool, *, into_new_file: bool) -> bool:
        """Cut what is after a recording's end; False where bytes before it cannot be read for a new file."""
        try:
            self.recording(recording_id).cut_tail(into_new_file=into_new_file)
        except OSError as error:
            if not may_be_damaged or error.errno != errno.EIO:
                raise
            descriptor = self._catalog.descriptor(recording_id)
            damage = self._first_damage(descriptor, descriptor.start_position)
            if damage is None:
                raise
            self._damage[recording_id] = damage
            return False
        remove_sync_proof(self.files, self.directory, recording_id)
        return True

    @property
    def put_back(self) -> list[LogDamaged]:
        """Where in the catalog a bit had flipped."""
        return [LogDamaged(self._catalog.path, offset, what) for offset, _, what in self._catalog.put_back]

    def check_start(self, recording_id: int) -> None:
        """Raise LogDamaged where the frames of a stopped recording contradict its catalog entry."""
        descriptor = self._catalog.descriptor(recording_id)
        start, stop = descriptor.start_position, descriptor.stop_position
        if start >= stop or len(self.whole_frames(recording_id, start, stop, PAGE)):
            return
        if start % descriptor.term_buffer_length:
            what = f"no frame begins at its start position {start}"
            raise self._catalog.damage_of(recording_id, "start_position", what)
        try:
            with closing(Segments(self.files, self.directory, descriptor)) as segments:
                is_one_there = next_frame_after(segments, log_params(descriptor), start, stop) is not None
                if segments.bases() and not is_one_there:
                    what = (
                        f"no frame is of terms of {descriptor.term_buffer_length} bytes from id "
                        f"{descriptor.initial_term_id} on, of stream {descriptor.stream_id}"
                    )
                    raise self._catalog.damage_of(recording_id, "initial_term_id", what)
        except OSError as error:
            if error.errno != errno.EIO:
                raise  # else it is reported when it is read

    def find_damage(self, recording_id: int, from_position: int | None = None) -> Damage | None:
        """The first place from ``from_position`` (or its start) on where a stopped recording is not whole.

        Every segment must be there in its length, also before that position; what lies after it is read,
        and its checksums are verified if it has any.
        """
        if (damage := self._damage.get(recording_id)) is not None:
            return damage
        descriptor = self.recording(recording_id).descriptor
        damage = self._first_damage(descriptor, max(descriptor.start_position, from_position or 0))
        if damage is None and not self._reads_at_end(descriptor):
            damage = self._first_damage(descriptor, descriptor.start_position)
        return damage

    def _first_damage(self, descriptor: RecordingDescriptor, begin: int) -> Damage | None:
        checksum = self.recording(descriptor.recording_id).checksum
        with closing(Segments(self.files, self.directory, descriptor)) as segments:
            damage = first_damage(segments, descriptor, begin, descriptor.stop_position, checksum)
            return None if damage is None else replace(damage, acknowledged_end=descriptor.stop_position)

    def _reads_at_end(self, descriptor: RecordingDescriptor) -> bool:
        """Whether the page can be read in which the next frame goes after the last one."""
        end = descriptor.stop_position
        try:
            with closing(Segments(self.files, self.directory, descriptor)) as segments:
                base = segments.base_of(end)
                if base in segments.bases():
                    segments.read(max(base, end - (end - base) % PAGE), end)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return False
        return True

    def revive(self, recording_id: int) -> bool:
        """Let an INVALID recording be VALID again, for its good part; False when there is none."""
        entry = self._catalog.entry(recording_id)
        if entry is None or entry.header.state not in (RecordingState.VALID, RecordingState.INVALID):
            return False
        if entry.header.state is RecordingState.INVALID:
            self._catalog.check_entry(entry, segment_bases(self.files, self.directory, recording_id))
            self._catalog.set_state(recording_id, RecordingState.VALID)
            if entry.descriptor.stop_position == NULL_POSITION:
                self._find_end(entry.descriptor, is_after_failure=False, may_be_damaged=True)
        return True

    def open_repair(self, damage: Damage) -> RecordingRepair | None:
        """A repair of the damaged part of a recording; None where its end is not known."""
        if damage.acknowledged_end is None or damage.recording_id in self._damage:
            return None
        descriptor = self._catalog.descriptor(damage.recording_id)
        segments = Segments(self.files, self.directory, descriptor)
        return RecordingRepair(
            segments, descriptor, self.recording(damage.recording_id).checksum, damage.position
        )

    def forget_files(self, recording_id: int) -> None:
        """A stopped recording has got new files: the old ones are not read any more."""
        recording = self._recordings.pop(recording_id, None)
        if recording is not None:
            recording.close_readers()

    def whole_frames(self, recording_id: int, position: int, end: int, max_length: int) -> np.ndarray:
        """Frames from ``position`` on, with session ids, at least one if it is whole; empty if not."""
        recording = self.recording(recording_id)
        descriptor = recording.descriptor
        segments = Segments(self.files, self.directory, descriptor)
        end = min(end, segments.base_of(position) + segments.segment_length)
        found = np.zeros(0, np.uint8)
        for length in (max_length, PAGE):  # the second time for what is before a bad sector
            walk = FrameWalk(segments, log_params(descriptor), position, end, chunk_length=length)
            try:
                _, found = next(iter(walk), (position, found))
                break
            except (LogDamaged, OSError):
                continue
        segments.close()
        whole = len(found)
        if recording.checksum is not None:
            whole = verify_checksums(recording.checksum, found, 0, whole)
            restore_session_ids(found, 0, whole, recording.session_id)
        return found[:whole]

    def cut_damage(self, damage: Damage) -> None:
        """Let a recording end at its first damage; what followed is set aside, for ``drop_set_aside``.

        To be called only when it is certain to be remembered that the recording once had more. The file that
        has the damage is given up for a new one.
        """
        recording_id, position = damage.recording_id, damage.position
        self._damage.pop(recording_id, None)
        self._recordings.pop(recording_id, None)
        with StorageErrors(self.directory, "cutting a damaged recording failed", within=True):
            self._catalog.stop(recording_id, position, self._epoch_ms())
            set_aside_segments(self.files, self.directory, self._catalog.descriptor(recording_id))
            remove_sync_proof(self.files, self.directory, recording_id)

    def drop_set_aside(self) -> None:
        """Remove what was set aside, now that nobody needs it any more."""
        with StorageErrors(self.directory, "removing what was set aside failed", within=True):
            drop_set_aside(self.files, self.directory)

    def recordings(self) -> list[RecordingDescriptor]:
        """Descriptors of the VALID recordings, by id as the catalog has them."""
        return self._catalog.descriptors()

    def has_recording(self, recording_id: int) -> bool:
        entry = self._catalog.entry(recording_id)
        return entry is not None and entry.is_valid and recording_id not in self._damage

    def find_recording(self, recording_id: int) -> RecordingDescriptor | None:
        """The descriptor of a VALID recording whose end is known; None for any other id."""
        return self._catalog.descriptor(recording_id) if self.has_recording(recording_id) else None

    def recording(self, recording_id: int) -> Recording:
        """The recording, the same object for every caller; an unknown id is a bug (``has_recording``)."""
        recording = self._recordings.get(recording_id)
        if recording is None:
            descriptor = self._catalog.descriptor(recording_id)
            recording = self._open(descriptor, self.checksum_of(descriptor))
        return recording

    def _open(
        self, descriptor: RecordingDescriptor, checksum: Checksum | None, *, is_sparse: bool = False
    ) -> Recording:
        recording = self._recordings[descriptor.recording_id] = Recording(
            self.files,
            self.directory,
            self._catalog,
            descriptor,
            file_sync_level=self._sync_level,
            checksum=checksum,
            is_sparse=is_sparse,
            cached_length=self._cached_length,
        )
        return recording

    def checksum_of(self, descriptor: RecordingDescriptor) -> Checksum | None:
        """What the frames of a recording hold in place of session ids. Raises LogDamaged, StorageError."""
        entry = self._catalog.entry(descriptor.recording_id)
        assert entry is not None
        with closing(Segments(self.files, self.directory, descriptor)) as segments:
            return frame_checksum(segments, self._catalog, entry)

    def create_recording(
        self,
        *,
        stream_id: int,
        session_id: int,
        initial_term_id: int,
        term_length: int,
        mtu: int,
        start_position: int = 0,
        channel: str = "aeron:ipc?alias=log",
        is_sparse: bool = False,
    ) -> Recording:
        """A new recording, active, its first segment made; its id is the catalog's next.

        With ``is_sparse`` its segments take the space that is written and no more: for what is small and
        written once, as a snapshot in terms of 64 MiB.
        """
        descriptor = RecordingDescriptor(
            control_session_id=0,
            correlation_id=0,
            recording_id=-1,
            start_timestamp=self._epoch_ms(),
            stop_timestamp=NULL_TIMESTAMP,
            start_position=start_position,
            stop_position=NULL_POSITION,
            initial_term_id=initial_term_id,
            segment_file_length=max(self._segment_length, term_length),
            term_buffer_length=term_length,
            mtu_length=mtu,
            session_id=session_id,
            stream_id=stream_id,
            stripped_channel=channel,
            original_channel=channel,
            source_identity="aeron:ipc",
        )
        descriptor = self._catalog.add(descriptor, self._checksum)
        descriptor = descriptor.replace(stop_position=start_position)
        recording = self._open(descriptor, self._checksum, is_sparse=is_sparse)
        recording.activate(is_new=True)
        return recording

    def extend(self, recording_id: int, session_id: int) -> Recording:
        """Make a stopped recording active again at its end, written by the publication ``session_id``.

        What lies after the end is cut first: what an earlier life left there must never join on. One
        that this process has written leaves nothing there: a change of leaders need not wait for the look.
        """
        recording = self.recording(recording_id)
        assert not recording.is_active
        with StorageErrors(self.directory, "extending a recording failed", within=True):
            if not recording.is_tail_clean:
                recording.cut_tail()
            recording.begin_proof(session_id)
            recording.descriptor = self._catalog.extend(recording_id, session_id)
        recording.activate(is_new=False)
        return recording

    def stop_recording(self, recording_id: int) -> None:
        """End a recording in order: what was appended is safe, and the catalog says where it ends."""
        self.recording(recording_id).stop(self._epoch_ms())

    def lend_recording(self, recording_id: int) -> LentRecording:
        """Let another process write a new one (``RecordingWriter``), until taken back or purged."""
        recording = self._recordings.pop(recording_id)
        recording.abandon()
        return LentRecording(recording.descriptor, recording.checksum, self._sync_level)

    def take_back_recording(self, recording_id: int, stop_position: int) -> None:
        """End a recording that was lent, and is written and safe up to here. Raises StorageError."""
        self._catalog.stop(recording_id, stop_position, self._epoch_ms())
        with StorageErrors(self.directory, "ending a recording failed", within=True):
            remove_sync_proof(self.files, self.directory, recording_id)

    def purge_recording(self, recording_id: int) -> None:
        """Drop a recording and its files; its entry stays, as DELETED. The next start finishes a crash."""
        recording = self._recordings.pop(recording_id, None)
        if recording is not None:
            recording.abandon()
            recording.close_readers()
        self._catalog.set_state(recording_id, RecordingState.DELETED)
        self._remove_files_of({recording_id})

    def _remove_files_of(self, recording_ids: set[int]) -> None:
        with StorageErrors(self.directory, "removing a recording failed", within=True):
            names = [
                name
                for name in self.files.list_directory(self.directory)
                if _recording_id_of(name) in recording_ids
            ]
            for name in names:
                self.files.unlink(f"{self.directory}/{name}")
            if names:
                self.files.sync_directory(self.directory)

    def create_mark_file(
        self,
        *,
        archive_id: int = -1,
        aeron_directory: str = "",
        control_channel: str = "",
    ) -> ArchiveMarkFile:
        """Write archive-mark.dat for Aeron's tools; ``aeron_directory`` is the folder that holds cnc.dat."""
        return ArchiveMarkFile.create(
            self.directory,
            files=self.files,
            pid=self.files.process_id(),
            now_ms=self._epoch_ms(),
            archive_id=archive_id,
            aeron_directory=aeron_directory,
            control_channel=control_channel,
        )

    def do_work(self) -> int:
        """Prepare what the active recordings will need; for turns with nothing else to do."""
        return sum(recording.do_work() for recording in self._recordings.values() if recording.is_active)

    def close(self) -> None:
        """Stop every active recording in order and give the directory back."""
        try:
            for recording in self._recordings.values():
                recording.stop(self._epoch_ms())
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Give up without stopping anything, as after a failure; the next start recovers."""
        for recording in self._recordings.values():
            recording.abandon()
            recording.close_readers()
        self._recordings.clear()
        self._catalog.close()
        self._lock.release()


def _recording_id_of(name: str) -> int | None:
    """The recording that a file of an archive directory belongs to: a segment, or what lies beside them."""
    if (parsed := parse_segment_file_name(name)) is not None:
        return parsed[0]
    match = re.fullmatch(r"recording-(\d+)\.\w+", name)
    return None if match is None else int(match[1])
