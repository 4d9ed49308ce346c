"""The services of a standby, in the thread of whoever turns it."""

from __future__ import annotations

from collections.abc import Callable

from cluster.backup.standby import StandbyLife
from cluster.service.agent import ClusteredServiceAgent
from cluster.service.clustered_service import ClusteredService
from cluster.service.container_snapshot import ArchivedSnapshots
from cluster.service.service_context import ServiceContext


class InlineHost:
    """A ``StandbyHost`` of services that are made of a function of their id."""

    def __init__(self, life: StandbyLife, make_service: Callable[[int], ClusteredService]) -> None:
        self.agents = [
            ClusteredServiceAgent(
                make_service(service_id),
                channel,
                lambda: life.position,
                ServiceContext(
                    service_id=service_id,
                    client_id=service_id + 1,
                    member_id=life.context.member_id,
                    app_version=life.context.app_version,
                ),
                snapshots=ArchivedSnapshots(service_id, life.archive, channel),
            )
            for service_id, channel in enumerate(life.channels)
        ]

    def do_work(self, now_ns: int, cluster_time: int) -> int:
        return sum(agent.do_work(now_ns, cluster_time) for agent in self.agents)

    def close(self) -> None:
        for agent in self.agents:
            agent.close()
