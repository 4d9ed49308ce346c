"""When the leader asks for a snapshot by itself: ``snapshot_every_bytes``, ``snapshot_every``, ``room.py``.

Measured from the newest snapshot of its own, else from where the log begins; or from when it last asked, so
that a service which takes none is not asked in every tick. While a service is away none is
asked for: clients would wait for it. Aeron leaves all of this to its operator.
"""

from dataclasses import dataclass
from typing import NamedTuple

from cluster.consensus.context import ConsensusModuleContext
from cluster.consensus.replica import ReplicatedState
from cluster.member.control import Toggles
from cluster.member.log.member_log import MemberLog
from cluster.member.log.room import LogRoom
from cluster.member.reporter import Reporter
from cluster.member.services.service_adapter import ServiceAdapter
from cluster.protocol.enums import ClusterControlToggle


class _LogPoint(NamedTuple):
    """A place in the log, and the cluster time when it was its end."""

    position: int
    cluster_time: int


BEGIN = _LogPoint(0, 0)


@dataclass(eq=False)
class SnapshotPolicy:
    """Looked after by an active leader's slow tick."""

    _context: ConsensusModuleContext
    _log: MemberLog
    _replica: ReplicatedState
    _room: LogRoom
    _toggles: Toggles
    _services: ServiceAdapter
    _reporter: Reporter
    _since: _LogPoint = BEGIN

    def do_work(self) -> int:
        """Ask for a snapshot if one is due and nobody asks for anything else; returns how much was done."""
        publication = self._log.publication
        assert publication is not None, "only a leader asks"
        end = _LogPoint(publication.position, self._replica.cluster_time)
        if self._services.first_away is not None or not self._is_due(end):
            return 0
        self._since = max(self._since, self._newest())  # they may have been taken for others
        if not self._is_due(end) or not self._toggles.request(ClusterControlToggle.SNAPSHOT):
            return 0
        before, now = self._since.position, end.position
        self._reporter.event(f"a snapshot is due: the log is at {now}, the last was at {before}")
        self._since = end
        return 1

    def _is_due(self, end: _LogPoint) -> bool:
        """Whether so much was appended since, or so long ago and anything at all."""
        appended, context = end.position - self._since.position, self._context
        time = context.cluster_duration(context.snapshot_every_ns)
        is_long = time > 0 and end.cluster_time - self._since.cluster_time >= time
        wanted = [n for n in (context.snapshot_every_bytes, self._room.snapshot_bytes) if n > 0]
        return any(appended >= n for n in wanted) or (is_long and appended > 0)

    def _newest(self) -> _LogPoint:
        """Of the snapshots; without any the beginning of the log."""
        recording_log = self._log.recording_log
        snapshot = recording_log.latest_snapshot()
        if snapshot is not None:
            return _LogPoint(snapshot.log_position, snapshot.timestamp)
        first = recording_log.entries[0]
        return _LogPoint(first.term_base_log_position, first.timestamp)
