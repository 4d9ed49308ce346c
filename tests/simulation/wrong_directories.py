"""A member that is started over a directory that is not its own of before, and nobody has noticed it.

an older copy     of its own, put back; all that it promised since is held by all others
another's         a copy of another member's, mounted in the place of its own: it ends at once, its own stays
led alone         its own, after a copy on another host has led alone: its log is of another history, and an
                  operator moves it away in the end
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from cluster.archive.identity_file import read_identity, write_identity
from cluster.errors import ClusterError
from cluster.protocol.identity import ANY_MEMBER_ID, ClusterIdentity
from cluster.testing.disk import Disk, SimulatedFiles
from cluster.testing.world import FOREVER_NS, MS, SECOND, Process
from tests.simulation.disk import FaultyDisk
from tests.simulation.member import Member, Observer
from tests.simulation.other_lists import TakesNoPart
from tests.simulation.violation import require

if TYPE_CHECKING:
    from tests.simulation.nemesis import Nemesis

POLL_NS = 20 * MS
PATIENCE_NS = 20 * SECOND


class Contents(NamedTuple):
    """Of a whole disk."""

    folders: frozenset[str]
    files: dict[str, bytes]

    def moved(self, begin: str, to: str) -> Contents:
        """As of a directory of another name."""
        files = {path.replace(begin, to, 1): data for path, data in self.files.items()}
        return Contents(frozenset(folder.replace(begin, to, 1) for folder in self.folders), files)


class WrongDirectories:
    """The nemesis's fault of this name, one at a time."""

    def __init__(self, nemesis: Nemesis) -> None:
        self._nemesis = nemesis
        self._history = nemesis.history
        self.random = nemesis.history.world.random("wrong directories")
        self._is_on = False

    def strike(self) -> str | None:
        """Put a directory in another's place, now or some seconds later."""
        history = self._history
        members = [member for member in history.alive() if member.is_up and member.has_say]
        if self._is_on or not members or len(history.context.member_ids) == 1 or not self._are_all_whole():
            return None
        member = self.random.choice(members)
        kind = self.random.choice(["an older copy", "another's", "led alone"])
        if kind == "an older copy":
            self._keep_a_copy(member)
        elif kind == "another's":
            self._exchange(member)
        elif not self._let_lead_alone(member):
            return None
        self._is_on = True
        return f"member {member.member_id}: {kind}"

    def _are_all_whole(self) -> bool:
        return not self._nemesis.not_whole | self._history.invariants.ever_damaged

    # -- an older copy of its own

    def _keep_a_copy(self, member: Member) -> None:
        contents, world = self._read(member.member_id), self._history.world
        at_ns = world.now_ns + self.random.randrange(200 * MS, 8 * SECOND)
        world.at(at_ns, self._stop_for_copy, member.member_id, contents)

    def _stop_for_copy(self, member_id: int, contents: Contents) -> None:
        if not self._nemesis.is_storm or not self._are_all_whole():
            self._is_on = False
            return
        history = self._history
        history.members[member_id].kill()
        self._nemesis.down_until_ns[member_id] = FOREVER_NS
        self._put_back(member_id, contents, history.world.now_ns + PATIENCE_NS)

    def _put_back(self, member_id: int, contents: Contents, until_ns: int) -> None:
        """Once whatever it has promised since is held by all others: then it may forget it."""
        history, now_ns = self._history, self._history.world.now_ns
        if history.members[member_id].is_alive:
            self._is_on = False  # everything was healed
        elif now_ns >= until_ns or not self._are_all_whole():
            self._nemesis.down_until_ns[member_id] = now_ns
            self._is_on = False
        elif not self._are_others_level(member_id):
            history.world.at(now_ns + POLL_NS, self._put_back, member_id, contents, until_ns)
        else:
            self._nemesis.say(f"wrong directory: member {member_id} has its older copy from now on")
            self._write(history.disks[member_id], contents)
            history.invariants.on_unsynced_lost(member_id)
            history.recorder.forget(member_id)
            self._nemesis.not_whole.add(member_id)
            self._nemesis.down_until_ns[member_id] = now_ns + self._nemesis.draw_down_ns()
            self._is_on = False

    def _are_others_level(self, member_id: int) -> bool:
        leader = self._history.leader()
        return leader is not None and all(
            id_ == member_id
            or (
                (member.is_leading or member.is_following)
                and member.leadership_term_id == leader.leadership_term_id
                and member.commit_position == self._history.invariants.log.end
                and member.append_position == leader.append_position
            )
            for id_, member in self._history.members.items()
        )

    # -- another's

    def _exchange(self, member: Member) -> None:
        history, member_id = self._history, member.member_id
        other_id = self.random.choice([i for i in history.context.member_ids if i != member_id])
        others = self._read(other_id).moved(f"/member-{other_id}", f"/member-{member_id}")
        member.kill()
        duration_ns = self.random.randrange(SECOND, 4 * SECOND)
        self._nemesis.bring_down(member, duration_ns + SECOND)
        disk = FaultyDisk(history.world, self.random)  # others read, wipe and damage its own meanwhile
        self._write(disk, others)
        disk.faults = member.disk.faults
        stray = self._start(member, member.host, disk, TakesNoPart(), history.context.member_ids)
        told = f"member {member_id} has its own directory again"
        self._nemesis.later(duration_ns, told, lambda: self._give_back(stray))

    def _give_back(self, stray: Member) -> None:
        require(
            isinstance(stray.end, ClusterError) or not stray.is_up,
            "I-1",
            f"{stray.name} runs over the directory of another member",
        )
        stray.kill()
        self._is_on = False

    # -- a copy of it has led alone

    def _let_lead_alone(self, member: Member) -> bool:
        """On another host, where no client and no member finds it."""
        nemesis, member_id, world = self._nemesis, member.member_id, self._history.world
        identity = self._identity(member)
        is_read = self._history.readers or self._history.readership is not None
        if identity is None or is_read or member_id not in nemesis.expendable_ids():
            return False
        member.kill()
        nemesis.down_until_ns[member_id] = FOREVER_NS
        nemesis.not_whole.add(member_id)
        self._write_identity(member, identity.with_members(identity.cluster_id, (ANY_MEMBER_ID,)))
        stray = self._start(member, f"10.0.9.{member_id}", member.disk, Observer(), (member_id,))
        world.at(world.now_ns + self.random.randrange(SECOND, 6 * SECOND), self._come_back, stray, identity)
        told = f"an operator moves the directory of member {member_id} away"
        nemesis.later(2 * PATIENCE_NS, told, lambda: self._move_away(stray))
        return True

    def _come_back(self, stray: Member, identity: ClusterIdentity) -> None:
        """Once the others know what is committed: who was killed knows it of a term's begin alone."""
        history, member_id = self._history, stray.member_id
        if not self._is_on or not self._nemesis.is_storm:
            return
        if stray.is_alive:
            has_led = stray.is_leading and stray.commit_position == stray.append_position
            # What a snapshot of its own stands for counts as committed in it, and in it alone.
            has_led = has_led and stray.counters.snapshot_count.get() == 0
            if has_led:
                history.invariants.log.startup_terms.add(stray.leadership_term_id)
            stray.kill()
            if not has_led:
                return  # it may be of one history with the others
        if not self._are_others_level(member_id):
            history.world.at(history.world.now_ns + POLL_NS, self._come_back, stray, identity)
            return
        self._write_identity(stray, identity)
        history.recorder.forget(member_id)
        self._nemesis.say(f"wrong directory: member {member_id} is back, whose directory has led alone")
        self._nemesis.down_until_ns[member_id] = history.world.now_ns

    def _move_away(self, stray: Member) -> None:
        if stray.is_alive:
            stray.kill()
        self._nemesis.wipe_member(stray.member_id)
        self._is_on = False

    # -- processes and disks

    def _start(
        self, member: Member, host: str, disk: Disk, observer: Observer, member_ids: tuple[int, ...]
    ) -> Member:
        history, member_id = self._history, member.member_id
        context = replace(history.context, member_id=member_id, member_ids=member_ids)
        history.network.revive(host)
        stray = Member(
            history.world,
            member_id,
            replace(history.settings, context=context),
            disk,
            history.network,
            history.clocks[member_id],
            self.random,
            history.next_incarnation,
            host=host,
            observer=observer,
        )
        stray.name = f"stray {member_id}"
        stray.wake(history.world.now_ns)
        return stray

    def _files(self, disk: Disk) -> SimulatedFiles:
        return SimulatedFiles(disk, Process(self._history.world, "10.0.4.3", "operator"), 1)

    def _read(self, member_id: int) -> Contents:
        disk = self._history.disks[member_id]
        files = {path: bytes(inode.cache) for path in disk.paths() if (inode := disk.inode(path))}
        return Contents(frozenset(disk.folders), files)

    def _write(self, disk: FaultyDisk, contents: Contents) -> None:
        files = self._files(disk)
        faults, disk.faults = disk.faults, type(disk.faults)()
        disk.wipe()
        for folder in sorted(contents.folders):
            files.make_directory(folder)
        for path, data in contents.files.items():
            file = files.open(path, create=True)
            file.pwrite(data, 0)
            file.fullsync()
            file.close()
        for folder in sorted(contents.folders):
            files.sync_directory(folder)
        disk.faults = faults

    def _folders(self, member: Member) -> tuple[str, str]:
        return f"{member.directory}/cluster", f"{member.directory}/archive"

    def _identity(self, member: Member) -> ClusterIdentity | None:
        try:
            return read_identity(self._files(member.disk), *self._folders(member)).identity
        except ClusterError:
            return None

    def _write_identity(self, member: Member, identity: ClusterIdentity) -> None:
        disk = self._history.disks[member.member_id]
        faults, disk.faults = disk.faults, type(disk.faults)()
        try:
            write_identity(self._files(member.disk), *self._folders(member), identity)
        finally:
            disk.faults = faults
