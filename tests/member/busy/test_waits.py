"""How long a compiled turn looks at its sockets before it sleeps: its Python, with a clock of our own."""

from types import SimpleNamespace

import numpy as np
import pytest

from cluster.consensus import quorum
from cluster.log.kernel import as_python
from cluster.member.busy import turn
from cluster.member.busy import words as at

FOUND_AFTER_NS = 12_000


class Waits:
    """Waits with a socket that is ready so long after each began, or never; each call takes a microsecond."""

    def __init__(self, monkeypatch, spin_ns=0):
        self.now_ns = 1_000_000
        self.ready_after_ns = None
        self.tables = SimpleNamespace(words=[0] * at.WORDS, leadership=[0] * quorum.LEADERSHIP_WORDS)
        words = self.tables.words
        words[at.SLOW_TICK_NS] = words[at.DUE_NS] = words[at.LIMIT_DUE_NS] = 1 << 60
        words[at.ROLE] = at.FOLLOWER_ROLE
        self.spin_ns = spin_ns
        self.slept = False
        monkeypatch.setattr(turn, "wait", self._wait)
        monkeypatch.setattr(turn, "read_clock", self._read_clock)
        monkeypatch.setattr(turn, "_count_sleep", as_python(turn._count_sleep))

    def _wait(self, tables, timeout_ms):
        self.now_ns += 1_000
        self.slept = timeout_ms > 0
        is_ready = self.ready_after_ns is not None and self.now_ns >= self._began_ns + self.ready_after_ns
        return int(self.slept or is_ready)

    def _read_clock(self, tables):
        return self.now_ns

    def sleeps(self, ready_after_ns):
        """Whether a wait sleeps before it finds something."""
        self.ready_after_ns, self._began_ns = ready_after_ns, self.now_ns
        self.tables.words[at.SPIN_UNTIL_NS] = self.now_ns + self.spin_ns
        as_python(turn._await_events)(self.tables)
        return self.slept


@pytest.fixture
def waits(monkeypatch):
    return Waits(monkeypatch)


def test_a_wait_looks_as_long_as_that_finds_something(waits):
    assert not any(waits.sleeps(FOUND_AFTER_NS) for _ in range(1_000))


def test_after_a_look_in_vain_waits_sleep_at_once_twice_as_many_each_time(waits):
    looked = []
    for number in range(5_000):
        before_ns = waits.now_ns
        assert waits.sleeps(None)
        if waits.now_ns - before_ns > 2_000:
            assert turn.LOOK_NS <= waits.now_ns - before_ns <= turn.LOOK_NS + 2_000
            looked.append(number)

    apart = np.diff(looked).tolist()
    assert apart[:6] == [33, 65, 129, 257, 513, 1025]
    assert set(apart[6:]) == {1025}


def test_a_look_that_finds_something_counts_the_earlier_ones_no_more(waits):
    for _ in range(200):
        waits.sleeps(None)
    while waits.sleeps(FOUND_AFTER_NS):
        pass

    assert not any(waits.sleeps(FOUND_AFTER_NS) for _ in range(100))
    assert waits.sleeps(None)
    assert waits.tables.words[at.SLEEPS] == turn.SLEEPS_MIN


def test_with_idle_spin_a_wait_looks_each_time(monkeypatch):
    waits = Waits(monkeypatch, spin_ns=100_000)
    for _ in range(100):
        waits.sleeps(None)

    assert not any(waits.sleeps(90_000) for _ in range(100))


@pytest.mark.parametrize("due", [at.DUE_NS, at.SLOW_TICK_NS, at.LIMIT_DUE_NS])
def test_a_wait_looks_no_longer_than_until_something_is_due(waits, due):
    waits.tables.words[due] = waits.now_ns + 5_000
    assert not waits.sleeps(None)
    assert waits.now_ns <= waits.tables.words[due] + 2_000


@pytest.mark.parametrize(("waited_ns", "sleep_ms"), [(50_000, 1), (400_000, 1), (900_000, 0)])
def test_a_commit_position_waits_for_log_about_a_millisecond_in_all(waits, monkeypatch, waited_ns, sleep_ms):
    words, slept = waits.tables.words, []
    words[at.ROLE], words[at.SLEEPS] = at.LEADER_ROLE, 9
    waits.tables.leadership[quorum.IS_COMMIT_UNSENT] = 1
    waits.tables.leadership[quorum.COMMIT_RISEN_NS] = waits.now_ns - waited_ns
    monkeypatch.setattr(turn, "wait", lambda tables, timeout_ms: slept.append(timeout_ms) or 0)
    as_python(turn._await_events)(waits.tables)

    assert slept == [sleep_ms]


@pytest.mark.usefixtures("rules_as_python")
def test_with_idle_spin_a_commit_position_is_told_when_it_is_due(monkeypatch):
    waits = Waits(monkeypatch, spin_ns=5 * quorum.COMMIT_WAIT_NS)
    waits.tables.words[at.ROLE], waits.tables.leadership[quorum.IS_COMMIT_UNSENT] = at.LEADER_ROLE, 1
    risen_ns = waits.tables.leadership[quorum.COMMIT_RISEN_NS] = waits.now_ns

    assert not waits.sleeps(None)
    assert risen_ns + quorum.COMMIT_WAIT_NS <= waits.now_ns <= risen_ns + quorum.COMMIT_WAIT_NS + 2_000


@pytest.mark.parametrize(("gaps_ms", "longest_ms"), [([2, 44, 10], 44), ([2, 10, 44], 10), ([44], 0)])
def test_the_longest_gap_of_a_run_is_measured_and_the_last_one_left_to_python(
    waits, monkeypatch, gaps_ms, longest_ms
):
    """Its next turn measures that one: counted in both, one stall would be two."""
    words, left = waits.tables.words, list(gaps_ms)

    def await_events(tables):
        words[at.LAST_NS] = words[at.NOW_NS]
        words[at.NOW_NS] += left.pop(0) * 1_000_000
        return 0 if left else -1

    monkeypatch.setattr(turn, "_await_events", await_events)
    monkeypatch.setattr(turn, "_is_time", lambda tables: False)
    monkeypatch.setattr(turn, "_find_ready", lambda tables, found: True)
    words[at.LAST_NS] = words[at.NOW_NS] = waits.now_ns
    words[at.LONGEST_GAP_NS] = 1 << 40  # of the run before
    assert as_python(turn.busy_turns)(waits.tables) == at.INTERRUPTED

    assert words[at.LONGEST_GAP_NS] == longest_ms * 1_000_000
