"""What must hold of a backup (I-23).

after every turn   its log is the committed one, is on its disk, never falls behind what it has shown,
                   and reaches every snapshot that is named
                   services of a standby have the state that the members' have at the same position
when it is killed  it can be restored, and nothing that it has shown is missing
at the end         who is restored or promoted has all that was committed, services the state that they had
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from cluster.backup.promote import promote_backup
from cluster.backup.restore import Founding, MemberFolders, Place, Restored, restore_member
from cluster.errors import ClusterError
from cluster.log.checksum import Checksum, restore_session_ids, verify_checksums
from cluster.protocol.cnc import CNC_FILE_NAME
from cluster.protocol.identity import ClusterIdentity
from cluster.testing.disk import SimulatedFiles
from cluster.testing.world import Clock, Process
from tests.simulation.backups import DIRECTORY, Backup, BackupLife, BackupObserver
from tests.simulation.counters_files import stored_commit_position
from tests.simulation.disk import FaultyDisk
from tests.simulation.disk_log import is_durable, log_bytes
from tests.simulation.invariants import Invariants
from tests.simulation.member import Member, Observer, Settings
from tests.simulation.network import FaultyNetwork
from tests.simulation.violation import Violation, require


class BackupInvariants(BackupObserver):
    """Those of the copy, after every turn of the backup."""

    def __init__(self, of_cluster: Invariants, disks: Mapping[int, FaultyDisk]) -> None:
        self._of_cluster = of_cluster
        self._disks = disks
        self._shown = 0  # the most that any life has shown
        self._bound = 0  # what it was told to be committed
        self._compared: tuple[int, int] = (0, 0)  # the life, and up to where its copy was compared

    def on_bound(self, member_id: int, bound: int) -> None:
        """A member that died within a turn may have stored a commit position that no turn has shown."""
        path = f"/member-{member_id}/driver/{CNC_FILE_NAME}"
        committed = max(self._of_cluster.log.end, stored_commit_position(self._disks[member_id], path))
        told = f"the backup may copy to {bound}, committed is {committed}"
        require(bound <= committed, "I-23", told)
        self._bound = max(self._bound, bound)

    def on_copied(self, backup: Backup, life: BackupLife) -> None:
        position = backup.position
        require(position >= self._shown, "I-23", f"the backup is at {position}, and has shown {self._shown}")
        self._shown = position
        self._compare(backup, life, position)

    def on_applied(self, backup: Backup, service_id: int, position: int, chain: int) -> None:
        """A standby's service has the state of the members', and has read no more than is shown."""
        known = self._of_cluster.chains[service_id].setdefault(position, chain)
        told = f"service {service_id} of the standby has another state at {position} than others had"
        require(known == chain, "I-23", told)
        told = f"service {service_id} of the standby is given {position}, shown is {backup.position}"
        require(position <= backup.position, "I-23", told)

    def on_killed(self, backup: Backup) -> None:
        """What it has shown is there for whoever restores it."""
        if self._shown == 0:
            return
        world = backup.world
        restored = restored_from(backup, FaultyDisk(world, world.random("restored disk")))
        end, snapshot = restored.end_position, restored.snapshot_position or 0
        require(end >= self._shown, "I-23", f"the backup has shown {self._shown}, restored is {end}")
        require(snapshot <= end, "I-23", f"the snapshot at {snapshot} is restored, and the log to {end}")

    def _compare(self, backup: Backup, life: BackupLife, position: int) -> None:
        assert life.directory is not None
        recording, log = life.directory.log.recording, self._of_cluster.log
        if recording is None or life.directory.log.is_replacement:
            return
        snapshot = life.directory.recording_log.latest_snapshot()
        named = 0 if snapshot is None else snapshot.log_position
        safe = life.directory.log.synced_position
        require(named <= safe, "I-23", f"a snapshot at {named} is named, the copy is safe to {safe}")
        require(position <= self._bound, "I-23", f"the backup has {position}, committed was {self._bound}")
        number, begin = self._compared
        begin = max(begin if number == backup.lives else 0, recording.start_position)
        end = min(position, log.end)  # more than a turn of a member has shown is compared later
        if begin < position:
            told = f"the backup shows {position}, which is not on its disk"
            require(is_durable(backup.disk, recording, begin, position), "I-23", told)
        if begin < end:
            self._compare_bytes(begin, log_bytes(backup.disk, recording, begin, end))
        self._compared = backup.lives, max(begin, end)

    def _compare_bytes(self, begin: int, data: bytes) -> None:
        frames = np.frombuffer(data, np.uint8)
        end = begin + len(data)
        require(
            verify_checksums(Checksum.CRC_32C, frames, 0, len(frames)) == len(frames)
            and without_session_ids(data) == without_session_ids(self._of_cluster.log.bytes[begin:end]),
            "I-23",
            f"the backup has other bytes than were committed between {begin} and {end}",
        )


def restored_from(backup: Backup, disk: FaultyDisk) -> Restored:
    """The directory of member 0 on an empty disk, made of a backup that does not run."""
    operator = Process(backup.world, "10.0.4.2", "operator")
    try:
        return restore_member(
            MemberFolders.find(SimulatedFiles(backup.disk, operator, 1), DIRECTORY),
            Place(SimulatedFiles(disk, operator, 1), "/member-0"),
            founding=Founding("restore", ClusterIdentity(0).with_members(None, (0,))),
            to_position=None,
            epoch_ms=lambda: backup.clock.epoch_ms(backup.world.now_ns),
        )
    except ClusterError as error:
        raise Violation("I-23", f"the backup cannot be restored: {error}") from error


def promoted(backup: Backup) -> Restored:
    """The directory of a backup that does not run is a member's from now on."""
    operator = Process(backup.world, "10.0.4.2", "operator")
    try:
        return promote_backup(
            Place(SimulatedFiles(backup.disk, operator, 1), DIRECTORY),
            joins=False,
            epoch_ms=lambda: backup.clock.epoch_ms(backup.world.now_ns),
        )
    except ClusterError as error:
        raise Violation("I-23", f"the backup cannot be promoted: {error}") from error


def without_session_ids(data: bytes | bytearray) -> bytes:
    """Frames without what their recording keeps in the place of the session id."""
    frames = np.frombuffer(bytes(data), np.uint8).copy()
    restore_session_ids(frames, 0, len(frames), 0)
    return frames.tobytes()


class RestoredMember(Observer):
    """A new cluster of one member out of a backup that was killed, in a network of its own."""

    def __init__(self, backup: Backup, settings: Settings, of_cluster: Invariants) -> None:
        world = backup.world
        self._chains = of_cluster.chains
        self._end, self._term_id = of_cluster.log.end, of_cluster.log.leadership_term_id
        self._last_applied = [max(chains, default=0) for chains in of_cluster.chains]
        self._applied: dict[int, int] = {}  # by service: the last entry of the backup that it was given
        backup.end()
        is_promoted = world.random("promotions").random() < 0.5
        disk = backup.disk if is_promoted else FaultyDisk(world, world.random("restored disk"))
        self.restored = promoted(backup) if is_promoted else restored_from(backup, disk)
        context = replace(settings.context, member_ids=(0,))
        self.member = Member(
            world, 0, replace(settings, context=context, checksums=(), services_apart=False), disk,
            FaultyNetwork(world, world.random("restored network")), Clock(), world.random("restored member"),
            lambda: 1_000_000, observer=self,
        )  # fmt: skip
        self.member.directory = DIRECTORY if is_promoted else "/member-0"
        self.member.wake(world.now_ns)

    @property
    def has_begun(self) -> bool:
        """Whether it leads, and its services are behind the last entry of the backup."""
        member = self.member
        return member.is_leading and member.commit_position > self.restored.end_position

    def on_applied(self, member: Member, service_id: int, position: int, chain: int) -> None:
        if position > self.restored.end_position:
            return
        known = self._chains[service_id].get(position)
        require(
            known == chain,
            "I-23",
            f"restored service {service_id} has another state at {position}",
        )
        self._applied[service_id] = position

    def on_ended(self, member: Member, error: BaseException | None) -> None:
        require(False, "I-23", f"a member that was restored ends: {error}")

    def check(self) -> None:
        """It has all that was committed."""
        end = self.restored.end_position
        require(end == self._end, "I-23", f"the restored log ends at {end}, {self._end} was committed")
        term_id = self.restored.leadership_term_id
        require(term_id == self._term_id, "I-23", f"term {term_id} is restored, the last was {self._term_id}")
        for service_id, position in self._applied.items():
            last = self._last_applied[service_id]
            told = f"restored service {service_id} is at {position}, expected {last}"
            require(position == last, "I-23", told)
