"""The files of a member: opened together, and out of the way together where one of them is damaged.

    archive/        catalog and segments
    cluster/        recording.log, node-state.dat, life.dat; repair-needed while the member is not whole

A damaged file that is needed to read the others is set aside with them: the log is fetched again.
A member whose log is cut, or that has forgotten its votes, notes that first (``RepairNote``), and reads it at
each start.
"""

import re
import zlib
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import NamedTuple

from cluster.archive.archive import Archive
from cluster.archive.closed_file import check_is_not_closed
from cluster.archive.files import Files, replace
from cluster.archive.node_state_file import NodeStateFile
from cluster.archive.recording_damage import SET_ASIDE_FOLDER, drop_set_aside, set_aside
from cluster.archive.recording_log import RecordingLog
from cluster.consensus.cluster_member import LogEnd
from cluster.errors import LogDamaged, StorageError, StorageErrors
from cluster.member.disk.life_note import LifeNoteFile
from cluster.protocol import streams
from cluster.protocol.catalog import CATALOG_FILE_NAME
from cluster.protocol.node_state import NODE_STATE_FILE_NAME
from cluster.protocol.recording_log import RECORDING_LOG_FILE_NAME

NOTE_FILE_NAME = "repair-needed"
_STORED = re.compile(r"\nheld: position (\d+) of term (\d+), CRC-32 ([0-9a-f]{8})$")


def _stored_line(kept: LogEnd) -> str:
    fact = f"held: position {kept.log_position} of term {kept.leadership_term_id}"
    return f"{fact}, CRC-32 {zlib.crc32(fact.encode()):08x}"


class RepairNote:
    """The note in a cluster directory that this member is not whole, and why; survives restarts."""

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory
        self._path = f"{directory}/{NOTE_FILE_NAME}"

    @property
    def is_there(self) -> bool:
        return self._files.exists(self._path)

    def read(self) -> tuple[str, LogEnd | None]:
        """What is missing and why, for people; and where the log ended before, or beyond, if known."""
        try:
            with closing(self._files.open(self._path)) as file:
                text = file.pread(file.size(), 0).decode("utf-8", "replace").strip()
        except OSError as error:
            return f"the note cannot be read: {error.strerror}", None
        match = _STORED.search(text)
        if match is None:
            return text, None
        kept = LogEnd(int(match[2]), int(match[1]))
        return text[: match.start()], kept if text.endswith(_stored_line(kept)) else None

    def write(self, text: str, kept: LogEnd | None) -> None:
        """Note it, durable on return; the best end that is known stays. Raises StorageError."""
        if self.is_there:
            earlier, stored_earlier = self.read()
            text = f"{earlier}; {text}"
            kept = None if kept is None or stored_earlier is None else max(kept, stored_earlier)
        if kept is not None:
            text = f"{text}\n{_stored_line(kept)}"
        replace(self._files, self._path, f"{text}\n".encode())

    def drop_set_aside(self) -> None:
        """Remove what was set aside of the cluster directory. Raises StorageError."""
        with StorageErrors(self._directory, "removing what was set aside failed"):
            drop_set_aside(self._files, self._directory)

    def remove(self) -> None:
        """The member is whole. Raises StorageError."""
        with StorageErrors(self._path, "removing the note failed"):
            self._files.unlink(self._path)
            self._files.sync_directory(self._directory)


class MemberFiles(NamedTuple):
    """What a member keeps on its disk, open."""

    archive: Archive
    recording_log: RecordingLog
    node_state: NodeStateFile
    life: LifeNoteFile


def open_files(
    files: Files,
    archive_directory: str,
    cluster_directory: str,
    *,
    file_sync_level: int,
    segment_length: int,
    checksum: str | None,
    cached_length: int,
    is_after_failure: bool,
    is_alone: bool,
    boot_id: str,
    epoch_ms: Callable[[], int],
    say: Callable[[str], None],
) -> MemberFiles:
    """Open them, damaged ones set aside unless it is alone. Raises LogDamaged, OtherMembers."""
    check_is_not_closed(files, cluster_directory)
    life = LifeNoteFile(files, cluster_directory, boot_id=boot_id, file_sync_level=file_sync_level)
    if life.lost:
        say(f"{life.lost}: what it had acknowledged may be gone")
        if not is_alone:
            RepairNote(files, cluster_directory).write(
                f"{life.lost}: its votes, and what it had acknowledged, may be gone", None
            )

    def open_all(*, is_checked: bool = True) -> MemberFiles:
        with ExitStack() as opened:
            archive = Archive.open(
                archive_directory,
                files=files,
                file_sync_level=file_sync_level,
                segment_length=segment_length,
                checksum=checksum,
                cached_length=cached_length,
                is_after_failure=is_after_failure,
                may_be_damaged=not is_alone,
                has_all_pages=life.has_all_pages,
                epoch_ms=epoch_ms,
            )
            opened.callback(archive.abandon)
            recording_log = RecordingLog.open(
                cluster_directory,
                files=files,
                file_sync_level=file_sync_level,
                find_recording=archive.find_recording,
            )
            opened.callback(recording_log.close)
            node_state = NodeStateFile.open(cluster_directory, files=files, file_sync_level=file_sync_level)
            opened.callback(node_state.close)
            found = MemberFiles(archive, recording_log, node_state, life)
            if is_checked:
                _check_log_is_known(found)
            life.begin()  # not before recordings have their ends: till then it counts how the last life ended
            opened.pop_all()
            return found

    for _ in range(2):
        try:
            found = open_all()
            for flip in found.archive.put_back:
                say(str(flip))
            for entry in found.recording_log.changed_by_others:
                say(f"{found.recording_log.path} at offset {entry.offset}: changed by another program")
            return found
        except LogDamaged as damage:
            if is_alone:
                raise
            set_files_aside(files, archive_directory, cluster_directory, damage, say)
    return open_all(is_checked=False)


def _check_log_is_known(files: MemberFiles) -> None:
    """Raise LogDamaged when recording.log and archive, INVALID ones included, differ in the log."""
    archive, recording_log = files.archive, files.recording_log
    term = recording_log.find_last_term()
    if term is not None:
        if not archive.revive(term.recording_id):
            what = f"the archive has no recording {term.recording_id}"
            raise LogDamaged(recording_log.path, max(term.offset, 0), what)
        archive.check_start(term.recording_id)
    elif not any(entry.is_valid for entry in recording_log.entries):
        for descriptor in archive.recordings():
            if descriptor.stream_id == streams.LOG and descriptor.stop_position > descriptor.start_position:
                what = f"it has no entries, but the archive has a log to position {descriptor.stop_position}"
                raise LogDamaged(recording_log.path, 0, what)


def set_files_aside(
    files: Files,
    archive_directory: str,
    cluster_directory: str,
    damage: LogDamaged,
    say: Callable[[str], None],
) -> None:
    """Put the damaged file out of the way, and what nobody can read without it."""
    is_vote = (damage.path or "").endswith(NODE_STATE_FILE_NAME)
    what = "its votes are forgotten" if is_vote else "all of the log is to be fetched again"
    say(f"{damage}: set aside, {what}")
    RepairNote(files, cluster_directory).write(f"{damage}: {what}", None)
    folder = f"{cluster_directory}/{SET_ASIDE_FOLDER}"
    try:
        files.make_directory(folder)
        if is_vote:
            set_aside(files, f"{cluster_directory}/{NODE_STATE_FILE_NAME}", folder)
        elif files.exists(f"{cluster_directory}/{RECORDING_LOG_FILE_NAME}"):
            set_aside(files, f"{cluster_directory}/{RECORDING_LOG_FILE_NAME}", folder)
        files.sync_directory(folder)
        files.sync_directory(cluster_directory)
        if is_vote:
            return
        folder = f"{archive_directory}/{SET_ASIDE_FOLDER}"
        files.make_directory(folder)
        for name in files.list_directory(archive_directory):
            if name == CATALOG_FILE_NAME or name.endswith(".rec") or name.startswith("recording-"):
                set_aside(files, f"{archive_directory}/{name}", folder)
        files.sync_directory(folder)
        files.sync_directory(archive_directory)
    except OSError as error:
        raise StorageError(
            error.filename or folder, error.errno, "setting damaged files aside failed"
        ) from error
