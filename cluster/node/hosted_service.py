"""One clustered service of a member, inline or in a process of its own, and what is shown of it."""

from collections import Counter as Tally
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Self

from cluster.archive.mark_files import ClusterMarkFile
from cluster.archive.recording_log import RecordingLog
from cluster.archive.snapshot_archive import SnapshotArchive
from cluster.archive.stored_recording import StoredRecording
from cluster.counters import Counter, CountersFile
from cluster.errors import AgentTermination, ClusterError, ServiceError
from cluster.member.counters import DutyCycleStallTracker
from cluster.member.disk.snapshots import recovery_state
from cluster.member.services import service_table
from cluster.member.services.remote_service import RemotePorts, RemoteService, ServiceProcess
from cluster.member.services.service_table import ServiceTable
from cluster.node.disk_failures import SURVIVED
from cluster.node.ports import ServiceSettings
from cluster.protocol.counter_types import CounterTypeId
from cluster.protocol.frame import message_length_max
from cluster.protocol.service_link import ServicePosition, ServiceStart
from cluster.service.agent import ClusteredServiceAgent
from cluster.service.channel import RecoveryState, ServiceChannel
from cluster.service.clustered_service import ClusteredService
from cluster.service.container_snapshot import ArchivedSnapshots
from cluster.service.service_context import ServiceContext

DELAYED_TURNS = 10  # times service_cycle_threshold: so long is reported

# Called with an error, and with how many there were of its kind so far.
OnServiceError = Callable[[ServiceError, int], None]


# A container of this process, or what stands for one in another.
ServiceAgent = ClusteredServiceAgent | RemoteService


class ServiceCounters(NamedTuple):
    """Counters 215, 218, 219, 1113, 1130 of one service; two have the names that the stall tracker sets."""

    errors: Counter
    max_cycle_time_ns: Counter
    cycle_time_exceeded: Counter
    position: Counter
    standstill_ns: Counter

    @classmethod
    def allocate(cls, file: CountersFile, settings: ServiceSettings, service_id: int) -> Self:
        allocate = partial(
            file.allocate_cluster_counter, cluster_id=settings.context.cluster_id, service_id=service_id
        )
        return cls(
            allocate(CounterTypeId.CONTAINER_ERRORS),
            allocate(CounterTypeId.CONTAINER_MAX_CYCLE_TIME),
            allocate(
                CounterTypeId.CONTAINER_CYCLE_TIME_EXCEEDED, threshold_ns=settings.service_cycle_threshold_ns
            ),
            allocate(CounterTypeId.SERVICE_POSITION),
            allocate(CounterTypeId.SERVICE_STANDSTILL),
        )

    def show(self, position: ServicePosition) -> None:
        """What a service in a process of its own reports of its turns."""
        self.max_cycle_time_ns.set(position.max_cycle_time_ns)
        self.cycle_time_exceeded.set(position.cycle_time_exceeded)

    def show_standstill(self, stands_ns: int) -> None:
        """Of one in a process of its own."""
        self.standstill_ns.set(stands_ns)


@dataclass(frozen=True, slots=True)
class HostPorts:
    """What a life gives to the services that it hosts. ``record`` hears of all that goes wrong in one."""

    settings: ServiceSettings
    table: ServiceTable
    load: Callable[[int], ClusteredService]
    open_process: Callable[[int], ServiceProcess]  # of a service that is not inline
    snapshots: SnapshotArchive
    recording: Callable[[], StoredRecording | None]  # that holds the log
    recording_log: RecordingLog
    commit_position: Callable[[], int]
    clock_ns: Callable[[], int]
    say: Callable[[str], None]
    warn: Callable[[str], None]
    record: Callable[[ClusterMarkFile, str, Exception], None]
    on_service_error: OnServiceError


class HostedService:
    """What takes its turns, its counters, and its mark file, which is its owner's to close."""

    def __init__(
        self,
        service_id: int,
        channel: ServiceChannel,
        counters: ServiceCounters,
        mark_file: ClusterMarkFile,
        ports: HostPorts,
    ) -> None:
        settings = ports.settings
        self.name = f"service {service_id}"
        self.slow_turns: SlowTurns | None = None
        self.counters = counters
        self.mark_file = mark_file
        self.channel = channel
        words = ports.table.row(service_id)
        words[service_table.POSITION_COUNTER] = counters.position.index
        words[service_table.MAX_CYCLE_COUNTER] = counters.max_cycle_time_ns.index
        words[service_table.CYCLES_EXCEEDED_COUNTER] = counters.cycle_time_exceeded.index
        self._ports = ports
        self._error_kinds: Tally[str] = Tally()
        make = self._inline if settings.service_modes[service_id] == "inline" else self._remote
        self.agent = make(service_id, _start(service_id, settings))

    def _inline(self, service_id: int, start: ServiceStart) -> ServiceAgent:
        """The container of a service that shares its member's thread."""
        ports, settings = self._ports, self._ports.settings
        agent = ClusteredServiceAgent(
            ports.load(service_id),
            self.channel,
            ports.commit_position,
            ServiceContext.of(service_id, start),
            duty_cycle_tracker=DutyCycleStallTracker(
                self.counters,  # type: ignore[arg-type]  # has the two that the tracker sets
                start.cycle_threshold_ns,
            ),
            snapshots=ArchivedSnapshots(service_id, ports.snapshots, self.channel),
            on_reported=self._on_error,
        )
        self.slow_turns = SlowTurns(
            f"{self.name} ({settings.services[service_id]})",
            "standby" if settings.context.is_standby else "member",
            agent,
            start.cycle_threshold_ns,
            ports.clock_ns,
            ports.say,
        )
        return agent

    def _remote(self, service_id: int, start: ServiceStart) -> ServiceAgent:
        """What stands for a service in a process of its own."""
        ports, settings = self._ports, self._ports.settings
        remote_ports = RemotePorts(
            process=ports.open_process(service_id),
            words=ports.table.row(service_id),
            snapshots=ports.snapshots,
            recording=ports.recording,
            newest_snapshot=self._newest_snapshot,
            commit_position=ports.commit_position,
            gauges=self.counters,
            say=ports.say,
            warn=ports.warn,
            on_error=self._on_error,
            snapshot_timeout_ns=settings.service_snapshot_timeout_ns,
            termination_timeout_ns=settings.context.termination_timeout_ns,
        )
        return RemoteService(service_id, start, self.channel, remote_ports)

    def _newest_snapshot(self, position_max: int) -> RecoveryState | None:
        """For one that starts again: its module has loaded or taken it, and knows that it is whole."""
        ports, log = self._ports, self._ports.recording()
        position_min = 0 if log is None else log.start_position
        for entries in ports.recording_log.snapshot_sets(ports.settings.context.service_count):
            if position_min <= entries[0].log_position <= position_max:
                return recovery_state(entries)
        return None

    def _on_error(self, error: Exception) -> None:
        """Raises AgentTermination where the configuration says that an error of a service ends its member."""
        self.note(error)
        is_end = self._ports.settings.service_error_policy == "stop"
        if is_end and isinstance(error, ServiceError) and not error.is_reported:
            raise AgentTermination(f"{error}; service_error_policy is stop") from error

    def turn(self, now_ns: int, cluster_time: int) -> int:
        """``do_work``; of an error that is meant for it the host hears, and it goes on after that entry.

        Raises SURVIVED when the disk fails it, AgentTermination, and what no turn is meant to raise: nobody
        knows how much of an entry its container has taken then.
        """
        try:
            return self.do_work(now_ns, cluster_time)
        except (AgentTermination, *SURVIVED):
            raise
        except ClusterError as error:
            self._on_error(error)
            return 0

    def do_work(self, now_ns: int, cluster_time: int) -> int:
        """Give it a turn, and show how far it has come."""
        if self.slow_turns is not None:
            self.slow_turns.begin()
        try:
            return self.agent.do_work(now_ns, cluster_time)
        finally:
            self.counters.position.set(self.channel.log_position)
            if self.slow_turns is not None:
                self.slow_turns.end()

    def note(self, error: Exception) -> None:
        """Record and count an error; report the first of its kind, and whenever their number has doubled."""
        self._ports.record(self.mark_file, self.name, error)
        self.counters.errors.get_and_add(1)
        if isinstance(error, ServiceError):
            self._error_kinds[error.kind] += 1
            count = self._error_kinds[error.kind]
            if count & (count - 1) == 0:
                self._ports.on_service_error(error, count)

    def close(self) -> None:
        """End it in order, and its process. What it raises is noted."""
        try:
            self.agent.close()
        except Exception as error:
            self.note(error)


def host_services(
    channels: Iterable[ServiceChannel],
    counters: Iterable[ServiceCounters],
    mark_files: Iterable[ClusterMarkFile],
    ports: HostPorts,
) -> list[HostedService]:
    """All services of a life, each with its own of these. Raises ConfigurationError, PortInUse."""
    services = []
    with ExitStack() as opened:
        for service_id, owned in enumerate(zip(channels, counters, mark_files, strict=False)):
            services.append(HostedService(service_id, *owned, ports))
            opened.callback(services[-1].close)
        opened.pop_all()
    return services


@dataclass(slots=True)
class SlowTurns:
    """Says once that an inline service holds up its ``host``: as long as a turn of its own takes."""

    name: str
    host: str  # member or standby
    agent: ClusteredServiceAgent
    threshold_ns: int
    clock_ns: Callable[[], int]
    say: Callable[[str], None]
    began_ns: int = 0
    is_logged: bool = False

    def begin(self) -> None:
        self.began_ns = self.clock_ns()

    def end(self) -> None:
        took_ns = self.clock_ns() - self.began_ns
        if took_ns > DELAYED_TURNS * self.threshold_ns and not self.is_logged:
            self.is_logged = True
            self.say(
                f"{self.name} runs inline and has held up its {self.host} for {took_ns / 1e9:.1f} s in "
                f'{self.agent.last_callback}: with service_mode = ["process"] the {self.host} would go on'
            )


def _start(service_id: int, settings: ServiceSettings) -> ServiceStart:
    """What a service goes by; where one in a process of its own starts is put in when it starts."""
    context = settings.context
    return ServiceStart(
        cluster_id=context.cluster_id,
        member_id=context.member_id,
        leadership_term_id=-1,
        log_position=0,
        timestamp=0,
        snapshot_recording_id=-1,
        max_message_length=message_length_max(context.log_term_length),
        cycle_threshold_ns=settings.service_cycle_threshold_ns,
        log_fragment_limit=settings.log_fragment_limit,
        app_version=context.app_version,
        is_responder=settings.service_responder,
        name=settings.services[service_id].encode(),
        archive_directory=settings.archive_directory.encode(),
        cluster_directory=settings.cluster_directory.encode(),
    )
