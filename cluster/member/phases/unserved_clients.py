"""A leader that cannot serve its clients hands over to a member that can: they wait meanwhile.

A service in a process of its own may be away while its member leads and commits with its disk alone; only its
answers, timers and messages stop. A leader whose log has no room takes no input. Where no member could serve
clients better, nothing happens.
"""

from dataclasses import dataclass

from cluster.consensus.context import ConsensusModuleContext
from cluster.member.control import Toggles, transfer_toggle
from cluster.member.log.room import LogRoom
from cluster.member.phases.leadership_transfer import LeadershipTransfer
from cluster.member.reporter import Reporter
from cluster.member.services.service_adapter import ServiceAdapter


@dataclass(eq=False)
class UnservedClients:
    """Looked after by the slow tick of an active leader; one for each term that it leads."""

    _context: ConsensusModuleContext
    _services: ServiceAdapter
    _room: LogRoom
    _transfer: LeadershipTransfer
    _toggles: Toggles
    _reporter: Reporter
    _since_ns: int | None = None  # unserved, or asked for a hand-over that came to nothing

    def do_work(self, commit_position: int, now_ns: int) -> None:
        """Ask for a hand-over, as an operator does, once they were unserved for the heartbeat timeout."""
        service_id = self._services.first_away
        if service_id is None and not self._room.is_full:
            self._since_ns = None
        elif self._since_ns is None:
            self._since_ns = now_ns
        elif now_ns - self._since_ns >= self._context.leader_heartbeat_timeout_ns:
            self._hand_over(service_id, commit_position, now_ns)

    def _hand_over(self, service_id: int | None, commit_position: int, now_ns: int) -> None:
        level = [
            member
            for member in self._transfer.following(now_ns)
            if member.serves_clients and member.report_position >= commit_position
        ]
        best = max(level, key=lambda member: member.report_position, default=None)
        if best is not None and self._toggles.request(transfer_toggle(best.id)):
            self._since_ns = now_ns
            self._reporter.event(
                f"the log has no room here, and has some at member {best.id}"
                if service_id is None
                else f"service {service_id} is away, and those of member {best.id} are there"
            )
