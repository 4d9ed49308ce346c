"""One clustered service within the process of its member: what feeds it, and what is shown of it."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable
from typing import NamedTuple

from cluster.archive.mark_files import ClusterMarkFile
from cluster.counters import Counter, CountersFile
from cluster.errors import AgentTermination, ServiceError
from cluster.log.frames import message_length_max
from cluster.member.counters import DutyCycleStallTracker
from cluster.node.ports import LifeSettings
from cluster.protocol.counter_types import CounterTypeId
from cluster.service.agent import ClusteredServiceAgent
from cluster.service.channel import ServiceChannel
from cluster.service.clustered_service import ClusteredService
from cluster.service.container_snapshot import Snapshots
from cluster.service.service_context import ServiceContext

# Told of an error, and of how many there were of its kind so far.
OnServiceError = Callable[[ServiceError, int], None]


class ServiceCounters(NamedTuple):
    """Counters 215, 218 and 219 of one service; the names are those that the stall tracker sets."""

    errors: Counter
    max_cycle_time_ns: Counter
    cycle_time_exceeded: Counter


class HostedService:
    """Agent and counters of one service, and its mark file, which is its owner's to close."""

    def __init__(
        self,
        service_id: int,
        service: ClusteredService,
        channel: ServiceChannel,
        *,
        settings: LifeSettings,
        mark_file: ClusterMarkFile,
        counters_file: CountersFile,
        commit_position: Callable[[], int],
        snapshots: Snapshots,
        on_error: OnServiceError,
    ) -> None:
        context = settings.context
        self.name = f"service {service_id}"
        self._is_stopped_by_errors = settings.service_error_policy == "stop"
        self._on_error = on_error
        self._error_kinds: Tally[str] = Tally()
        self.mark_file = mark_file
        allocate = counters_file.allocate_cluster_counter
        self.counters = ServiceCounters(
            allocate(CounterTypeId.CONTAINER_ERRORS, context.cluster_id, service_id=service_id),
            allocate(CounterTypeId.CONTAINER_MAX_CYCLE_TIME, context.cluster_id, service_id=service_id),
            allocate(
                CounterTypeId.CONTAINER_CYCLE_TIME_EXCEEDED,
                context.cluster_id,
                service_id=service_id,
                threshold_ns=settings.service_cycle_threshold_ns,
            ),
        )
        self.agent = ClusteredServiceAgent(
            service,
            channel,
            commit_position,
            ServiceContext(
                service_id=service_id,
                client_id=service_id + 1,
                app_version=context.app_version,
                is_responder=settings.service_responder,
                max_message_length=message_length_max(context.log_term_length),
                log_fragment_limit=settings.log_fragment_limit,
            ),
            duty_cycle_tracker=DutyCycleStallTracker(
                self.counters,  # type: ignore[arg-type]  # has the two that the tracker sets
                settings.service_cycle_threshold_ns,
            ),
            snapshots=snapshots,
        )

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
        if self._is_stopped_by_errors and isinstance(error, ServiceError):
            raise AgentTermination(f"{error}; service_error_policy is stop") from error
