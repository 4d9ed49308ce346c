"""A stopped member is closed for good: the first of two steps by which a cluster gets other members.

    close   a majority of the old ids: each log is recovered and synced, then closed.dat has the last words
    make    with these words, and the best log among them (``make.py``), the directories of the new ids

Whatever the old members committed, one of any majority has it. From the moment that a majority is closed
nothing more can be committed, so what the best log among theirs lacks was never acknowledged.
"""

from collections.abc import Callable
from contextlib import closing

from cluster.archive.archive import Archive
from cluster.archive.closed_file import CLOSED_FILE_NAME, read_last_words, write_last_words
from cluster.archive.directory_lock import DirectoryLock
from cluster.archive.files import Files
from cluster.archive.identity_file import identity_line, read_identity
from cluster.archive.node_state_file import NodeStateFile
from cluster.archive.promises_file import read_promises, write_promises
from cluster.archive.recording_log import RecordingLog
from cluster.backup.restore import MemberFolders
from cluster.consensus.context import NULL_POSITION, NULL_VALUE
from cluster.errors import ConfigurationError, LogDamaged, NotAClusterDirectory
from cluster.member.disk.life_note import LifeNoteFile
from cluster.member.disk.member_files import RepairNote
from cluster.member.disk.term_events import read_term_events
from cluster.protocol.identity import ANY_MEMBER_ID
from cluster.protocol.last_words import LastWords
from cluster.protocol.link import PromiseState, PromiseStatement
from cluster.protocol.link_histories import TermEvents
from cluster.protocol.mark_file import CLUSTER_MARK_FILE_NAME


def close_member(
    folders: MemberFolders, member_id: int, *, boot_id: str, epoch_ms: Callable[[], int]
) -> LastWords:
    """Close a stopped member's directory.

    Raises DirectoryInUse, ConfigurationError (of no known cluster), OtherMembers (of two), StorageError.
    """
    files, cluster = folders.files, folders.cluster
    with DirectoryLock.take(files, cluster, CLUSTER_MARK_FILE_NAME, epoch_ms()):
        try:
            words = read_last_words(files, f"{cluster}/{CLOSED_FILE_NAME}")
        except (NotAClusterDirectory, LogDamaged):
            words = _last_words(folders, member_id, boot_id, epoch_ms)
        write_last_words(files, cluster, words)
        _forget_promises(files, cluster)
    return words


def _forget_promises(files: Files, cluster: str) -> None:
    """Release 0.1 does not know closed.dat: a member of it that is started here has no say."""
    try:
        kept = read_promises(files, cluster)
    except LogDamaged:
        kept = None
    if kept is None or kept.state is not PromiseState.LOST:
        known = kept or PromiseStatement(-1, NULL_VALUE, NULL_VALUE, PromiseState.LOST, False)
        write_promises(files, cluster, known.replace(state=PromiseState.LOST))


def _last_words(
    folders: MemberFolders, member_id: int, boot_id: str, epoch_ms: Callable[[], int]
) -> LastWords:
    files, cluster, archive = folders
    identity = read_identity(files, cluster, archive).identity
    ids = () if identity is None else identity.member_ids
    if identity is None or identity.cluster_id is None or not ids or ids == (ANY_MEMBER_ID,):
        raise ConfigurationError(
            f"{cluster}: does not know the members of its cluster: start it once with them, then stop it"
        )
    # All is synced below, as a life at level 0 has it that ends in order.
    life = LifeNoteFile(files, cluster, boot_id=boot_id, file_sync_level=0)
    candidate_term_id = _candidate_term_id(files, cluster)
    history, log_position, is_log_whole = _log_of(folders, life.committed_position, epoch_ms)
    is_whole = not life.lost and not RepairNote(files, cluster).is_there
    if is_whole:
        life.end(life.committed_position, (cluster, archive))
    return LastWords(
        NULL_VALUE if candidate_term_id is None else candidate_term_id,
        history.recorded_term_id,
        log_position,
        history.recorded_term_base,
        history.begin_position,
        history.committed_position,
        member_id,
        is_whole and candidate_term_id is not None,
        is_whole and is_log_whole,
        (identity,),
        history.events,
    )


def _candidate_term_id(files: Files, cluster: str) -> int | None:
    """The highest term that the member voted or stood for, None where that is not known."""
    try:
        kept = read_promises(files, cluster)
        node_state = NodeStateFile.open(cluster, files=files, write=False)
    except (LogDamaged, NotAClusterDirectory):
        return None
    node_state.close()
    known_from = 0 if kept is None else kept.candidate_term_id
    is_lost = kept is not None and kept.state is PromiseState.LOST
    return None if is_lost or node_state.candidate_term_id < known_from else node_state.candidate_term_id


def _log_of(
    folders: MemberFolders, committed_position: int, epoch_ms: Callable[[], int]
) -> tuple[TermEvents, int, bool]:
    """Terms and end of the log, which is recovered after a crash; and whether all of it is whole."""
    none = TermEvents(0, 0), 0
    try:
        archive = Archive.open(folders.archive, files=folders.files, epoch_ms=epoch_ms)
    except LogDamaged:
        return *none, False
    try:
        found = archive.find_recording
        recording_log = RecordingLog.open(folders.cluster, files=folders.files, find_recording=found)
        with closing(recording_log):
            last = recording_log.find_last_term()
        if last is None:
            return *none, True
        if not archive.has_recording(last.recording_id):
            return *none, False
        recording = archive.recording(last.recording_id)
        if last.log_position != NULL_POSITION and last.log_position < recording.append_position:
            recording.truncate(last.log_position)  # a cut that was interrupted
        end = recording.append_position
        is_whole = archive.find_damage(last.recording_id) is None and end >= last.term_base_log_position
        return read_term_events(archive, recording_log, min(committed_position, end)), end, is_whole
    except LogDamaged:
        return *none, False
    finally:
        archive.close()


def words_line(words: LastWords) -> str:
    """For people."""
    return (
        f"member {words.member_id} of cluster {words.identity.cluster_id}, {identity_line(words.identity)}: "
        f"the log to {words.log_position} of term {words.leadership_term_id}, candidate term "
        f"{words.candidate_term_id}; {why_not_counted(words) or 'promises and log are whole'}"
    )


def why_not_counted(words: LastWords) -> str:
    """Why the words do not count, "" where they do."""
    faults = [
        what
        for is_whole, what in (
            (words.knows_promises, "its promises are not known"),
            (words.is_log_whole, "its log is not whole"),
        )
        if not is_whole
    ]
    return f"{' and '.join(faults)}: it does not count" if faults else ""
