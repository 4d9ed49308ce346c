"""A process beside a member: when it is started again, and what is told of its end."""

from __future__ import annotations

import os
import re
import sys

from cluster.node.child import WELL_NS, Child
from tests.node.processes import await_that

MS = 1_000_000


def ended_at(child: Child, now_ns: int) -> None:
    await_that(lambda: child.take_end(now_ns), "its end")


def test_pauses_double_up_to_ten_seconds_and_begin_again_after_a_start_that_went_well():
    said: list[str] = []
    child, now_ns = Child("a child", ["/bin/false"], said.append), 0
    for pause_ms in (100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000):
        assert child.start(now_ns)
        ended_at(child, now_ns)
        assert not child.start(now_ns + pause_ms * MS - 1), "the pause is not over"
        now_ns += pause_ms * MS
    assert child.start(now_ns)
    ended_at(child, now_ns + WELL_NS + 1)
    assert child.start(now_ns + WELL_NS + 1 + 100 * MS)
    assert re.fullmatch(
        r"a child: its process \d+ ended with status 1; it is started again in 0.1 s", said[-1]
    )
    child.kill()
    child.await_end(10, lambda: False)


def test_one_that_ends_before_it_has_read_what_it_is_given_was_started_and_is_said_to_have_ended():
    said: list[str] = []
    child = Child("a child", ["/bin/false"], said.append, given=bytes(1 << 20))  # more than a pipe takes
    assert child.start(0) and said == []
    ended_at(child, 0)
    [end] = said
    assert end.endswith("ended with status 1; it is started again in 0.1 s")


def test_one_that_is_retired_is_not_started_again_and_its_end_is_not_told():
    said: list[str] = []
    child = Child("a child", ["/bin/sleep", "600"], said.append)
    assert child.start(0)
    child.retire()
    child.kill()
    ended_at(child, 0)
    assert not child.start(WELL_NS) and said == []


def test_a_child_gets_what_it_is_given_and_a_ctrl_c_is_not_for_it(tmp_path):
    """A terminal interrupts the processes of its own session alone."""
    with (tmp_path / "said").open("w") as said:
        fd = said.fileno()
        script = f"exec > /proc/self/fd/{fd}; cat; cut -d' ' -f6 /proc/self/stat; echo $PYTHONPATH"
        child = Child("a child", ["/bin/sh", "-c", script], print, given=b"secret\n", descriptors=[fd])
        assert child.start(0)
        child.await_end(10, lambda: False)
    given, session, path = (tmp_path / "said").read_text().splitlines()

    assert given == "secret"
    assert int(session) != os.getsid(0)
    assert path == os.pathsep.join(entry or os.getcwd() for entry in sys.path)
