"""How much of its log a member keeps: what a snapshot stands for goes, unless somebody still needs it.

    start             export watermark      n-th last snapshot           end
      |--- dropped, whole segments ---|- kept -|--------- kept -----------|

A member drops only what its own snapshots stand for, in whole segments, and never what it sends to another
member, what a reader of its own is at, or what nobody has exported yet (S-186). Snapshots older than the log
go with it. Aeron leaves all of this to its operator.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from cluster.consensus.context import SECOND
from cluster.protocol.recording_log import CONSENSUS_MODULE_SERVICE_ID, SNAPSHOT

if TYPE_CHECKING:
    from cluster.member.agent import ConsensusModuleAgent

INTERVAL_NS = 1 * SECOND
FETCH_GRACE_NS = 10 * SECOND  # after a request for a snapshot and its log: more may be asked for

# The least position that somebody outside still needs; None when nobody needs any.
NeededPosition = Callable[[], int | None]


class Retention:
    """Looked after by the slow tick of an established member."""

    def __init__(self, agent: "ConsensusModuleAgent", needed_positions: tuple[NeededPosition, ...]) -> None:
        self._agent = agent
        self._needed_positions = needed_positions
        self._next_ns = 0

    def do_work(self) -> int:
        """Drop what is not needed any more, at most once a second. Raises StorageError."""
        agent = self._agent
        if agent.context.log_retained_snapshots == 0 or agent.now_ns < self._next_ns:
            return 0
        self._next_ns = agent.now_ns + INTERVAL_NS
        recording = agent.log.recording
        limit = self._limit()
        if recording is None or limit is None:
            return 0
        before = recording.start_position
        if limit > before and recording.purge_to(limit) > before:
            agent.tell(f"the log begins at {recording.start_position} now, {before} before")
        return self._drop_snapshots()

    def _limit(self) -> int | None:
        """Nothing before this position is needed; None when that cannot be said."""
        agent = self._agent
        last_request_ns = agent.replications.server.last_request_ns
        if last_request_ns is not None and agent.now_ns - last_request_ns < FETCH_GRACE_NS:
            return None
        sets = list(agent.log.recording_log.snapshot_sets(agent.context.service_count))
        count = agent.context.log_retained_snapshots
        if len(sets) < count:
            return None
        positions = [sets[count - 1][0].log_position, agent.log.adapter.position]
        positions += [position for needed in self._needed_positions if (position := needed()) is not None]
        if (position := agent.streams.least_position) is not None:
            positions.append(position)
        return min(positions)

    def _drop_snapshots(self) -> int:
        """Remove the snapshots that are older than those to be kept; the module's entry goes first."""
        agent = self._agent
        sets = list(agent.log.recording_log.snapshot_sets(agent.context.service_count))
        oldest = sets[agent.context.log_retained_snapshots - 1][0].log_position
        old = [
            entry
            for entry in agent.log.recording_log.entries
            if entry.entry_type is SNAPSHOT and entry.log_position < oldest
        ]
        old.sort(key=lambda entry: (entry.log_position, entry.service_id != CONSENSUS_MODULE_SERVICE_ID))
        for entry in old:
            agent.log.recording_log.remove(entry)
        for entry in old:
            if agent.archive.has_recording(entry.recording_id):
                agent.archive.purge_recording(entry.recording_id)
        return len(old)
