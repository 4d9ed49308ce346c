"""The clocks of the members, and the cluster time that a leader stamps by them."""

from cluster.consensus.cluster_time import ClusterTime, HeardClocks, Jumps, ReportedOffsets, clock_offset_ns
from cluster.consensus.context import SECOND, ConsensusModuleContext
from cluster.consensus.replica import ReplicatedState
from cluster.member.counters import MemberCounters
from cluster.member.ports import Peers
from cluster.member.reporter import Reporter
from cluster.member.turn import Turn
from cluster.protocol.link import ClockReply, ClockRequest
from cluster.transport.message_frames import link_frame


class MemberClocks:
    """``begin`` when this member is about to lead, then ``advance`` in each turn, which stamps ``time``."""

    def __init__(
        self,
        context: ConsensusModuleContext,
        replica: ReplicatedState,
        peers: Peers,
        turn: Turn,
        counters: MemberCounters,
        reporter: Reporter,
    ) -> None:
        self._peers = peers
        self._interval_ns = context.leader_heartbeat_interval_ns
        self._ask_at_ns = 0
        self._asked_ns: dict[int, int] = {}  # the last time, by member
        self._replica = replica
        self._turn = turn
        self._reporter = reporter
        self._skew_max_ns = context.clock_skew_max_ns
        self._unit_ns = context.time_unit.nanoseconds
        self._heard = HeardClocks()
        self._quorum = context.quorum_threshold if context.hears_clocks else 1
        self.time = ClusterTime(self._quorum, context.clock_skew_max_ns)
        self._offset_ns, self._time_offset_ns = counters.clock_offset_ns, counters.time_offset_ns
        self._reported_offsets = ReportedOffsets()
        self._jumps = Jumps()
        self._is_lag_reported = False

    @property
    def own(self) -> int:
        """This member's wall clock in the unit of the log."""
        return self._turn.clock_ns // self._unit_ns

    # ---- the others'

    def ask(self) -> None:
        """Ask all others, each heartbeat interval."""
        now_ns = self._turn.now_ns
        if now_ns >= self._ask_at_ns:
            self._ask_at_ns = now_ns + self._interval_ns
            for member_id in self._peers.ids:
                self.on_link_up(member_id)
            others = self._heard.best(now_ns).values()
            self._offset_ns.set(clock_offset_ns(self._own_ahead_ns, others, self._quorum) or 0)
            self._time_offset_ns.set(self.time.time_ns - self._turn.clock_ns)

    def on_link_up(self, member_id: int) -> None:
        """Ask it at once: an election may follow."""
        now_ns = self._asked_ns[member_id] = self._turn.now_ns
        self._peers.links.send(member_id, link_frame(ClockRequest(now_ns)))

    def on_request(self, member_id: int, request: ClockRequest, *beside: bytes) -> None:
        """Another member asks: it has these frames with the answer, and takes no turn between them."""
        answer = link_frame(ClockReply(request.asked_ns, self._turn.clock_ns))
        self._peers.links.send(member_id, answer, *beside)

    def on_reply(self, member_id: int, reply: ClockReply) -> None:
        """Take the answer to the last question; an older one took over an interval, and proves little."""
        if reply.asked_ns == self._asked_ns.get(member_id):
            self._heard.hear(member_id, reply.asked_ns, self._turn.now_ns, reply.clock_ns)
            self._report_offset(member_id)

    def _report_offset(self, member_id: int) -> None:
        offset_ns = self._heard.best(self._turn.now_ns)[member_id].offset_ns(self._own_ahead_ns)
        if self._reported_offsets.is_news(member_id, offset_ns):
            far, how = abs(offset_ns) / SECOND, "more" if offset_ns > 0 else "less"
            self._reporter.warning(
                f"the clock of member {member_id} shows {far:.3f} s {how} than this member's"
            )

    @property
    def _own_ahead_ns(self) -> int:
        return self._turn.clock_ns - self._turn.now_ns

    def forget(self, member_id: int | None = None) -> None:
        """A link is down; None: this member did not run for a while."""
        self._heard.forget(member_id)
        if member_id is None:
            self._asked_ns.clear()

    # ---- cluster time

    def begin(self) -> None:
        """The log is processed, and its next entry is this member's."""
        last = self._replica.cluster_time
        self.look()
        self.time.begin(last * self._unit_ns if last else None, *self._clocks())
        self._is_lag_reported = False
        self._stamp()
        self.look()
        self._report_lag()

    def advance(self) -> None:
        """A turn of the leader begins."""
        gained_ns = self.time.advance(*self._clocks())
        self._stamp()
        if gained_ns > self._skew_max_ns:
            self._reporter.event(f"cluster time jumps forward by {gained_ns / SECOND:.3f} s")
        self._report_lag()

    def look(self) -> None:
        """Whether cluster time has jumped, by whoever leads: what is forgotten by time is kept for longer."""
        if not self._replica.cluster_time:
            return  # a new log
        self._jumps.see(self._replica.cluster_time * self._unit_ns, self._turn.now_ns)
        if self._jumps.jumped_ns > self._skew_max_ns:
            self._replica.sessions.keep_longer(self._jumps.jumped_ns // self._unit_ns)

    def _clocks(self) -> tuple[int, int, list[int]]:
        now_ns = self._turn.now_ns
        others = [now_ns + reading.ahead_ns for reading in self._heard.best(now_ns).values()]
        return now_ns, self._turn.clock_ns, others

    def _stamp(self) -> None:
        self._replica.advance_time(self.time.time_ns // self._unit_ns)

    def _report_lag(self) -> None:
        ahead_ns = self.time.ahead_ns
        if not self._is_lag_reported and ahead_ns > self._skew_max_ns:
            self._is_lag_reported = True
            self._reporter.warning(
                f"cluster time is {ahead_ns / SECOND:.3f} s ahead of the members' clocks: it goes on at nine "
                "tenths of the speed until they have met it"
            )
        elif self._is_lag_reported and not ahead_ns:
            self._is_lag_reported = False
            self._reporter.event("cluster time is that of the members' clocks again")
