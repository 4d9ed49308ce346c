"""OpenTelemetry spans of single messages, from the offer to the Spark batch that read them; extra ``[otel]``.

One message of so many bytes of log is traced: the one that lies across a multiple of ``every_bytes``. Its
trace id follows from that place, so client, service and Spark need not exchange it, and no byte of a
message changes. Whoever uses none of this pays nothing.

    client    offer ───────── cluster.commit (from the offer to the acknowledgement), cluster.answer
    leader    the service ─── cluster.service
    Spark     the driver ──── cluster.batch (``spark_connector/tracing.py``)
"""

from __future__ import annotations

import hashlib
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from cluster.client.requests import TIMEOUT_S
from cluster.errors import need
from cluster.protocol.enums import Role
from cluster.protocol.frame import HEADER_LENGTH, align
from cluster.protocol.session import SessionMessageHeader
from cluster.service.payload import Payload, view_of

need("otel")

from opentelemetry import trace  # noqa: E402
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags  # noqa: E402

if TYPE_CHECKING:
    from cluster.client.cluster_client import ClusterClient
    from cluster.client.egress_dispatch import Answer
    from cluster.service.cluster import Cluster

OVERHEAD = HEADER_LENGTH + len(SessionMessageHeader(0, 0, 0).encode())  # of a message in one frame


class Tracing:
    """Which messages are traced, and what becomes of it: spans of the tracer provider that is set."""

    def __init__(self, cluster: str, every_bytes: int = 1 << 20) -> None:
        """``cluster``: a name for it, the same in all programs, as ``every_bytes`` has to be."""
        self.every_bytes = every_bytes
        self._cluster = cluster
        self._tracer = trace.get_tracer("cluster")

    def places(self, begin: int, end: int) -> range:
        """The multiples of ``every_bytes`` in the log's [``begin``, ``end``)."""
        return range(-(-begin // self.every_bytes) * self.every_bytes, end, self.every_bytes)

    def add(self, name: str, place: int, begin_ns: int, end_ns: int, **attributes: Any) -> None:
        """A span of the message at this place; times are since the epoch."""
        ids = hashlib.sha256(f"{self._cluster}:{place}".encode()).digest()
        above = SpanContext(
            int.from_bytes(ids[:16]), int.from_bytes(ids[16:24]), True, TraceFlags(TraceFlags.SAMPLED)
        )
        given: dict[str, Any] = {"cluster.name": self._cluster, "cluster.place": place}
        given |= {f"cluster.{key}": value for key, value in attributes.items()}
        context = trace.set_span_in_context(NonRecordingSpan(above))
        self._tracer.start_span(name, context, attributes=given, start_time=begin_ns).end(end_ns)

    @contextmanager
    def serving(self, cluster: Cluster, payload: Payload) -> Iterator[None]:
        """Within ``on_session_message``: the span of what the leader's service does with it, live."""
        end = cluster.log_position()
        places = self.places(end - align(OVERHEAD + view_of(payload).nbytes), end)
        if not places or cluster.role() is not Role.LEADER:
            yield
            return
        begin_ns = time.time_ns()
        try:
            yield
        finally:
            self.add("cluster.service", places[0], begin_ns, time.time_ns())


class TracedClient:
    """A client for one thread, of whose messages some are traced. All else is as ``ClusterClient`` has it.

    Where messages are committed together, the client learns of the last one alone where it is in the log:
    one of the others has no span of its client.
    """

    def __init__(self, client: ClusterClient, tracing: Tracing) -> None:
        self._client = client
        self._tracing = tracing
        # Offered and not acknowledged: number in the session, bytes in the log, when offered, when answered.
        self._pending: deque[tuple[int, int, int, int | None]] = deque()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def offer(self, *parts: Payload) -> int:
        begin_ns = time.time_ns()
        result = self._client.offer(*parts)
        if result > 0:
            self._note(parts, begin_ns)
        self._look()
        return result

    def send(self, *parts: Payload, timeout_s: float | None = None) -> int:
        begin_ns = time.time_ns()
        result = self._client.send(*parts, timeout_s=timeout_s)
        self._note(parts, begin_ns)
        self._look()
        return result

    def request(self, *parts: Payload, timeout_s: float = TIMEOUT_S) -> Answer:
        begin_ns = time.time_ns()
        answer = self._client.request(*parts, timeout_s=timeout_s)
        self._note(parts, begin_ns, time.time_ns())
        self._look()
        return answer

    def poll_egress(self, fragment_limit: int | None = None) -> int:
        dispatched = self._client.poll_egress(fragment_limit)
        self._look()
        return dispatched

    def await_committed(self, timeout_s: float | None = None) -> int:
        position = self._client.await_committed(timeout_s)
        self._look()
        return position

    def _note(self, parts: tuple[Payload, ...], begin_ns: int, answered_ns: int | None = None) -> None:
        length = align(OVERHEAD + sum(view_of(part).nbytes for part in parts))
        self._pending.append((self._client.offered, length, begin_ns, answered_ns))

    def _look(self) -> None:
        """Leave what is committed, with spans of the message that is traced."""
        client, pending = self._client, self._pending
        acknowledged, end = client.last_committed()
        if pending and pending[0][0] > client.offered:
            pending.clear()  # of a session before this one
        while pending and pending[0][0] <= acknowledged:
            number, length, begin_ns, answered_ns = pending.popleft()
            if number == acknowledged and (places := self._tracing.places(end - length, end)):
                of = {"session": client.cluster_session_id, "number": number, "position": end}
                self._tracing.add("cluster.commit", places[0], begin_ns, time.time_ns(), **of)
                if answered_ns is not None:
                    self._tracing.add("cluster.answer", places[0], begin_ns, answered_ns, **of)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._client.__exit__(*error)
