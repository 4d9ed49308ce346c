"""Messages of a service to its own cluster (Aeron: PendingServiceMessageTracker).

The service of every member offers the same messages in the same order; each module numbers and keeps its
own service's. The leader appends them; every member drops a message once the log is known to hold it. A new
leader appends what its service offered and the log does not show.

    numbers     ... n n+1 | n+2 n+3 n+4 | n+5
                    in    | appended,   | not appended
                    the   | not         |
                    log   | committed   |
                        log_service_session_id = n+1     next_service_session_id = n+6

A message's id in the log is ``1 << 63 | service id << 56 | number``, as a signed i64: below zero, so that it
is never taken for a client's session.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from cluster.consensus.context import NULL_POSITION
from cluster.errors import ClusterError

SIGN = 1 << 63
NUMBER_BITS = 56


def service_message_id(service_id: int, number: int) -> int:
    """The id in the log of a service's message ``number``, from 1 on; 0 stands before the first (C-276)."""
    assert 0 <= service_id <= 127 and 0 <= number < 1 << NUMBER_BITS
    return ((SIGN | service_id << NUMBER_BITS) ^ SIGN) - SIGN | number


def service_id_of(message_id: int) -> int:
    """The service that a logged message's (negative) id names."""
    assert message_id < 0
    return (message_id >> NUMBER_BITS) & 0x7F


class _Pending:
    """One message that the log is not known to hold for good."""

    __slots__ = ("message_id", "payload", "position")

    def __init__(self, message_id: int, payload: bytes) -> None:
        self.message_id = message_id
        self.payload = payload
        self.position = NULL_POSITION  # end of its append by this leader


class PendingServiceMessages:
    """The messages of one service, first to last."""

    def __init__(self, service_id: int, capacity: int = 64 * 1024 * 1024) -> None:
        self.service_id = service_id
        self.log_service_session_id = service_message_id(service_id, 0)
        self.next_service_session_id = self.log_service_session_id + 1
        self._capacity = capacity  # bytes of payload
        self._pending: deque[_Pending] = deque()
        self._uncommitted = 0  # how many of the first ones are appended
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._pending)

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        """(id, payload) of each pending message, as a snapshot holds them."""
        return ((pending.message_id, pending.payload) for pending in self._pending)

    @property
    def has_unappended(self) -> bool:
        """Whether a leader has something to append."""
        return self._uncommitted < len(self._pending)

    def offer(self, payload: bytes) -> None:
        """The service offered a message; one that the log has shown already is dropped (C-280).

        Raises ClusterError when more is pending than was provided for.
        """
        message_id = self.next_service_session_id
        self.next_service_session_id += 1
        if message_id <= self.log_service_session_id:
            return
        if self._bytes + len(payload) > self._capacity:
            raise ClusterError(
                f"service {self.service_id}: {self._bytes} bytes of messages to the cluster are pending, "
                f"{len(payload)} more exceed the {self._capacity} provided for"
            )
        self._bytes += len(payload)
        self._pending.append(_Pending(message_id, payload))

    def poll(self, append: Callable[[int, bytes], int | None], limit: int) -> int:
        """On the leader: append at most ``limit`` messages in order; return how many the log took.

        ``append(message_id, payload)`` returns the end position, or None when the log refused.
        """
        appended = 0
        while appended < limit and self._uncommitted < len(self._pending):
            pending = self._pending[self._uncommitted]
            position = append(pending.message_id, pending.payload)
            if position is None:
                break
            pending.position = position
            self._uncommitted += 1
            appended += 1
        return appended

    def sweep(self, commit_position: int) -> None:
        """On the leader: drop what is committed."""
        while self._uncommitted and self._pending[0].position <= commit_position:
            self._uncommitted -= 1
            self._drop_first()

    def on_logged(self, message_id: int) -> None:
        """On the others and in replay: the log holds this and all earlier messages (C-279)."""
        self.log_service_session_id = max(self.log_service_session_id, message_id)
        while self._pending and self._pending[0].message_id <= message_id:
            self._uncommitted -= self._uncommitted > 0
            self._drop_first()

    def restore_uncommitted(self, commit_position: int) -> None:
        """Leadership is lost: what is not committed is to be appended again by whoever leads (C-281)."""
        self.sweep(commit_position)
        for pending in self._pending:
            pending.position = NULL_POSITION
        self._uncommitted = 0

    def load(self, next_id: int, log_id: int, messages: Iterable[tuple[int, bytes]]) -> None:
        """Take the state of a snapshot. Raises ClusterError unless ids follow one another (C-283)."""
        self._pending.clear()
        self._uncommitted = self._bytes = 0
        expected = log_id
        for message_id, payload in messages:
            expected += 1
            if message_id != expected:
                raise ClusterError(
                    f"snapshot, service {self.service_id}: pending message {message_id:#x}, "
                    f"expected {expected:#x}"
                )
            self._bytes += len(payload)
            self._pending.append(_Pending(message_id, payload))
        if next_id != expected + 1:
            raise ClusterError(
                f"snapshot, service {self.service_id}: next message id {next_id:#x}, "
                f"expected {expected + 1:#x} after {len(self._pending)} pending"
            )
        self.log_service_session_id = log_id
        self.next_service_session_id = next_id

    def _drop_first(self) -> None:
        first = self._pending.popleft()
        self._bytes -= len(first.payload)
        self.log_service_session_id = max(self.log_service_session_id, first.message_id)
