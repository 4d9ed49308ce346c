"""The service of the simulation: whatever it is given goes into a chain of hashes, which members compare.

A member may run several, which are given the same log: each has a chain, timers, answers and messages of its
own. What a client asks is in the first byte of its message:

    .  nothing          e  echo            t  a timer, maybe one moved     x  a timer, and its cancellation
    m  a message of the service to its own cluster                         c  close my session
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from zlib import crc32

from cluster.protocol.enums import CloseReason
from cluster.protocol.log import NewLeadershipTermEvent
from cluster.service.clustered_service import ClusteredService
from cluster.service.message_batch import SessionMessageBatch

TIMER_DELAYS_MS = (0, 5, 250, 3_000)
SERVICE_MARK = b"S"  # begins what the service itself sends


def timer_id(position: int, service_id: int) -> int:
    """Correlation id of the timer that a service sets for the message that ends at ``position``."""
    return position + service_id  # positions are multiples of 32


def timer_delay_ms(position: int) -> int:
    return TIMER_DELAYS_MS[position // 32 % len(TIMER_DELAYS_MS)]


class ChainService(ClusteredService):
    """State: the chain. ``on_applied(service_id, position, chain)`` hears of every entry."""

    forks_for_snapshots = False  # there is one process of ours
    first_delay_ms = 0  # of a timer that is moved or cancelled at once

    def __init__(self, service_id: int, on_applied: Callable[[int, int, int], None]) -> None:
        self._service_id = service_id
        self._on_applied = on_applied
        self._cluster: Any = None
        self.chain = service_id  # no service has the state of another
        self.echoed = 0

    def _apply(self, kind: bytes, *details: object) -> None:
        position = self._cluster.log_position()
        self._add(position, kind, *details)

    def _add(self, position: int, kind: bytes, *details: object) -> None:
        self.chain = crc32(b"%s %d %s" % (kind, position, repr(details).encode()), self.chain)
        self._on_applied(self._service_id, position, self.chain)

    def tell_applied(self) -> None:
        """Tell of what was applied where nothing can be told."""

    def on_start(self, cluster: Any, snapshot_image: Any) -> None:
        self._cluster = cluster
        if snapshot_image is not None:
            self.chain, self.echoed = (int(record) for record in snapshot_image)

    def on_take_snapshot(self, snapshot_publication: Any) -> None:
        for number in (self.chain, self.echoed):
            snapshot_publication.offer(b"%d" % number)

    def on_session_open(self, session: Any, timestamp: int) -> None:
        self._apply(b"open", session.id, timestamp, bytes(session.encoded_principal))

    def on_session_close(self, session: Any, timestamp: int, close_reason: CloseReason) -> None:
        self._apply(b"close", session.id, timestamp, close_reason.name)

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        self._apply(b"timer", correlation_id, timestamp)

    def on_new_leadership_term_event(self, event: NewLeadershipTermEvent) -> None:
        self._apply(b"term", event.leadership_term_id, event.leader_member_id, event.timestamp)

    def on_session_message(self, session: Any, timestamp: int, buffer: memoryview) -> None:
        self._take(session, timestamp, bytes(buffer), self._cluster.log_position())

    def _take(self, session: Any, timestamp: int, payload: bytes, position: int) -> None:
        session_id = 0 if session is None else session.id
        self._add(position, b"message", session_id, timestamp, payload)
        if session is None:
            return
        cluster, timer = self._cluster, timer_id(position, self._service_id)
        match payload[:1]:
            case b"e":
                session.offer(b"%d%s" % (self._service_id, payload[1:]))
                self.echoed += 1
            case b"t":
                if position // 32 % 2:
                    assert cluster.schedule_timer(timer, timestamp + self.first_delay_ms)
                assert cluster.schedule_timer(timer, timestamp + timer_delay_ms(position))
            case b"x":
                delay_ms = self.first_delay_ms or timer_delay_ms(position)
                assert cluster.schedule_timer(timer, timestamp + delay_ms)
                assert cluster.cancel_timer(timer)
            case b"m":
                assert cluster.offer(SERVICE_MARK + payload) > 0
            case b"c":
                assert cluster.close_client_session(session.id)


class VectorisedChainService(ChainService):
    """The same state machine, given runs of messages: batches are cut differently, the chain is not."""

    def on_session_messages(self, batch: SessionMessageBatch) -> None:
        rows = zip(batch.session_ids.tolist(), batch.timestamps.tolist(), batch.positions.tolist())
        for (session_id, timestamp, position), payload in zip(rows, batch.payloads()):
            session = self._cluster.get_client_session(session_id)
            self._take(session, timestamp, bytes(payload), position)
