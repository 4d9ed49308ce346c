"""One clustered service of a member, inline or in a process of its own, and what is shown of it."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol, Self

from cluster.archive.mark_files import ClusterMarkFile
from cluster.archive.snapshot_archive import SnapshotArchive
from cluster.counters import Counter, CountersFile
from cluster.errors import AgentTermination, ServiceError
from cluster.log.frames import message_length_max
from cluster.member.counters import DutyCycleStallTracker
from cluster.node.ports import ServiceSettings
from cluster.protocol.counter_types import CounterTypeId
from cluster.protocol.service_link import ServicePosition, ServiceStart
from cluster.service.agent import ClusteredServiceAgent
from cluster.service.channel import ServiceChannel
from cluster.service.clustered_service import ClusteredService
from cluster.service.container_snapshot import ArchivedSnapshots
from cluster.service.service_context import ServiceContext

HELD_UP_TURNS = 10  # times service_cycle_threshold: so long is told of

# Told of an error, and of how many there were of its kind so far.
OnServiceError = Callable[[ServiceError, int], None]


class ServiceAgent(Protocol):
    """A container of this process, or what stands for one in another."""

    def do_work(self, now_ns: int, cluster_time: int) -> int: ...

    @property
    def awaits_events(self) -> bool:
        """Whether only its member, a socket or time gives it more to do: False where it cannot say."""

    def close(self) -> None: ...


class ServiceCounters(NamedTuple):
    """Counters 215, 218, 219 and 1113 of one service; two names are those that the stall tracker sets."""

    errors: Counter
    max_cycle_time_ns: Counter
    cycle_time_exceeded: Counter
    position: Counter

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
        )

    def show(self, position: ServicePosition) -> None:
        """What a service in a process of its own tells of its turns."""
        self.max_cycle_time_ns.set(position.max_cycle_time_ns)
        self.cycle_time_exceeded.set(position.cycle_time_exceeded)


class HostedService:
    """What takes its turns, its counters, and its mark file, which is its owner's to close."""

    def __init__(
        self,
        service_id: int,
        agent: ServiceAgent,
        channel: ServiceChannel,
        counters: ServiceCounters,
        mark_file: ClusterMarkFile,
        settings: ServiceSettings,
        on_error: OnServiceError,
    ) -> None:
        self.name = f"service {service_id}"
        self.slow_turns: SlowTurns | None = None  # of an inline one
        self.agent = agent
        self.counters = counters
        self.mark_file = mark_file
        self.channel = channel
        self._is_stopped_by_errors = settings.service_error_policy == "stop"
        self._on_error = on_error
        self._error_kinds: Tally[str] = Tally()

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

    def on_error(self, error: Exception) -> None:
        """Count an error; tell the first of its kind, and then whenever their number has doubled."""
        self.counters.errors.get_and_add(1)
        if isinstance(error, ServiceError):
            self._error_kinds[error.kind] += 1
            count = self._error_kinds[error.kind]
            if count & (count - 1) == 0:
                self._on_error(error, count)

    def check_policy(self, error: Exception) -> None:
        """Raise AgentTermination where the configuration says that an error of a service ends its member."""
        if self._is_stopped_by_errors and isinstance(error, ServiceError) and not error.is_reported:
            raise AgentTermination(f"{error}; service_error_policy is stop") from error


class SlowTurns:
    """Says once that an inline service holds up its member: as long as a turn of its own takes."""

    def __init__(
        self,
        name: str,
        agent: ClusteredServiceAgent,
        threshold_ns: int,
        clock_ns: Callable[[], int],
        tell: Callable[[str], None],
    ) -> None:
        self._name = name
        self._agent = agent
        self._limit_ns = HELD_UP_TURNS * threshold_ns
        self._clock_ns = clock_ns
        self._tell = tell
        self._began_ns = 0
        self._is_told = False

    def begin(self) -> None:
        self._began_ns = self._clock_ns()

    def end(self) -> None:
        took_ns = self._clock_ns() - self._began_ns
        if took_ns > self._limit_ns and not self._is_told:
            self._is_told = True
            self._tell(
                f"{self._name} runs inline and has held up its member for {took_ns / 1e9:.1f} s in "
                f'{self._agent.last_callback}: with service_mode = ["process"] the member would go on'
            )


def inline_agent(
    service_id: int,
    service: ClusteredService,
    channel: ServiceChannel,
    counters: ServiceCounters,
    settings: ServiceSettings,
    commit_position: Callable[[], int],
    archive: SnapshotArchive,
    on_reported: Callable[[ServiceError], None],
) -> ClusteredServiceAgent:
    """The container of a service that shares its member's thread."""
    context = settings.context
    return ClusteredServiceAgent(
        service,
        channel,
        commit_position,
        ServiceContext(
            service_id=service_id,
            client_id=service_id + 1,
            app_version=context.app_version,
            is_responder=settings.service_responder,
            service_name=settings.services[service_id],
            cluster_id=context.cluster_id,
            member_id=context.member_id,
            cluster_directory=settings.cluster_directory,
            archive_directory=settings.archive_directory,
            max_message_length=message_length_max(context.log_term_length),
            log_fragment_limit=settings.log_fragment_limit,
        ),
        duty_cycle_tracker=DutyCycleStallTracker(
            counters,  # type: ignore[arg-type]  # has the two that the tracker sets
            settings.service_cycle_threshold_ns,
        ),
        snapshots=ArchivedSnapshots(service_id, archive, channel),
        on_reported=on_reported,
    )


def service_start(service_id: int, settings: ServiceSettings) -> ServiceStart:
    """What a process is told of its service; where it starts is put in when it starts."""
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
