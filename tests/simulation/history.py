"""One seed's history: a cluster is set up, a storm goes over it, it heals, and is judged.

start      members one by one or all at once
storm      faults as nemesis.py draws them, clients sending all the while
healing    a majority is whole and connected, the rest stays as broken as it is: it must commit again
calm       everything is whole: all members and clients come to the same end
"""

from __future__ import annotations

import traceback
import zlib
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

from cluster.archive.files import Buffer
from cluster.consensus.context import ConsensusModuleContext
from cluster.errors import UnexpectedError
from cluster.protocol import streams
from cluster.protocol.enums import ClusterControlToggle, ConsensusModuleState, ElectionState
from cluster.protocol.frame import HEADER_LENGTH
from cluster.testing.member import CLIENT_PORT, CLUSTER_ID, host_of
from cluster.testing.wire import Wire
from cluster.testing.world import MS, SECOND, ProcessDied
from tests.simulation.application import Application
from tests.simulation.backup_invariants import BackupInvariants, RestoredMember
from tests.simulation.backups import Backup
from tests.simulation.clients import Client, client_endpoints
from tests.simulation.disk import FaultyDisk
from tests.simulation.disk_log import HeldFrames
from tests.simulation.invariants import Invariants
from tests.simulation.member import Member, Observer, Settings
from tests.simulation.nemesis import Nemesis
from tests.simulation.network import FaultyNetwork
from tests.simulation.readers import Machines, Reader
from tests.simulation.readership import DAY, Readership, draw_consumer_settings
from tests.simulation.standbys import fetch
from tests.simulation.violation import Violation, require
from tests.simulation.world import FaultyClock, World

ROOT = Path(__file__).resolve().parents[2]
STEP_NS = 100 * MS
STEPS_MAX = 2_000_000  # some ten times what a long history takes: members that never rest
BACKUP_SHARE = 1 / 16  # of the seeds: they have a backup
APART_SHARE = 1 / 5  # of them: services are in processes of their own
ELECTION_STATES = [state.name for state in ElectionState]


@dataclass(slots=True)
class Result:
    """How a seed went."""

    seed: int
    trace_hash: str
    effects_hash: str
    steps: int
    events: int
    virtual_s: float
    committed_bytes: int
    entries: int
    terms: int
    acknowledged: int
    violation: str = ""
    last_events: list[str] = field(default_factory=list)
    transitions: dict[str, int] = field(default_factory=dict)
    faults: dict[str, int] = field(default_factory=dict)


def draw_checksums(random: Random, member_count: int) -> tuple[str | None, ...]:
    """What each member's recordings hold: mostly all the same."""
    kinds = (None, "crc32c", "crc32")
    all_hold = random.choice(kinds)
    if random.random() < 0.7:
        return (all_hold,) * member_count
    return tuple(random.choice(kinds) for _ in range(member_count))


def draw_snapshot_policy(random: Random) -> dict[str, int]:
    """When leaders take snapshots by themselves: mostly never."""
    if random.random() < 0.97:
        return {}
    return {
        "snapshot_every_bytes": random.choice([0, 2, 16]) * 1024,
        "snapshot_every_ns": random.choice([2, 10]) * SECOND,
    }


class Recorder:
    """Keeps some consensus messages, to have them come again much later."""

    def __init__(self) -> None:
        self._kept: dict[int, list[tuple[int, bytes]]] = {}

    def on_sent(self, member: Member, to_member_id: int, buffers: tuple[Buffer, ...]) -> None:
        """Keep the first messages, and then each so many-th."""
        if len(buffers) != 1 or not HEADER_LENGTH < len(buffers[0]) <= 512:
            return
        data = bytes(memoryview(buffers[0]))
        if int.from_bytes(data[16:20], "little") != streams.CONSENSUS:
            return
        kept = self._kept.setdefault(member.member_id, [])
        if len(kept) < 400:
            kept.append((to_member_id, data))
        elif len(data) > 72:  # anything but the reports and heartbeats of every turn
            kept[zlib.crc32(data) % 400] = (to_member_id, data)

    def forget(self, member_id: int) -> None:
        """It has lost what it had said and had: none of it is true any more, and its connections are gone."""
        self._kept.pop(member_id, None)

    def replay(self, member: Member, random: Random) -> int:
        """Send some of them again over the connections of now."""
        kept = self._kept.get(member.member_id, [])
        count = 0
        if not member.is_up:
            return 0
        try:
            for _ in range(random.randint(1, 20)):
                if kept:
                    to_member_id, data = random.choice(kept)
                    count += member.links.send_again(to_member_id, data) > 0
        except ProcessDied:
            member.on_killed()
        return count


# What a member tells, and under what name it is counted.
_SEEN = {
    "snapshot at ": "a snapshot taken",
    "starts from the snapshot": "a start from a snapshot",
    "the log begins at ": "a log purged",
    "the log is kept from ": "a log kept for a consumer group",
}


class _Coverage(Observer):
    """States and transitions of elections that were seen."""

    def __init__(self, invariants: Invariants, recorder: Recorder) -> None:
        self.transitions: dict[str, int] = {}
        self.ends: dict[str, int] = {}
        self.on_elected: Callable[[Member], None] = lambda member: None
        self._invariants = invariants
        self._recorder = recorder
        self.on_turn = invariants.on_turn  # type: ignore[method-assign]
        self.on_applied = invariants.on_applied  # type: ignore[method-assign]
        self.on_started = invariants.on_started  # type: ignore[method-assign]
        self.on_killed = invariants.on_killed  # type: ignore[method-assign]

    def on_sent(self, member: Member, to_member_id: int, buffers: tuple[Buffer, ...]) -> None:
        self._recorder.on_sent(member, to_member_id, buffers)
        self._invariants.on_sent(member, to_member_id, buffers)

    def on_event(self, member: Member, text: str) -> None:
        if text.startswith("election "):
            transition = text[len("election ") :].split(":")[0]
            if transition.endswith("-> LEADER_LOG_REPLICATION"):
                self.on_elected(member)
            elif transition.endswith("-> FOLLOWER_READY"):
                self._invariants.on_level(member.member_id)
            self.transitions[transition] = self.transitions.get(transition, 0) + 1
            return
        for begin, name in _SEEN.items():
            if text.startswith(begin):
                self.ends[name] = self.ends.get(name, 0) + 1
        if text.startswith("the log begins at "):
            self._invariants.log.groups.check_purge(
                member.name,
                text,
                member.commit_position,
                member.replica.cluster_time,
                member.settings.context.consumer_hold_bytes,
            )

    def on_life_ended(self, member: Member, error: BaseException) -> None:
        if isinstance(error, UnexpectedError):
            self._invariants.on_killed(member)  # within a turn
        name = f"life, {type(error).__name__}"
        self.ends[name] = self.ends.get(name, 0) + 1

    def on_ended(self, member: Member, error: BaseException | None) -> None:
        name = "ends: in order" if error is None else f"ends: {type(error).__name__}"
        self.ends[name] = self.ends.get(name, 0) + 1


class History:
    """All that one seed decides; ``run`` lets it happen."""

    def __init__(
        self,
        seed: int,
        *,
        keeps_story: bool = False,
        only_faults: Collection[str] = (),
        is_compiled: bool | None = None,
        services_apart: bool | None = None,
        steps_max: int = STEPS_MAX,
    ) -> None:
        """``is_compiled``: compiled turns stand for Python's; ``services_apart``: services are
        in processes of their own. The seed draws what is None.
        """
        self._steps_max = steps_max
        self.world = world = World(seed, keeps_story=keeps_story)
        random = world.random("setup")
        self.random = random
        member_count = random.choices([1, 3, 5], [1, 12, 3])[0]
        sizes = world.random("sizes")  # drawn apart: seeds of other sizes are as they were
        if sizes.random() < 0.06:
            member_count = sizes.choice([4, 7])
        is_default = random.random() < 0.15  # Aeron's own time-outs
        times = (
            {}
            if is_default
            else {
                "session_timeout_ns": 4 * SECOND,
                "leader_heartbeat_timeout_ns": 2 * SECOND,
                "startup_canvass_timeout_ns": 5 * SECOND,
                "election_timeout_ns": random.choice([500, 1_000]) * MS,
                "leader_heartbeat_interval_ns": random.choice([50, 200]) * MS,
            }
        )
        consumers = world.random("consumers")
        has_groups = consumers.random() < 1 / 8
        supervision = world.random("supervision")
        is_supervised = supervision.random() < 1 / 3  # all of its clients
        member_ids = tuple(range(member_count))
        endpoints = client_endpoints({i: host_of(i) for i in member_ids}, CLIENT_PORT)
        self.context = ConsensusModuleContext(
            member_ids=member_ids,
            ingress_endpoints=",".join(f"{i}={endpoint}" for i, endpoint in endpoints.items()),
            cluster_id=CLUSTER_ID,
            log_term_length=64 * 1024,
            max_sessions=16,
            service_count=world.random("services").choice([1, 1, 2]),
            supervised_bytes_max=supervision.choice([4, 16, 64]) * 1024,
            **{
                "log_retained_snapshots": world.random("operator").choice([0, 1, 1, 2]),
                "lane_retention_ns": world.random("lane retention").choice([60 * SECOND, 7 * DAY]),
                "accept_standby_snapshots": world.random("announcing").random() < 0.8,
                **draw_snapshot_policy(world.random("snapshot policy")),
                **(draw_consumer_settings(consumers) if has_groups else {}),
            },
            **times,
        )
        self.settings = Settings(
            self.context,
            file_sync_level=random.choices([0, 1, 2], [2, 10, 2])[0],
            segment_length=min(random.choice([64, 128, 256]), 64 if has_groups else 256) * 1024,
            tick_ns=random.choice([10, 20, 40]) * MS,
            checksums=draw_checksums(world.random("checksum"), member_count),
            is_mended=world.random("mending").random() < 0.6,
            is_compiled=world.random("compiled").random() < 0.5 if is_compiled is None else is_compiled,
            passes_max=world.random("passes").choice([1, 3, 50]),
            services_apart=world.random("services apart").random() < APART_SHARE
            if services_apart is None
            else services_apart,
            is_first_inline=self.context.service_count > 1
            and world.random("first service in line").random() < 0.5,
        )
        self.network = FaultyNetwork(world, world.random("network"))
        self.network.wire = Wire(world.trace) if keeps_story else None
        self.disks = {i: FaultyDisk(world, world.random(f"disk {i}")) for i in member_ids}
        self.quorum = member_count // 2 + 1  # not asked of production: it is judged
        self.invariants = Invariants(
            self.settings.file_sync_level,
            self.disks,
            self.quorum,
            self.context.session_timeout_ns // MS,
            HeldFrames(self.settings.checksums),
            self.context.service_count,
        )
        self.recorder = Recorder()
        self.coverage = _Coverage(self.invariants, self.recorder)
        self.is_calm = False
        self.is_suspended = False
        self.clocks = {
            i: FaultyClock(world, skew_ns=random.randrange(-2 * SECOND, 2 * SECOND)) for i in member_ids
        }
        self.members: dict[int, Member] = {}  # the present or last life of each
        self.incarnation = 0
        self.clients = [
            Client(
                world,
                number,
                self.network,
                endpoints,
                world.random(f"client {number}"),
                self.invariants,
                is_supervised=is_supervised,
            )
            for number in range(random.randint(1, 3))
        ]
        machines = Machines(self.disks, self.clocks)
        lanes = world.random("lanes")
        self.application = (
            Application(world, self.network, endpoints, machines, lanes, self.invariants.log.lanes)
            if lanes.random() < 1 / 8
            else None
        )
        self.readership = (
            Readership(world, self.network, endpoints, consumers, self.invariants.log) if has_groups else None
        )
        readers = world.random("readers")
        self.readers = [
            Reader(world, machines, readers, self.invariants) for _ in range(readers.choice([0, 1]))
        ]
        backups = world.random("backups")
        self.backup: Backup | None = None
        if backups.random() < BACKUP_SHARE:
            invariants = BackupInvariants(self.invariants, self.disks)
            self.backup = Backup(
                world, self.network, self.members, endpoints, backups, invariants, self.context
            )
        self.nemesis = Nemesis(self, only_faults)
        self.coverage.on_elected = self.nemesis.on_elected

    # -- members --

    def start(self, member_id: int) -> Member:
        """Let a member's process begin; it must not run."""
        before = self.members.get(member_id)
        assert before is None or not before.is_alive
        self.network.revive(host_of(member_id))
        member = self.members[member_id] = Member(
            self.world,
            member_id,
            self.settings,
            self.disks[member_id],
            self.network,
            self.clocks[member_id],
            self.world.random(f"member {member_id}, life {self.incarnation + 1}"),
            self.next_incarnation,
            observer=self.coverage,
            archives=partial(fetch, self.backup),
        )
        member.say(f"starts, life {self.incarnation}")
        member.wake(self.world.now_ns)
        return member

    def next_incarnation(self) -> int:
        """Of a life that begins, of whatever process."""
        self.incarnation += 1
        return self.incarnation

    def alive(self) -> list[Member]:
        return [member for member in self.members.values() if member.is_alive]

    def leader(self) -> Member | None:
        """Who leads the highest term among those that believe to lead."""
        leaders = [member for member in self.alive() if member.is_leading and not member.is_paused]
        return max(leaders, key=lambda member: member.leadership_term_id, default=None)

    def resume_cluster(self) -> None:
        """Ask whoever leads now to resume, until nobody is suspended."""
        leader = self.leader()
        if leader is not None and leader.module_state is ConsensusModuleState.SUSPENDED:
            leader.counters.control_toggle.set(ClusterControlToggle.RESUME)

    # -- the run --

    def run(self) -> Result:
        violation = ""
        try:
            self._run()
        except Violation as error:
            violation = str(error)
        except Exception as error:  # a bug: production asserts, or breaks
            last = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{last.filename.removeprefix(f'{ROOT}/')}:{last.lineno}"
            violation = (
                f"I-17: what no error is for ended a process: {type(error).__name__}: {error} ({place})"
            )
        world = self.world
        return Result(
            seed=world.seed,
            trace_hash=world.trace.hash,
            effects_hash=world.effects.hash,
            steps=world.steps,
            events=world.trace.count,
            virtual_s=world.now_ns / SECOND,
            committed_bytes=self.invariants.log.end,
            entries=self.invariants.log.entries,
            terms=len(self.invariants.log.leaders),
            acknowledged=self.invariants.acknowledged,
            violation=violation,
            last_events=world.trace.story,
            transitions=self.coverage.transitions,
            faults=self.nemesis.counts | {k: v for k, v in self.coverage.ends.items()},
        )

    def _run(self) -> None:
        for member_id in self.context.member_ids:
            self.world.at(self.random.choice([0, self.random.randrange(SECOND)]), self.start, member_id)
        for client in self.clients:
            client.wake(self.random.randrange(SECOND))
        for reader in self.readers:
            reader.wake(self.world.now_ns)
        if self.backup is not None:
            self.backup.start()
        self._await_commit("start", self._start_bound_ns())
        self.nemesis.storm()
        self.nemesis.heal_majority()
        self._await_commit("healing", self._start_bound_ns())
        self.is_calm = True
        if self.application is not None:
            self.application.is_troubled = False
        self.nemesis.heal_all()
        self._await_commit("calm", self._start_bound_ns())
        self._come_to_rest()
        if self.backup is not None:
            self._restore(self.backup)

    def _restore(self, backup: Backup) -> None:
        """I-23: what is made of the backup goes on with all that was committed."""
        self.world.say("history", "a member is restored from the backup")
        restored = RestoredMember(backup, self.settings, self.invariants)
        deadline_ns = self.world.now_ns + self._start_bound_ns()
        while not restored.has_begun:
            require(self.world.now_ns < deadline_ns, "I-23", "the restored member does not lead in time")
            self._step()
        restored.check()

    def _start_bound_ns(self) -> int:
        """In what time a whole majority commits again, whatever was before; logs may be mended first."""
        context = self.context
        return (
            2 * context.startup_canvass_timeout_ns
            + 3 * context.leader_heartbeat_timeout_ns
            + 20 * context.election_timeout_ns
            + 5 * SECOND
        )

    def _await_commit(self, phase: str, bound_ns: int) -> None:
        """I-14: something new is committed in bounded time."""
        log = self.invariants.log
        sessions = {session_id: session.messages for session_id, session in log.sessions.items()}
        deadline_ns = self.world.now_ns + bound_ns
        self.world.say("history", f"{phase}: a message is to be committed within {bound_ns / SECOND:.1f} s")
        while not any(
            session.messages > sessions.get(session_id, 0) for session_id, session in log.sessions.items()
        ):
            if self.world.now_ns >= deadline_ns and self.nemesis.is_majority_without_say:
                self.world.say("history", f"{phase}: who has lost its promises waits for those left broken")
                return
            require(
                self.world.now_ns < deadline_ns,
                "I-14",
                f"{phase}: nothing was committed within {bound_ns / SECOND:.1f} s; {self._stand()}",
            )
            self._step()

    def _step(self) -> None:
        self.world.run_until(self.world.now_ns + STEP_NS)
        self.require_rest()
        self.nemesis.look_after()
        if self.is_suspended:
            self.resume_cluster()

    def require_rest(self) -> None:
        """I-13."""
        steps = self.world.steps
        require(steps < self._steps_max, "I-13", f"{steps} steps: members never rest")

    def _stand(self) -> str:
        told = []
        for member in self.members.values():
            state = "not started" if member.life is None else "leads" if member.is_leading else "follows"
            if member.election_state is not None:
                state = member.election_state.name
            life = "" if member.is_alive else " (dead)"
            told.append(f"{member.name} {state} at {member.commit_position}{life}")
        told += [f"{c.name} {'done' if c.is_done else 'waits'}" for c in self.clients]
        told += [f"{reader.name} at {reader.position}" for reader in self.readers]
        told += [f"backup at {self.backup.position}"] if self.backup is not None else []
        return ", ".join(told)

    def _come_to_rest(self) -> None:
        """No more is sent: all that was is acknowledged, and all members are at the same end.

        Then clients close their sessions, others run out, and the last timers fire.
        """
        for client in self.clients:
            client.is_sending = False
        if self.application is not None:
            self.application.is_sending = False
        if self.readership is not None:
            self.readership.is_sending = False
        self.world.say("history", "calm: clients send no more")
        deadline_ns = self.world.now_ns + self._start_bound_ns()
        while not (self._are_clients_done() and self._are_level()):
            if self.world.now_ns >= deadline_ns:
                self.invariants.check_answered(self.clients)
                raise Violation("I-14", f"calm: no rest in time; {self._stand()}")
            self._step()
        for client in self.clients:
            client.is_leaving = True
        self.world.say("history", "calm: clients close their sessions")
        deadline_ns = self.world.now_ns + self._start_bound_ns() + self.context.session_timeout_ns
        while (left := self._unfinished()) or not (
            self._are_level() and self._have_read_all() and self._is_backup_level()
        ):
            if self.world.now_ns >= deadline_ns:
                raise Violation(*(left or f"I-14: no rest in time; {self._stand()}").split(": ", 1))
            self._step()
        self.invariants.check_converged(list(self.members.values()))

    def _are_clients_done(self) -> bool:
        """Nothing that they have sent is unacknowledged, nor unanswered where that must not be."""
        if self.application is not None and not self.application.is_done:
            return False
        if self.readership is not None and not self.readership.is_done:
            return False
        return all(client.is_done and not self.invariants.unanswered(client) for client in self.clients)

    def _unfinished(self) -> str:
        """What the log still lacks, "" for nothing."""
        leader = self.leader()
        if leader is None:
            return "I-14: nobody leads"
        return self.invariants.log.unfinished()

    def _have_read_all(self) -> bool:
        return all(reader.position == self.invariants.log.end for reader in self.readers)

    def _is_backup_level(self) -> bool:
        return self.backup is None or self.backup.position == self.invariants.log.end

    def _are_level(self) -> bool:
        log = self.invariants.log
        return (
            self.leader() is not None
            and all(
                member.is_alive
                and member.commit_position == log.end
                and member.recording is not None
                and member.append_position == log.end
                and self.invariants.has_applied_all(member)
                for member in self.members.values()
            )
            and len(self.members) == len(self.context.member_ids)
        )
