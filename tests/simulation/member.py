"""A member's process: the production parts, put together as ``ClusterNode`` does, on simulated media."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any
from zlib import crc32

from cluster.archive.files import Buffer
from cluster.archive.mark_files import ClusterMarkFile
from cluster.archive.snapshots import SnapshotArchive
from cluster.consensus.context import ConsensusModuleContext
from cluster.counters import CountersFile
from cluster.errors import (
    AgentTermination,
    ClusterError,
    DataLoss,
    LogDamaged,
    MembersApart,
    ServiceError,
    StorageError,
)
from cluster.log.frames import message_length_max
from cluster.member.agent import ConsensusModuleAgent
from cluster.member.counters import MemberCounters
from cluster.member.repair import open_files
from cluster.node.disk_failures import DiskFailures
from cluster.protocol.enums import ClusterComponentType
from cluster.service.agent import ClusteredServiceAgent
from cluster.service.channel import ServiceChannel
from cluster.transport.endpoint import Endpoint, Medium
from cluster.transport.links import MemberLinks
from cluster.transport.server import ClientPort
from tests.simulation.committed_log import require
from tests.simulation.disk import Disk, SimulatedFiles
from tests.simulation.effects import Effect
from tests.simulation.network import Network, SimulatedPoller
from tests.simulation.service import ChainService, VectorisedChainService
from tests.simulation.world import Clock, Process, ProcessDied, World

FATAL = (StorageError, DataLoss, LogDamaged, AgentTermination)  # end the process
TURN_NS = 30_000
LINK_PORT, CLIENT_PORT = 9002, 9001
CLUSTER_ID = 7


def host_of(member_id: int) -> str:
    return f"10.0.0.{member_id + 1}"


@dataclass(frozen=True, slots=True)
class Settings:
    """What all members of a run share."""

    context: ConsensusModuleContext  # of any member; the others differ by their id alone
    file_sync_level: int = 1
    segment_length: int = 128 * 1024
    checksums: tuple[str | None, ...] = ()  # of new recordings, by member
    is_mended: bool = True  # damaged logs are; else they are cut, as if nobody gave what is missing
    tick_ns: int = 10_000_000


class Observer:
    """What the run wants to hear of its members; the invariants are one."""

    def on_started(self, member: Member) -> None: ...

    def on_turn(self, member: Member) -> None: ...

    def on_sent(self, member: Member, to_member_id: int, buffers: tuple[Buffer, ...]) -> None: ...

    def on_applied(self, member: Member, service_id: int, position: int, chain: int) -> None: ...

    def on_event(self, member: Member, text: str) -> None: ...

    def on_life_ended(self, member: Member, error: BaseException) -> None: ...

    def on_ended(self, member: Member, error: BaseException | None) -> None: ...


class _ObservedLinks(MemberLinks):
    """Production links; what they are to take is told before it is on its way."""

    def __init__(self, member: Member, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._member = member

    def send(self, member_id: int, *buffers: Buffer) -> int:
        if self.is_up(member_id):
            self._member.on_sent(member_id, buffers)
            self._member.observer.on_sent(self._member, member_id, buffers)
        return super().send(member_id, *buffers)

    def send_again(self, member_id: int, frame: bytes) -> int:
        """An old message comes once more."""
        return super().send(member_id, frame)


class Member(Process):
    """A member's process, from its start to its end; disk, clock and host outlive it.

    When its disk fails it, it ends a life and begins another one in the same process, as a ClusterNode does:
    each has an ``incarnation`` of its own.
    """

    def __init__(
        self,
        world: World,
        member_id: int,
        settings: Settings,
        disk: Disk,
        network: Network,
        clock: Clock,
        random: Random,
        next_incarnation: Callable[[], int],
        observer: Observer,
        *,
        host: str | None = None,
        cluster_id: int = CLUSTER_ID,
    ) -> None:
        super().__init__(world, host or host_of(member_id), f"member {member_id}")
        self.member_id = member_id
        self.cluster_id = cluster_id
        self.settings = settings
        self.disk = disk
        self.network = network
        self.clock = clock
        self.incarnation = next_incarnation()
        self._next_incarnation = next_incarnation
        self.observer = observer
        self.poller = SimulatedPoller(network, self)
        self.files = SimulatedFiles(disk, self, 1_000 + self.incarnation)
        self.directory = f"/member-{member_id}"
        self.agent: ConsensusModuleAgent | None = None
        self.service_agents: list[ClusteredServiceAgent] = []
        self.services: list[ChainService] = []  # by their ids
        self.services_stalled_until_ns: dict[int, int] = {}
        self.end: BaseException | None = None
        self._random = random
        self._mark_file: ClusterMarkFile | None = None
        self._failures = DiskFailures()
        self._began_ns = 0
        self._state: tuple[int, ...] = ()
        self._has_lived = False
        self._opened: list[Callable[[], None]] = []  # to be closed with a life
        self.is_up = False  # started, and taking turns
        self.dies_by_power = False

    # -- starting --

    def _start(self) -> None:
        """As ``cluster/node/node.py``."""
        settings = self.settings
        context = replace(settings.context, member_id=self.member_id)
        epoch_ms, clock_ns = self._epoch_ms, self._clock_ns
        cluster_dir = f"{self.directory}/cluster"
        if self._mark_file is None:
            self._mark_file = ClusterMarkFile.create(
                cluster_dir,
                files=self.files,
                component_type=ClusterComponentType.CONSENSUS_MODULE,
                now_ms=epoch_ms(),
                cluster_id=self.cluster_id,
                member_id=self.member_id,
            )
        self._failures.check_room(self.files, f"{self.directory}/archive", settings.segment_length)
        self.archive, self.recording_log, self.node_state = open_files(
            self.files,
            f"{self.directory}/archive",
            cluster_dir,
            file_sync_level=settings.file_sync_level,
            segment_length=settings.segment_length,
            checksum=settings.checksums[self.member_id],
            is_after_failure=self._failures.leaves_files_behind,
            is_alone=len(context.member_ids) == 1,
            epoch_ms=epoch_ms,
            tell=self.tell,
        )
        if not settings.is_mended:
            self.archive.mender = lambda damage: None  # type: ignore[method-assign]
        self._opened = [self.archive.abandon, self.recording_log.close, self.node_state.close]
        for found in self.archive.recovered:
            self.tell(f"recovered recording {found.recording_id} to {found.stop_position}: {found.witness}")
        self.links = _ObservedLinks(
            self,
            member_id=self.member_id,
            listen=Endpoint(Medium.TCP, self.host, LINK_PORT),
            members={i: Endpoint(Medium.TCP, host_of(i), LINK_PORT) for i in context.member_ids},
            secret=self.incarnation,
            cluster_id=self.cluster_id,
            poller=self.poller,
            clock_ns=clock_ns,
            on_error=self._on_error,
        )
        self._opened.append(self.links.close)
        self.clients = ClientPort(
            [Endpoint(Medium.TCP, self.host, CLIENT_PORT)],
            poller=self.poller,  # type: ignore[arg-type]
            member_id=self.member_id,
            cluster_id=self.cluster_id,
            incarnation=self.links.incarnation,
            message_length_max=message_length_max(context.log_term_length),
            clock_ns=clock_ns,
            on_error=self._on_error,
        )
        self._opened.append(self.clients.shutdown)
        channels = [ServiceChannel() for _ in range(context.service_count)]
        counters = MemberCounters(CountersFile.in_memory(now_ms=epoch_ms()), context)
        for service_id, channel in enumerate(channels):
            kind = VectorisedChainService if self._random.random() < 0.5 else ChainService
            self.services.append(kind(service_id, self._on_applied))
            self.service_agents.append(
                ClusteredServiceAgent(
                    self.services[service_id],
                    channel,
                    counters.commit_position.get,
                    service_id=service_id,
                    cluster_id=self.cluster_id,
                    log_read_bytes=64 * 1024,
                    snapshots=SnapshotArchive(
                        self.archive, term_length=context.log_term_length, mtu=context.log_mtu
                    ),
                )
            )
        self.agent = ConsensusModuleAgent(
            context,
            archive=self.archive,
            recording_log=self.recording_log,
            node_state=self.node_state,
            links=self.links,
            clients=self.clients,
            service_channels=channels,
            counters=counters,
            random=self._random,
            mark_file=self._mark_file,
            on_event=self.tell,
            on_error=self._on_error,
            distrusts_log=self._failures.distrusts_all,
        )
        self._began_ns = clock_ns()
        self.agent.on_start(self._began_ns, epoch_ms())
        self.world.effects.add(Effect.BEGAN, self.member_id)
        self.observer.on_started(self)

    def _epoch_ms(self) -> int:
        return self.clock.epoch_ms(self.now_ns)

    def _clock_ns(self) -> int:
        return self.clock.monotonic_ns(self.now_ns)

    # -- turning --

    def turn(self) -> int | None:
        """As ``AgentRunner``: look at the sockets, read the clocks once, let each agent work."""
        self.spend(TURN_NS)
        try:
            if not self.is_up:
                if (left_ns := self._failures.due_ns - self._clock_ns()) > 0:
                    return left_ns
                self._start()
                self.is_up = self._has_lived = True
                return 0
            work_count = self._turn_agents()
        except FATAL as error:
            is_alone = len(self.settings.context.member_ids) == 1
            if self._has_lived and self._failures.is_survived(error, is_alone=is_alone):
                return self._end_life(error)
            self._exit(error)
            return None
        except ServiceError:
            raise  # a fault of the simulation, which none of its members survives
        except ClusterError as error:
            if not self.is_up:
                self._exit(error)
                return None
            self._on_error(error)
            work_count = 1
        assert self.agent is not None
        self._show_state(self.agent)
        self.observer.on_turn(self)
        if self.agent.is_closed:
            self._exit(None)
            return None
        return 0 if work_count else self.settings.tick_ns

    def _turn_agents(self) -> int:
        agent = self.agent
        assert agent is not None
        self.poller.wait(0)
        now_ns, cluster_time = self._clock_ns(), self._epoch_ms()
        work_count = agent.do_work(now_ns, cluster_time)
        for service_id, service_agent in enumerate(self.service_agents):
            if self.world.now_ns >= self.services_stalled_until_ns.get(service_id, 0):
                work_count += service_agent.do_work(now_ns, cluster_time)
        return work_count

    # -- ending --

    def _end_life(self, error: ClusterError) -> int:
        """As a ClusterNode: everything is closed, and begins again after a pause."""
        now_ns = self._clock_ns()
        pause_ns = self._failures.on_failure(error, now_ns - self._began_ns if self.is_up else 0, now_ns)
        self.tell(f"ends a life: {type(error).__name__}: {error}")
        self._close_life()
        self.world.effects.add(Effect.ENDED, self.member_id, True)
        self.observer.on_life_ended(self, error)
        self.incarnation = self._next_incarnation()
        return pause_ns

    def _close_life(self) -> None:
        self.is_up = False
        self.agent = None
        self.service_agents, self.services = [], []
        for close in reversed(self._opened):
            close()
        self._opened = []

    def _exit(self, error: BaseException | None) -> None:
        """The process ends by itself, in disorder if there was an error."""
        self.end = error
        if error is None:
            self.tell("ends in order")
        if error is None and self.agent is not None:
            try:
                self.agent.close()
                self.archive.close()
            except ClusterError as failure:
                self.tell(f"could not end in order: {failure}")
        elif error is not None:
            self.tell(f"ends: {type(error).__name__}: {error}")
        self.is_alive = False
        self.on_killed()
        self.world.effects.add(Effect.ENDED, self.member_id, error is not None)
        self.observer.on_ended(self, error)

    def on_killed(self) -> None:
        if self.dies_by_power:
            self.lose_power()
        else:
            self.tell("is killed" if self.end is None else "is gone")
            self.disk.on_process_died(self)
            self.network.on_killed(self.poller)

    def lose_power(self) -> None:
        """Process, page cache and connections are gone, and nobody is told."""
        self.tell("loses power")
        self.is_alive = False
        self.network.silence(self.host)
        self.network.on_power_cut(self.poller)
        self.disk.power_cut()

    def stop(self) -> None:
        """End in order, as on SIGTERM, between two turns."""
        try:
            self._exit(None)
        except ProcessDied:
            self.on_killed()

    # -- what is heard --

    def tell(self, text: str) -> None:
        self.world.trace.tell(self.now_ns, self.name, text)
        self.observer.on_event(self, text)

    def _on_error(self, error: Exception) -> None:
        self.tell(f"error: {type(error).__name__}: {error}")
        require(not isinstance(error, MembersApart), "I-6", str(error))

    def on_sent(self, to_member_id: int, buffers: tuple[Buffer, ...]) -> None:
        data = b"".join(buffers)
        self.world.effects.add(Effect.SENT, self.member_id, to_member_id, len(data), crc32(data))

    def _show_state(self, agent: ConsensusModuleAgent) -> None:
        """To the hash of effects, when it has changed."""
        counters = agent.counters
        state = (
            counters.leadership_term_id.get(),
            counters.election_state.get(),
            counters.node_role.get(),
            counters.module_state.get(),
            counters.commit_position.get(),
        )
        if state != self._state:
            self._state = state
            self.world.effects.add(Effect.STATE, self.member_id, *state)

    def _on_applied(self, service_id: int, position: int, chain: int) -> None:
        self.world.effects.add(Effect.APPLIED, self.member_id, service_id, position, chain)
        self.observer.on_applied(self, service_id, position, chain)

    # -- asked by the run --

    @property
    def commit_position(self) -> int:
        return 0 if self.agent is None else self.agent.commit_position

    @property
    def is_leading(self) -> bool:
        return self.is_alive and self.agent is not None and self.agent.leading is not None

    @property
    def is_following(self) -> bool:
        return self.is_alive and self.agent is not None and self.agent.following is not None
