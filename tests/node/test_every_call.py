"""An exception that is meant for nothing, at each call and each return of what a member's loop runs.

It is raised once at a time, in the loop of production, of a leader or a follower of three that the simulator
serves. It ends that life before anything more is written or sent; only below a callback of the service it may
be an error of that. However it is, members have one history, and what a client was told of is in it once.

Python's turns have some 2,000 points, and each takes about a second. ``make slow`` takes one of 31.
All of them take an hour or two:

    EVERY_CALL_STEP=1 pytest -m slow tests/node/test_every_call.py -o timeout=0 -o faulthandler_timeout=0
"""

from __future__ import annotations

import os

import pytest

from cluster.node import disk_failures
from cluster.service.echo import EchoService
from tests.node.production_loop import LoopMember, Point, looped

__all__ = ["looped"]  # a fixture

STEP = 500  # from one point to the next in ``make test``
SLOW_STEP = int(os.environ.get("EVERY_CALL_STEP", "31"))
BUSY = "member/busy/"  # what only members have that turn in compiled code


class Loop:
    """Three members, and a client whose session outlives all of them."""

    def __init__(self, looped, who: str, is_compiled: bool) -> None:
        self.cluster = looped(EchoService, members=3, seed=3, compiled_turns=is_compiled)
        self._who = who
        self._client = self.cluster.connect("alice", supervised=True)
        self._count = 0

    @property
    def member(self) -> LoopMember:
        """The one that is to err."""
        members = self.cluster._members
        leader = self.cluster.await_leader()
        return members[leader if self._who == "leader" else (leader + 1) % 3]

    def work(self, is_over=lambda: False) -> None:
        """All that a member does when nothing is wrong: sessions come, say something, and go."""
        for _ in range(4):
            self._count += 1
            self._client.offer(b"<%d>" % self._count)
            self.cluster.run(0.002)
        other = self.cluster.connect(f"other {self._count}")
        other.offer(b"(%d)" % self._count)
        self.cluster.run(0.05)
        other.close()
        for _ in range(25):  # heartbeats, and what is done once a second
            if is_over():
                break
            self.cluster.run(0.05)
        self.cluster.settle()

    def points(self) -> list[Point]:
        member, found = self.member, {}
        member.note_points(found)
        self.work()
        member.on_call = None
        return list(found)

    def err(self, point: Point) -> str:
        """Raise there; how it went, "" where it is as it should be."""
        member = self.member
        life = member.life
        member.raise_at(point, MemoryError)
        self.work(lambda: member.raised_in is not None)
        if member.raised_in is None:
            member.on_call = None
            return ""  # it does not come there each time
        where = f"{point[0]} {point[1]}"
        if member.end is not None:
            return f"{where}: the process ended: {member.end!r}"
        if member.life is life and not member.was_in_callback:
            return f"{where}: the member goes on"
        if member.life is not life and member.effects_after:
            return f"{where}: then {member.effects_after}"
        logs = {bytes(r.read(0, r.append_position)) for r in map(recording, self.cluster._members.values())}
        if len(logs) > 1:
            return f"{where}: there are {len(logs)} histories"
        (log,) = logs
        wrong = [n for n in range(1, self._count + 1) if log.count(b"<%d>" % n) != 1]
        return f"{where}: {wrong} are not there once" if wrong else ""


def recording(member):
    return member.life.consensus_module.log.recording


@pytest.fixture
def a_loop(looped, monkeypatch):
    monkeypatch.setattr(disk_failures, "PAUSE_MAX_NS", disk_failures.FIRST_PAUSE_NS)
    return lambda who, is_compiled: Loop(looped, who, is_compiled)


def check(loop: Loop, points: list[Point]) -> None:
    assert points
    assert [text for text in map(loop.err, points) if text] == []


@pytest.mark.parametrize(("who", "is_compiled"), [("leader", False), ("follower", True)])
def test_it_costs_a_life_and_nothing_else(a_loop, who, is_compiled):
    loop = a_loop(who, is_compiled)
    check(loop, loop.points()[::STEP])


@pytest.mark.slow
@pytest.mark.timeout(800)
@pytest.mark.parametrize("who", ["leader", "follower"])
def test_it_does_so_at_points_of_pythons_turns(a_loop, who):
    loop = a_loop(who, False)
    check(loop, loop.points()[::SLOW_STEP])


@pytest.mark.slow
@pytest.mark.timeout(800)
@pytest.mark.parametrize("who", ["leader", "follower"])
def test_it_does_so_at_every_point_around_compiled_turns(a_loop, who):
    loop = a_loop(who, True)
    check(loop, [point for point in loop.points() if point[0].startswith(BUSY)])
