"""A member's process: the lives of production, on a simulated disk and network, with a clock of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random

from cluster.archive.files import Files
from cluster.archive.mark_files import ClusterMarkFile
from cluster.consensus.authentication import Security, open_security
from cluster.consensus.context import ConsensusModuleContext
from cluster.counters import CountersFile
from cluster.errors import FATAL, ClusterError, ServiceError
from cluster.member.busy.words import IDLE, TIME
from cluster.member.log.retention import NeededPosition
from cluster.member.ports import FetchedRecordings
from cluster.member.services.remote_service import ServiceProcess
from cluster.node.disk_failures import DiskFailures
from cluster.node.life import MemberLife
from cluster.node.ports import LifeSettings
from cluster.protocol.cnc import CNC_FILE_NAME
from cluster.protocol.enums import ClusterComponentType, ConsensusModuleState
from cluster.protocol.frame import message_length_max
from cluster.service.clustered_service import ClusteredService
from cluster.testing.calls import SimulatedCalls
from cluster.testing.disk import Disk, SimulatedFiles
from cluster.testing.network import Network
from cluster.testing.world import Clock, Process, ProcessDied, VirtualWorld
from cluster.transport.endpoint import Endpoint, Medium
from cluster.transport.links import MemberLinks
from cluster.transport.server import ClientPort

TURN_NS = 30_000
CLUSTER_ID = 7
LINK_PORT, CLIENT_PORT = 9002, 9001


def host_of(member_id: int) -> str:
    return f"10.0.0.{member_id + 1}"


@dataclass(frozen=True, slots=True)
class Settings:
    """What all members of a run share."""

    context: ConsensusModuleContext  # of any member; the others differ by their id alone
    file_sync_level: int = 1
    segment_length: int = 128 * 1024
    checksums: tuple[str | None, ...] = ()  # of new recordings, by member; none by default
    cached_length: int = 0  # of the log, before its end; 0: as the disk likes
    tick_ns: int = 10_000_000
    is_compiled: bool = False  # compiled turns stand for Python's where they can
    passes_max: int = 1  # of them, one after the other
    security: Security = field(default_factory=open_security)


class SimulatedPorts:
    """``Ports`` of one simulated process."""

    links_type: Callable[..., MemberLinks] = MemberLinks
    calls_type = SimulatedCalls

    def __init__(self, member: MemberProcess, context: ConsensusModuleContext, random: Random) -> None:
        """Take the directory, as a ClusterNode does before its first life. Raises DirectoryInUse."""
        self.files: Files = member.files
        self.random = random
        self.poller = member.poller
        self.passes_max = member.passes_max
        self.idle_spin_ns = 0
        self.calls: SimulatedCalls | None = None
        if member.is_compiled:
            self.calls = self.calls_type(member)
        self._member = member
        self._context = context
        self.security = member.settings.security
        self.mark_file = ClusterMarkFile.create(
            f"{member.directory}/cluster",
            files=self.files,
            component_type=ClusterComponentType.CONSENSUS_MODULE,
            now_ms=self.epoch_ms(),
            cluster_id=context.cluster_id,
            member_id=context.member_id,
            aeron_directory=f"{member.directory}/driver",
        )

    def monotonic_ns(self) -> int:
        return self._member.clock_ns()

    def epoch_ms(self) -> int:
        return self._member.epoch_ms()

    def boot_id(self) -> str:
        return f"boot {self._member.disk.boots}"

    def open_counters(self) -> CountersFile:
        """A new file in the place of the one before. Stores into a mapping are no effects of the process."""
        disk, folder = self._member.disk, f"{self._member.directory}/driver"
        counters = CountersFile.in_memory(pid=self.files.process_id(), now_ms=self.epoch_ms())
        inode = disk.new_inode()
        inode.cache = counters._buffer.obj  # type: ignore[assignment]
        inode.device_size = len(inode.cache)
        disk.folders.add(folder)
        disk.change_names({f"{folder}/{CNC_FILE_NAME}": inode})
        disk.sync_folder(folder)
        return counters

    def open_links(self) -> MemberLinks:
        member, context = self._member, self._context
        return self.links_type(
            member_id=context.member_id,
            listen=Endpoint(Medium.TCP, member.host, LINK_PORT),
            members={i: Endpoint(Medium.TCP, host_of(i), LINK_PORT) for i in context.member_ids},
            secret=member.incarnation,
            cluster_id=context.cluster_id,
            poller=member.poller,
            clock_ns=member.clock_ns,
            on_error=member.on_error,
            heartbeat_interval_ns=context.leader_heartbeat_interval_ns,
            link_timeout_ns=context.link_timeout_ns,
        )

    def open_clients(self, incarnation: int) -> ClientPort:
        member, context = self._member, self._context
        return ClientPort(
            [Endpoint(Medium.TCP, member.host, CLIENT_PORT)],
            poller=member.poller,  # type: ignore[arg-type]
            member_id=context.member_id,
            cluster_id=context.cluster_id,
            incarnation=incarnation,
            message_length_max=message_length_max(context.log_term_length),
            clock_ns=member.clock_ns,
            on_error=member.on_error,
        )

    def load_service(self, service_id: int) -> ClusteredService:
        return self._member.load_service(service_id, self.random)

    def open_service_process(self, service_id: int) -> ServiceProcess:
        raise AssertionError("all services of a simulated member are inline")

    def fetch_recordings(self, endpoint: str, recording_ids: Sequence[int]) -> FetchedRecordings:
        return self._member.fetch_recordings(endpoint, recording_ids)

    def needed_positions(self) -> list[NeededPosition]:
        return []

    def on_event(self, text: str) -> None:
        self._member.say(text)

    on_warning = on_event

    def record(self, mark_file: ClusterMarkFile, where: str, error: BaseException) -> None:
        self._member.on_recorded_error(where, error)

    def on_service_error(self, error: ServiceError, count: int) -> None:
        """``record`` has reported it."""


class MemberProcess(Process):
    """A member's process, from its start to its end; disk, clock and host outlive it.

    ``load_service`` says which services it runs. When its disk fails it, it ends a life and begins another
    in the same process, as a ClusterNode does: each has an ``incarnation`` of its own.
    """

    service_name = "service"  # as configured, in the mark files
    mistakes: tuple[type[Exception], ...] = ()  # that end a life, and not the run

    def __init__(
        self,
        world: VirtualWorld,
        member_id: int,
        settings: Settings,
        disk: Disk,
        network: Network,
        clock: Clock,
        random: Random,
        next_incarnation: Callable[[], int],
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
        self.is_compiled = settings.is_compiled
        self.passes_max = settings.passes_max
        self.incarnation = next_incarnation()
        self._next_incarnation = next_incarnation
        self.poller = network.poller(self)
        self.files = SimulatedFiles(disk, self, 1_000 + self.incarnation)
        self.directory = f"/member-{member_id}"
        self.life: MemberLife | None = None
        self.services_stalled_until_ns: dict[int, int] = {}
        self.end: BaseException | None = None
        self._ports: SimulatedPorts | None = None
        self._random = random
        self._failures = DiskFailures()
        self._began_ns = 0
        self._has_lived = False
        self.is_up = False  # started, and taking turns

    # -- starting --

    def _start(self) -> None:
        context = replace(self.settings.context, member_id=self.member_id, cluster_id=self.cluster_id)
        if self._ports is None:
            self._ports = self.open_ports(context)
        self.life = MemberLife(self._life_settings(context), self._ports, self._failures)
        for service_id, service in enumerate(self.life.services):
            if self.network.wire is not None:
                self.network.wire.watch(service.channel, service_id, self)
            turn = partial(self._turn_service, service_id, service.agent.do_work)
            service.agent.do_work = turn  # type: ignore[method-assign]
        self.on_opened()
        self._began_ns = self.clock_ns()
        self.life.start(self._began_ns, self.epoch_ms())

    def open_ports(self, context: ConsensusModuleContext) -> SimulatedPorts:
        """What the process gives to all its lives. Raises DirectoryInUse."""
        return SimulatedPorts(self, context, self._random)

    def fetch_recordings(self, endpoint: str, recording_ids: Sequence[int]) -> FetchedRecordings:
        """From a standby, of which there is none here."""
        raise ClusterError(f"{endpoint}: nobody is there")

    def _life_settings(self, context: ConsensusModuleContext) -> LifeSettings:
        checksums = self.settings.checksums
        return LifeSettings(
            context=context,
            archive_directory=f"{self.directory}/archive",
            cluster_directory=f"{self.directory}/cluster",
            driver_directory=f"{self.directory}/driver",
            file_sync_level=self.settings.file_sync_level,
            archive_segment_file_length=self.settings.segment_length,
            archive_record_checksum=checksums[self.member_id] if checksums else None,
            archive_cached_length=self.settings.cached_length,
            services=[self.service_name] * context.service_count,
            service_modes=["inline"] * context.service_count,
            service_snapshot_timeout_ns=context.session_timeout_ns,
            service_responder=True,
            service_error_policy="continue",
            service_cycle_threshold_ns=context.cycle_threshold_ns,
            log_fragment_limit=4096,
        )

    def epoch_ms(self) -> int:
        return self.clock.epoch_ms(self.now_ns)

    def clock_ns(self) -> int:
        return self.clock.monotonic_ns(self.now_ns)

    # -- turning --

    def turn(self) -> int | None:
        """As ``AgentRunner``: look at the sockets, read the clocks once, let each agent work."""
        self.spend(TURN_NS)
        try:
            if not self.is_up:
                if (left_ns := self._failures.due_ns - self.clock_ns()) > 0:
                    return left_ns
                self._start()
                self.is_up = self._has_lived = True
                return 0
            assert self.life is not None
            reason = self.life.turn_busily()
            work_count = int(reason == 0)
            if reason not in (0, IDLE):
                if reason != TIME:
                    self.poller.wait(0)
                self.life.counters_file.update_heartbeat(self.epoch_ms())
                work_count = self.life.do_work(self.clock_ns(), self.epoch_ms())
        except FATAL as error:
            is_alone = len(self.settings.context.member_ids) == 1
            if self._has_lived and self._failures.is_survived(error, is_alone=is_alone):
                return self._end_life(error)
            self._exit(error)
            return None
        except self.mistakes as error:
            if not self.is_up:
                self._exit(error)
                return None
            assert self.life is not None
            return self._end_life(self.life.unexpected(error))
        except ServiceError:
            raise  # a fault of the simulation, which none of its members survives
        except ClusterError as error:
            if self.is_up:
                raise  # what no error is for ended it
            self._exit(error)
            return None
        self.on_turned()
        if self.life.counters.module_state.get() == ConsensusModuleState.CLOSED:
            self._exit(None)
            return None
        if work_count:
            return 0
        return min(max(self.life.next_due_ns - self.clock_ns(), 1), self.settings.tick_ns)

    def _turn_service(self, service_id: int, do_work: Callable[[int, int], int], *now: int) -> int:
        """One that is stalled takes no turn."""
        if self.world.now_ns < self.services_stalled_until_ns.get(service_id, 0):
            return 0
        return do_work(*now)

    # -- ending --

    def _end_life(self, error: ClusterError) -> int:
        """As a ClusterNode: everything is closed, and begins again after a pause."""
        now_ns = self.clock_ns()
        pause_ns = self._failures.on_failure(error, now_ns - self._began_ns if self.is_up else 0, now_ns)
        self.say(f"ends a life: {type(error).__name__}: {error}")
        self._close_life()
        self.incarnation = self._next_incarnation()
        return pause_ns

    def _close_life(self) -> None:
        self.is_up = False
        life, self.life = self.life, None
        if life is not None:
            life.abandon()

    def _exit(self, error: BaseException | None) -> None:
        """The process ends by itself, in disorder if there was an error."""
        self.end = error
        if error is None:
            self.say("ends in order")
        if error is None and self.life is not None:
            try:
                self.life.close(self.clock_ns(), self.epoch_ms())
            except Exception as failure:
                if not isinstance(failure, (ClusterError, *self.mistakes)):
                    raise
                self.say(f"could not end in order: {failure}")
        elif error is not None:
            self.say(f"ends: {type(error).__name__}: {error}")
        self.is_alive = False
        self.on_killed()

    def on_killed(self) -> None:
        self.say("is killed" if self.end is None else "is gone")
        self.disk.on_process_died(self)
        self.network.on_killed(self.poller)

    def lose_power(self) -> None:
        """Process, page cache and connections are gone, and nobody is notified."""
        self.say("loses power")
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

    # -- for whoever runs it to hear --

    def load_service(self, service_id: int, random: Random) -> ClusteredService:
        """The service of a life that begins."""
        raise NotImplementedError

    def on_opened(self) -> None:
        """A life is put together, and has not begun."""

    def on_turned(self) -> None:
        """A turn is over."""

    def on_error(self, error: Exception) -> None:
        """The member goes on after it."""
        self.say(f"error: {type(error).__name__}: {error}")

    def on_recorded_error(self, where: str, error: BaseException) -> None:
        """What a member writes to its log of errors."""
        self.say(f"error: {where}: {type(error).__name__}: {error}")
