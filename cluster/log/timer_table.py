"""Timers by deadline and by correlation id: a binary heap and a hash table over the same rows.

Each operation touches a few rows and none touches all, so a million timers make nobody wait:

    a timer that is cancelled or moved leaves the heap at once; no heap is ever built again
    the hash table grows by one bucket for each timer beyond as many as it has (linear hashing, Litwin 1980)
    the arrays grow by a few megabytes at a time, each when it is full

Row 0 is the header, so 0 is no row. ``timers`` has what a timer is, ``places`` where it is found:

    timers  correlation id | deadline | sequence | next of its bucket       header: live, used, free, sequence
    places  position in the heap | row at this position | first row of this bucket     header: buckets, mask
"""

import numpy as np

from cluster.log.kernel import kernel, routine
from cluster.log.memory import I64, WORDS_OUT

CORRELATION_ID, DEADLINE, SEQUENCE, NEXT = range(4)
TIMER_WORDS = 4
LIVE, USED, FREE, LAST_SEQUENCE = range(4)  # of the header

HEAP_POSITION, HEAP_ROW, BUCKET = range(3)
PLACE_WORDS = 3
BUCKETS, MASK = range(2)  # of the header

BUCKETS_MIN = 8
TIMER_ROWS, PLACE_ROWS = 1024, 1536  # at first
GROWTH_WORDS = 1 << 18  # at most: new pages cost some two microseconds each
LINE_WORDS = TIMER_WORDS * PLACE_WORDS  # whole rows of either array


@routine
def _bucket_of(places, correlation_id):  # type: ignore[no-untyped-def]
    """Offset of the head of the id's bucket."""
    low = correlation_id & 0xFFFFFFFF
    high = (correlation_id >> 32) & 0xFFFFFFFF
    mixed = (low * 0x5BD1E995) ^ (high * 0x2C1B3C6D)
    mixed ^= mixed >> 29
    mixed ^= mixed >> 15
    bucket = mixed & places[MASK]
    if bucket >= places[BUCKETS]:
        bucket &= places[MASK] >> 1
    return (bucket + 1) * PLACE_WORDS + BUCKET


@routine
def _row_of(timers, places, correlation_id):  # type: ignore[no-untyped-def]
    row = places[_bucket_of(places, correlation_id)]
    while row != 0 and timers[row * TIMER_WORDS + CORRELATION_ID] != correlation_id:
        row = timers[row * TIMER_WORDS + NEXT]
    return row


@routine
def _is_before(timers, row, other):  # type: ignore[no-untyped-def]
    at, other_at = row * TIMER_WORDS, other * TIMER_WORDS
    if timers[at + DEADLINE] != timers[other_at + DEADLINE]:
        return timers[at + DEADLINE] < timers[other_at + DEADLINE]
    return timers[at + SEQUENCE] < timers[other_at + SEQUENCE]


@routine
def _put(places, position, row):  # type: ignore[no-untyped-def]
    places[position * PLACE_WORDS + HEAP_ROW] = row
    places[row * PLACE_WORDS + HEAP_POSITION] = position


@routine
def _sift(timers, places, position, row):  # type: ignore[no-untyped-def]
    """Put the row into the heap, at this position or where the order wants it."""
    while position > 1:
        parent = places[(position >> 1) * PLACE_WORDS + HEAP_ROW]
        if not _is_before(timers, row, parent):
            break
        _put(places, position, parent)
        position >>= 1
    live = timers[LIVE]
    while 2 * position <= live:
        below = 2 * position
        child = places[below * PLACE_WORDS + HEAP_ROW]
        if below < live:
            other = places[(below + 1) * PLACE_WORDS + HEAP_ROW]
            if _is_before(timers, other, child):
                below, child = below + 1, other
        if not _is_before(timers, child, row):
            break
        _put(places, position, child)
        position = below
    _put(places, position, row)


@routine
def _split(timers, places):  # type: ignore[no-untyped-def]
    """One bucket more: it takes over those of an older one that belong to it."""
    added = places[BUCKETS]
    if added > places[MASK]:
        places[MASK] = 2 * places[MASK] + 1
    old = added & (places[MASK] >> 1)
    places[BUCKETS] = added + 1
    old_head, added_head = (old + 1) * PLACE_WORDS + BUCKET, (added + 1) * PLACE_WORDS + BUCKET
    row = places[old_head]
    places[old_head] = 0
    places[added_head] = 0
    while row != 0:
        following = timers[row * TIMER_WORDS + NEXT]
        head = _bucket_of(places, timers[row * TIMER_WORDS + CORRELATION_ID])
        timers[row * TIMER_WORDS + NEXT] = places[head]
        places[head] = row
        row = following


@kernel(I64(WORDS_OUT, WORDS_OUT, I64, I64))
def _schedule(timers, places, correlation_id, deadline):  # type: ignore[no-untyped-def]
    row = _row_of(timers, places, correlation_id)
    if row != 0 and timers[row * TIMER_WORDS + DEADLINE] == deadline:
        return timers[LIVE]
    if row != 0:
        position = places[row * PLACE_WORDS + HEAP_POSITION]
    else:
        row = timers[FREE]
        if row != 0:
            timers[FREE] = timers[row * TIMER_WORDS + NEXT]
        else:
            timers[USED] += 1
            row = timers[USED]
        timers[LIVE] += 1
        position = timers[LIVE]
        if position > places[BUCKETS]:
            _split(timers, places)
        head = _bucket_of(places, correlation_id)
        timers[row * TIMER_WORDS + CORRELATION_ID] = correlation_id
        timers[row * TIMER_WORDS + NEXT] = places[head]
        places[head] = row
    timers[LAST_SEQUENCE] += 1
    timers[row * TIMER_WORDS + DEADLINE] = deadline
    timers[row * TIMER_WORDS + SEQUENCE] = timers[LAST_SEQUENCE]
    _sift(timers, places, position, row)
    return timers[LIVE]


@kernel(I64(WORDS_OUT, WORDS_OUT, I64))
def _cancel(timers, places, correlation_id):  # type: ignore[no-untyped-def]
    head = _bucket_of(places, correlation_id)
    before, row = 0, places[head]
    while row != 0 and timers[row * TIMER_WORDS + CORRELATION_ID] != correlation_id:
        before, row = row, timers[row * TIMER_WORDS + NEXT]
    if row == 0:
        return 0
    if before == 0:
        places[head] = timers[row * TIMER_WORDS + NEXT]
    else:
        timers[before * TIMER_WORDS + NEXT] = timers[row * TIMER_WORDS + NEXT]
    timers[row * TIMER_WORDS + NEXT] = timers[FREE]
    timers[FREE] = row
    position = places[row * PLACE_WORDS + HEAP_POSITION]
    last = places[timers[LIVE] * PLACE_WORDS + HEAP_ROW]
    timers[LIVE] -= 1
    if last != row:
        _sift(timers, places, position, last)
    return 1


@kernel(I64(WORDS_OUT, WORDS_OUT, I64))
def _find(timers, places, correlation_id):  # type: ignore[no-untyped-def]
    return _row_of(timers, places, correlation_id)


class TimerTable:
    """Correlation ids with their deadlines, both int64; equal deadlines are in the order they were set."""

    def __init__(self) -> None:
        self._timers = np.zeros(TIMER_ROWS * TIMER_WORDS, np.int64)
        self._places = np.zeros(PLACE_ROWS * PLACE_WORDS, np.int64)
        self._places[BUCKETS], self._places[MASK] = BUCKETS_MIN, BUCKETS_MIN - 1
        self._live_max = TIMER_ROWS - 1  # that there is room for

    def __len__(self) -> int:
        return int(self._timers[LIVE])

    def schedule(self, correlation_id: int, deadline: int) -> None:
        """Set a timer, or its new deadline, which puts it after others of that deadline."""
        if _schedule(self._timers, self._places, correlation_id, deadline) == self._live_max:
            self._grow()

    def cancel(self, correlation_id: int) -> bool:
        """Remove a timer; False when there is none."""
        return bool(_cancel(self._timers, self._places, correlation_id))

    def deadline_of(self, correlation_id: int) -> int | None:
        """The deadline of a timer, None when there is none."""
        row = _find(self._timers, self._places, correlation_id)
        return int(self._timers[row * TIMER_WORDS + DEADLINE]) if row else None

    def first(self) -> tuple[int, int] | None:
        """(correlation id, deadline) of the timer that is due first, None without one."""
        if not self._timers[LIVE]:
            return None
        at = int(self._places[PLACE_WORDS + HEAP_ROW]) * TIMER_WORDS
        return int(self._timers[at + CORRELATION_ID]), int(self._timers[at + DEADLINE])

    def in_order(self) -> np.ndarray:
        """Correlation ids and deadlines, shape (n, 2), in the order they are due."""
        timers, places = self._timers.reshape(-1, TIMER_WORDS), self._places.reshape(-1, PLACE_WORDS)
        rows = timers[places[1 : len(self) + 1, HEAP_ROW]]
        return rows[np.lexsort((rows[:, SEQUENCE], rows[:, DEADLINE])), : DEADLINE + 1]

    def copy(self) -> tuple[np.ndarray, np.ndarray]:
        """Correlation ids and deadlines, shape (m, 2), and which of these rows are timers, in no order.

        A million take some 10 ms; to pick them out takes longer, and can be done later.
        """
        timers, places = self._timers.reshape(-1, TIMER_WORDS), self._places.reshape(-1, PLACE_WORDS)
        used = int(self._timers[USED]) + 1
        return timers[:used, : DEADLINE + 1].copy(), places[1 : len(self) + 1, HEAP_ROW].copy()

    def _grow(self) -> None:
        """Let the array that is full grow, in its place where its pages can be mapped elsewhere (mremap)."""
        full = self._timers if len(self._timers) // TIMER_WORDS == self._live_max + 1 else self._places
        words = min(len(full), GROWTH_WORDS) // LINE_WORDS * LINE_WORDS
        full.resize(len(full) + words, refcheck=False)
        self._live_max = min(len(self._timers) // TIMER_WORDS, len(self._places) // PLACE_WORDS) - 1
