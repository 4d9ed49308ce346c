"""Messages of a service to its own cluster, until the log has them (Aeron: PendingServiceMessageTracker).

The services of all members offer the same messages in the same order; each gets a number, and with it an id
that is the same on every member. Only the leader appends them, and each member drops its copy when the log
shows the id. So a message is in the log exactly once, and a new leader appends what the old one did not.

    head                       uncommitted_count                       end
     | appended, not committed |        not appended                   |
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

from cluster.consensus.context import NULL_POSITION
from cluster.errors import LogDamaged

MESSAGE_NUMBER_BITS = 56
POLL_LIMIT = 20


def service_session_id(service_id: int, number: int) -> int:
    """The 64-bit id of a service's message: negative, the service in bits 56 to 62 (C-276)."""
    assert 0 <= service_id < 128
    assert 0 <= number < 1 << MESSAGE_NUMBER_BITS
    return (service_id << MESSAGE_NUMBER_BITS | number) - (1 << 63)


def service_id_of(cluster_session_id: int) -> int:
    """The service that a negative id belongs to."""
    return cluster_session_id >> MESSAGE_NUMBER_BITS & 0x7F


@dataclass(eq=False, slots=True)
class _Pending:
    """One message; ``append_position`` is the end of its entry, NULL_POSITION while it is not appended."""

    service_session_id: int
    message: bytes
    append_position: int = NULL_POSITION


class PendingServiceMessageTracker:
    """The messages of one service that the committed log has not shown yet."""

    def __init__(self, service_id: int) -> None:
        self.service_id = service_id
        self.log_service_session_id = service_session_id(service_id, 0)
        self.next_service_session_id = self.log_service_session_id + 1
        self._pending: deque[_Pending] = deque()
        self._uncommitted_count = 0  # of them, how many from the head are appended

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def has_unappended(self) -> bool:
        return self._uncommitted_count < len(self._pending)

    def enqueue(self, message: bytes) -> None:
        """A message from the service: dropped when the log has shown its number already (C-280)."""
        id_ = self.next_service_session_id
        self.next_service_session_id += 1
        if id_ > self.log_service_session_id:
            self._pending.append(_Pending(id_, message))

    def poll(self, append: Callable[[int, bytes], int], limit: int = POLL_LIMIT) -> int:
        """Append what is not appended yet, in order; ``append(id, message)`` refuses with a position <= 0."""
        count = 0
        for pending in islice(self._pending, self._uncommitted_count, self._uncommitted_count + limit):
            position = append(pending.service_session_id, pending.message)
            if position <= 0:
                break
            pending.append_position = position
            count += 1
        self._uncommitted_count += count
        return count

    def sweep_leader(self, commit_position: int) -> None:
        """Forget what is committed."""
        while self._uncommitted_count > 0 and self._pending[0].append_position <= commit_position:
            self.log_service_session_id = self._pending.popleft().service_session_id
            self._uncommitted_count -= 1

    def sweep_follower(self, service_session_id: int) -> None:
        """The log shows this id, hence all before it."""
        if service_session_id > self.log_service_session_id:
            self.log_service_session_id = service_session_id
        while self._pending and self._pending[0].service_session_id <= self.log_service_session_id:
            self._pending.popleft()
            self._uncommitted_count = max(0, self._uncommitted_count - 1)

    def restore_uncommitted(self, commit_position: int) -> None:
        """Leadership is lost: what was appended beyond the commit position is to be appended again."""
        self.sweep_leader(commit_position)
        for pending in islice(self._pending, self._uncommitted_count):
            pending.append_position = NULL_POSITION
        self._uncommitted_count = 0

    # ---- snapshot

    def pending_messages(self) -> list[tuple[int, int, bytes]]:
        """(id, append position or NULL_POSITION, message) of each, oldest first."""
        return [(p.service_session_id, p.append_position, p.message) for p in self._pending]

    def load(self, next_service_session_id: int, log_service_session_id: int) -> None:
        """Take the state of a snapshot; its messages follow with ``load_message``."""
        assert not self._pending, "loaded twice"
        self.next_service_session_id = next_service_session_id
        self.log_service_session_id = log_service_session_id

    def load_message(self, service_session_id: int, message: bytes) -> None:
        self._pending.append(_Pending(service_session_id, message))

    def verify(self) -> None:
        """Raise LogDamaged when the ids of a loaded snapshot are not what they must be (C-283)."""
        expected = self.log_service_session_id
        for pending in self._pending:
            expected += 1
            if pending.service_session_id != expected:
                raise LogDamaged(
                    None,
                    None,
                    f"service {self.service_id}: message {pending.service_session_id}, expected {expected}",
                )
        if self.next_service_session_id != expected + 1:
            raise LogDamaged(
                None,
                None,
                f"service {self.service_id}: next id {self.next_service_session_id}, expected {expected + 1}",
            )
