"""When a member's thread looks at sockets, sleeps, and leaves the turn to compiled code."""

import threading
import time

import pytest

from cluster.errors import AgentTermination, ClusterError
from cluster.node.runner import SLEEP_MAX_S, AgentRunner, cluster_clock
from cluster.transport.poller import Poller


class Member:
    """An agent and its poller: plays a script, and notes what is asked of it."""

    def __init__(self, work=(), busy=(), awaits_events=False):
        self.work, self.busy = list(work), list(busy)
        self.awaits_events = awaits_events
        self.due_in_ns = 10**9
        self.calls = []
        self.runner = AgentRunner(
            self,
            self,
            lambda: 0,
            spin_ns=0,
            turn_busily=self.turn_busily,
            next_due_ns=lambda: time.monotonic_ns() + self.due_in_ns,
        )

    def wait(self, timeout_s):
        self.calls.append("sleep" if timeout_s == SLEEP_MAX_S else "nap" if timeout_s else "look")
        return 0

    def wake(self):
        pass

    def turn_busily(self):
        result = self.busy.pop(0) if self.busy else None
        if isinstance(result, Exception):
            raise result
        return result

    def do_work(self, now_ns, cluster_time):
        self.calls.append("turn")
        if len(self.work) == 1:
            self.runner.stop()
        result = self.work.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    def run(self):
        self.runner.run()
        return " ".join(map(str, self.calls))


def test_without_work_it_sleeps_until_a_socket_or_time_has_some():
    assert Member(work=[0, 0]).run() == "look sleep turn look sleep turn"


def test_it_sleeps_no_longer_than_until_something_is_due():
    member = Member(work=[0, 0])
    member.due_in_ns = 3_000_000
    assert member.run() == "look nap turn look nap turn"


def test_what_is_overdue_is_not_slept_for():
    member = Member(work=[0, 0])
    member.due_in_ns = -1_000_000
    assert member.run() == "look look turn look look turn"


def test_after_work_it_looks_at_sockets_and_never_sleeps():
    assert Member(work=[1, 1, 1]).run() == "look sleep turn look turn look turn"


def test_one_that_awaits_events_after_work_sleeps():
    assert Member(work=[1, 1], awaits_events=True).run() == "look sleep turn look sleep turn"


@pytest.mark.parametrize("work", [0, 1])
def test_what_compiled_code_found_on_sockets_is_looked_at(work):
    assert Member(work=[work] * 2, busy=[True, True]).run() == "look turn look turn"


@pytest.mark.parametrize("work", [0, 1])
def test_time_alone_leaves_sockets_to_compiled_code(work):
    assert Member(work=[work] * 2, busy=[False, False]).run() == "turn turn"


@pytest.mark.conformance("C-10")
def test_whatever_the_sockets_have_is_taken_before_each_turn_and_so_before_each_slow_tick():
    """Aeron's client conductor runs in the slow tick; here sockets and their time-outs are every turn's.

    A run of compiled turns that ended by time has asked them itself.
    """
    calls = Member(work=[1, 1, 0, 1, 0]).run().split()
    assert calls.count("turn") == 5
    assert all(before in ("look", "sleep") for before, call in zip(["", *calls], calls) if call == "turn")


@pytest.mark.parametrize("error", [AgentTermination("over"), ClusterError("it"), ValueError("what")])
def test_whatever_an_agent_or_compiled_code_raises_ends_the_runner(error):
    with pytest.raises(type(error)):
        Member(work=[1, error, 1]).run()
    with pytest.raises(type(error)):
        Member(work=[1, 1], busy=[error]).run()


def test_a_sleeping_runner_can_be_stopped_from_elsewhere():
    class Idle:
        def do_work(self, now_ns, cluster_time):
            return 0

    poller = Poller()
    runner = AgentRunner(Idle(), poller, cluster_clock("ms"), spin_ns=0)
    thread = threading.Thread(target=runner.run)
    thread.start()
    runner.stop()
    thread.join(10)
    assert not thread.is_alive()
    poller.close()


@pytest.mark.parametrize(("unit", "per_second"), [("ms", 10**3), ("us", 10**6), ("ns", 10**9)])
def test_cluster_time_is_time_since_the_epoch_in_its_unit(unit, per_second):
    assert abs(cluster_clock(unit)() / per_second - time.time()) < 5
