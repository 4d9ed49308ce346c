"""What a client hears: the listener's methods, and the batch form of them (Aeron's EgressListener).

    on_message(cluster_session_id, timestamp, payload)
    on_messages(batch)                  in place of on_message: whole runs as columns, the fast path
    on_session_event(correlation_id, cluster_session_id, leadership_term_id, leader_member_id, code, detail)
    on_new_leader(cluster_session_id, leadership_term_id, leader_member_id, ingress_endpoints)
    on_admin_response(cluster_session_id, correlation_id, request_type, response_code, message, payload)
    on_session_lost(cluster_session_id, why, uncommitted_messages)      of a client with ``reopen``

    on_extension_message(schema_id, template_id, message)          of a schema that is not the cluster's

A listener has any of them; a plain callable is ``on_message``. Payloads are the listener's until it
returns: who keeps one copies it. ``on_message`` may return a ``ControlledAction``
(Aeron's ControlledFragmentHandler); any other result means to go on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple, TypeAlias

from cluster.client.egress_listener import EgressListener
from cluster.errors import ClusterError, ConfigurationError
from cluster.protocol.arrays import np
from cluster.protocol.session import AdminResponse, NewLeaderEvent, SessionEvent

LIKENESS = 0.94  # of a name to one of METHODS that was meant


class ControlledAction(IntEnum):
    """What happens after a message. COMMIT and CONTINUE are the same here, because nothing is retained."""

    ABORT = 1  # stop, and deliver this message again with the next poll
    BREAK = 2  # stop, and go on after it with the next poll
    COMMIT = 3
    CONTINUE = 4


class Answer(NamedTuple):
    """One message of the service."""

    cluster_session_id: int
    timestamp: int  # cluster time of the log entry that was answered
    payload: bytes


@dataclass(slots=True)
class EgressBatch:
    """Messages of one session in the order in which they were sent, as columns over one buffer."""

    cluster_session_id: int
    timestamps: np.ndarray  # int64, cluster time of the log entry that was answered
    offsets: np.ndarray  # int64, of each payload in buffer
    lengths: np.ndarray  # int64
    buffer: np.ndarray  # uint8

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def payload_bytes(self) -> int:
        """The length of all payloads together."""
        lengths = self.lengths
        return int(lengths[0]) if len(lengths) == 1 else int(lengths.sum())

    def payload(self, row: int) -> memoryview:
        """One payload, without a copy."""
        begin = int(self.offsets[row])
        return self.buffer.data[begin : begin + int(self.lengths[row])]

    def answer(self, row: int) -> Answer:
        """One message, with a copy of its payload."""
        return Answer(self.cluster_session_id, int(self.timestamps[row]), bytes(self.payload(row)))

    def chosen(self, rows: list[int]) -> EgressBatch:
        """The messages in these rows, over the same buffer."""
        columns = self.timestamps[rows], self.offsets[rows], self.lengths[rows]
        return EgressBatch(self.cluster_session_id, *columns, self.buffer)

    def rows(self, begin: int, end: int) -> EgressBatch:
        """The messages from ``begin`` to ``end``, exclusive, over the same buffer."""
        return EgressBatch(
            self.cluster_session_id,
            self.timestamps[begin:end],
            self.offsets[begin:end],
            self.lengths[begin:end],
            self.buffer,
        )


@dataclass(frozen=True, slots=True)
class ExtensionMessage:
    """Egress of a schema that is not the cluster's, with its header."""

    schema_id: int
    template_id: int
    message: memoryview


@dataclass(frozen=True, slots=True)
class LostSession:
    """A session that ended against the client's will, with messages not known to be committed."""

    cluster_session_id: int
    why: str
    uncommitted_messages: int


Event: TypeAlias = SessionEvent | NewLeaderEvent | AdminResponse | ExtensionMessage | LostSession
# The method that hears of an event, and the fields of it that this is called with.
EVENTS: dict[type[Event], tuple[str, tuple[str, ...]]] = {
    SessionEvent: ("on_session_event", (
        "correlation_id", "cluster_session_id", "leadership_term_id", "leader_member_id", "code", "detail",
    )),
    NewLeaderEvent: ("on_new_leader", (
        "cluster_session_id", "leadership_term_id", "leader_member_id", "ingress_endpoints",
    )),
    AdminResponse: ("on_admin_response", (
        "cluster_session_id", "correlation_id", "request_type", "response_code", "message", "payload",
    )),
    LostSession: ("on_session_lost", ("cluster_session_id", "why", "uncommitted_messages")),
    ExtensionMessage: ("on_extension_message", ("schema_id", "template_id", "message")),
}  # fmt: skip
METHODS = ("on_message", "on_messages", *(name for name, _ in EVENTS.values()))


class EgressDispatch:
    """Calls what a listener has, and nothing for what it lacks."""

    def __init__(self, methods: dict[str, Callable[..., Any]]) -> None:
        self._methods = methods
        self._on_message = methods.get("on_message")
        self._on_messages = methods.get("on_messages")
        self.rows_done = 0  # of the batch that ``messages`` was given, also when the listener raised

    @property
    def hears_messages(self) -> bool:
        return self._on_message is not None or self._on_messages is not None

    @property
    def hears_of_lost_sessions(self) -> bool:
        return "on_session_lost" in self._methods

    def messages(self, batch: EgressBatch) -> None:
        """Report a batch; ``rows_done`` counts a row at which a listener raised, and none that aborts."""
        self.rows_done = len(batch)
        if self._on_messages is not None:
            self._on_messages(batch)
        elif self._on_message is not None:
            on_message = self._on_message
            session_id = batch.cluster_session_id
            view: memoryview = batch.buffer.data
            rows = zip(
                batch.timestamps.tolist(),
                batch.offsets.tolist(),
                batch.lengths.tolist(),
                strict=True,
            )
            row = 0
            try:
                for row, (timestamp, begin, length) in enumerate(rows, 1):
                    action = on_message(session_id, timestamp, view[begin : begin + length])
                    if action.__class__ is ControlledAction and action <= ControlledAction.BREAK:
                        self.rows_done = row - (action is ControlledAction.ABORT)
                        return
            except BaseException:
                self.rows_done = row
                raise

    def event(self, event: Event) -> None:
        """Report what is no application's message.

        ``ClusterError`` when nobody listens to other schemas: it would be lost silently.
        """
        if isinstance(event, ExtensionMessage) and "on_extension_message" not in self._methods:
            raise ClusterError(
                f"egress has template {event.template_id} of schema {event.schema_id}, and the listener has "
                "no on_extension_message"
            )
        name, fields = EVENTS[type(event)]
        if (method := self._methods.get(name)) is not None:
            method(*(getattr(event, field) for field in fields))


def as_dispatch(listener: object) -> EgressDispatch:
    """Take a callable, an object with some of ``METHODS``, or None for a client that does not listen.

    ``ConfigurationError`` for anything else, and for a method that nobody calls though its name is like one
    of them: it would hear nothing and never say so.
    """
    if listener is None:
        return EgressDispatch({})
    for name in dir(listener):
        if name.startswith("on_") and name not in METHODS and callable(getattr(listener, name)):
            from difflib import get_close_matches  # which nobody else needs

            if meant := get_close_matches(name, METHODS, 1, LIKENESS):
                where = f"{type(listener).__name__}.{name}"
                raise ConfigurationError(
                    f"egress_listener: {where} is never called; did you mean {meant[0]}?"
                )
    methods = {
        name: method
        for name in METHODS
        if callable(method := getattr(listener, name, None))
        and getattr(method, "__func__", method) is not getattr(EgressListener, name, None)
    }
    if not methods and not isinstance(listener, EgressListener):
        if not callable(listener):
            raise ConfigurationError(
                f"egress_listener: expected a callable or an object with one of {', '.join(METHODS)}, "
                f"got {listener!r}"
            )
        methods = {"on_message": listener}
    return EgressDispatch(methods)
