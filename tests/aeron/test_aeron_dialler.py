"""A client of a real cluster with the threads that stand beside it, and no network."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from cluster import ClusterClient
from cluster.aeron import aeron_dialler
from cluster.errors import TimedOut
from cluster.protocol import streams
from cluster.protocol.frame import frame
from cluster.protocol.session import SessionCloseRequest, SessionMessageHeader
from tests.aeron.scripted_cluster import ENDPOINTS, SESSION, ScriptedMembers

THREADS = {"aeron-gateway", "aeron-log-follower"}


class CommittingLog:
    """All that the members were offered is committed at once."""

    term_length = 64 * 1024

    def __init__(self, members: ScriptedMembers) -> None:
        self.members = members

    def ingress_endpoints(self) -> dict[int, str]:
        return ENDPOINTS

    def end_position(self) -> int:
        return 0

    def follow(self, position: int) -> Iterator[tuple[int, np.ndarray] | None]:
        count = 0
        while True:
            payloads = self.members.to(0).payloads if self.members.all else []
            for term_id, payload in payloads[count:]:
                message = SessionMessageHeader(term_id, SESSION, 11).encode() + payload
                block = np.frombuffer(frame(message, session_id=1, stream_id=streams.LOG), np.uint8)
                yield position, block
                position += len(block)
            count = len(payloads)
            yield None

    def await_more(self, timeout_s: float, *, is_due: bool) -> None:
        time.sleep(0.0005)

    def close(self) -> None:
        pass


@pytest.fixture
def members(monkeypatch):
    members = ScriptedMembers(monkeypatch)
    members.answers_at_once = True
    monkeypatch.setattr(aeron_dialler, "AeronLog", lambda endpoints, **options: CommittingLog(members))
    monkeypatch.setattr(aeron_dialler.Aeron, "connect", lambda aeron_dir, timeout_s: members)
    return members


def await_true(is_so: Any) -> None:
    deadline = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_client_sends_hears_what_is_committed_and_leaves_no_thread(members):
    with ClusterClient.connect("aeron:host:9003", message_timeout_s=20) as client:
        assert (client.cluster_session_id, client.leader_member_id) == (SESSION, 0)
        assert client.max_payload_length == 1000 - SessionMessageHeader.ENCODED_LENGTH
        client.send(b"one")
        client.send(b"two")
        client.await_committed(20)
        members.say(SessionMessageHeader(3, SESSION, 11).encode() + b"answer")
        assert next(client.answers(timeout_s=20)).payload == b"answer"
    assert [payload for _, payload in members.to(0).payloads] == [b"one", b"two"]
    assert len(members.to(0).of(SessionCloseRequest)) == 1
    await_true(lambda: not THREADS & {thread.name for thread in threading.enumerate()})


def test_a_session_that_ends_is_followed_by_another_where_that_is_wanted(members):
    lost: list[str] = []

    class Listener:
        def on_session_lost(self, session_id: int, why: str, uncommitted: int) -> None:
            lost.append(why)

    with ClusterClient.connect("aeron:host:9003", Listener(), message_timeout_s=20, reopen=True) as client:
        members.lost = "the media driver was stopped"
        await_true(lambda: client.poll_egress() is not None and lost)
        members.lost = ""
        await_true(lambda: client.offer(b"again") > 0)
        client.await_committed(20)
    assert lost == ["the media driver was stopped"]


def test_why_no_session_is_opened_is_said(members, monkeypatch):
    def fail(*_: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(CommittingLog, "ingress_endpoints", fail)
    with pytest.raises(TimedOut, match=r"OSError.*Too many open files"):
        ClusterClient.connect("aeron:host:9003", message_timeout_s=0.5)
