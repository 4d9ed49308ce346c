"""Timers of the services (Aeron: TimerService, PriorityHeapTimerService; consensus of them by TimerEvent).

Every member holds every timer, since its own service asks for it; only the leader lets one expire, by
appending its TimerEvent. Three things can come in an unusual order, and each ends with one event a timer:

    event in the log before the service here asked    remembered; the next request for that id is spent on it
    event appended, leadership lost before commit     the timer is back, due at once: it fires again here, or
                                                      the log brings the event and it is cancelled
    scheduled again while an event is uncommitted     the later request stands
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from itertools import count

COMPACT_AT = 64  # stale heap entries are swept out when they outnumber the timers by this


class TimerService:
    """Timers by correlation id, ordered by deadline; equal deadlines in the order they were scheduled.

    Deadlines are in cluster time. An entry of the heap whose number is not its timer's is stale:
    cancelled or replaced, and left there until it comes up.
    """

    __slots__ = ("_early_expiries", "_heap", "_numbers", "_timers", "_uncommitted")

    def __init__(self) -> None:
        self._timers: dict[int, tuple[int, int]] = {}  # correlation id -> (deadline, number)
        self._heap: list[tuple[int, int, int]] = []  # (deadline, number, correlation id)
        self._numbers = count()
        self._early_expiries: Counter[int] = Counter()
        self._uncommitted: deque[tuple[int, int]] = deque()  # (end of its TimerEvent, correlation id)

    def __len__(self) -> int:
        return len(self._timers)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """(correlation id, deadline) of each timer, as a snapshot holds them."""
        return ((correlation_id, deadline) for correlation_id, (deadline, _) in self._timers.items())

    @property
    def next_deadline(self) -> int | None:
        """Cluster time at which the next timer is due; None when there is none."""
        self._drop_stale()
        return self._heap[0][0] if self._heap else None

    # -- what services ask for, on every member --

    def schedule(self, correlation_id: int, deadline: int) -> None:
        """Add the timer, or move its deadline (C-263); spent instead on an event that came first (C-270)."""
        if self._early_expiries[correlation_id] > 0:
            self._early_expiries[correlation_id] -= 1
            return
        del self._early_expiries[correlation_id]
        self._set(correlation_id, deadline)

    def schedule_all(self, correlation_ids: list[int], deadlines: list[int]) -> None:
        """``schedule`` for each of many."""
        for correlation_id, deadline in zip(correlation_ids, deadlines, strict=True):
            self.schedule(correlation_id, deadline)

    def cancel(self, correlation_id: int) -> bool:
        """Remove the timer; False, and no harm, when there is none (C-264)."""
        return self._timers.pop(correlation_id, None) is not None

    # -- on the leader --

    def poll(self, now: int, expire: Callable[[int], int | None], limit: int) -> int:
        """Let at most ``limit`` timers expire whose deadline is at most ``now``; return how many did.

        ``expire(correlation_id)`` appends the TimerEvent and returns its end position, or None when the
        log refused it: then that timer stays first, and polling ends (C-268).
        """
        expired = 0
        while expired < limit:
            self._drop_stale()
            if not self._heap or self._heap[0][0] > now:
                break
            correlation_id = self._heap[0][2]
            position = expire(correlation_id)
            if position is None:
                break
            heappop(self._heap)
            del self._timers[correlation_id]
            self._uncommitted.append((position, correlation_id))
            expired += 1
        return expired

    def sweep(self, commit_position: int) -> None:
        """Forget the expiries whose events are committed."""
        while self._uncommitted and self._uncommitted[0][0] <= commit_position:
            self._uncommitted.popleft()

    def restore_uncommitted(self, commit_position: int) -> None:
        """Leadership is lost: what was appended above ``commit_position`` is due again, at once (C-269)."""
        self.sweep(commit_position)
        for _, correlation_id in self._uncommitted:
            if correlation_id not in self._timers:
                self._set(correlation_id, 0)
        self._uncommitted.clear()

    # -- from the log: replayed, caught up with, followed --

    def on_timer_event(self, correlation_id: int) -> None:
        """The log holds the timer's event: cancel it, or remember that its request is yet to come."""
        if not self.cancel(correlation_id):
            self._early_expiries[correlation_id] += 1

    # -- within --

    def _set(self, correlation_id: int, deadline: int) -> None:
        known = self._timers.get(correlation_id)
        if known is not None and known[0] == deadline:
            return
        number = next(self._numbers)
        self._timers[correlation_id] = (deadline, number)
        heappush(self._heap, (deadline, number, correlation_id))
        if len(self._heap) > 2 * len(self._timers) + COMPACT_AT:
            self._heap = [(due, number, id_) for id_, (due, number) in self._timers.items()]
            heapify(self._heap)

    def _drop_stale(self) -> None:
        heap, timers = self._heap, self._timers
        while heap and timers.get(heap[0][2], (0, -1))[1] != heap[0][1]:
            heappop(heap)
