"""Timers of the services (Aeron: TimerService, PriorityHeapTimerService).

Every member holds every timer, because every service asks its own module for the same ones; only the leader
lets them expire. Deadlines are cluster time. Timers of one deadline expire in the order they were set.
"""

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush

POLL_LIMIT = 20


class PriorityHeapTimerService:
    """Timers by ascending deadline, also when all are overdue after a restart (C-266)."""

    __slots__ = ("_deadlines", "_early_expiries", "_heap", "_sequence")

    def __init__(self) -> None:
        # An entry of the heap is live while its (deadline, sequence) is the one in the map.
        self._heap: list[tuple[int, int, int]] = []
        self._deadlines: dict[int, tuple[int, int]] = {}
        self._sequence = 0
        self._early_expiries: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._deadlines)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """(correlation id, deadline) of each timer, in the order they would expire: for a snapshot."""
        for deadline, sequence, correlation_id in sorted(self._heap):
            if self._deadlines.get(correlation_id) == (deadline, sequence):
                yield correlation_id, deadline

    @property
    def next_deadline(self) -> int | None:
        """Deadline of the next timer, None without one."""
        heap = self._heap
        while heap:
            deadline, sequence, correlation_id = heap[0]
            if self._deadlines.get(correlation_id) == (deadline, sequence):
                return deadline
            heappop(heap)
        return None

    def on_schedule(self, correlation_id: int, deadline: int) -> None:
        """A service asks for a timer, unless the log has shown already that it expired (§5.4)."""
        early = self._early_expiries.get(correlation_id, 0)
        if early == 0:
            self.schedule(correlation_id, deadline)
        elif early == 1:
            del self._early_expiries[correlation_id]
        else:
            self._early_expiries[correlation_id] = early - 1

    def schedule(self, correlation_id: int, deadline: int) -> None:
        """Set a timer, or its new deadline."""
        known = self._deadlines.get(correlation_id)
        if known is not None and known[0] == deadline:
            return
        self._sequence += 1
        self._deadlines[correlation_id] = (deadline, self._sequence)
        heappush(self._heap, (deadline, self._sequence, correlation_id))
        if len(self._heap) > 64 and len(self._heap) > 2 * len(self._deadlines):
            self._heap = [(*key, id_) for id_, key in self._deadlines.items()]
            heapify(self._heap)

    def cancel(self, correlation_id: int) -> bool:
        """Remove a timer; False when there is none, which is no fault."""
        return self._deadlines.pop(correlation_id, None) is not None

    def on_replay_timer_event(self, correlation_id: int) -> None:
        """The log shows that a timer expired; one that is not set yet is remembered to (C-270)."""
        if not self.cancel(correlation_id):
            self._early_expiries[correlation_id] = self._early_expiries.get(correlation_id, 0) + 1

    def poll(self, now: int, on_expiry: Callable[[int], bool], limit: int = POLL_LIMIT) -> int:
        """Expire timers whose deadline is not after ``now``; return how many.

        ``on_expiry`` refuses with False: the timer stays, and the poll ends.
        """
        count = 0
        while count < limit:
            deadline = self.next_deadline
            if deadline is None or deadline > now:
                break
            correlation_id = self._heap[0][2]
            if not on_expiry(correlation_id):
                break
            heappop(self._heap)
            del self._deadlines[correlation_id]
            count += 1
        return count
