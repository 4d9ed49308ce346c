"""One member with two services: each has its messages, acks, timers and snapshots, and both see one log."""

from __future__ import annotations

from typing import Any

import pytest

from cluster import AgentTermination, ClusterClient, ClusteredService, ClusterNode
from tests.node.processes import await_that, keys_of, tool


class _Relaying(ClusteredService):
    """Passes on to the cluster what begins with its name, answers clients, and keeps all that it hears."""

    name = b""
    made: list[Any]

    def __init__(self) -> None:
        self.made.append(self)
        self.heard: list[tuple[bool, bytes]] = []  # (of a client, what)
        self.timers: list[int] = []
        self.restored: list[bytes] = []

    def on_start(self, cluster: Any, snapshot_image: Any) -> None:
        self.cluster = cluster
        self.restored = [] if snapshot_image is None else list(snapshot_image)

    def on_session_message(self, session: Any, timestamp: int, buffer: memoryview) -> None:
        payload = bytes(buffer)
        self.heard.append((session is not None, payload))
        if session is not None:
            session.offer(self.name + b" heard " + payload)
            if payload.startswith(self.name):
                self.cluster.offer(b"from " + payload)
                self.cluster.schedule_timer(ord(self.name), timestamp + 1)

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        self.timers.append(correlation_id)

    def on_take_snapshot(self, snapshot_publication: Any) -> None:
        snapshot_publication.offer(self.name + b" has %d" % len(self.heard))


class First(_Relaying):
    name = b"A"
    made: list[Any] = []


class Second(_Relaying):
    name = b"B"
    made: list[Any] = []


SERVICES = [f"{__name__}:First", f"{__name__}:Second"]


def ask(node: ClusterNode, *payloads: bytes, answers: int) -> list[bytes]:
    got: list[bytes] = []
    with ClusterClient.connect(
        f"0=ipc:{node.config.ipc_path}", lambda _id, _time, payload: got.append(bytes(payload))
    ) as client:
        for payload in payloads:
            assert client.offer(payload) > 0
        await_that(lambda: client.poll_egress() >= 0 and len(got) == answers, f"{answers} answers")
    return got


@pytest.mark.conformance("S-122")
def test_two_services_hear_all_events_and_each_others_messages_and_keep_their_own_snapshots(tmp_path):
    keys = keys_of(tmp_path, services=SERVICES, service_mode="inline")
    with ClusterNode.launch(**keys) as node:
        await_that(lambda: node.is_leader, "a leader, which waits for the acks of both")
        first, second = First.made[-1], Second.made[-1]
        got = ask(node, b"A one", b"B two", answers=4)
        assert [answer for answer in got if answer.startswith(b"A")] == [b"A heard A one", b"A heard B two"]
        assert [answer for answer in got if answer.startswith(b"B")] == [b"B heard A one", b"B heard B two"]

        await_that(lambda: all(len(s.heard) == 4 and len(s.timers) == 2 for s in (first, second)), "all")
        assert first.heard == second.heard
        of_services = [payload for is_client, payload in first.heard if not is_client]
        assert sorted(of_services) == [b"from A one", b"from B two"]
        assert first.timers == second.timers
        assert sorted(first.timers) == [ord("A"), ord("B")]

        taken = tool(node, "snapshot")
        assert taken.returncode == 0, taken.stderr
        log = tool(node, "recording-log", "--raw").stdout
        assert [f"serviceId={i}" in log for i in (-1, 0, 1, 2)] == [True, True, True, False]
        ask(node, b"later", answers=2)

    with ClusterNode.launch(**keys) as node:
        await_that(lambda: node.is_leader, "a leader, from both snapshots")
        first, second = First.made[-1], Second.made[-1]
        assert (first.restored, second.restored) == ([b"A has 4"], [b"B has 4"])
        assert [payload for _, payload in first.heard] == [b"later"]
        assert first.heard == second.heard


class Unwilling(First):
    """Has no snapshot to give."""

    made: list[Any] = []

    def on_take_snapshot(self, snapshot_publication: Any) -> None:
        snapshot_publication.offer(b"half of it")
        raise ValueError("not now")


def test_a_snapshot_that_one_of_two_services_cannot_take_is_none(tmp_path):
    keys = keys_of(tmp_path, services=[SERVICES[1], f"{__name__}:Unwilling"], service_mode="inline")
    with ClusterNode.launch(**keys) as node:
        await_that(lambda: node.is_leader, "a leader")
        tool(node, "snapshot")
        await_that(lambda: "no snapshot at" in (node.config.path / "node.log").read_text(), "it is told")
        assert "SNAPSHOT" not in tool(node, "recording-log", "--raw").stdout
        assert len(ask(node, b"goes on", answers=2)) == 2
    with ClusterNode.launch(**keys) as node:
        await_that(lambda: node.is_leader, "a leader")
        assert Second.made[-1].restored == []
        assert (True, b"goes on") in Second.made[-1].heard


class Raising(_Relaying):
    name = b"X"
    made: list[Any] = []

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        raise ValueError("no")


def test_where_errors_stop_a_member_the_one_that_ended_it_is_named(tmp_path):
    keys = keys_of(
        tmp_path,
        services=[SERVICES[0], f"{__name__}:Raising"],
        service_error_policy="stop",
        service_mode="inline",
    )
    node = ClusterNode.launch(**keys)
    await_that(lambda: node.is_leader, "a leader")
    with ClusterClient.connect(f"0=ipc:{node.config.ipc_path}") as client:
        assert client.offer(b"X") > 0
        await_that(lambda: not node.is_running, "it has ended")
    assert First.made[-1].timers == [ord("X")]
    with pytest.raises(
        AgentTermination, match=r"service 1 raised ValueError in on_timer_event .*: no; service_error_policy"
    ):
        node.close()
