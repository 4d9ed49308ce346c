"""What an operator may do to a recording log while its member does not run.

Source: ClusterToolOperator's sortRecordingLog and seedRecordingLogFromSnapshot; unlike it, the file is
replaced in one step, and sorting leaves invalid entries invalid.
"""

from contextlib import closing

from cluster.archive.files import Files, replace
from cluster.archive.recording_log import RecordingLog
from cluster.errors import StorageErrors
from cluster.protocol.recording_log import CONSENSUS_MODULE_SERVICE_ID, SNAPSHOT, RecordingLogEntry

BACKUP_SUFFIX = ".bak"


def sort_file(recording_log: RecordingLog) -> bool:
    """Put the file's entries into the order of those in memory; False when it is that already."""
    indexes = [entry.entry_index for entry in recording_log.entries]
    if indexes == sorted(indexes):
        return False
    recording_log.rewrite(recording_log.entries)
    return True


def seed_from_latest_snapshot(files: Files, recording_log: RecordingLog) -> bool:
    """Keep only the newest valid snapshot, at position 0, and a copy in ``.bak``; False without one."""
    path = recording_log.path
    _copy(files, path, path + BACKUP_SUFFIX)
    kept = _latest_set(recording_log.entries)
    if kept:
        recording_log.rewrite([entry._replace(term_base_log_position=0, log_position=0) for entry in kept])
        return True
    recording_log.close()
    with StorageErrors(path, "removing failed"):
        files.unlink(path)
        files.sync_directory(path.rpartition("/")[0] or ".")
    return False


def _latest_set(entries: list[RecordingLogEntry]) -> list[RecordingLogEntry]:
    """The consensus module's entry that sorts last, and its services' before it, in order."""
    valid = [entry for entry in entries if entry.is_valid and entry.entry_type is SNAPSHOT]
    modules = [i for i, entry in enumerate(valid) if entry.service_id == CONSENSUS_MODULE_SERVICE_ID]
    if not modules:
        return []
    end = begin = modules[-1]
    while begin > 0 and (
        valid[begin - 1].service_id == end - begin
        and valid[begin - 1].leadership_term_id == valid[end].leadership_term_id
        and valid[begin - 1].log_position == valid[end].log_position
    ):
        begin -= 1
    return valid[begin : end + 1]


def _copy(files: Files, path: str, new_path: str) -> None:
    with StorageErrors(path, "reading failed"), closing(files.open(path)) as source:
        data = source.pread(source.size(), 0)
    replace(files, new_path, data)
