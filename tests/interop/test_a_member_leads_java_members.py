"""A member of ours leads two real ones, and hands over to them: nothing that was acknowledged is lost."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster import ClusterClient
from cluster.reader import LogReader
from tests.interop import mixed_cluster
from tests.interop.aeron import EACH_VERSION, cluster_node, cluster_tool, media_driver, real_cluster
from tests.interop.mixed_cluster import (
    OPTIONS,
    OURS,
    PORT,
    Mixed,
    check_all_are_equal,
    committed_in,
    configuration,
    is_free,
    launched,
    mixed,
)
from tests.node.processes import Process, await_that, run

pytestmark = [pytest.mark.interop, pytest.mark.slow]
CONSENSUS = "aeron:" + ",".join(f"localhost:{PORT + 100 * member + 3}" for member in range(3))
COMMITTED_S = 90


class Sending:
    """A thread that sends numbered messages, some of several frames, each once, whoever leads."""

    def __init__(self, aeron_dir: Path) -> None:
        self.sent: list[bytes] = []
        self.failure: Exception | None = None
        self._client = ClusterClient.connect(
            CONSENSUS, aeron_dir=str(aeron_dir), message_timeout_s=60, new_leader_timeout_s=60
        )
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._is_over.wait(0.001):
                number = len(self.sent)
                message = b"%d:" % number + b"x" * (4000 if number % 50 == 0 else 20)
                if self._client.offer(message) > 0:
                    self.sent.append(message)
                self._client.poll_egress()
                assert not self._client.is_closed, self._client.why_closed
        except Exception as error:
            self.failure = error

    def await_leader(self) -> None:
        """Until what is sent from now on is committed."""
        end = len(self.sent)
        self._await(lambda: self._client.acknowledged > end, "what is sent now is committed")

    def await_more(self, count: int) -> None:
        """Until so many more are offered to the leader."""
        end = len(self.sent) + count
        self._await(lambda: len(self.sent) >= end, f"{count} more are taken")

    def _await(self, condition: Callable[[], bool], what: str) -> None:
        await_that(lambda: condition() or self.failure is not None, what, COMMITTED_S)
        assert self.failure is None

    def finish(self) -> list[bytes]:
        """What was sent, once all of it is acknowledged."""
        self._is_over.set()
        self._thread.join()
        if self.failure is not None:
            raise self.failure
        self._client.await_committed(COMMITTED_S)
        self._client.close()
        return self.sent


def messages_in(directory: Path) -> list[bytes]:
    """Of the senders, in the log."""
    with LogReader.open(dir=str(directory)) as reader:
        payloads = [entry["payload"] for entry in reader.entries() if entry["entryType"] == "SESSION_MESSAGE"]
    return [payload for payload in payloads if payload.endswith(b"x" * 20)]


def have_ours_lead(cluster: Mixed) -> None:
    """Kill leaders until chance has it."""
    while cluster.leader() != OURS:
        killed = cluster.kill_leader()
        cluster.leader()
        cluster.start_killed(*killed)


def have_the_two_lead(cluster: Mixed, member_id: int) -> None:
    """Of ours and the one that runs beside it, by killing the leader until it is that one."""
    while (leader_id := cluster.leader()) != member_id:
        cluster.start_killed(*cluster.kill_leader())
        assert cluster.leader() in (leader_id, member_id)


def stop(cluster: Mixed, member_id: int) -> float:
    """One of the real ones; when."""
    cluster.nodes[member_id].stop(signal.SIGKILL)
    return time.monotonic()


def launch(directory: Path, member_id: int, aeron_dir: Path) -> Process:
    """One of ours on a directory that may be a real one's."""
    config = directory / f"ours-{member_id}.toml"
    config.write_text(configuration(directory, aeron_dir, "inline", "64k", leads=True, member_id=member_id))
    return launched(config, directory / f"record-{member_id}-ours.jsonl")


def await_level(directory: Path, member_id: int) -> None:
    """Until it has committed what others have now."""
    places = [directory / f"member-{id_}" for id_ in range(3)]
    end = max(map(committed_in, places))
    what = f"member {member_id} has committed up to {end}"
    await_that(lambda: committed_in(places[member_id]) >= end, what, COMMITTED_S)


def await_free_ports(member_id: int) -> None:
    """Until the driver of one of ours that has ended has given its sockets back."""
    ports = [PORT + 100 * member_id + role for role in range(1, 6)]
    await_that(lambda: all(map(is_free, ports)), f"ports {ports} are free", COMMITTED_S)


@pytest.fixture
def patient(monkeypatch):
    """Sessions outlive any failover."""
    monkeypatch.setattr(mixed_cluster, "OPTIONS", [*OPTIONS[:-1], "30s"])


@pytest.mark.timeout(900)
def test_nothing_that_was_acknowledged_is_lost_in_ten_kills_of_leaders(tmp_path, patient):
    chance, killed = random.Random(7), []
    with mixed(tmp_path, "inline", leads=True) as cluster:
        sending = Sending(cluster.aeron_dir)
        while len(killed) < 10 or len(set(killed)) < 3:
            killed_id, killed_s = cluster.kill_leader()
            killed.append(killed_id)
            cluster.leader()
            time.sleep(chance.random())
            cluster.start_killed(killed_id, killed_s)
            time.sleep(chance.random())
        sent = sending.finish()
        check_all_are_equal(cluster)
        for member_id in range(3):
            assert messages_in(cluster.member_dir(member_id)) == sent
        cluster.stop_ours()
    assert len(sent) > 1000


@pytest.mark.timeout(600)
@pytest.mark.parametrize("version", EACH_VERSION)
def test_real_ones_fetch_from_it_what_they_have_missed_and_take_its_snapshots_and_its_end(tmp_path, version):
    with mixed(tmp_path, "process", leads=True, version=version) as cluster:
        stopped_s = stop(cluster, 0)
        for seed in (1, 2):  # a term of ours, of the other one, and of ours again, unless chance has more
            have_the_two_lead(cluster, OURS)
            cluster.work(seed)
            have_the_two_lead(cluster, 1)
        have_the_two_lead(cluster, OURS)
        cluster.start_killed(0, stopped_s)
        assert cluster.leader() == OURS
        lines = b"".join(cluster.nodes[0].lines())
        assert b"FOLLOWER_LOG_REPLICATION" in lines
        assert b"FOLLOWER_CATCHUP" in lines
        cluster.work(3)
        check_all_are_equal(cluster)

        assert run("tool", "snapshot", "--dir", str(cluster.member_dir(OURS))).returncode == 0
        for member_id in (0, 1):
            tool = lambda: cluster_tool(cluster.member_dir(member_id) / "cluster", "recording-log")  # noqa: B023, E731
            cluster.await_that(lambda: "SNAPSHOT" in tool().out, f"a snapshot of member {member_id}")  # noqa: B023
        cluster.stop_ours()
        assert cluster.leader() in (0, 1)
        cluster.start_ours()
        have_ours_lead(cluster)
        cluster.work(4)
        assert run("tool", "shutdown", "--dir", str(cluster.member_dir(OURS))).returncode == 0
        assert cluster.ours.end()[0] == 0
        for member_id in (0, 1):
            cluster.nodes[member_id].process.wait(30)


@pytest.mark.timeout(600)
def test_what_only_it_has_written_is_cut_when_it_returns(tmp_path, patient):
    with mixed(tmp_path, "inline", leads=True) as cluster:
        sending = Sending(cluster.aeron_dir)
        have_ours_lead(cluster)
        sending.await_more(500)
        for node in cluster.nodes[:2]:
            node.process.send_signal(signal.SIGSTOP)
        sending.await_more(400)  # more than the window of the stopped ones takes
        cluster.kill_ours()
        for node in cluster.nodes[:2]:
            node.process.send_signal(signal.SIGCONT)
        assert cluster.leader() in (0, 1)
        cluster.start_ours()
        assert "log cut to" in cluster.story
        have_ours_lead(cluster)
        sending.await_more(500)
        sent = sending.finish()
        check_all_are_equal(cluster)
        for member_id in range(3):
            assert messages_in(cluster.member_dir(member_id)) == sent


@pytest.mark.timeout(600)
def test_a_cluster_goes_member_by_member_from_real_ones_to_ours_and_back_while_it_works(tmp_path, patient):
    """The next comes when the others have a leader: who leads in its first election ends all sessions."""
    options = ["--service", "script", *mixed_cluster.OPTIONS]
    ours: dict[int, Process] = {}
    with media_driver() as aeron_dir, real_cluster(tmp_path, *options) as nodes:
        sending = Sending(aeron_dir)
        try:
            for member_id in (2, 1, 0):
                nodes[member_id].stop()
                sending.await_leader()
                ours[member_id] = launch(tmp_path, member_id, aeron_dir)
                await_level(tmp_path, member_id)
                sending.await_more(500)
            for member_id in (0, 1, 2):
                status, _, errors = ours.pop(member_id).stop()
                assert status == 0, errors
                sending.await_leader()
                await_free_ports(member_id)
                nodes[member_id] = cluster_node(tmp_path, member_id, *options)
                nodes[member_id].await_joined()
                await_level(tmp_path, member_id)
                sending.await_more(500)
            sent = sending.finish()
        finally:
            for process in ours.values():
                process.signal(signal.SIGKILL)
                process.end()
        for member_id in range(3):
            await_level(tmp_path, member_id)
            assert messages_in(tmp_path / f"member-{member_id}") == sent
