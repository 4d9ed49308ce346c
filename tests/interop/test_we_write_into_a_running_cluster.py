"""Our client sends to three real members, which are killed and stopped: each message is in the log once."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster import ClusterClient
from cluster.errors import TimedOut
from cluster.reader import LogReader
from tests.interop.aeron import (
    MARK_SECONDS,
    START_SECONDS,
    RealNode,
    cluster_node,
    media_driver,
    real_cluster,
)

pytestmark = pytest.mark.interop
PORT = 25300
CONSENSUS = "aeron:" + ",".join(f"localhost:{PORT + 100 * member + 3}" for member in range(3))
# A leader with 64 KiB to write into waits for a follower that was killed for longer than 10 s, and reads no
# keep-alive meanwhile.
OPTIONS = [
    *("--service", "echo", "--base-port", str(PORT), "--term-length", "64k", "--segment-length", "64k"),
    *("--heartbeat-timeout", "2s", "--heartbeat-interval", "100ms", "--session-timeout", "30s"),
]


@pytest.fixture
def aeron_dir():
    with media_driver() as aeron_dir:
        yield str(aeron_dir)


@pytest.fixture
def nodes(tmp_path):
    with real_cluster(tmp_path, *OPTIONS) as nodes:
        yield nodes


class Sending:
    """Offers numbered messages, some of them of several frames, and takes the answers."""

    def __init__(self, aeron_dir: str) -> None:
        self.answers: list[bytes] = []
        self.client = ClusterClient.connect(
            CONSENSUS, self, aeron_dir=aeron_dir, message_timeout_s=20, new_leader_timeout_s=60
        )
        self.sent: list[bytes] = []

    def on_message(self, session_id: int, timestamp: int, payload: memoryview) -> None:
        self.answers.append(bytes(payload))

    def send(self, seconds: float) -> None:
        """For so long."""
        end = time.monotonic() + seconds
        self.send_until(lambda: time.monotonic() > end)

    def send_until(self, is_enough: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not is_enough():
            assert time.monotonic() < deadline
            number = len(self.sent)
            message = b"%d" % number + b"x" * (4000 if number % 50 == 0 else 20)
            if self.client.offer(message) > 0:
                self.sent.append(message)
            self.client.poll_egress()
            assert not self.client.is_closed, self.client.why_closed
            if number % 20 == 0:
                time.sleep(0.002)

    def send_until_answered(self) -> None:
        """The service answers some of what is sent from now on."""
        enough = len(self.answers) + 1000
        self.send_until(lambda: len(self.answers) > enough)

    def finish(self) -> None:
        """Until all is committed."""
        self.client.await_committed(START_SECONDS)
        self.client.poll_egress()
        self.client.close()


def messages_in(directory: Path) -> list[bytes]:
    """What the archive of a member has of messages, as far as it is committed, once the session is closed."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        with LogReader.open(dir=str(directory)) as reader:
            entries = list(reader.entries())
        if any(entry["entryType"] == "SESSION_CLOSE" for entry in entries):
            return [entry["payload"] for entry in entries if entry["entryType"] == "SESSION_MESSAGE"]
        assert time.monotonic() < deadline, "the session is not closed in the log"
        time.sleep(0.1)


@pytest.mark.conformance("M-34", "M-35", "M-36", "M-38")
def test_each_message_is_in_the_log_once_when_the_leader_is_killed(nodes, aeron_dir):
    sending = Sending(aeron_dir)
    sending.send_until_answered()
    killed, term_id = sending.client.leader_member_id, sending.client.leadership_term_id
    nodes[killed].stop(signal.SIGKILL)
    sending.send_until(lambda: sending.client.leadership_term_id > term_id)
    sending.send_until_answered()
    sending.finish()
    assert set(sending.answers) <= set(sending.sent)
    for member_id, node in enumerate(nodes):
        if member_id != killed:
            assert messages_in(node.directory) == sending.sent


@pytest.mark.slow
@pytest.mark.timeout(400)  # members are started again, and take their time
@pytest.mark.parametrize("seed", [1, 2])
def test_each_message_is_in_the_log_once_while_members_are_killed_and_stopped(
    tmp_path, nodes, aeron_dir, seed
):
    chance = random.Random(seed)
    sending = Sending(aeron_dir)
    for _ in range(4):
        sending.send(chance.random())
        victim = chance.choice([sending.client.leader_member_id, chance.randrange(3)])
        if chance.random() < 0.5:
            nodes[victim].process.send_signal(signal.SIGSTOP)
            sending.send(chance.uniform(1, 8))
            nodes[victim].process.send_signal(signal.SIGCONT)
        else:
            nodes[victim].stop(signal.SIGKILL)
            sending.send(MARK_SECONDS)
            nodes[victim] = cluster_node(tmp_path, victim, *OPTIONS)
            await_joined_while(nodes[victim], sending)
        sending.send(1.0)
    sending.finish()
    for node in nodes:
        assert messages_in(node.directory) == sending.sent


def await_joined_while(node: RealNode, sending: Sending) -> None:
    """Until the member has joined, while messages go on."""
    deadline = time.monotonic() + START_SECONDS
    while not node.has_joined:
        assert node.process.poll() is None and time.monotonic() < deadline, node.errors()
        sending.send(0.2)


@pytest.mark.slow
def test_a_session_that_is_lost_with_the_media_driver_is_opened_again_where_that_is_wanted(nodes):
    lost = []

    class Listener:
        def on_session_lost(self, session_id: int, why: str, uncommitted: int) -> None:
            lost.append(why)

    with media_driver() as aeron_dir:
        client = ClusterClient.connect(
            CONSENSUS, Listener(), aeron_dir=str(aeron_dir), message_timeout_s=20, reopen=True
        )
        client.send(b"before")
        client.await_committed(20)
    with media_driver() as aeron_dir:
        deadline = time.monotonic() + START_SECONDS
        while not lost or client.offer(b"after") < 0:
            assert time.monotonic() < deadline
            client.poll_egress()
            time.sleep(0.01)
        client.await_committed(20)
        client.close()
        assert messages_in(nodes[0].directory) == [b"before", b"after"]


@pytest.mark.slow
def test_without_a_majority_nothing_is_acknowledged_and_what_was_sent_is_committed_with_it(
    tmp_path, nodes, aeron_dir
):
    sending = Sending(aeron_dir)
    sending.send(0.5)
    sending.client.await_committed(20)
    followers = [m for m in range(3) if m != sending.client.leader_member_id]
    for member_id in followers:
        nodes[member_id].stop(signal.SIGKILL)
    acknowledged = sending.client.acknowledged
    sending.sent.append(b"alone")
    assert sending.client.offer(b"alone") > 0
    with pytest.raises(TimedOut):
        sending.client.await_committed(MARK_SECONDS)
    assert sending.client.acknowledged == acknowledged
    for member_id in followers:
        nodes[member_id] = cluster_node(tmp_path, member_id, *OPTIONS)
    sending.send(1.0)
    sending.finish()
    assert messages_in(nodes[followers[0]].directory) == sending.sent
