"""Cluster time: within what a majority of clocks shows, and passing whatever any clock does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.consensus.cluster_time import (
    ClusterTime,
    HeardClocks,
    Jumps,
    Reading,
    ReportedOffsets,
    agreed_clock,
    clock_offset_ns,
    go_on,
)
from cluster.consensus.context import MS, SECOND

SKEW = 1 * SECOND
HOUR = 3600 * SECOND
EPOCH = 1_700_000_000 * SECOND
CLOCKS = st.integers(-2 * HOUR, 2 * HOUR)


class Led:
    """The time of a leader of ``quorum``, as its clocks say."""

    def __init__(self, quorum, last, clock=EPOCH, others=()):
        self.now, self.time = 5 * SECOND, ClusterTime(quorum, SKEW)
        self.time.begin(last, self.now, clock, others)
        self.first = self.time.time_ns

    def after(self, passed, clock, others=()):
        self.now += passed
        self.time.advance(self.now, clock, others)
        return self.time.time_ns


def test_a_clock_within_a_second_of_a_majority_is_stamped_as_it_is():
    assert agreed_clock(EPOCH, [EPOCH - 900 * MS, EPOCH - 900 * MS], 2, SKEW) == EPOCH


def test_a_clock_an_hour_ahead_or_behind_is_kept_within_a_second_of_the_others():
    others = [EPOCH, EPOCH + 5 * MS]
    assert agreed_clock(EPOCH + HOUR, others, 2, SKEW) == EPOCH + 5 * MS + SKEW
    assert agreed_clock(EPOCH - HOUR, others, 2, SKEW) == EPOCH - SKEW


def test_no_time_is_agreed_where_too_few_tell_or_two_are_too_far_apart():
    assert agreed_clock(EPOCH, [], 2, SKEW) is None
    assert agreed_clock(EPOCH, [EPOCH + 2 * SKEW + 1], 2, SKEW) is None
    assert agreed_clock(EPOCH, [EPOCH + 2 * SKEW], 2, SKEW) == EPOCH + SKEW
    assert agreed_clock(EPOCH, [], 1, SKEW) == EPOCH, "the only member has the only clock"


def test_behind_a_log_an_hour_ahead_time_goes_on_at_nine_tenths_until_it_is_met():
    led = Led(1, EPOCH + HOUR)
    assert led.first == EPOCH + HOUR
    assert led.after(10 * SECOND, EPOCH + 10 * SECOND) == EPOCH + HOUR + 9 * SECOND
    assert led.time.ahead_ns == HOUR - SECOND
    assert led.after(10 * HOUR, EPOCH + 10 * HOUR + 10 * SECOND) == EPOCH + 10 * HOUR + 10 * SECOND
    assert led.time.ahead_ns == 0


def test_ahead_of_the_logs_last_timestamp_time_jumps_to_the_clock():
    led = Led(1, EPOCH - HOUR)
    assert led.first == EPOCH
    led.after(SECOND, EPOCH + SECOND)
    assert led.after(SECOND, EPOCH + HOUR) == EPOCH + HOUR


def test_alone_a_leader_of_three_goes_on_from_the_last_timestamp_by_monotonic_time():
    led = Led(2, EPOCH - HOUR)
    assert led.first == EPOCH - HOUR
    assert led.after(SECOND, EPOCH + HOUR) == EPOCH - HOUR + SECOND


def test_a_leader_that_hears_the_others_no_more_goes_on_from_what_was_agreed_last():
    led = Led(2, EPOCH + 10 * SECOND, EPOCH, [EPOCH, EPOCH])
    assert led.after(SECOND, EPOCH + HOUR) == EPOCH + 10 * SECOND + SECOND * 9 // 10
    assert led.time.ahead_ns == 10 * SECOND - SECOND // 10
    assert led.after(199 * SECOND, EPOCH - HOUR) == EPOCH + 200 * SECOND


def test_a_new_log_begins_with_the_earliest_clock_unless_a_majority_agrees():
    assert Led(2, None, EPOCH, [EPOCH + HOUR]).first == EPOCH
    assert Led(2, None, EPOCH + HOUR, [EPOCH]).first == EPOCH
    assert Led(2, None, EPOCH + HOUR, [EPOCH, EPOCH + 5 * MS]).first == EPOCH + 5 * MS + SKEW


def test_compiled_turns_go_on_from_the_last_time_at_its_speed():
    led = Led(1, EPOCH)
    go_on(led.time.words, led.now + SECOND)
    assert led.time.time_ns == EPOCH + SECOND
    behind = Led(1, EPOCH + HOUR)
    go_on(behind.time.words, behind.now + SECOND)
    assert behind.time.time_ns == EPOCH + HOUR + SECOND * 9 // 10


@pytest.mark.parametrize(
    ("seen", "jumped"),
    [
        ([(0, HOUR)], 0),
        ([(0, 0), (HOUR, HOUR)], 0),
        ([(0, 0), (0, HOUR), (0, 2 * HOUR), (2 * HOUR, 2 * HOUR)], 0),
        ([(0, 0), (HOUR, 0)], HOUR),
        ([(0, 0), (9 * HOUR, 10 * HOUR), (11 * HOUR, 10 * HOUR)], 2 * HOUR),
        ([(0, 0), (HOUR, 0), (HOUR + 1, 2 * HOUR), (2 * HOUR, 2 * HOUR)], HOUR),
    ],
    ids=["first", "in step", "idle", "jump", "a jump after hours at nine tenths", "it is not taken back"],
)
def test_a_jump_is_time_that_passed_faster_than_the_monotonic_clock(seen, jumped):
    """An idle log has no time that passes."""
    jumps = Jumps()
    for time, now in seen:
        jumps.see(EPOCH + time, now)
    assert jumps.jumped_ns == jumped


@pytest.mark.parametrize(
    ("own", "others", "quorum", "offset"),
    [
        (HOUR, [], 1, 0),
        (HOUR, [], 2, None),
        (HOUR, [0], 2, HOUR - MS),
        (HOUR, [0, 0], 2, HOUR - MS),
        (-HOUR, [0, 0], 2, MS - HOUR),
        (0, [0, HOUR], 2, 0),
        (MS, [0, HOUR], 2, 0),
        (0, [HOUR], 3, None),
        (0, [HOUR, HOUR, 0, 0], 3, 0),
        (HOUR, [HOUR, 0, 0, 0], 3, HOUR - MS),
    ],
)
def test_the_offset_of_a_clock_is_from_a_majority_beyond_the_error(own, others, quorum, offset):
    """A right clock has none because one of the others is wrong."""
    readings = [Reading(0, other, MS) for other in others]
    assert clock_offset_ns(own, readings, quorum) == offset


def test_an_offset_is_told_from_a_tenth_of_a_second_on_once_and_when_it_has_doubled():
    told = ReportedOffsets()
    steps = [100, 101, 200, 202, 300, -403, -404, 60, 150, 49, 60, 150]
    assert [ms for ms in steps if told.is_news(1, ms * MS)] == [101, 202, -404, 150]
    assert told.is_news(2, 150 * MS), "of another member"


def test_of_the_readings_of_ten_seconds_the_quickest_counts():
    heard = HeardClocks()
    heard.hear(1, 100, 120, EPOCH)  # 10 each way, at most
    heard.hear(1, 200, 204, EPOCH)
    heard.hear(1, 300, 340, EPOCH)
    assert heard.best(400)[1].error_ns == 2
    assert heard.best(400)[1].ahead_ns == EPOCH + 2 - 204
    assert heard.best(205 + 10 * SECOND)[1].error_ns == 20
    assert heard.best(340 + 10 * SECOND)[1].error_ns == 20
    assert heard.best(341 + 10 * SECOND) == {}


def test_what_was_heard_is_forgotten_of_one_member_or_of_all():
    heard = HeardClocks()
    for member_id in (1, 2, 3):
        heard.hear(member_id, 0, 1, EPOCH)
    heard.forget(1)
    assert sorted(heard.best(2)) == [2, 3]
    heard.forget()
    assert heard.best(2) == {}


STEPS = st.lists(
    st.tuples(st.integers(0, 20 * SECOND), st.lists(CLOCKS, min_size=1, max_size=5)), max_size=30
)


@given(st.none() | CLOCKS, st.integers(1, 3), CLOCKS, STEPS)
def test_time_passes_at_nine_tenths_at_least_whatever_the_clocks_do(last, quorum, first, steps):
    led = Led(quorum, None if last is None else EPOCH + last, EPOCH + first)
    before = led.first
    assert last is None or before >= EPOCH + last
    for passed, clocks in steps:
        own, *others = (EPOCH + clock for clock in clocks)
        time = led.after(passed, own, others)
        assert (time - before) * 10 >= passed * 9
        before = time


@st.composite
def _majorities(draw):
    """Quorum; the clocks' errors of each step, those of the right ones first and within ``within``."""
    n = draw(st.integers(1, 7))
    quorum, within = n // 2 + 1, draw(st.integers(0, 3 * SECOND))
    right, wrong = st.integers(-within, within), CLOCKS
    steps = []
    for _ in range(draw(st.integers(1, 15))):
        clocks = draw(st.lists(right, min_size=quorum, max_size=quorum))
        clocks += draw(st.lists(wrong, min_size=n - quorum, max_size=n - quorum))
        steps.append((draw(st.integers(0, 5 * SECOND)), draw(st.permutations(clocks))))
    return quorum, within, steps


@given(_majorities(), st.integers(0, 2 * SECOND), st.randoms())
def test_once_it_is_met_time_stays_within_the_bound_of_a_majority_of_right_clocks(case, error, random):
    quorum, within, steps = case
    true = EPOCH
    led = Led(quorum, EPOCH - HOUR, EPOCH, [EPOCH] * (quorum - 1))
    for passed, (own, *others) in steps:
        true += passed
        heard = [true + other + random.randint(-error, error) for other in others]
        time = led.after(passed, true + own, heard)
        assert abs(time - true) <= within + SKEW + error
