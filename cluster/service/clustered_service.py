"""What a user writes: a state machine that is fed the committed log (Aeron: ClusteredService)."""

from collections.abc import Iterable
from typing import Protocol

import numpy as np

from cluster.log.message_calls import NOT_TAKEN
from cluster.protocol.enums import CloseReason, Role
from cluster.protocol.log import NewLeadershipTermEvent
from cluster.service.client_session import ClientSession
from cluster.service.cluster import Cluster
from cluster.service.message_batch import SessionMessageBatch
from cluster.service.payload import Payload


class ExclusivePublication(Protocol):
    """What a service writes a snapshot to; the name is Aeron's."""

    @property
    def max_message_length(self) -> int:
        """The longest message, in bytes."""

    def offer(self, *message: Payload) -> int:
        """Append one message, made of the given buffers. Raises LocalProtocolError if it is too long."""


class ClusteredService:
    """A replicated state machine: the same log gives the same state on every member.

    Derive from it, and override the callbacks that you need. All callbacks run on one thread, in the order of
    the log, and never overlap. State may depend only on what they are given: no clock, no random number, no
    order of a set. ``timestamp`` is cluster time, in milliseconds by default.

    An exception in a callback is counted and reported. Then the log goes on after the entry, or the member
    ends, as ``service_error_policy`` says (docs/operations.md). Raise before you change anything, because
    nothing is undone.

    Callbacks for log entries may send messages, set timers and close sessions. In ``on_start``,
    ``on_role_change``, ``on_terminate`` and ``do_background_work`` these calls raise.
    """

    # The leader compares what members write into their snapshots at one place in the log, and reports those
    # that have come apart. A service whose snapshots differ although its state does not sets this to False.
    compares_snapshots = True

    # The longest answer of on_session_message_compiled, in bytes; at most 65,536.
    max_answer_length = 64

    # A service in a process of its own writes its snapshot in a copy of that process (fork) and goes on
    # meanwhile. One that a copy cannot serve sets this to False, and stops while it writes: with threads, a
    # GPU, or a connection or an open file that on_take_snapshot uses.
    forks_for_snapshots = True

    def on_start(self, cluster: Cluster, snapshot_image: Iterable[bytes] | None) -> None:
        """Called once, before all others. Without a snapshot, ``snapshot_image`` is None.

        Iterate over the image to get the messages that ``on_take_snapshot`` offered, as bytes. The open
        sessions are already known: ``cluster.client_sessions()``.
        """

    def on_session_open(self, session: ClientSession, timestamp: int) -> None:
        """A client has connected. Answer it with ``session.offer``."""

    def on_session_close(self, session: ClientSession, timestamp: int, close_reason: CloseReason) -> None:
        """A session is closed. Its id is no longer found, and offers to it fail."""

    def on_session_message(self, session: ClientSession | None, timestamp: int, buffer: memoryview) -> None:
        """A message. ``buffer`` is valid until return; ``session`` is None if a service sent it."""

    def on_session_messages(self, batch: SessionMessageBatch) -> None:
        """Override it to get many messages at once, as columns, in place of ``on_session_message``.

        ``cluster.log_position()`` and ``cluster.time()`` are those of the last message. Members cut the log
        into different batches, so state must not depend on them. If a batch raises, it is delivered again one
        message at a time, and messages that raise alone are skipped.
        """

    @staticmethod
    def on_session_message_compiled(
        state: np.ndarray,
        session_id: int,
        timestamp: int,
        position: int,
        payload: np.ndarray,
        answer: np.ndarray,
    ) -> int:
        """Override it to handle messages in compiled code: numba compiles it, for the array ``self.state``.

        It may change ``state``, and write an answer into ``answer``: ``max_answer_length`` zero bytes, of
        uint8 like ``payload``. It returns the length of the answer, or NO_ANSWER. If it has changed nothing,
        it may return NOT_TAKEN; then ``on_session_message`` gets the message. ``position`` is the log
        position after the message. ``session_id`` is negative if a service sent it. ``on_session_messages``
        is not called.
        """
        return NOT_TAKEN

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        """A timer has fired, at the same place in the log on every member."""

    def on_take_snapshot(self, snapshot_publication: ExclusivePublication) -> None:
        """Write the state at this position of the log, by ``snapshot_publication.offer(message)``.

        Do not change state here, because a copy of the service may run this. Members may start from each
        other's snapshots, so the same state must give the same bytes. A message is at most
        ``snapshot_publication.max_message_length`` bytes long. After an exception the member does not have
        this snapshot, and the log goes on.
        """

    def on_role_change(self, new_role: Role) -> None:
        """The member's role has changed. This is not part of the log, so keep it out of the state."""

    def on_new_leadership_term_event(self, event: NewLeadershipTermEvent) -> None:
        """The first entry of a leadership term, live or replayed."""

    def on_terminate(self, cluster: Cluster) -> None:
        """The service ends cleanly. Called once, but not if the start failed."""

    def do_background_work(self, now_ns: int) -> int:
        """Called in every duty cycle and while idling; returns the work done. Not replicated."""
        return 0


def overrides(service: object, name: str) -> bool:
    """Whether a service has its own version of a callback; it need not derive from the base class."""
    method = getattr(type(service), name, None)
    return method is not None and method is not getattr(ClusteredService, name)
