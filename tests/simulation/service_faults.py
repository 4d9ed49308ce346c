"""Faults of services: one is slow, and processes of their own end. Neither may hold up a member for good."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.testing.world import SECOND

if TYPE_CHECKING:
    from tests.simulation.nemesis import Nemesis


class ServiceFaults:
    """The nemesis's faults of services; ``random`` is that of their ends."""

    def __init__(self, nemesis: Nemesis) -> None:
        self._nemesis = nemesis
        self._stalls = nemesis.world.random("stalls of services")
        self.random = nemesis.world.random("processes of services")

    def slow(self) -> str | None:
        """One takes no turns for a while."""
        nemesis, member = self._nemesis, self._nemesis.any_member()
        if member is None:
            return None
        duration_ns = nemesis.duration_ns()
        service_id = self._stalls.randrange(nemesis.history.context.service_count)
        member.services_stalled_until_ns[service_id] = nemesis.world.now_ns + duration_ns
        return f"service {service_id} of member {member.member_id} for {duration_ns / SECOND:.3f} s"

    def end(self) -> str | None:
        """The process of one is killed, now or at one of its next effects, or stopped for a while."""
        nemesis, member = self._nemesis, self._nemesis.any_member()
        if member is None or not member.children:
            return None
        process = self.random.choice([*member.children.values()]).process
        if process is None:
            return None
        how = self.random.choice(["kill", "kill in a turn", "stop"])
        match how:
            case "kill":
                process.kill()
            case "kill in a turn":
                process.die_soon(self.random.randint(1, 60))
            case "stop":
                process.pause()
                nemesis.later(nemesis.duration_ns(), f"{process.name} goes on", process.resume)
        return f"{how}: {process.name}"
