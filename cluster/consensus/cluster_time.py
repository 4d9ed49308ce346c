"""The time that a leader stamps (cluster time): agreed between the members' clocks, and never standing still.

    clocks of a majority    the own clock, kept between two bounds                  see ``agreed_clock``
    too few, or far apart   monotonic time from what was agreed last, at first from the log's last timestamp
    behind that             jumps forward to it
    ahead of it             goes on at nine tenths of monotonic time until it is met

With q members a majority of n, at most n - q clocks are wrong. So of the q lowest clocks that are heard one
is right at least, and so is one of the q highest: a clock between those two is no further off than right
ones are. A leader whose clock was wrong leaves timestamps that nobody takes back. They cost a
tenth of the speed for a while, and no interval of a session, a timer or a snapshot.

A clock that is heard is off by half of the round trip at most. That is not added to the bounds: what is
stamped is then within ``clock_skew_max`` of clocks that are known within this error.

All times are nanoseconds: ``now_ns`` of the own monotonic clock, ``clock_ns`` of a wall clock.
"""

from collections import deque
from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from cluster.consensus.context import SECOND
from cluster.log.kernel import kernel
from cluster.log.memory import I64, WORDS_OUT
from cluster.log.words import Word

KEPT_NS = 10 * SECOND  # so long a reading of another's clock is good for
REPORTED_FROM_NS = SECOND // 10
TENTHS_FULL, TENTHS_SLOW = 10, 9  # of monotonic time

NOW_NS, TIME_NS, AGREED_NS = range(3)  # of cluster time: when it was both of them
TIME_WORDS = 3
STAMPED = 0  # of a ReplicatedState: the last timestamp, in the log's unit


class Reading(NamedTuple):
    """Of another member's clock, at ``heard_ns``; ``ahead_ns`` of the own monotonic clock."""

    heard_ns: int
    ahead_ns: int
    error_ns: int

    def offset_ns(self, own_ahead_ns: int) -> int:
        """How far it is ahead of the own clock, beyond the error; ``own_ahead_ns`` as ``ahead_ns``."""
        offset_ns = self.ahead_ns - own_ahead_ns
        return max(offset_ns - self.error_ns, 0) + min(offset_ns + self.error_ns, 0)


class HeardClocks:
    """Clocks of other members: the reading of the last 10 s that took the shortest time, of each."""

    def __init__(self) -> None:
        self._of: dict[int, deque[Reading]] = {}  # with rising errors: the first is the best

    def hear(self, member_id: int, asked_ns: int, now_ns: int, clock_ns: int) -> None:
        """It was asked at ``asked_ns``, and has answered with its ``clock_ns``."""
        assert asked_ns <= now_ns
        error_ns = (now_ns - asked_ns) // 2
        readings = self._of.setdefault(member_id, deque())
        while readings and readings[-1].error_ns >= error_ns:
            readings.pop()
        readings.append(Reading(now_ns, clock_ns + error_ns - now_ns, error_ns))

    def forget(self, member_id: int | None = None) -> None:
        """What this member has said, or all of them: the own monotonic clock may have stood still."""
        if member_id is None:
            self._of.clear()
        else:
            self._of.pop(member_id, None)

    def best(self, now_ns: int) -> dict[int, Reading]:
        """By member id."""
        for readings in self._of.values():
            while readings and readings[0].heard_ns < now_ns - KEPT_NS:
                readings.popleft()
        return {member_id: readings[0] for member_id, readings in self._of.items() if readings}


def clock_offset_ns(own_ahead_ns: int, others: Collection[Reading], quorum: int) -> int | None:
    """How far the own clock is ahead of the nearest others' that make a majority with it, beyond their error.

    ``own_ahead_ns`` is of the own monotonic clock, as theirs are. None where fewer than a majority are known.
    """
    offsets = sorted((-other.offset_ns(own_ahead_ns) for other in others), key=abs)
    if len(offsets) < quorum - 1:
        return None
    return offsets[quorum - 2] if quorum > 1 else 0


class ReportedOffsets:
    """When a member's clock differs so much from this one's that it is to be reported."""

    def __init__(self) -> None:
        self._reported_ns: dict[int, int] = {}

    def is_news(self, member_id: int, offset_ns: int) -> bool:
        """From ``REPORTED_FROM_NS`` on: once, when it has doubled, and after it was below half of that."""
        far_ns, reported_ns = abs(offset_ns), self._reported_ns.get(member_id, 0)
        if far_ns < REPORTED_FROM_NS // 2:
            self._reported_ns.pop(member_id, None)
        if far_ns <= max(REPORTED_FROM_NS, 2 * reported_ns - 1):
            return False
        self._reported_ns[member_id] = far_ns
        return True


def agreed_clock(clock_ns: int, others_ns: Collection[int], quorum: int, skew_max_ns: int) -> int | None:
    """The own clock, within ``skew_max_ns`` of a majority's; None where ``quorum`` are not that near."""
    clocks = sorted((clock_ns, *others_ns))
    if len(clocks) < quorum:
        return None
    low_ns, high_ns = clocks[quorum - 1] - skew_max_ns, clocks[-quorum] + skew_max_ns
    return min(max(clock_ns, low_ns), high_ns) if low_ns <= high_ns else None


@kernel(I64(WORDS_OUT, I64, I64))
def _pass(time, now_ns, tenths):  # type: ignore[no-untyped-def]
    passed_ns = now_ns - time[NOW_NS]
    time[NOW_NS] = now_ns
    time[AGREED_NS] += passed_ns
    time[TIME_NS] += -(-passed_ns * tenths // 10)
    return passed_ns


@kernel(I64(WORDS_OUT, I64))
def go_on(time, now_ns):  # type: ignore[no-untyped-def]
    """It is ``now_ns``, and no clock is looked at; returns the nanoseconds that have passed."""
    return _pass(time, now_ns, TENTHS_SLOW if time[TIME_NS] > time[AGREED_NS] else TENTHS_FULL)


class ClusterTime:
    """Cluster time while this member leads: it never falls, and passes at nine tenths at least.

    ``ahead_ns``: of what is agreed. ``words`` goes to kernels, which stamp by ``go_on``.
    """

    _now_ns = Word(NOW_NS)
    time_ns = Word(TIME_NS)
    _agreed_ns = Word(AGREED_NS)

    def __init__(self, quorum: int, skew_max_ns: int) -> None:
        self._quorum = quorum
        self._skew_max_ns = skew_max_ns
        self.words = np.zeros(TIME_WORDS, np.int64)
        self._words = self.words.data

    def begin(self, last_ns: int | None, now_ns: int, clock_ns: int, others_ns: Collection[int]) -> None:
        """This member is about to lead a log that ends at ``last_ns``, or a new one (None)."""
        self.time_ns = self._agreed_ns = min((clock_ns, *others_ns)) if last_ns is None else last_ns
        self._now_ns = now_ns
        self.advance(now_ns, clock_ns, others_ns)

    def advance(self, now_ns: int, clock_ns: int, others_ns: Collection[int]) -> int:
        """Returns how far it jumps forward, beyond the time that has passed; 0 or less where it does not."""
        before_ns, passed_ns = self.time_ns, now_ns - self._now_ns
        assert passed_ns >= 0
        _pass(self.words, now_ns, TENTHS_SLOW)
        agreed_ns = agreed_clock(clock_ns, others_ns, self._quorum, self._skew_max_ns)
        if agreed_ns is not None:
            self._agreed_ns = agreed_ns
        self.time_ns = max(self.time_ns, self._agreed_ns)
        return self.time_ns - before_ns - passed_ns

    @property
    def ahead_ns(self) -> int:
        return self.time_ns - self._agreed_ns


class Jumps:
    """Cluster time as it passes; ``jumped_ns``: how much faster than monotonic time, at worst."""

    def __init__(self) -> None:
        self._time_ns: int | None = None
        self._ahead_min_ns = 0  # of the monotonic clock
        self.jumped_ns = 0

    def see(self, time_ns: int, now_ns: int) -> None:
        """It is ``time_ns``. Where that is what was seen last, nothing was stamped meanwhile."""
        if time_ns == self._time_ns:
            return
        ahead_ns = time_ns - now_ns
        self._ahead_min_ns = ahead_ns if self._time_ns is None else min(self._ahead_min_ns, ahead_ns)
        self._time_ns = time_ns
        self.jumped_ns = max(self.jumped_ns, ahead_ns - self._ahead_min_ns)
