"""The streams 104 and 105 between a consensus module and one service container of its process.

Aeron runs them over IPC; here both agents are turned by one thread, so each stream is a queue of
encoded SBE messages, handed over without a copy. Beside them goes what Aeron passes through shared
memory: the recovery state (counter 204), the log that a JoinLog names (an image there), and the
answers of a service (the egress publication there), a batch at a time.

    consensus module                                             service container
      recovery = RecoveryState(...)        ---->        on_start, then ServiceAck 0
      join_log(JoinLog, log)               ----104-->   drains the old log, joins, ServiceAck n
      close_log(position)                  ---->        drains to position, role FOLLOWER
      send_to_service(ServiceTermination…) ----104-->   on_terminate, ServiceAck n
      poll_consensus_module()              <--105----   ScheduleTimer, CancelTimer, CloseSession,
                                                        ServiceAck, session messages of the service
      poll_egress()                        <-----       ServiceEgress
      on_idle()                            <-----       within a callback that idles, or before one
                                                        when room is short: the module polls both
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cluster.archive.log_cursor import LogSource
from cluster.protocol.service import JoinLog
from cluster.protocol.session import SessionMessageHeader

# Aeron's control channel has terms of 128 KiB, emptied by another thread meanwhile. Here the module
# takes what is there between two callbacks and when a service idles, so all that one callback says must fit.
CONTROL_CAPACITY = 64 * 1024 * 1024
EGRESS_CAPACITY = 64 * 1024 * 1024


@dataclass(slots=True)
class Room:
    """How many bytes of one stream may wait to be taken; what is claimed counts as waiting."""

    _capacity: int
    used: int = 0

    def has(self, length: int) -> bool:
        """Whether so many bytes more may wait; an empty stream takes a message of any length."""
        return self.used == 0 or self.used + length <= self._capacity

    @property
    def is_half_used(self) -> bool:
        return 2 * self.used > self._capacity


# What the protocol puts before a payload: the frame's header, the message's header and its block.
EGRESS_OVERHEAD = 32 + 8 + SessionMessageHeader.BLOCK_LENGTH


@dataclass(frozen=True, slots=True)
class RecoveryState:
    """Where a container starts (Aeron: counter 204); ``leadership_term_id`` -1 without a snapshot."""

    leadership_term_id: int = -1
    log_position: int = 0
    timestamp: int = 0  # cluster time of the snapshot
    snapshot_recording_ids: tuple[int, ...] = ()  # one per service


@dataclass(frozen=True, slots=True)
class LogJoined:
    """An encoded JoinLog with the log it names."""

    message: bytes
    log: LogSource


@dataclass(frozen=True, slots=True)
class LogClosed:
    """The log has no more than ``position`` (exclusive end): Aeron's end of stream of an image."""

    position: int


NO_NUMBERS = np.zeros(1, np.int64)  # of answers to no message


@dataclass(frozen=True, slots=True)
class ServiceEgress:
    """Answers as columns over one buffer, the service's until its next turn."""

    leadership_term_id: int
    session_ids: np.ndarray  # int64
    timestamps: np.ndarray  # int64, cluster time
    offsets: np.ndarray  # int64, of each payload in buffer
    lengths: np.ndarray  # int64
    buffer: np.ndarray  # uint8, C-contiguous
    numbers: np.ndarray  # int64, of the messages answered, in their sessions; or one for all
    answer_ids: np.ndarray | None = None  # int64, protocol/link.py; None: none is to a supervised session

    def __len__(self) -> int:
        return len(self.session_ids)

    def number(self, row: int) -> int:
        """Of the message that a row answers; 0 for none."""
        return int(self.numbers[row if len(self.numbers) > 1 else 0])

    def rows(self, chosen: np.ndarray) -> ServiceEgress:
        """Those rows alone, by a mask or by their numbers."""
        return ServiceEgress(
            self.leadership_term_id,
            self.session_ids[chosen],
            self.timestamps[chosen],
            self.offsets[chosen],
            self.lengths[chosen],
            self.buffer,
            self.numbers[chosen] if len(self.numbers) == len(self) else self.numbers,
            None if self.answer_ids is None else self.answer_ids[chosen],
        )

    @property
    def byte_count(self) -> int:
        """What the answers take up of the egress, their headers included."""
        return int(self.lengths.sum()) + EGRESS_OVERHEAD * len(self.lengths)


class ServiceChannel:
    """One pair of queues; each side only calls the methods of its half."""

    def __init__(self, capacity: int = CONTROL_CAPACITY, egress_capacity: int = EGRESS_CAPACITY) -> None:
        """Capacities in bytes: of stream 105, and of the answers."""
        self.recovery: RecoveryState | None = None  # set once by the module, before anything else
        # A module may put a function here that takes what the service has sent (returning how many it took)
        # while a service idles in a callback: what another thread does in Aeron.
        self.on_idle: Callable[[], int] | None = None
        # The module waits for the ack of a snapshot at this position: for whoever stands for a service in
        # another process, who resets it.
        self.awaited_snapshot: int | None = None
        self.is_away = False  # the service, in a process of its own, has none or one that has come to a stand
        self.log_position = 0  # up to where the service has processed the log; set in each of its turns
        self.polled_position = 0  # the same, when the message polled last was offered
        self.control_room = Room(capacity)
        self.egress_room = Room(egress_capacity)
        self._to_service: deque[bytes | LogJoined | LogClosed] = deque()
        self._to_consensus_module: deque[tuple[bytes, int]] = deque()
        self._egress: deque[ServiceEgress] = deque()
        self.is_closed = False

    # -- the consensus module's half --

    def send_to_service(self, message: bytes) -> None:
        """Queue one encoded message of stream 104 that names no log."""
        assert not self.is_closed
        self._to_service.append(message)

    def join_log(self, message: bytes, log: LogSource) -> None:
        """Queue an encoded JoinLog with the log to read from its ``logPosition`` on."""
        assert not self.is_closed
        self._to_service.append(LogJoined(message, log))

    def close_log(self, position: int) -> None:
        """Say that the joined log ends at ``position``: no later than any commit position sent so far."""
        self._to_service.append(LogClosed(position))

    def poll_consensus_module(self) -> bytes | None:
        """Take the oldest message of stream 105, None when there is none."""
        if not self._to_consensus_module:
            return None
        message, self.polled_position = self._to_consensus_module.popleft()
        self.control_room.used -= len(message)
        return message

    @property
    def settled_position(self) -> int:
        """Up to where the service has processed the log, and all that it offered on the way was polled."""
        return self._to_consensus_module[0][1] if self._to_consensus_module else self.log_position

    def poll_egress(self) -> ServiceEgress | None:
        """Take the oldest batch of answers, None when there is none; to be emptied in each turn."""
        if not self._egress:
            return None
        batch = self._egress.popleft()
        self.egress_room.used -= batch.byte_count
        return batch

    # -- the service container's half --

    def poll_service(self) -> bytes | LogJoined | LogClosed | None:
        """Take the oldest message of stream 104, None when there is none."""
        return self._to_service.popleft() if self._to_service else None

    @property
    def next_log_position(self) -> int | None:
        """Where the log that the service reads ends, or the next one begins, if a waiting message says it."""
        for message in self._to_service:
            if isinstance(message, LogClosed):
                return message.position
            if isinstance(message, LogJoined):
                return JoinLog.decode(message.message).log_position
        return None

    def offer_to_consensus_module(self, message: bytes, log_position: int = 0) -> bool:
        """Queue one encoded message of stream 105, offered at this place in the log; False: back pressure."""
        if not self.control_room.has(len(message)):
            return False
        self.control_room.used += len(message)
        self._to_consensus_module.append((message, log_position))
        return True

    def offer_egress(self, batch: ServiceEgress) -> None:
        """Queue answers that were counted in ``egress_room``; the container reads no further log until
        the module has taken them.
        """
        self._egress.append(batch)

    # -- both --

    @property
    def has_egress(self) -> bool:
        return bool(self._egress)

    @property
    def has_orders(self) -> bool:
        """Whether the consensus module has sent what the service has not taken."""
        return bool(self._to_service)

    @property
    def is_taken(self) -> bool:
        """Whether the consensus module has taken all that the service has sent."""
        return not self._egress and not self._to_consensus_module

    def close(self) -> None:
        """No more messages either way: a container ends, or its module does."""
        self.is_closed = True
