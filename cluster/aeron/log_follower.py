"""What becomes of one session in the committed log of a running Aeron Cluster, found by a thread beside it.

Leaders say nothing of what they lose, so the log is asked: which of the session's messages it holds, when a
new term has begun, after which nothing of an earlier one comes, and when the session is over.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import NamedTuple

import numpy as np

from cluster.aeron.aeron_log import AeronLog
from cluster.aeron.session_runs import checksums_of_rows
from cluster.errors import ClusterError, LogDamaged
from cluster.log.deliver import DeliveredMessages, deliver, read_message
from cluster.log.frames import MALFORMED, OTHER_MESSAGE, OUT_FULL
from cluster.protocol import decode
from cluster.protocol.log import NewLeadershipTermEvent, SessionCloseEvent

WAIT_S = 0.01  # until it is looked whether to end


class FoundMessages(NamedTuple):
    """Messages of the session, with the log's position after the last."""

    checksums: list[int]  # CRC-32 of each payload
    position: int


class FoundTerm(NamedTuple):
    """A leadership term has begun."""

    leadership_term_id: int
    leader_member_id: int


class FoundEnd(NamedTuple):
    """Nothing more comes of the session: it was closed, or the log cannot be followed."""

    why: str


Found = FoundMessages | FoundTerm | FoundEnd


class LogFollower:
    """``found`` is in the order of the log. Messages are looked for once ``session_id`` is set.

    They come with less delay while ``is_due`` is.
    """

    def __init__(
        self, open_log: Callable[[], AeronLog], from_position: int, notify: Callable[[], object]
    ) -> None:
        """``from_position`` is where a frame begins, before the session is asked for.

        The thread calls ``notify`` whenever it has found something.
        """
        self.session_id = -1
        self.is_due = False  # whether something of the session is to come
        self.found: deque[Found] = deque()
        self._open_log = open_log
        self._from_position = from_position
        self._notify = notify
        self._messages = DeliveredMessages()
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="aeron-log-follower", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            with closing(self._open_log()) as log:
                for block in log.follow(self._from_position):
                    if self._is_over:
                        return
                    if block is None:
                        log.await_more(WAIT_S, is_due=self.is_due)
                    elif found := list(self.find(*block)):
                        self.found.extend(found)
                        self._notify()
        except Exception as error:  # whatever it is: who waits for acknowledgements is to know
            is_known = isinstance(error, ClusterError | OSError)
            self.found.append(FoundEnd(str(error) if is_known else f"{type(error).__name__}: {error}"))
            self._notify()

    def find(self, position: int, block: np.ndarray) -> Iterator[Found]:
        """What a run of whole messages from ``position`` on says of the session. Raises LogDamaged."""
        at, messages = 0, self._messages
        while True:
            status, end = deliver(block, at, block.size, position + at, messages)
            rows = np.flatnonzero(messages.session_ids == self.session_id)
            if rows.size:
                yield FoundMessages(checksums_of_rows(messages, rows), int(messages.positions[rows[-1]]))
            if status == MALFORMED:
                raise LogDamaged(None, position + end, "a frame of the log is none")
            if status == OTHER_MESSAGE:
                message, end = read_message(block, end, block.size)
                match message and decode(message):
                    case NewLeadershipTermEvent() as event:
                        yield FoundTerm(event.leadership_term_id, event.leader_member_id)
                    case SessionCloseEvent(cluster_session_id=self.session_id) as event:
                        yield FoundEnd(event.close_reason.name)
            elif status != OUT_FULL:
                return
            at = end

    def close(self) -> None:
        """Follow no further; the thread ends by itself."""
        self._is_over = True

    def await_end(self, timeout_s: float) -> None:
        """Until the thread has given all back to its driver, at most so long."""
        self._thread.join(timeout_s)
