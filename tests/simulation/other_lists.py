"""Members that are started as those of another list, or over the directory of another cluster.

alone, fewer, more      its configured list is wrong: it ends at once, or asks and is never answered by enough
another generation      its directory is that of a restored cluster: it runs, and nobody counts it

One, or several at once, each in its own way. Afterwards they are started right. Meanwhile none may lead,
follow or commit anything.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cluster.archive.identity_file import read_identity, write_identity
from cluster.errors import ClusterError, OtherMembers
from cluster.protocol.identity import ClusterIdentity
from cluster.testing.disk import SimulatedFiles
from cluster.testing.world import SECOND, Process
from tests.simulation.member import Member, Observer
from tests.simulation.violation import require

if TYPE_CHECKING:
    from tests.simulation.nemesis import Nemesis


class TakesNoPart(Observer):
    """Holds who is of another cluster to having no part in this one."""

    def on_turn(self, member: Member) -> None:
        is_part = member.is_leading or member.is_following
        require(not is_part, "I-1", f"{member.name} takes part in a cluster that it is not of")


class OtherLists:
    """The nemesis's fault of this name."""

    def __init__(self, nemesis: Nemesis) -> None:
        self._nemesis = nemesis
        self._history = nemesis.history
        self.random = nemesis.history.world.random("other lists")
        self._strays: dict[int, Member] = {}

    def strike(self) -> str | None:
        """Kill members that have their promises, and start them for seconds as of another cluster."""
        history, random = self._history, self.random
        members = [member for member in history.alive() if member.is_up and member.has_say]
        if self._strays or not members or len(history.context.member_ids) == 1:
            return None
        chosen = random.sample(members, min(random.choice([1, 1, 2, 3]), len(members)))
        return ", ".join(map(self._lead_astray, chosen))

    def _lead_astray(self, member: Member) -> str:
        random, member_id = self.random, member.member_id
        kind = random.choice(["alone", "fewer", "more", "another generation"])
        member.kill()
        duration_ns = random.randrange(SECOND, 8 * SECOND)
        self._nemesis.bring_down(member, duration_ns + SECOND)
        kept = None
        if kind == "another generation":
            kept = self._identity(member)
            if kept is None:
                return f"member {member_id} is killed"
            self._write(member, kept.replace(generation=kept.generation + 1 + member_id))
        self._strays[member_id] = self._start(member, self._list(member_id, kind))
        told = f"member {member_id} is started right again"
        self._nemesis.later(duration_ns, told, lambda: self._end(member_id, kept))
        return f"member {member_id} is {kind}"

    def _list(self, member_id: int, kind: str) -> tuple[int, ...]:
        ids = self._history.context.member_ids
        if kind == "alone":
            return (member_id,)
        if kind == "more":
            return (*ids, ids[-1] + 1, ids[-1] + 2)
        if kind == "fewer":
            return tuple(sorted({member_id, *self.random.sample(ids, max(len(ids) // 2, 1))})[: len(ids) - 1])
        return ids

    def _start(self, member: Member, ids: tuple[int, ...]) -> Member:
        history = self._history
        if member.member_id not in ids:
            ids = (*ids[:-1], member.member_id)
        settings = replace(
            history.settings, context=replace(history.context, member_id=member.member_id, member_ids=ids)
        )
        history.network.revive(member.host)
        stray = Member(
            history.world,
            member.member_id,
            settings,
            history.disks[member.member_id],
            history.network,
            history.clocks[member.member_id],
            self.random,
            history.next_incarnation,
            observer=TakesNoPart(),
        )
        stray.name = f"stray {member.member_id}"
        stray.wake(history.world.now_ns)
        return stray

    def _end(self, member_id: int, kept: ClusterIdentity | None) -> None:
        """``kept`` is given back to its directory."""
        stray = self._strays.pop(member_id)
        is_alone = len(stray.settings.context.member_ids) == 1
        # Alone it asks nobody: whatever its disk has become, it must have ended by itself.
        require(
            not is_alone or isinstance(stray.end, OtherMembers) or not stray.is_up,
            "I-1",
            f"{stray.name} was not refused: {stray.end!r}",
        )
        stray.kill()
        if kept is not None:
            self._write(stray, kept)

    # -- its directory, as an operator sees it

    def _files(self, member: Member) -> tuple[SimulatedFiles, str, str]:
        operator = Process(self._history.world, "10.0.4.3", "operator")
        files = SimulatedFiles(self._history.disks[member.member_id], operator, 1)
        return files, f"{member.directory}/cluster", f"{member.directory}/archive"

    def _identity(self, member: Member) -> ClusterIdentity | None:
        try:
            return read_identity(*self._files(member)).identity
        except ClusterError:
            return None

    def _write(self, member: Member, identity: ClusterIdentity) -> None:
        disk = self._history.disks[member.member_id]
        if f"{member.directory}/cluster" not in disk.folders:
            return  # it was wiped meanwhile
        faults, disk.faults = disk.faults, type(disk.faults)()
        try:
            write_identity(*self._files(member), identity)
        finally:
            disk.faults = faults
