"""Standbys whose snapshots members take: announced over the network, fetched from the standby's disk.

In most seeds the members accept such snapshots, and a standby announces its own. The nemesis asks
for snapshots of standbys alone, and has members fetch them; starts fetch them by themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING

from cluster.errors import ClusterError
from cluster.protocol.enums import ClusterControlToggle, NodeControlToggle
from cluster.testing.disk import SimulatedFiles
from cluster.testing.member import CLUSTER_ID
from cluster.testing.world import MS, SECOND
from cluster.transport.log_client import RecordingAnswer, Unreachable
from tests.backup.served_log import ServedLog
from tests.simulation.backups import DIRECTORY, HOST, PROCESS_ID, Backup

if TYPE_CHECKING:
    from tests.simulation.member import Member
    from tests.simulation.nemesis import Nemesis

BLOCK_BYTES = 4_096


class FetchedFromStandby:
    """``FetchedRecordings`` of a member: out of the files of a standby that runs and can be reached."""

    def __init__(self, backup: Backup, member: Member, recording_ids: Sequence[int]) -> None:
        if backup.life is None:
            raise Unreachable("the standby does not run")
        self._backup = backup
        self._life = backup.life
        self._member = member
        host = SimpleNamespace(disk=backup.disk, world=backup.world, clock=backup.clock)
        files = SimulatedFiles(backup.disk, backup.life, PROCESS_ID)
        log = ServedLog(host, DIRECTORY, files, CLUSTER_ID)  # type: ignore[arg-type]
        self._answers = (answer for i in recording_ids for answer in log.read_recording(i, BLOCK_BYTES))

    def poll(self) -> RecordingAnswer | None:
        network = self._backup.network
        paths = network.path(HOST, self._member.host), network.path(self._member.host, HOST)
        if self._backup.life is not self._life or any(path.is_blocked for path in paths):
            raise Unreachable("the standby does not answer")
        return next(self._answers, None)

    def close(self) -> None:
        pass


class StandbyOrders:
    """What the nemesis, as an operator, asks for where a standby announces its snapshots."""

    def __init__(self, nemesis: Nemesis) -> None:
        self._nemesis = nemesis
        self.random = nemesis.history.world.random("standby orders")

    def is_next(self) -> bool:
        """Whether the next snapshot is to be the standby's alone."""
        return self.random.random() < 0.7

    def take_snapshot(self) -> str | None:
        """The leader writes into the log that standbys are to take one; often a member fetches it soon."""
        leader = self._nemesis.toggle(ClusterControlToggle.STANDBY_SNAPSHOT)
        if leader is None:
            return None
        if self.random.random() < 0.7:
            delay_ns = self.random.randrange(100 * MS, 3 * SECOND)
            self._nemesis.later(delay_ns, "a standby's snapshot is to be fetched", self._replicate_soon)
        return f"asked of {leader.name}"

    def _replicate_soon(self) -> None:
        self.replicate()

    def replicate(self) -> str | None:
        """A member is to fetch the newest."""
        members = [m for m in self._nemesis.history.members.values() if m.is_leading or m.is_following]
        if not members:
            return None
        member = self.random.choice(members)
        member.counters.node_control_toggle.set(NodeControlToggle.REPLICATE_STANDBY_SNAPSHOT)
        return f"asked of {member.name}"


def fetch(
    backup: Backup | None, member: Member, endpoint: str, recording_ids: Sequence[int]
) -> FetchedFromStandby:
    """Raises ClusterError where nobody is at the endpoint."""
    if backup is None:
        raise ClusterError(f"{endpoint}: nobody is there")
    return FetchedFromStandby(backup, member, recording_ids)
