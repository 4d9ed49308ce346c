"""What becomes of one session in the committed log of a running Aeron Cluster, found by a thread beside it.

Leaders say nothing of what they lose, so the log is asked: which of the session's messages it holds, when a
new term has begun, after which nothing of an earlier one comes, and when the session is over.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple
from zlib import crc32

import numpy as np

from cluster.aeron.aeron_log import AeronLog
from cluster.errors import ClusterError, LogDamaged
from cluster.log.deliver import DeliveredMessages, deliver, read_message
from cluster.log.frames import MALFORMED, OTHER_MESSAGE, OUT_FULL
from cluster.media.client_conductor import IDLE_S
from cluster.protocol import decode
from cluster.protocol.log import NewLeadershipTermEvent, SessionCloseEvent
from cluster.transport.clock import pause


class FoundMessage(NamedTuple):
    """A message of the session, with the log's position after it."""

    checksum: int  # CRC-32 of its payload
    position: int


class FoundTerm(NamedTuple):
    """A leadership term has begun."""

    leadership_term_id: int
    leader_member_id: int


class FoundEnd(NamedTuple):
    """Nothing more comes of the session: it was closed, or the log cannot be followed."""

    why: str


Found = FoundMessage | FoundTerm | FoundEnd


class LogFollower:
    """``found`` is in the order of the log. Messages are looked for once ``session_id`` is set."""

    def __init__(self, open_log: Callable[[], AeronLog], from_position: int) -> None:
        """``from_position`` is where a frame begins, before the session is asked for."""
        self.session_id = -1
        self.found: deque[Found] = deque()
        self._open_log = open_log
        self._from_position = from_position
        self._messages = DeliveredMessages()
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="aeron-log-follower", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            log = self._open_log()
            try:
                for block in log.follow(self._from_position):
                    if self._is_over:
                        return
                    if block is None:
                        pause(IDLE_S)
                    else:
                        self.found.extend(self.find(*block))
            finally:
                log.close()
        except (ClusterError, OSError) as error:
            self.found.append(FoundEnd(str(error)))

    def find(self, position: int, block: np.ndarray) -> Iterator[Found]:
        """What a run of whole messages from ``position`` on says of the session. Raises LogDamaged."""
        at, messages = 0, self._messages
        while True:
            status, end = deliver(block, at, block.size, position + at, messages)
            for row in np.flatnonzero(messages.session_ids == self.session_id).tolist():
                yield FoundMessage(crc32(messages.payload(row)), int(messages.positions[row]))
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
