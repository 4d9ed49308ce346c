"""A backup's counters, under Aeron's types, and those by which readers bound what they read of its log."""

from cluster.archive.recording import Recording
from cluster.consensus.context import ConsensusModuleContext
from cluster.counters import Counter, CountersFile
from cluster.member.log.member_log import show_recording
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
        self.members_commit_position = allocate(types.BACKUP_MEMBERS_COMMIT_POSITION)  # when last reported
        self._shown: Recording | None = None

    def show(self, recording: Recording) -> None:
        """Give the log's recording its own counter, once."""
        if recording is self._shown:
            return
        if self._shown is not None and self._shown.position_counter is not None:
            self.file.free(self._shown.position_counter)  # type: ignore[arg-type]
        self._shown = recording
        show_recording(self.file, recording)


class StandbyCounters:
    """What a standby shows besides; its services have their own."""

    def __init__(self, backup: BackupCounters, cluster_id: int) -> None:
        file, types = backup.file, CounterTypeId
        self.errors = backup.errors
        self.snapshot_count = file.allocate_cluster_counter(types.SNAPSHOT_COUNT, cluster_id)  # it has taken
        self.max_snapshot_duration_ns = file.allocate_cluster_counter(types.MAX_SNAPSHOT_DURATION, cluster_id)
        self.snapshot_duration_exceeded = file.allocate_cluster_counter(
            types.SNAPSHOT_DURATION_EXCEEDED,
            cluster_id,
            threshold_ns=ConsensusModuleContext.total_snapshot_threshold_ns,
        )
        self.leadership_term_id = file.allocate_cluster_counter(types.LEADERSHIP_TERM_ID, cluster_id, -1)
