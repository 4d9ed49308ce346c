"""``SimulatedCluster``: a whole cluster in memory, to test services on."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from cluster.archive.recording import Recording
from cluster.consensus.authentication import Security, open_security
from cluster.consensus.context import ConsensusModuleContext
from cluster.counters import Counter
from cluster.errors import MembersApart, ServiceError, TimedOut
from cluster.member.agent import ConsensusModuleAgent
from cluster.protocol.enums import ClusterControlToggle
from cluster.protocol.frame import message_length_max
from cluster.protocol.lane import Lane
from cluster.service.clustered_service import ClusteredService
from cluster.service.replay import Sent, SentKind, ServiceReplay, SnapshotRecords
from cluster.service.service_context import ServiceContext
from cluster.testing.client import SimulatedCaller, SimulatedClient
from cluster.testing.diagnosis import Cause, MakeService, why_apart
from cluster.testing.disk import Disk
from cluster.testing.member import CLIENT_PORT, CLUSTER_ID, MemberProcess, Settings, host_of
from cluster.testing.network import Network
from cluster.testing.wire import Happening, Wire
from cluster.testing.world import MS, SECOND, Clock, VirtualWorld
from cluster.transport.credentials import CredentialsSupplier
from cluster.transport.endpoint import Endpoint, Medium

TERM_LENGTH = 1024 * 1024
MESSAGE_LENGTH_MAX = message_length_max(TERM_LENGTH)
ANSWERS_S = 0.1  # in which answers come when nothing is in their way
TICK_NS = 20 * MS  # between two turns of a member that has nothing to do
TIMEOUT_S = 60.0  # of virtual time, in which a cluster that can elect a leader does


class Replay(NamedTuple):
    """``state`` is what the service would write into a snapshot; ``answers`` are by session id."""

    state: tuple[bytes, ...]
    answers: dict[int, list[bytes]]


class _Member(MemberProcess):
    """A process with the services under test."""

    def __init__(self, cluster: SimulatedCluster, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.services: list[ClusteredService] = []
        self._cluster = cluster

    def load_service(self, service_id: int, random: Random) -> ClusteredService:
        service = self._cluster.make_services[service_id]()
        self.services[service_id:] = [service]
        if self.network.wire is not None:
            self.network.wire.watch_callbacks(service, service_id, self)
        return service

    def on_recorded_error(self, where: str, error: BaseException) -> None:
        super().on_recorded_error(where, error)
        if isinstance(error, MembersApart):
            raise self._cluster.explained(error)
        if not isinstance(error, ServiceError):
            raise error
        self._cluster.service_errors.append((self.member_id, error))

    @property
    def leads(self) -> bool:
        return self.is_alive and self.life is not None and self.life.consensus_module.status.is_leading

    @property
    def term_id(self) -> int:
        assert self.life is not None
        return self.life.counters.leadership_term_id.get()

    @property
    def commit_position(self) -> int:
        return 0 if self.life is None else self.life.consensus_module.log.commit_position

    def has_processed(self, position: int) -> bool:
        """Whether it takes part, and all its services have come so far in the log."""
        if self.life is None or not self.is_up:
            return False
        status = self.life.consensus_module.status
        return (status.is_leading or status.is_following) and all(
            service.counters.position.get() >= position for service in self.life.services
        )


class SimulatedCluster:
    """Members 0 to ``members`` - 1 in memory, each with an instance of every service, and clients.

        cluster = SimulatedCluster(KeyValueStore)
        alice = cluster.connect("alice")
        alice.offer(b"set a 1")
        cluster.settle()
        assert alice.answers == [b"ok"]

    Everything except clock, disk and sockets is the real thing: elections, sessions, timers, snapshots and
    replay. Time is virtual, and passes only in calls such as ``run``. The same calls with the same ``seed``
    give the same history. Times are in seconds. A call that waits in vain raises TimedOut.
    """

    def __init__(
        self,
        *services: MakeService,
        members: int = 3,
        seed: int = 0,
        session_timeout: float = 10.0,
        max_sessions: int = 1024,
        security: Security | None = None,
        compiled_turns: bool = False,
        watched: bool = False,
    ) -> None:
        """``services`` are classes, or functions that make a service, by ascending service id.

        With ``compiled_turns`` members take turns in compiled code where they can, as those in production do:
        where the one service has ``on_session_message_compiled``. ``happenings`` of a ``watched`` cluster
        has all messages, and the whole story.
        """
        assert services, "expected at least one service"
        self.make_services = services
        self.service_errors: list[tuple[int, ServiceError]] = []  # (member id, what a callback raised)
        self.causes: list[Cause] = []  # of members that have come apart
        self.world = VirtualWorld(seed, keeps_story=watched)
        self._network = Network(self.world, self.world.random("network"))
        self._network.wire = Wire(self.world.trace) if watched else None
        self._endpoints = {i: Endpoint(Medium.TCP, host_of(i), CLIENT_PORT) for i in range(members)}
        self._context = ConsensusModuleContext(
            member_ids=tuple(range(members)),
            ingress_endpoints=",".join(f"{i}={endpoint}" for i, endpoint in self._endpoints.items()),
            cluster_id=CLUSTER_ID,
            log_term_length=TERM_LENGTH,
            service_count=len(services),
            max_sessions=max_sessions,
            session_timeout_ns=int(session_timeout * SECOND),
        )
        self._disks = [Disk(self.world.random(f"disk {i}")) for i in range(members)]
        self._clocks = [Clock() for _ in range(members)]
        self._incarnation = 0
        self._compiled_turns = compiled_turns
        self._security = security or open_security()
        self._members: dict[int, _Member] = {}
        self.clients: list[SimulatedClient] = []
        self._callers: list[SimulatedCaller] = []
        for member_id in range(members):
            self.start(member_id)

    # -- clients --

    def connect(
        self,
        name: str = "",
        credentials: bytes | CredentialsSupplier = b"",
        *,
        supervised: bool = False,
        lane: Lane | None = None,
        member: int | None = None,
    ) -> SimulatedClient:
        """Open a session; with ``lane`` it displaces the lane's session. ``member`` is the one it knows."""
        number = len(self.clients)
        name = name or f"client {number}"
        client = SimulatedClient(
            self.world,
            number,
            name,
            self._network,
            self._endpoints if member is None else {member: self._endpoints[member]},
            credentials=credentials,
            is_supervised=supervised,
            lane=lane,
        )
        self.clients.append(client)
        client.wake(self.world.now_ns)
        self.run_until(lambda: client.is_open or client.is_closed, f"{name} has a session")
        return client

    def call(self, name: str, member: int) -> SimulatedCaller:
        """A program without a session, which sends this member what it likes."""
        number = 200 + len(self._callers)
        endpoints = {member: self._endpoints[member]}
        caller = SimulatedCaller(self.world, number, name, self._network, endpoints)
        self._callers.append(caller)
        return caller

    # -- time --

    @property
    def time(self) -> int:
        """Cluster time of member 0's clock, in milliseconds."""
        return self._clocks[0].epoch_ms(self.world.now_ns)

    def run(self, seconds: float) -> None:
        """Let this much time pass."""
        self.world.run_until(self.world.now_ns + int(seconds * SECOND))

    def run_until(self, condition: Callable[[], bool], what: str, timeout: float = TIMEOUT_S) -> None:
        """Let time pass until the condition is true. TimedOut has ``what``, and what happened last."""
        end_ns = self.world.now_ns + int(timeout * SECOND)
        while not condition():
            if self.world.now_ns > end_ns or not self.world.step():
                last = "\n".join(self.story[-20:])
                raise TimedOut(f"not within {timeout:g} s of virtual time: {what}; what came last:\n{last}")

    def settle(self, timeout: float = TIMEOUT_S) -> None:
        """Let time pass until all running members have processed, and the leader has answered, everything."""
        self.run_until(lambda: all(client.is_settled for client in self.clients), "all is committed", timeout)
        self.await_leader(timeout)
        self.run_until(self._is_level, "every member has processed all that is committed", timeout)
        self.run(ANSWERS_S)
        self.run_until(self._is_level, "every member has processed all that is committed", timeout)

    def _is_level(self) -> bool:
        leader = self._leader()
        if leader is None:
            return False
        running = [member for member in self._members.values() if member.is_alive and not member.is_paused]
        return all(member.has_processed(leader.commit_position) for member in running)

    # -- members --

    @property
    def leader(self) -> int | None:
        """The id of the member that leads, or None."""
        leader = self._leader()
        return None if leader is None else leader.member_id

    def _leader(self) -> _Member | None:
        leading = (member for member in self._members.values() if member.leads and not member.is_paused)
        return max(leading, key=lambda member: member.term_id, default=None)

    def await_leader(self, timeout: float = TIMEOUT_S) -> int:
        """Let time pass until a member leads; returns its id."""
        self.run_until(lambda: self.leader is not None, "there is a leader", timeout)
        assert self.leader is not None
        return self.leader

    @property
    def running(self) -> list[int]:
        """The members whose processes run."""
        return [member_id for member_id, member in self._members.items() if member.is_alive]

    def service(self, member_id: int, service_id: int = 0) -> Any:
        """The present instance of a service on a member."""
        return self._members[member_id].services[service_id]

    def start(self, member_id: int) -> None:
        """Start a member's process, which recovers from its disk."""
        assert member_id not in self.running, f"member {member_id} runs already"
        self._network.revive(host_of(member_id))
        member = self._members[member_id] = _Member(
            self,
            self.world,
            member_id,
            Settings(
                self._context,
                segment_length=TERM_LENGTH,
                tick_ns=TICK_NS,
                is_compiled=self._compiled_turns,
                security=self._security,
            ),
            self._disks[member_id],
            self._network,
            self._clocks[member_id],
            self.world.random(f"member {member_id}, life {self._incarnation + 1}"),
            self._next_incarnation,
        )
        member.say("starts")
        member.wake(self.world.now_ns)

    def _next_incarnation(self) -> int:
        self._incarnation += 1
        return self._incarnation

    def kill(self, member_id: int) -> None:
        """SIGKILL: the process ends at once; its disk stays."""
        self._members[member_id].kill()

    def stop(self, member_id: int) -> None:
        """SIGTERM: the process ends cleanly."""
        self._members[member_id].stop()

    def lose_power(self, member_id: int) -> None:
        """The machine loses power: some of what was not synced is lost."""
        self._members[member_id].lose_power()

    def wipe(self, member_id: int) -> None:
        """Give a stopped member an empty disk."""
        assert member_id not in self.running, f"member {member_id} runs"
        self._disks[member_id].wipe()

    def pause(self, member_id: int) -> None:
        """SIGSTOP, until ``resume``."""
        self._members[member_id].pause()

    def resume(self, member_id: int) -> None:
        """SIGCONT."""
        self._members[member_id].resume()

    def stall_service(self, member_id: int, seconds: float, service_id: int = 0) -> None:
        """Stop one service of a member for this long, while its consensus module goes on."""
        until_ns = self.world.now_ns + int(seconds * SECOND)
        self._members[member_id].services_stalled_until_ns[service_id] = until_ns

    def stop_recording(self, member_id: int) -> None:
        """Stop the recording of a member's log, as a tool of the archive may."""
        member = self._members[member_id]
        assert member.life is not None and member.life.consensus_module.log.recording is not None
        member.life.consensus_module.log.recording.stop(0)

    def isolate(self, member_id: int) -> None:
        """Cut a member off from all others, until ``heal``."""
        host = host_of(member_id)
        others = [host_of(other) for other in self._members if other != member_id]
        for other in (*others, *(client.host for client in self.clients)):
            self._network.path(host, other).is_blocked = True
            self._network.path(other, host).is_blocked = True

    def cut(self, member_id: int, other_id: int) -> None:
        """Lose everything that one member sends to another, until ``heal``; the way back stays open."""
        self._network.path(host_of(member_id), host_of(other_id)).is_blocked = True

    def heal(self) -> None:
        """Let all members reach each other again."""
        self._network.heal()

    # -- state --

    def take_snapshot(self, timeout: float = TIMEOUT_S) -> None:
        """Have the leader take a snapshot, and let time pass until all running members have it."""
        self.settle(timeout)
        toggle = self.set_toggle(ClusterControlToggle.SNAPSHOT)
        neutral = ClusterControlToggle.NEUTRAL
        self.run_until(lambda: toggle.get() == neutral, "the leader has taken its snapshot", timeout)
        self.settle(timeout)

    def set_toggle(self, action: ClusterControlToggle) -> Counter:
        """Set the leader's control toggle, as an operator does; it is NEUTRAL again when that is done."""
        leader = self._leader()
        assert leader is not None and leader.life is not None
        toggle = leader.life.counters.control_toggle
        toggle.set(action)
        return toggle

    def state(self, member_id: int, service_id: int = 0) -> tuple[bytes, ...]:
        """What a service would write into a snapshot now; that it is asked is no happening of the history."""
        records, wire = SnapshotRecords(MESSAGE_LENGTH_MAX), self._network.wire
        said = 0 if wire is None else len(wire.said)
        self.service(member_id, service_id).on_take_snapshot(records)
        if wire is not None:
            del wire.said[said:]
        return tuple(records.records)

    def replay(self, service_id: int = 0) -> Replay:
        """Process the whole committed log in a new instance of the service, as of a leader that starts."""
        log, end = self._committed_log()
        replay = ServiceReplay(self.make_services[service_id](), log, self._replay_context(service_id))
        answers: dict[int, list[bytes]] = {}
        for sent in replay.run(end):
            if isinstance(sent, Sent) and sent.kind is SentKind.EGRESS:
                assert sent.cluster_session_id is not None and sent.payload is not None
                answers.setdefault(sent.cluster_session_id, []).append(sent.payload)
        return Replay(replay.state(), answers)

    def _replay_context(self, service_id: int) -> ServiceContext:
        return ServiceContext(service_id=service_id, client_id=1, max_message_length=MESSAGE_LENGTH_MAX)

    def _committed_log(self) -> tuple[Recording, int]:
        leader = self._leader()
        assert leader is not None and leader.life is not None
        log = leader.life.consensus_module.log
        assert log.recording is not None and log.recording.start_position == 0
        return log.recording, log.commit_position

    def check(self) -> None:
        """Settle, and compare snapshots, states and answers with a replay. Raises MembersApart."""
        self.settle()
        try:
            self._check_states()
        except MembersApart as error:
            raise self.explained(error) from None

    def explained(self, error: MembersApart) -> MembersApart:
        """The error, with what its service does wrong, as far as that is found (``diagnosis.py``)."""
        found = (
            why_apart(make, *self._committed_log(), self._replay_context(service_id))
            for service_id, make in enumerate(self.make_services)
        )
        self.causes = [cause for cause in found if cause is not None]
        who = [
            text for service_id in range(len(self.make_services)) if (text := self._who_differs(service_id))
        ]
        return MembersApart(". ".join([str(error), *who, *(cause.text for cause in self.causes)]))

    def _who_differs(self, service_id: int) -> str:
        """Which members have the same state, and who has another; empty where all that can be compared do."""
        positions = {
            member_id: life.services[service_id].counters.position.get()
            for member_id in self.running
            if (life := self._members[member_id].life) is not None
        }
        newest = max(positions.values(), default=0)
        by_state: dict[tuple[bytes, ...], list[int]] = {}
        for member_id, position in positions.items():
            if position == newest:
                by_state.setdefault(self.state(member_id, service_id), []).append(member_id)
        most, *others = sorted(by_state.values(), key=len, reverse=True) or [[]]
        if not others:
            return ""
        names = [f"member{'s' * (len(ids) > 1)} {', '.join(map(str, ids))}" for ids in (most, *others)]
        return f"At {newest} service {service_id} has one state on {', another on '.join(names)}"

    def _check_states(self) -> None:
        for service_id in range(len(self.make_services)):
            expected = self.replay(service_id)
            for member_id in self.running:
                if (found := self.state(member_id, service_id)) != expected.state:
                    raise MembersApart(
                        f"service {service_id} of member {member_id} has another state than an instance "
                        f"that was given the whole log: {_difference(found, expected.state)}"
                    )
            if len(self.make_services) == 1:  # else answers of all are mixed
                self._check_answers(expected)

    def _check_answers(self, expected: Replay) -> None:
        """What a client got is what a replay answers, in order; answers of a dead leader may lack."""
        for client in self.clients:
            answers = iter(expected.answers.get(client.session_id, ()))
            for number, answer in enumerate(client.received):
                if answer not in answers:
                    raise MembersApart(
                        f"{client.name} got {answer[:200]!r} as answer {number}, which an instance that was "
                        f"given the whole log does not answer there"
                    )

    @property
    def story(self) -> list[str]:
        """What happened last, one line each."""
        return self.world.trace.story

    @property
    def happenings(self) -> list[Happening]:
        """Everything that happened in a watched cluster, with all messages, in order of time."""
        assert self._network.wire is not None, "expected watched=True"
        return self._network.wire.happenings()

    def note(self, member_id: int, text: str) -> None:
        """Have something that a member does among the happenings of a watched cluster."""
        assert self._network.wire is not None, "expected watched=True"
        member = self._members[member_id]
        self._network.wire.note(member, text)

    def consensus_module(self, member_id: int) -> ConsensusModuleAgent:
        """That of the life that a member has now."""
        life = self._members[member_id].life
        assert life is not None, f"member {member_id} does not run"
        return life.consensus_module

    def heard_ns(self, happening: Happening) -> int | None:
        """When a message of a watched cluster was read; None when it never was, or is none."""
        assert self._network.wire is not None, "expected watched=True"
        return self._network.wire.heard_ns.get(happening.number)


def _difference(found: tuple[bytes, ...], expected: tuple[bytes, ...]) -> str:
    for number, (one, other) in enumerate(zip(found, expected)):
        if one != other:
            return f"record {number} of its snapshot is {one[:200]!r}, expected {other[:200]!r}"
    return f"{len(found)} records in its snapshot, expected {len(expected)}"
