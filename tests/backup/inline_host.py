"""The services of a standby, in the thread of whoever turns it."""

from __future__ import annotations

from collections.abc import Callable

from cluster.backup.standby import StandbyLife
from cluster.service.agent import ClusteredServiceAgent
from cluster.service.clustered_service import ClusteredService
from cluster.service.container_snapshot import ArchivedSnapshots
from cluster.service.service_context import ServiceContext


class InlineService(ClusteredServiceAgent):
    """A ``StandbyService``; what goes wrong in it ends its standby."""

    turn = ClusteredServiceAgent.do_work


def host_inline(life: StandbyLife, make_service: Callable[[int], ClusteredService]) -> list[InlineService]:
    """Services that are made of a function of their id."""
    return [
        InlineService(
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
