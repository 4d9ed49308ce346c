"""A member that starts, and fetches a standby's snapshot first, which is newer than its own."""

from cluster.member.disk.standby_snapshots import StandbySnapshots
from cluster.member.phase import Next, Phase, PhaseName, Recover
from cluster.member.turn import Turn


class Replicating(Phase):
    """Exists until the snapshot is here, or no standby has one that can be had."""

    name = PhaseName.REPLICATING

    def __init__(self, standby_snapshots: StandbySnapshots, turn: Turn) -> None:
        self._standby_snapshots = standby_snapshots
        self._turn = turn

    def do_work(self) -> Next | None:
        self._turn.work_count += self._standby_snapshots.go_on()
        return None if self._standby_snapshots.is_replicating else Recover()
