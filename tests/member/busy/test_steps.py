"""One turn at a time: compiled code and Python make the same calls, and leave a member in the same state."""

from __future__ import annotations

from collections import Counter

import pytest

from cluster.archive import sync_proof
from cluster.protocol.consensus import CommitPosition
from cluster.testing.network import SimulatedSocket
from tests.member.busy.busy_cluster import run
from tests.member.busy.steps import Step, Steps

SHORT = [[b"%d" % row + b"." * (60 * row) for row in range(6)]]
LONG = [[bytes(range(256)) * (3 + 3 * row) for row in range(2)]]  # up to two frames of the MTU


def steps_of(messages: list[list[bytes]], **settings: object) -> list[Step]:
    steps = Steps()
    with steps.watched():
        run(messages, is_compiled=True, **settings)
    return steps.taken


def check(steps: list[Step]) -> Counter[str]:
    """How many steps each role took, all of which are the same whoever takes them."""
    for step in steps:
        compiled, python = step.compiled, step.python
        assert compiled.files == python.files
        assert compiled.clients == python.clients
        if step.holds_commit:
            assert not compiled.links
            assert all(is_commit_position(frames) for frames in python.links.values())
            assert compiled.state | {"checksums": 0} == python.state | {"checksums": 0}
        else:
            assert compiled.links == python.links
            assert compiled.state == python.state
    return Counter(step.role for step in steps)


def is_commit_position(frames: list[bytes]) -> bool:
    (frame,) = frames
    return int.from_bytes(frame[34:36], "little") == CommitPosition.TEMPLATE_ID


@pytest.mark.parametrize(
    ("settings", "single_frames_min"),
    [
        ({"file_sync_level": 1}, 64),
        ({"file_sync_level": 2, "checksums": ("crc32c",) * 3}, 2),
    ],
    ids=["level 1", "level 2, checksums"],
)
def test_a_turn_makes_the_same_calls_whoever_takes_it(monkeypatch, settings, single_frames_min):
    monkeypatch.setattr(sync_proof, "SINGLE_FRAMES_MIN", single_frames_min)
    steps = steps_of(SHORT, **settings)

    counts = check(steps)
    assert min(counts["leader"], counts["follower"]) >= 8


def test_half_frames_and_fragments_are_the_same_whoever_takes_them(monkeypatch):
    receive_into = SimulatedSocket.recv_into
    monkeypatch.setattr(SimulatedSocket, "recv_into", lambda self, view: receive_into(self, view[:700]))

    steps = steps_of(LONG, file_sync_level=0)

    counts = check(steps)
    assert min(counts["leader"], counts["follower"]) >= 8
    assert any(any(step.compiled.state["half frames"].values()) for step in steps)
