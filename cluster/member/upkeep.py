"""What the slow tick looks after in every phase: signs of life, readers, and clients that nobody serves."""

from cluster.archive.mark_files import MarkFile
from cluster.consensus.session_events import KnownLeader
from cluster.member.counters import ConsumerCounters, SessionCounters
from cluster.member.parts import Parts
from cluster.member.reporter import Reporter
from cluster.member.turn import Turn
from cluster.protocol.shares import FillLevel
from cluster.transport.server import Heard


class Upkeep:
    """A member's mark file, counters of its sessions, absent members, redirects."""

    def __init__(self, parts: Parts, turn: Turn, reporter: Reporter, mark_file: MarkFile | None) -> None:
        context = parts.context
        self._parts = parts
        self._turn = turn
        self._reporter = reporter
        self._mark_file = mark_file
        self._mark_file_interval_ns = context.mark_file_update_interval_ns
        self._next_mark_file_update_ns = 0
        self._session_counters = SessionCounters(parts.counters.file, context.cluster_id)
        self._consumer_counters = ConsumerCounters(parts.counters.file, context.cluster_id)
        bounds = ("max_sessions", "lanes_max", "consumers_max")
        self._fills = {name: FillLevel(name, reporter.event) for name in bounds}

    def show_life(self) -> None:
        """To tools, by mark file and counters; and to people, which members are not there."""
        now_ns, parts = self._turn.now_ns, self._parts
        if now_ns >= self._next_mark_file_update_ns:
            self._next_mark_file_update_ns = now_ns + self._mark_file_interval_ns
            if self._mark_file is not None:
                self._mark_file.update_activity(self._turn.now_ms)
        sessions = parts.replica.sessions
        self._session_counters.update(sessions.sessions)
        self._consumer_counters.update(sessions.consumers)
        counts = (sessions.taken_count, len(sessions.lanes), len(sessions.consumers))
        for (name, fill), count in zip(self._fills.items(), counts, strict=True):
            fill.update(count, getattr(parts.context, name))
        for member_id in parts.liveness.update(now_ns, self._is_there):
            self._reporter.event(f"member {member_id} is not there, and is not waited for")

    def _is_there(self, member_id: int) -> bool:
        """To be waited for in an election."""
        return self._parts.links.is_stable(member_id) and member_id not in self._parts.unrelated

    def look_after_clients(self) -> None:
        """Let readers and administrators in, send the redirects and rejections that are due, and let go of a
        replaced leader's clients.
        """
        parts, turn = self._parts, self._turn
        turn.work_count += parts.clients.greet(parts.ingress, Heard.READERS)
        parts.requests.retry_resumes()
        parts.replica.answers.prune()
        sessions = parts.replica.sessions
        leader = KnownLeader(parts.replica.leadership_term_id, parts.status.leader_member_id)
        if sessions.has_pending_work:
            turn.work_count += sessions.send_redirects(leader, turn.now_ns)
            turn.work_count += sessions.send_rejections(leader, turn.now_ns)
        turn.work_count += parts.backups.send_rejections(leader, turn.now_ns)
        if sessions.clients_kept_until_ns is not None:
            turn.work_count += self._let_go_of_clients(sessions.clients_kept_until_ns)

    def _let_go_of_clients(self, kept_until_ns: int) -> int:
        """Send the clients of a leader that was replaced to the new one, as soon as that is known."""
        parts = self._parts
        leader = parts.present_leader()
        leader_id = leader.member_id
        if leader_id == parts.context.member_id or (leader_id < 0 and self._turn.now_ns < kept_until_ns):
            return 0
        count = parts.replica.sessions.let_go_of_clients(leader)
        why = f"member {leader_id} leads" if leader_id >= 0 else "nobody is known to lead in time"
        self._reporter.event(f"lets go of the clients of {count} sessions: {why}")
        return count
