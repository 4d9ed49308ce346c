"""A backup's counters, under Aeron's types, and those by which readers bound what they read of its log."""

from cluster.archive.recording import Recording
from cluster.counters import Counter, CountersFile
from cluster.protocol.counter_types import CounterTypeId
from cluster.protocol.enums import ClusterBackupState


class BackupCounters:
    """One attribute a counter. A backup's log is committed, so its end is the commit position."""

    def __init__(self, file: CountersFile, cluster_id: int) -> None:
        types = CounterTypeId

        def allocate(type_id: CounterTypeId, value: int = 0) -> Counter:
            return file.allocate_cluster_counter(type_id, cluster_id, value)

        self.file = file
        self.state = allocate(types.BACKUP_STATE, ClusterBackupState.BACKUP_QUERY)
        self.live_log_position = allocate(types.BACKUP_LIVE_LOG_POSITION, -1)
        self.next_query_deadline_ms = allocate(types.BACKUP_NEXT_QUERY_DEADLINE)
        self.errors = allocate(types.BACKUP_ERRORS)
        self.snapshots_retrieved = allocate(types.BACKUP_SNAPSHOTS_RETRIEVED)
        self.commit_position = allocate(types.COMMIT_POSITION)
        self.members_commit_position = allocate(types.BACKUP_MEMBERS_COMMIT_POSITION)  # when last told
        self._shown: Recording | None = None

    def show(self, recording: Recording) -> None:
        """Give the log's recording its own counter, once."""
        if recording is self._shown:
            return
        if self._shown is not None and self._shown.position_counter is not None:
            self.file.free(self._shown.position_counter)  # type: ignore[arg-type]
        self._shown = recording
        recording.position_counter = self.file.allocate_recording_position(
            recording.recording_id,
            recording.session_id,
            recording.stream_id,
            position=recording.append_position,
        )
