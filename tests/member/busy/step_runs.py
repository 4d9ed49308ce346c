"""Runs whose turns are taken twice; each raises AssertionError where one comes out otherwise."""

from __future__ import annotations

from collections import Counter
from unittest.mock import patch

from cluster.archive import sync_proof
from cluster.protocol.consensus import CommitPosition
from cluster.service.echo import EchoService
from cluster.testing.network import SimulatedSocket
from tests.member.busy.busy_cluster import run
from tests.member.busy.steps import Step, Steps
from tests.node.counting_service import Repeating

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
        if step.role == "leader":  # a follower's processes are let on later
            assert compiled.processes == python.processes
        if step.holds_commit:
            assert not compiled.links
            assert all(is_commit_position(frames) for frames in python.links.values())
            unlike = {"checksums": None, "is unsent": None}
            assert compiled.state | unlike == python.state | unlike
        else:
            assert compiled.links == python.links
            assert compiled.state == python.state
    return Counter(step.role for step in steps)


def is_commit_position(frames: list[bytes]) -> bool:
    (frame,) = frames
    return int.from_bytes(frame[34:36], "little") == CommitPosition.TEMPLATE_ID


def short_messages() -> Counter[str]:
    return check(steps_of(SHORT, file_sync_level=1))


def single_frames_with_checksums() -> Counter[str]:
    with patch.object(sync_proof, "SINGLE_FRAMES_MIN", 2):
        return check(steps_of(SHORT, file_sync_level=2, checksums=("crc32c",) * 3))


def half_frames_and_fragments() -> Counter[str]:
    receive_into = SimulatedSocket.recv_into
    with patch.object(SimulatedSocket, "recv_into", lambda self, view: receive_into(self, view[:700])):
        steps = steps_of(LONG, file_sync_level=0)
    assert any(step.compiled.state["half frames"] for step in steps)
    return check(steps)


def several_services() -> Counter[str]:
    steps = steps_of(
        SHORT, service=Repeating, mode="process", beside=[(Repeating, "process"), (EchoService, "inline")]
    )
    assert any(len(step.compiled.processes) == 2 for step in steps)
    return check(steps)


def kept_answers() -> Counter[str]:
    return check(steps_of(SHORT, supervised=True))


RUNS = (
    short_messages,
    single_frames_with_checksums,
    half_frames_and_fragments,
    several_services,
    kept_answers,
)
