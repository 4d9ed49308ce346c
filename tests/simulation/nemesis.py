"""What goes wrong, and when: faults drawn by the seed, each undone some time later, or never.

Each seed knows only some of the faults, and some of them well: a storm of everything at once hides more than
it shows. A fault that would break what nobody promises (two wiped disks of three) is not drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from random import Random
from typing import TYPE_CHECKING

from cluster.consensus.context import NULL_VALUE
from cluster.member.control import transfer_toggle
from cluster.protocol.enums import ClusterControlToggle, ElectionState
from cluster.testing.member import host_of
from cluster.testing.world import FOREVER_NS, MS, SECOND
from tests.simulation.byzantine import Byzantine
from tests.simulation.disk_damage import DiskDamage
from tests.simulation.failing_disks import FailingDisks
from tests.simulation.impostors import Impostors
from tests.simulation.member import Member
from tests.simulation.network_faults import NetworkFaults
from tests.simulation.other_lists import OtherLists
from tests.simulation.power_cuts import PowerCuts
from tests.simulation.service_faults import ServiceFaults
from tests.simulation.snapshot_damage import SnapshotDamage
from tests.simulation.stale_leaders import StaleLeaders
from tests.simulation.standbys import StandbyOrders
from tests.simulation.world import MISTAKES
from tests.simulation.wrong_directories import WrongDirectories

if TYPE_CHECKING:
    from tests.simulation.history import History

NEW_LEADER = (ElectionState.LEADER_INIT, ElectionState.LEADER_READY)


class Nemesis:
    """Draws faults for one history; ``counts`` tells how often each came."""

    def __init__(self, history: History, only: Collection[str] = ()) -> None:
        """Of the faults the seed draws some, or those of ``only`` that its cluster can have."""
        self.history = history
        self.world = history.world
        self.random = random = history.world.random("nemesis")
        self.counts: dict[str, int] = {}
        self.down_until_ns: dict[int, int] = {}  # of members that are not running: when they start
        self._healed_ids: list[int] = []
        self.not_whole: set[int] = set()  # wiped, and not level again
        self._undo: list[tuple[int, int, str, Callable[[], None]]] = []
        self._sequence = 0
        self.is_storm = False  # faults may begin
        self.network = network = NetworkFaults(self)
        self._disks = FailingDisks(self)
        self._power_cuts = power_cuts = PowerCuts(self)
        self._services = ServiceFaults(self)
        faults = self._faults()
        known = [name for name in faults if random.random() < 0.4] or ["kill"]
        if only:
            known = [name for name in faults if name in only]
        self._weights = {name: random.choice([1, 1, 2, 5]) for name in known}
        self.damage = DiskDamage(self)
        rot = self.damage.by_name()  # drawn apart: seeds without it are the same with and without
        for name in rot:
            if name in only or (not only and self.damage.random.random() < 0.2):
                self._weights[name] = 2
        of_many = self.damage.of_many()
        self._faults_by_name = faults | rot | of_many | {"depose the leader": network.depose}
        self._only = only
        self._witnesses = history.world.random("witnesses")
        if "wipe" in faults:
            self._draw_apart("wipe a witness", self._wipe_witness, self._witnesses, 0.2, 1)
            stale = StaleLeaders(self)
            self._draw_apart("stale leader", stale.strike, stale.random, 0.2, 2)
        self._births = history.world.random("births")
        self._births_left = 0  # leaders that die as soon as they are elected
        self._draw_apart("kill leaders at birth", self._kill_at_birth, self._births, 0.25, 1)
        self._mistakes = history.world.random("mistakes")
        self._draw_apart("mistake in a turn", self._err_in_turn, self._mistakes, 0.2, 2)
        byzantine = Byzantine(self)
        self._draw_apart("says anything", byzantine.say, byzantine.random, 0.2, 3)
        for name in of_many:
            if name in only or (not only and self.damage.is_of_many):
                self._weights[name] = 2
        self._draw_apart("full disks", self._disks.all_full, self._disks.shortages, 0.1, 1)
        impostors = Impostors(self)
        self._draw_apart("impostor", impostors.strike, impostors.random, 0.2, 1)
        lists = OtherLists(self)
        self._draw_apart("other list", lists.strike, lists.random, 0.2, 2)
        directories = WrongDirectories(self)
        self._draw_apart("wrong directory", directories.strike, directories.random, 0.2, 2)
        snapshots = SnapshotDamage(self)
        self._draw_apart("damaged snapshot", snapshots.strike, snapshots.random, 0.2, 2)
        if history.settings.services_apart:
            self._draw_apart("end a service", self._services.end, self._services.random, 0.7, 6)
        self._standby_orders: StandbyOrders | None = None
        self._transfers = history.world.random("transfers")
        self._draw_apart("transfer leadership", self._transfer, self._transfers, 0.03, 10)
        if history.backup is not None:
            for name, fault in history.backup.faults().items():
                self._draw_apart(name, fault, history.backup.random, 0.7, 2)
            if history.backup.announces:
                self._standby_orders = orders = StandbyOrders(self)
                self._draw_apart("replicate a standby's snapshot", orders.replicate, orders.random, 0.7, 2)
        if history.settings.file_sync_level == 0:
            name = "power cut at level 0"
            self._draw_apart(name, power_cuts.cut_dispensable, power_cuts.at_level_0, 0.5, 3)
        self._pause_ns = random.choice([300, 1_000, 2_500]) * MS  # between two faults, on average
        # Drawn apart, as above: of some seeds it is the main thing, with little else that stirs things up.
        how_much = network.deposing.random()
        if (how_much < 0.5 and not only) or "depose the leader" in only:
            if how_much < 0.25 and not only:
                kept = network.deposing.sample(sorted(self._weights), min(2, len(self._weights)))
                self._weights = {name: 1 for name in kept}
                self._pause_ns = 2_500 * MS
            self._weights["depose the leader"] = 3
        self._urging = history.world.random("urging")
        self._operator = history.world.random("operator")
        self._snapshot_pause_ns = self._operator.choice([0, 1_000, 1_000, 4_000]) * MS  # 0: takes none

    def _draw_apart(
        self, name: str, fault: Callable[[], str | None], random: Random, chance: float, weight: int
    ) -> None:
        """A fault with a random source of its own: seeds that do not draw it are as they were without it."""
        self._faults_by_name[name] = fault
        if (random.random() < chance and not self._only) or name in self._only:
            self._weights[name] = weight

    def _faults(self) -> dict[str, Callable[[], str | None]]:
        faults: dict[str, Callable[[], str | None]] = {
            "kill": self._kill,
            "kill the leader": self._kill_leader,
            "kill in a turn": self._kill_in_turn,
            "kill all": self._kill_all,
            "kill new leaders": self._kill_new_leaders,
            "stop in order": self._stop_in_order,
            "pause": self._pause,
            "pause the leader": self._pause_leader,
            "clock jump": self._clock_jump,
            "clock drift": self._clock_drift,
            "clock stop": self._clock_stop,
            "slow disk": self._disks.slow,
            "full disk": self._disks.full,
            "slow service": self._services.slow,
            "client vanishes": self._client_vanishes,
            "client hangs": self._client_hangs,
            "suspend": self.suspend,
            "terminate": self._terminate,
        }
        faults |= self.network.by_name()
        if self.history.settings.file_sync_level > 0:
            faults |= self._power_cuts.by_name()
            faults["failed sync"] = self._disks.failed_sync
            faults["failed writes"] = self._disks.failed_writes
        if len(self.history.context.member_ids) > 1:
            faults["wipe"] = self._wipe
        return faults

    # -- phases --

    def storm(self) -> None:
        """Let faults come for some time."""
        random, world = self.random, self.world
        self.say("storm: " + ", ".join(sorted(self._weights)))
        end_ns = world.now_ns + random.choice([6, 12, 20, 35]) * SECOND
        self.is_storm = True
        next_ns = next_snapshot_ns = world.now_ns
        while world.now_ns < end_ns:
            if self._snapshot_pause_ns and world.now_ns >= next_snapshot_ns:
                self._operate()
                next_snapshot_ns = world.now_ns + int(self._operator.expovariate(1 / self._snapshot_pause_ns))
            if world.now_ns >= next_ns:
                self._strike()
                next_ns = world.now_ns + int(random.expovariate(1 / self._pause_ns))
            world.run_until(min(next_ns, world.now_ns + 50 * MS))
            self.history.require_rest()
            self.look_after()
        self.is_storm = False

    def _operate(self) -> None:
        """Somebody wants a snapshot, or, now and then, the end of the whole cluster behind one."""
        name = self._operator.choices(["snapshot", "shutdown"], [12, 1])[0]
        if self._standby_orders is not None and name == "snapshot" and self._standby_orders.is_next():
            self.say(f"standby snapshot: {self._standby_orders.take_snapshot()}")
            return
        toggle = ClusterControlToggle.SNAPSHOT if name == "snapshot" else ClusterControlToggle.SHUTDOWN
        self._urge_clients()
        leader = self.toggle(toggle)
        if leader is not None:
            self.counts[name] = self.counts.get(name, 0) + 1
            self.say(f"{name}: by member {leader.member_id}")
            if self._urging.random() < 0.1:
                self._kill_at_snapshot(self._snapshot_counts(), self.world.now_ns + SECOND)

    def _snapshot_counts(self) -> dict[tuple[int, int], int]:
        """How many each life of a member has taken."""
        return {
            (member.member_id, member.incarnation): member.counters.snapshot_count.get()
            for member in self.history.alive()
            if member.life is not None
        }

    def _kill_at_snapshot(self, before: dict[tuple[int, int], int], until_ns: int) -> None:
        """Kill all as soon as one of them has the snapshot: the log may end there."""
        if not self.is_storm or self.world.now_ns >= until_ns:
            return
        counts = self._snapshot_counts()
        if any(count > before.get(life, count) for life, count in counts.items()):
            self.say(f"kill all behind the snapshot: {self._kill_all()}")
            return
        self.world.at(self.world.now_ns + 50_000, self._kill_at_snapshot, before, until_ns)

    def _urge_clients(self) -> None:
        """Let something be under way when the fault comes; it may come a little earlier or later."""
        if self._urging.random() < 0.3:
            for client in self.history.clients:
                client.urge(self._urging.choice("mmctx"))
            self.world.run_until(self.world.now_ns + self._urging.randrange(3 * MS))

    def _strike(self) -> None:
        names = list(self._weights)
        if not names:
            return  # of the only faults that were asked for, this cluster can have none
        name = self.random.choices(names, [self._weights[n] for n in names])[0]
        self._urge_clients()
        told = self._faults_by_name[name]()
        if told is not None:
            self.counts[name] = self.counts.get(name, 0) + 1
            self.say(f"{name}: {told}")

    def look_after(self) -> None:
        """Undo what is due, and start members whose time has come."""
        now_ns = self.world.now_ns
        due = [entry for entry in self._undo if entry[0] <= now_ns]
        if due:
            self._undo = [entry for entry in self._undo if entry[0] > now_ns]
            for _, _, told, undo in sorted(due, key=lambda entry: entry[:2]):
                self.say(told)
                undo()
        for member_id, member in sorted(self.history.members.items()):
            if not member.is_alive:
                until_ns = self.down_until_ns.setdefault(
                    member_id, now_ns + int(self.random.expovariate(1 / SECOND))
                )
                if now_ns >= until_ns:
                    self._start(member_id)
            elif (member.is_following or member.is_leading) and member_id not in self.damage.damaged_ids:
                self.not_whole.discard(member_id)
                self.history.invariants.on_whole(member_id)
        self.damage.look_after()

    def _start(self, member_id: int) -> None:
        self.down_until_ns.pop(member_id, None)
        if self.random.random() < 0.5:
            self.history.disks[member_id].drop_caches()
        self.history.start(member_id)

    def heal_majority(self) -> None:
        """A majority is made whole; the rest stays as it is, or is worse.

        With fewer that are whole some that are damaged make up a majority with them. One that cannot mend
        itself, for want of what none of it holds any more, gives way to members that were never damaged.
        """
        history, random = self.history, self.random
        ids = list(history.context.member_ids)
        whole = [i for i in ids if i not in self.not_whole]
        core = sorted(random.sample(whole, min(history.quorum, len(whole))))
        if len(core) < history.quorum:
            core = sorted(core + random.sample(sorted(self.not_whole), history.quorum - len(core)))
        if self.damage.is_lost_among(core) and len(sound := sorted(self._sound_ids())) >= history.quorum:
            core = sorted(random.sample(sound, history.quorum))
        rest = [i for i in ids if i not in core]
        self.say(f"members {core} are healed; {rest} are left as they are")
        self._healed_ids = core
        self._heal(core)
        for member_id in rest:
            self._leave_broken(member_id, core)

    @property
    def is_majority_without_say(self) -> bool:
        """Whether damage has cost a healed member its promises: it asks those that were not healed, too."""
        members = [self.history.members[member_id] for member_id in self._healed_ids]
        having = sum(member.life is not None and member.has_say for member in members)
        return having < self.history.quorum

    def heal_all(self) -> None:
        self.say("everything is healed")
        for member_id in self.damage.damaged_ids:  # damage that nobody has met is found by a restart
            self.history.members[member_id].kill()
        told = self.damage.of_all()
        if told is not None:
            self.counts["all damaged"] = 1
            self.say(f"all damaged: {told}")
        self._heal(list(self.history.context.member_ids))

    def _heal(self, core: list[int]) -> None:
        history = self.history
        for _, _, _, undo in sorted(self._undo, key=lambda entry: entry[:2]):
            undo()
        self._undo.clear()
        history.network.heal()
        history.network.partial_chance = 0.0
        for member_id in core:
            disk, clock = history.disks[member_id], history.clocks[member_id]
            disk.faults.is_full = disk.faults.writes_fail = disk.faults.syncs_fail = False
            disk.faults.sync_failures = disk.faults.misdirected_writes = 0
            disk.faults.slowness = 1
            clock.go_on()
            clock.set_rate(1.0)
            member = history.members[member_id]
            member.services_stalled_until_ns.clear()
            member.dies_at_effect = member.errs_at_effect = None
            if not member.is_alive:
                self._start(member_id)
            elif member.is_paused:
                member.resume()
        for client in history.clients:
            if client.is_paused:
                client.resume()
        self.down_until_ns = {i: n for i, n in self.down_until_ns.items() if i not in core}

    def _leave_broken(self, member_id: int, core: list[int]) -> None:
        """A member outside the healed majority: in the way as much as it can be."""
        history = self.history
        member = history.members[member_id]
        host = host_of(member_id)
        how = self.random.choice(["down", "deaf", "mute", "flapping", "paused", "whole"])
        self.say(f"member {member_id} is {how}")
        others = [host_of(i) for i in history.context.member_ids if i != member_id]
        if how == "down":
            member.kill()
            self.down_until_ns[member_id] = FOREVER_NS
            return
        if not member.is_alive:
            self._start(member_id)
            member = history.members[member_id]
        for other in others:
            if how == "deaf":
                history.network.path(other, host).is_blocked = True
            elif how == "mute":
                history.network.path(host, other).is_blocked = True
        if how == "paused":
            member.pause()
        elif how == "flapping":
            self._flap(member_id, self.world.now_ns + 60 * SECOND)

    def _flap(self, member_id: int, until_ns: int) -> None:
        """Cut its links again and again, until everything is healed."""
        if self.world.now_ns >= until_ns or self.history.is_calm:
            return
        member = self.history.members[member_id]
        if member.is_alive:
            for sock in member.poller.connections():
                if sock.peer_host.startswith("10.0.0."):
                    self.history.network.cut(sock)
        self.world.at(
            self.world.now_ns + self.random.randrange(50 * MS, 700 * MS), self._flap, member_id, until_ns
        )

    # -- helpers --

    def expendable_ids(self) -> list[int]:
        """Members whose disks may be harmed: a majority of the others has all that it ever had.

        Damage before a snapshot is not met by a restart, but by another member that asks for those entries;
        then the log behind it is fetched again, from whoever has it. So a repaired disk counts for nobody.
        """
        sound = self._sound_ids()
        whole = [i for i in self.history.context.member_ids if i not in self.not_whole]
        return [i for i in whole if len(sound - {i}) >= self.history.quorum]

    def _sound_ids(self) -> set[int]:
        return set(self.history.context.member_ids) - self.not_whole - self.history.invariants.ever_damaged

    def say(self, what: str) -> None:
        self.world.say("nemesis", what)

    def later(self, delay_ns: int, told: str, undo: Callable[[], None]) -> None:
        self._sequence += 1
        self._undo.append((self.world.now_ns + delay_ns, self._sequence, told, undo))

    def duration_ns(self) -> int:
        return self.random.choice(
            [self.random.randrange(1, 300 * MS), self.random.randrange(3 * SECOND), 3 * SECOND, 12 * SECOND]
        )

    def draw_down_ns(self) -> int:
        return self.random.choice([0, self.random.randrange(300 * MS), self.random.randrange(6 * SECOND)])

    def any_member(self, *, running: bool = True) -> Member | None:
        members = [m for m in self.history.members.values() if m.is_alive and not (running and m.is_paused)]
        return self.random.choice(members) if members else None

    def bring_down(self, member: Member, down_ns: int | None = None) -> None:
        """Leave a member that was killed down for some time."""
        if down_ns is None:
            down_ns = self.draw_down_ns()
        self.down_until_ns[member.member_id] = self.world.now_ns + down_ns

    # -- processes --

    def _kill(self, member: Member | None = None) -> str | None:
        member = member or self.any_member(running=False)
        if member is None:
            return None
        down_ns = self.draw_down_ns()
        member.kill()
        self.bring_down(member, down_ns)
        return f"member {member.member_id} for {down_ns / SECOND:.3f} s"

    def _kill_leader(self) -> str | None:
        leader = self.history.leader()
        return None if leader is None else self._kill(leader)

    def _kill_new_leaders(self) -> str:
        """One after the other, as soon as it stands for its term."""
        left = self.random.randint(2, 5)
        self._kill_next_leader(left, self.world.now_ns + 20 * SECOND)
        return f"the next {left}"

    def _kill_next_leader(self, left: int, until_ns: int) -> None:
        if left == 0 or self.world.now_ns >= until_ns or not self.is_storm:
            return
        for member in self.history.alive():
            if member.is_leading or member.election_state in NEW_LEADER:
                left -= 1
                self.say(f"kill new leaders: {self._kill(member)}, {left} more")
                break
        self.world.at(self.world.now_ns + 5 * MS, self._kill_next_leader, left, until_ns)

    def _kill_at_birth(self) -> str:
        """Their term is on their disks, and on few others, or none."""
        self._births_left = self._births.randint(1, 3)
        return f"the next {self._births_left}"

    def on_elected(self, member: Member) -> None:
        """A member has won a ballot, and has done nothing about it yet."""
        if self.is_storm and self._births_left and member.dies_at_effect is None:
            self._births_left -= 1
            member.die_soon(self._births.randint(1, 12))

    def _kill_in_turn(self) -> str | None:
        member = self.any_member()
        if member is None:
            return None
        effects = self.random.randint(1, 80)
        member.die_soon(effects)
        return f"member {member.member_id} at its effect {effects} from now"

    def _err_in_turn(self) -> str | None:
        """What no error is for costs a life, and neither agreement nor the process."""
        alive = [member for member in self.history.alive() if member.is_up]
        if not alive:
            return None
        member, effects = self._mistakes.choice(alive), self._mistakes.randint(1, 80)
        mistake = self._mistakes.choice(MISTAKES)
        member.err_soon(effects, mistake)
        return f"{mistake.__name__}, member {member.member_id} at its effect {effects} from now"

    def _kill_all(self) -> str:
        for member in self.history.alive():
            self._kill(member)
        return "every member"

    def _stop_in_order(self) -> str | None:
        member = self.any_member()
        if member is None or not member.is_up:
            return None
        member.stop()
        self.bring_down(member)
        return f"member {member.member_id}"

    def _pause(self, member: Member | None = None) -> str | None:
        member = member or self.any_member()
        if member is None:
            return None
        duration_ns = self.duration_ns()
        member.pause()
        self.later(duration_ns, f"member {member.member_id} goes on", member.resume)
        return f"member {member.member_id} for {duration_ns / SECOND:.3f} s"

    def _pause_leader(self) -> str | None:
        leader = self.history.leader()
        return None if leader is None else self._pause(leader)

    def _wipe(self) -> str | None:
        """Members that are not whole do not count: so many can be missing at any time."""
        history = self.history
        ids = self.expendable_ids()
        if not ids:
            return None
        member_id = self.random.choice(ids)
        if not history.invariants.log.end:
            return None
        return self.wipe_member(member_id)

    def wipe_member(self, member_id: int) -> str:
        history = self.history
        member = history.members[member_id]
        member.kill()
        history.disks[member_id].wipe()
        history.invariants.on_wiped(member_id)
        history.recorder.forget(member_id)
        self.not_whole.add(member_id)
        self.bring_down(member)
        return f"member {member_id}"

    def _wipe_witness(self) -> str | None:
        """What the leader and just enough others have is committed; one of these is wiped, and it dies."""
        leader, random = self.history.leader(), self._witnesses
        if leader is None or not self.expendable_ids():
            return None
        others = [i for i in self.history.context.member_ids if i != leader.member_id]
        random.shuffle(others)
        late = others[self.history.quorum - 1 :]
        witness_id = others[0]
        duration_ns = random.randrange(100 * MS, SECOND)
        self.network.block(
            [leader.host], [host_of(i) for i in late], duration_ns + 10 * MS, "those who were late hear again"
        )
        for client in self.history.clients:
            client.urge(".")
        self.world.at(self.world.now_ns + duration_ns, self._wipe_now, leader, witness_id)
        return f"member {witness_id}, and members {late} are late"

    def _wipe_now(self, leader: Member, witness_id: int) -> None:
        if self.is_storm and leader.is_leading and witness_id in self.expendable_ids():
            self.say(f"wipe a witness: member {witness_id} is wiped, leader {self._kill(leader)}")
            self.wipe_member(witness_id)

    # -- clocks --

    def _clock_jump(self) -> str:
        member_id = self.random.choice(list(self.history.context.member_ids))
        by_ns = self.random.choice([-3_600, -5, -1, 1, 5, 3_600]) * SECOND
        self.history.clocks[member_id].jump(by_ns)
        return f"member {member_id} by {by_ns // SECOND} s"

    def _clock_drift(self) -> str:
        member_id = self.random.choice(list(self.history.context.member_ids))
        rate = self.random.choice([0.9, 0.99, 1.01, 1.1])
        self.history.clocks[member_id].set_rate(rate)
        return f"member {member_id} at {rate}"

    def _clock_stop(self) -> str:
        member_id = self.random.choice(list(self.history.context.member_ids))
        clock = self.history.clocks[member_id]
        clock.stop()
        self.later(self.duration_ns(), f"the clock of member {member_id} goes on", clock.go_on)
        return f"member {member_id}"

    # -- clients, operators --

    def _client_vanishes(self) -> str:
        client = self.random.choice(self.history.clients)
        client.vanish()
        return client.name

    def _client_hangs(self) -> str:
        client = self.random.choice(self.history.clients)
        duration_ns = self.duration_ns()
        client.pause()
        self.later(duration_ns, f"{client.name} goes on", client.resume)
        return f"{client.name} for {duration_ns / SECOND:.3f} s"

    def _transfer(self) -> str | None:
        target_id = self._transfers.choice([NULL_VALUE, *self.history.context.member_ids])
        leader = self.toggle(transfer_toggle(target_id))
        return None if leader is None else f"by member {leader.member_id} to {target_id}"

    def toggle(self, toggle: int) -> Member | None:
        leader = self.history.leader()
        if leader is None:
            return None
        leader.counters.control_toggle.set(toggle)
        return leader

    def suspend(self) -> str | None:
        leader = self.toggle(ClusterControlToggle.SUSPEND)
        if leader is None:
            return None
        self.history.is_suspended = True
        self.later(self.duration_ns(), "the cluster is to resume", self.history.resume_cluster)
        return f"by member {leader.member_id}"

    def _terminate(self) -> str | None:
        leader = self.toggle(ClusterControlToggle.ABORT)
        return None if leader is None else f"by member {leader.member_id}"
