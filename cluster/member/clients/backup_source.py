"""What a backup can copy of this member: its newest snapshot, and the recording of its log."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cluster.archive.recording_log import RecordingLog
from cluster.consensus.context import ConsensusModuleContext
from cluster.counters import Counter
from cluster.member.log.member_log import MemberLog
from cluster.member.status import MemberStatus
from cluster.protocol.backup import (
    BackupQuery,
    BackupResponse,
    BackupSnapshotRecording,
    StandbySnapshot,
    StandbySnapshotRecording,
)
from cluster.protocol.recording_log import RecordingLogEntry


@dataclass(eq=False)
class BackupSource:
    """The ``BackupPort`` of a member (consensus/backup_sessions.py)."""

    _context: ConsensusModuleContext
    _log: MemberLog
    _status: MemberStatus
    _commit_position: Counter
    _on_standby_snapshot: Callable[[Sequence[StandbySnapshotRecording]], str]

    def on_standby_snapshot(self, snapshot: StandbySnapshot) -> str:
        return self._on_standby_snapshot(snapshot.snapshots)

    def backup_response(self, query: BackupQuery) -> BackupResponse | None:
        recording_log = self._log.recording_log
        term = recording_log.find_last_term()
        if term is None:
            return None
        snapshots = snapshot_to_back_up(recording_log, self._context.service_count, query.log_position)
        return BackupResponse(
            correlation_id=query.correlation_id,
            log_recording_id=term.recording_id,
            log_leadership_term_id=term.leadership_term_id,
            log_term_base_log_position=term.term_base_log_position,
            last_leadership_term_id=term.leadership_term_id,
            last_term_base_log_position=term.term_base_log_position,
            commit_position_counter_id=self._commit_position.counter_id,
            leader_member_id=self._status.leader_member_id,
            member_id=self._context.member_id,
            snapshots=tuple(BackupSnapshotRecording(*entry[:6]) for entry in snapshots),
            cluster_members=self._context.member_endpoints,
        )


def snapshot_to_back_up(
    recording_log: RecordingLog, service_count: int, log_position: int | None
) -> Sequence[RecordingLogEntry]:
    """The newest complete snapshot at or before ``log_position`` (None: any), else the oldest; empty without.

    Its entries are in the order in which they stand in a recording log: the module's last (C-331).
    """
    chosen: tuple[RecordingLogEntry, ...] = ()
    for chosen in recording_log.snapshot_sets(service_count):
        if log_position is None or chosen[0].log_position <= log_position:
            break
    return chosen[::-1]
