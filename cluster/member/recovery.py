"""What a start finds on the disk, and what it makes of it (§7.6; Aeron: RecordingLog.RecoveryPlan).

    recording.log       terms and snapshots: which term wrote what, where to begin
    the log's recording bytes, whose end the archive has found (or recovered)
    node-state.dat      the term that this member has voted in

No term that it has voted in: a member that has never been, or one whose disk was wiped; it asks the others
(rule 1.5). Log bytes do not change that: they are what it had fetched again when it crashed.
"""

from dataclasses import dataclass

from cluster.archive.archive import Archive
from cluster.archive.node_state import NodeStateFile
from cluster.archive.recording import Recording
from cluster.archive.recording_log import RecordingLog
from cluster.consensus.context import NULL_POSITION, NULL_VALUE
from cluster.consensus.leadership_terms import LeadershipTerm, LeadershipTerms
from cluster.errors import ClusterError, DataLoss
from cluster.protocol.recording_log import TERM


@dataclass(frozen=True, slots=True)
class Recovered:
    """Where a member stands when it starts."""

    recording: Recording | None
    log_position: int  # that the loaded state is of: the snapshot's position, else the log's start
    append_position: int
    is_wiped: bool
    cut_bytes: int  # of an interrupted truncation, finished now


def leadership_terms(recording_log: RecordingLog) -> LeadershipTerms:
    """The valid term entries, ascending."""
    return LeadershipTerms(
        LeadershipTerm(entry.leadership_term_id, entry.term_base_log_position, entry.log_position)
        for entry in recording_log.entries
        if entry.is_valid and entry.entry_type is TERM
    )


def recover(
    archive: Archive, recording_log: RecordingLog, node_state: NodeStateFile, service_count: int
) -> Recovered:
    """Bring files and entries in line, and tell where to begin.

    Raises LogDamaged when the entries and the archive do not fit together.
    """
    plan = recording_log.recovery_plan(
        service_count,
        lambda recording_id: (
            archive.recording(recording_id).descriptor if archive.has_recording(recording_id) else None
        ),
    )
    if plan.snapshots:
        raise ClusterError(
            f"a snapshot is at position {plan.snapshots[0].log_position}: this member cannot load one yet"
        )
    is_wiped = node_state.candidate_term_id == NULL_VALUE
    if plan.log is None:
        return Recovered(None, 0, 0, is_wiped, 0)

    recording = archive.recording(plan.log.recording_id)
    append_position = recording.append_position
    cut_bytes = 0
    end = plan.log.log_position
    if end != NULL_POSITION and end < append_position:
        # A term is closed before what follows it is cut off: the cut was interrupted.
        recording.truncate(end)
        cut_bytes, append_position = append_position - end, end
    if append_position < plan.log.term_base_log_position:
        raise DataLoss(
            f"{recording_log.path}: term {plan.log.leadership_term_id} begins at "
            f"{plan.log.term_base_log_position}, but the recording ends at {append_position}"
        )
    return Recovered(recording, recording.start_position, append_position, is_wiped, cut_bytes)
