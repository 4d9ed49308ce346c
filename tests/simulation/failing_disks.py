"""Disks that are slow, full, or refuse a write or a sync."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.testing.world import MS, SECOND
from tests.simulation.disk import DiskFaults

if TYPE_CHECKING:
    from tests.simulation.nemesis import Nemesis


class FailingDisks:
    """The nemesis's faults of disks that lose nothing of what is at rest."""

    def __init__(self, nemesis: Nemesis) -> None:
        self._nemesis = nemesis
        self._random = nemesis.random
        self._disks = nemesis.history.disks
        self.shortages = nemesis.history.world.random("shortages")

    def _choose(self) -> tuple[int, DiskFaults]:
        member_id = self._random.choice(list(self._disks))
        return member_id, self._disks[member_id].faults

    def slow(self) -> str:
        member_id, faults = self._choose()
        faults.slowness = self._random.choice([10, 100, 1_000])

        def undo() -> None:
            faults.slowness = 1

        duration_ns = self._nemesis.duration_ns()
        self._nemesis.later(duration_ns, f"the disk of member {member_id} is fast again", undo)
        return f"member {member_id}, {faults.slowness} times"

    def full(self) -> str:
        member_id, faults = self._choose()
        told = f"the disk of member {member_id} has space again"
        self._fill([faults], self._nemesis.duration_ns(), told)
        return f"member {member_id}"

    def all_full(self) -> str:
        """Nobody has space: nothing that was committed is lost, and all go on afterwards."""
        duration_ns = self.shortages.randrange(200 * MS, 8 * SECOND)
        self._fill([disk.faults for disk in self._disks.values()], duration_ns, "all disks have space again")
        return f"all members, for {duration_ns / SECOND:.3f} s"

    def _fill(self, disks: list[DiskFaults], duration_ns: int, told: str) -> None:
        for faults in disks:
            faults.is_full = True

        def undo() -> None:
            for faults in disks:
                faults.is_full = False

        self._nemesis.later(duration_ns, told, undo)

    def failed_sync(self) -> str:
        member_id, faults = self._choose()
        faults.sync_failures = self._random.choice([1, 1, 3])
        faults.spares_pushes = self._nemesis.damage.random.random() < 0.5
        return f"member {member_id}"

    def failed_writes(self) -> str:
        member_id, faults = self._choose()
        faults.writes_fail = True

        def undo() -> None:
            faults.writes_fail = False

        told = f"the disk of member {member_id} takes writes again"
        self._nemesis.later(self._random.randrange(SECOND), told, undo)
        return f"member {member_id}"
