"""The whole log once more, through a service that starts from nothing: what state and answers must be."""

from dataclasses import dataclass, field

from cluster.archive.log_cursor import LogSource
from cluster.service.clustered_service import ClusteredService
from cluster.service.replay import Sent, SentKind, ServiceReplay
from cluster.service.service_context import ServiceContext


@dataclass
class Replay:
    """``state`` is what the service would write into a snapshot; ``answers`` are by session id."""

    state: tuple[bytes, ...] = ()
    answers: dict[int, list[bytes]] = field(default_factory=dict)


def replay_log(service: ClusteredService, log: LogSource, end: int, context: ServiceContext) -> Replay:
    """Give a service ``[0, end)`` of a log, as a leader that has just started does."""
    replay, replayed = ServiceReplay(service, log, context), Replay()
    for sent in replay.run(end):
        if isinstance(sent, Sent) and sent.kind is SentKind.EGRESS:
            assert sent.cluster_session_id is not None and sent.payload is not None
            replayed.answers.setdefault(sent.cluster_session_id, []).append(sent.payload)
    replayed.state = replay.state()
    return replayed
