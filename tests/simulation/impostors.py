"""Processes that have no place in the cluster: a second one of a member, its double elsewhere, a stranger.

Each is configured as the member is, and dials the others. The second process of a directory is refused by the
lock of its mark file; of the other two nobody believes the Hello. None may lead, follow or commit anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.errors import DirectoryInUse
from cluster.testing.member import CLUSTER_ID, host_of
from cluster.testing.world import SECOND
from tests.simulation.disk import FaultyDisk
from tests.simulation.member import Member, Observer
from tests.simulation.violation import require

if TYPE_CHECKING:
    from tests.simulation.nemesis import Nemesis

HOST = "10.0.2.1"


class _Watch(Observer):
    """Holds an impostor to having no part in anything."""

    def on_turn(self, member: Member) -> None:
        is_part = member.is_leading or member.is_following or member.commit_position > 0
        require(not is_part, "I-1", f"the impostor of {member.name} takes part in the cluster")


class Impostors:
    """The nemesis's fault of this name, one at a time."""

    def __init__(self, nemesis: Nemesis) -> None:
        self._nemesis = nemesis
        self._history = nemesis.history
        self.random = nemesis.history.world.random("impostors")
        self._impostor: Member | None = None

    def strike(self) -> str | None:
        """Start one, which ends by itself or some seconds later."""
        history, random = self._history, self.random
        members = [member for member in history.members.values() if member.is_alive and member.is_up]
        if self._impostor is not None or not members:
            return None
        member_id = random.choice(members).member_id
        kind = random.choice(["second process", "double", "member of another cluster"])
        if kind == "second process":
            impostor = self._start(member_id, history.disks[member_id], host_of(member_id), CLUSTER_ID)
        elif len(history.context.member_ids) == 1:
            return None  # alone, it is another cluster that nobody knows
        else:
            disk = FaultyDisk(history.world, random)
            cluster_id = CLUSTER_ID if kind == "double" else CLUSTER_ID + 1
            impostor = self._start(member_id, disk, HOST, cluster_id)
        self._impostor = impostor
        duration_ns = random.randrange(SECOND, 8 * SECOND)
        self._nemesis.later(duration_ns, f"the {kind} of member {member_id} is gone", self._end)
        return f"{kind} of member {member_id}"

    def _start(self, member_id: int, disk: FaultyDisk, host: str, cluster_id: int) -> Member:
        history = self._history
        impostor = Member(
            history.world,
            member_id,
            history.settings,
            disk,
            history.network,
            history.clocks[member_id],
            self.random,
            history.next_incarnation,
            observer=_Watch(),
            host=host,
            cluster_id=cluster_id,
        )
        impostor.name = f"impostor {member_id}"
        impostor.wake(history.world.now_ns)
        return impostor

    def _end(self) -> None:
        impostor, self._impostor = self._impostor, None
        assert impostor is not None
        if impostor.host != HOST:
            require(
                isinstance(impostor.end, DirectoryInUse),
                "I-17",
                f"a second process of {self._history.members[impostor.member_id].name} was not refused: "
                f"{impostor.end!r}",
            )
        impostor.kill()
