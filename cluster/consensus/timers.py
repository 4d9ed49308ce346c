"""Timers of the services (Aeron: TimerService, PriorityHeapTimerService).

Every member holds every timer, because every service asks its own module for the same ones; only the leader
lets them expire. Deadlines are cluster time. Timers of one deadline expire in the order they were set.

What a service asks for and what the log shows come here by two ways, in any order: a service may lag
its module, by a whole replay, or a timer expire while its postponement is under way. All members come to the
same timers nevertheless, as if all had been done in the order of the log:

    a TimerEvent takes away what was asked for before it in the log, if its time is not before the deadline

So one that was postponed beyond the time of the event stays, on the leader as everywhere. (In the reference
the order of arrival decides, and members differ.)
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterator

import numpy as np

from cluster.log.timer_table import TimerTable

POLL_LIMIT = 20
RUN_LENGTH = 16_384  # timers that are sorted at once: some 10 ms

CapturedTimer = tuple[int, int]  # deadline, correlation id


class CapturedTimers:
    """The timers of one moment, by deadline and correlation id: as many as there may be, little at a time."""

    def __init__(self, table: TimerTable) -> None:
        self._rows, self._live = table.copy()
        self._runs: list[Iterator[CapturedTimer]] = []

    def sort(self) -> Iterator[None]:
        """Sort them, a run a step; to be done before they are iterated over."""
        for begin in range(0, len(self._live), RUN_LENGTH):
            run = self._rows[self._live[begin : begin + RUN_LENGTH]]
            ids, deadlines = run[np.lexsort((run[:, 0], run[:, 1]))].T
            self._runs.append(zip(deadlines.tolist(), ids.tolist()))
            yield

    def __iter__(self) -> Iterator[CapturedTimer]:
        """(deadline, correlation id) of each, once."""
        return heapq.merge(*self._runs)


class PriorityHeapTimerService:
    """Timers by ascending deadline, also when all are overdue after a restart (C-266)."""

    __slots__ = ("_events", "_expired", "_last_events", "_table", "_uncommitted")

    def __init__(self) -> None:
        self._table = TimerTable()
        # TimerEvents that some service has not come to yet: (position, time, id), and each id's last one.
        self._events: deque[tuple[int, int, int]] = deque()
        self._last_events: dict[int, tuple[int, int]] = {}
        # Those that a leader wrote and has not seen committed: (position, id); and by id the last request
        # that one of them took away: (its position, deadline).
        self._uncommitted: deque[tuple[int, int]] = deque()
        self._expired: dict[int, tuple[int, int]] = {}

    def __len__(self) -> int:
        return len(self._table)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """(correlation id, deadline) of each timer, in the order they would expire."""
        yield from map(tuple, self._table.in_order().tolist())

    def capture(self) -> CapturedTimers:
        """The timers as they are now, for a snapshot."""
        return CapturedTimers(self._table)

    @property
    def next_deadline(self) -> int | None:
        """Deadline of the next timer, None without one."""
        first = self._table.first()
        return None if first is None else first[1]

    # ---- what services ask for

    def on_schedule(self, correlation_id: int, deadline: int, log_position: int) -> None:
        """A service that has processed the log to ``log_position`` asks for a timer, or its new deadline."""
        self._expired.pop(correlation_id, None)
        event = self._last_events.get(correlation_id)
        if event is None or log_position >= event[0] or deadline > event[1]:
            self.schedule(correlation_id, deadline)
            return
        self.cancel(correlation_id)
        if self._uncommitted:  # else the event that took it away will not be undone
            position = next(
                position
                for position, timestamp, id_ in self._events
                if id_ == correlation_id and position > log_position and timestamp >= deadline
            )
            if position >= self._uncommitted[0][0]:
                self._expired[correlation_id] = (position, deadline)

    def on_cancel(self, correlation_id: int) -> None:
        """A service does not want a timer any more."""
        self.cancel(correlation_id)
        self._expired.pop(correlation_id, None)

    @property
    def has_events(self) -> bool:
        """Whether the log has shown events that some service has not come to yet."""
        return bool(self._events)

    def on_services_at(self, log_position: int) -> None:
        """All services have processed the log to here, and what they asked for on the way was taken."""
        events = self._events
        while events and events[0][0] <= log_position:
            position, _, correlation_id = events.popleft()
            if self._last_events[correlation_id][0] == position:
                del self._last_events[correlation_id]

    # ---- the table itself

    def schedule(self, correlation_id: int, deadline: int) -> None:
        """Set a timer, or its new deadline."""
        self._table.schedule(correlation_id, deadline)

    def cancel(self, correlation_id: int) -> bool:
        """Remove a timer; False when there is none, which is no fault."""
        return self._table.cancel(correlation_id)

    # ---- what the log shows

    def on_replay_timer_event(self, correlation_id: int, timestamp: int, log_position: int) -> None:
        """The log, read on a member that does not lead, shows at ``log_position`` that a timer expired."""
        deadline = self._table.deadline_of(correlation_id)
        if deadline is not None and deadline <= timestamp:
            self.cancel(correlation_id)
        self._remember(correlation_id, timestamp, log_position)

    def _remember(self, correlation_id: int, timestamp: int, log_position: int) -> None:
        assert not self._events or self._events[-1][0] < log_position, "events have the order of the log"
        self._events.append((log_position, timestamp, correlation_id))
        self._last_events[correlation_id] = (log_position, timestamp)

    # ---- the leader

    def poll(self, now: int, on_expiry: Callable[[int], int], limit: int = POLL_LIMIT) -> int:
        """Expire timers whose deadline is not after ``now``; return how many.

        ``on_expiry`` writes the event and returns where it ends in the log. It refuses with a position that
        is not above 0: the timer stays, and the poll ends.
        """
        count = 0
        while count < limit:
            first = self._table.first()
            if first is None or first[1] > now:
                break
            correlation_id, deadline = first
            log_position = on_expiry(correlation_id)
            if log_position <= 0:
                break
            self.cancel(correlation_id)
            self._remember(correlation_id, now, log_position)
            self._uncommitted.append((log_position, correlation_id))
            self._expired[correlation_id] = (log_position, deadline)
            count += 1
        return count

    def sweep(self, commit_position: int) -> None:
        """Forget what can not be undone any more."""
        uncommitted = self._uncommitted
        while uncommitted and uncommitted[0][0] <= commit_position:
            log_position, correlation_id = uncommitted.popleft()
            if self._expired.get(correlation_id, (0, 0))[0] == log_position:
                del self._expired[correlation_id]

    def restore_uncommitted(self, commit_position: int) -> None:
        """Leadership is lost: events after the commit position do not count."""
        self.sweep(commit_position)
        for correlation_id, (_, deadline) in self._expired.items():
            self.schedule(correlation_id, deadline)  # overdue: it fires at once wherever it may
        self._expired.clear()
        self._uncommitted.clear()
        self._events = deque(event for event in self._events if event[0] <= commit_position)
        self._last_events = {id_: (position, timestamp) for position, timestamp, id_ in self._events}
