"""What a user writes: a state machine that is fed the committed log (Aeron: ClusteredService)."""

from __future__ import annotations

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
    """What a snapshot is written into, by its name in Aeron."""

    @property
    def max_message_length(self) -> int:
        """In bytes."""

    def offer(self, *message: Payload) -> int:
        """Append one message, gathered from the given buffers; raises LocalProtocolError for its length."""


class ClusteredService:
    """A replicated state machine: same log in, same state on every member.

    Derive from it and override what is of interest. All callbacks run in log order on one thread and
    never overlap. State may depend on what they are given only: no clock, no randomness, no set order.
    ``timestamp`` is cluster time (milliseconds by default). An exception that leaves a callback is counted
    and told, and the log goes on *after* the entry that caused it, or the member ends, as
    ``service_error_policy`` says (docs/operations.md). Raise before anything is changed: nothing is undone.

    Sending, timers and closing sessions are for the callbacks of log entries; in ``on_start``,
    ``on_role_change``, ``on_terminate`` and ``do_background_work`` they raise.
    """

    # The leader compares what members write into their snapshots at one place in the log, and tells of those
    # that have come apart. A service whose snapshots differ although its state does not sets this to False.
    compares_snapshots = True

    # The longest answer of on_session_message_compiled, in bytes; at most 65,536.
    max_answer_length = 64

    # A service in a process of its own writes its snapshot in a copy of that process (fork) and goes on
    # meanwhile. One that a copy cannot serve sets this to False, and stops while it writes: with threads, a
    # GPU, or a connection or an open file that on_take_snapshot uses.
    forks_for_snapshots = True

    def on_start(self, cluster: Cluster, snapshot_image: Iterable[bytes] | None) -> None:
        """Called once, first; ``snapshot_image`` is what this service saved, None without a snapshot.

        Iterate over the image: each item is one message as it was offered in ``on_take_snapshot``, as bytes.
        Open sessions are known already: ``cluster.client_sessions()``.
        """

    def on_session_open(self, session: ClientSession, timestamp: int) -> None:
        """A client has connected; answers to it go through ``session.offer``."""

    def on_session_close(self, session: ClientSession, timestamp: int, close_reason: CloseReason) -> None:
        """The session is gone already: it is no longer found by its id, and offers to it fail."""

    def on_session_message(self, session: ClientSession | None, timestamp: int, buffer: memoryview) -> None:
        """One message; the buffer holds until the callback returns; no session: a service sent it."""

    def on_session_messages(self, batch: SessionMessageBatch) -> None:
        """Override to be given runs of messages as columns instead of ``on_session_message`` calls.

        Within it ``cluster.log_position()`` and ``cluster.time()`` are those of the last message.
        How the log is cut into batches differs between members: state must not depend on it. A batch that
        raises comes again one message at a time, and those that raise alone are passed over.
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
        """Override to have messages taken in compiled code: numba compiles it, for the array ``self.state``.

        It may change ``state``, and write into ``answer``: zeros before, ``max_answer_length`` long, of uint8
        as ``payload``. It returns the length of the answer, or NO_ANSWER. Or it changes nothing and returns
        NOT_TAKEN: then ``on_session_message`` gets the message. ``position`` is that after the message;
        ``session_id`` is negative where a service sent it. ``on_session_messages`` is not called.
        """
        return NOT_TAKEN

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        """A timer has fired, at the same place in the log on every member."""

    def on_take_snapshot(self, snapshot_publication: ExclusivePublication) -> None:
        """Write the state as of this place in the log: ``snapshot_publication.offer(message)``, any number.

        Change nothing: a copy of the service may do it.
        Members may start from what another one saved: the same state must give the same bytes. A message
        is at most ``snapshot_publication.max_message_length`` bytes long. An exception leaves the member
        without a snapshot, and the log goes on.
        """

    def on_role_change(self, new_role: Role) -> None:
        """The member's role; not ordered against the log, so no business of the state machine."""

    def on_new_leadership_term_event(self, event: NewLeadershipTermEvent) -> None:
        """The first entry of every leadership term, live and replayed."""

    def on_terminate(self, cluster: Cluster) -> None:
        """The container ends in good order; called once, and not when the start failed."""

    def do_background_work(self, now_ns: int) -> int:
        """Called in every duty cycle and while idling; returns how much was done. Not replicated."""
        return 0


def overrides(service: object, name: str) -> bool:
    """Whether a service brings its own version of a callback; it need not derive from the base class."""
    method = getattr(type(service), name, None)
    return method is not None and method is not getattr(ClusteredService, name)
