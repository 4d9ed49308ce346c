"""A service that a task gives the log to, and the rows of what comes of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cluster.errors import ServiceError
from cluster.protocol.frame import message_length_max
from spark_connector.options.cluster_options import SourceOptions
from spark_connector.options.directory_options import ReplayOptions

if TYPE_CHECKING:
    from cluster.reader import LogReader
    from cluster.reader.replayed_log import ReplayedLog
    from cluster.reader.snapshots import StoredSnapshot
    from cluster.service.replay import Sent, ServiceReplay


def service_replay(
    options: ReplayOptions | SourceOptions,
    reader: LogReader,
    log: ReplayedLog,
    begin: int,
    start: StoredSnapshot | None,
    app_version: int,
) -> ServiceReplay:
    """A new instance of the service of ``options`` that is to be given ``log`` from ``begin`` on, with the
    state of the snapshot ``start``, or with none.

    Answers have the position of their turn. Raises ConfigurationError, LogDamaged, NotAClusterDirectory.
    """
    from cluster.service.channel import RecoveryState
    from cluster.service.replay import ServiceReplay
    from cluster.service.service_context import ServiceContext
    from cluster.service.service_loader import load_service

    service, service_id = options.service, options.service_id
    assert service is not None
    context = ServiceContext(
        service_id=service_id,
        service_name=service,
        cluster_id=reader.identity.cluster_id if reader.identity is not None else 0,
        client_id=service_id + 1,
        app_version=app_version,
        max_message_length=message_length_max(reader.term_length),
    )
    if "EGRESS" in options.kinds:
        context = replace(context, log_fragment_limit=1)
    recovery = None
    if start is not None:
        recording_ids = (start.recording_id,) * (service_id + 1)
        recovery = RecoveryState(start.leadership_term_id, begin, start.timestamp, recording_ids)
    return ServiceReplay(
        load_service(service),
        log,
        context,
        recovery=recovery,
        image=None if start is None else start.open(),
        is_at_end=lambda: log.is_at_end,
    )


def app_version_of(reader: LogReader, begin: int, end: int) -> int:
    """The version of the application in the first term that begins in ``[begin, end)``; 0 without one."""
    entries = reader.entries(begin, end, entry_types=("NEW_LEADERSHIP_TERM",))
    first = next(entries, None)
    return 0 if first is None else first.get("appVersion", 0)


def event_row(event: Sent | ServiceError) -> dict[str, Any]:
    """What a service has sent, or what one of its callbacks has raised."""
    if isinstance(event, ServiceError):
        return {"kind": "ERROR", "position": event.log_position, "message": str(event)}
    return {
        "kind": event.kind.name,
        "position": event.position,
        "clusterTime": event.cluster_time,
        "clusterSessionId": event.cluster_session_id,
        "correlationId": event.correlation_id,
        "deadline": event.deadline,
        "payload": event.payload,
    }
