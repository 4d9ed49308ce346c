"""A member of ours takes the place of a real one, in a cluster of which the other two are real."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from cluster.errors import ClusterError
from cluster.reader import LogReader
from tests.interop.aeron import (
    START_SECONDS,
    RealNode,
    cluster_node,
    cluster_tool,
    entries_as_told,
    media_driver,
    real_backup,
    real_cluster,
    told_by,
    workload,
)
from tests.interop.script_service import RECORD, Script
from tests.node.processes import Process, run

pytestmark = [pytest.mark.interop, pytest.mark.slow]
PORT = 26400
OURS = 2
OPTIONS = [
    *("--base-port", str(PORT), "--term-length", "64k", "--segment-length", "64k"),
    *("--heartbeat-timeout", "3s", "--heartbeat-interval", "100ms", "--session-timeout", "3s"),
    *("--canvass-timeout", "6s"),
]
MARK_FILE_S = 10.5  # for so long a real node that was killed is taken to live
RECORD_OF_OURS = "record-2-ours.jsonl"
IDS = slice(12, 16)  # of a frame's header: its session


def endpoints(member_id: int) -> str:
    """In a members string; java/Options.java has the ports."""
    return ",".join(f"localhost:{PORT + 100 * member_id + role}" for role in (2, 3, 4, 5, 1))


def configuration(directory: Path, aeron_dir: Path, service_mode: str, log_term_length: str) -> str:
    keys = {
        "member_id": OURS,
        "members": [f"{member_id},{endpoints(member_id)}" for member_id in range(3)],
        "dir": str(directory / f"member-{OURS}"),
        "consensus_channel": "aeron:udp?term-length=64k",
        "archive_control_channel": "aeron:udp",
        "aeron_dir": str(aeron_dir),
        "services": [f"{Script.__module__}:Script"],
        "service_mode": [service_mode],
        "leader_heartbeat_timeout": "3s",
        "leader_heartbeat_interval": "100ms",
        "startup_canvass_timeout": "6s",
        "log_term_length": log_term_length,
        "archive_segment_file_length": log_term_length,
        "grpc_gateway": "none",
        "tcp_ingress": "none",
        "metrics_endpoint": "none",
    }
    return "\n".join(f"{key} = {json.dumps(value)}" for key, value in keys.items())


def await_mark_file(killed_s: float) -> None:
    """Until the real node that was killed then may be started again."""
    time.sleep(max(0.0, killed_s + MARK_FILE_S - time.monotonic()))


def is_free(port: int) -> bool:
    """Whether nobody has the UDP port."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


class Mixed:
    """Real members 0 and 1, ours is 2."""

    def __init__(self, directory: Path, nodes: list[RealNode], aeron_dir: Path, service_mode: str) -> None:
        self.directory = directory
        self.nodes = nodes
        self.ours: Process
        self._config = directory / "ours.toml"
        self._place = directory, aeron_dir, service_mode
        self.configure_ours()

    def configure_ours(self, log_term_length: str = "64k") -> None:
        self._config.write_text(configuration(*self._place, log_term_length))

    def launch_ours(self) -> None:
        record = {RECORD: str(self.directory / RECORD_OF_OURS)}
        self.ours = Process("node", "--config", str(self._config), is_new=True, **record)
        assert self.ours.first_line, self.ours.end()

    def start_ours(self) -> None:
        self.launch_ours()
        self.await_level()

    def stop_ours(self) -> None:
        status, _, errors = self.ours.stop()
        assert status == 0, errors

    def kill_ours(self) -> None:
        self.ours.signal(signal.SIGKILL)
        self.ours.end()

    def kill_ours_if_it_runs(self) -> None:
        if self.ours.process.poll() is None:
            self.kill_ours()

    def member_dir(self, member_id: int) -> Path:
        return self.directory / f"member-{member_id}"

    @property
    def story(self) -> str:
        """What ours has told in all its lives."""
        return (self.member_dir(OURS) / "node.log").read_text()

    def await_that(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not condition():
            assert time.monotonic() < deadline, f"{what}: {self.story[-6000:]}"
            time.sleep(0.1)

    def leader(self) -> int:
        """Which of the real ones leads, once one does."""
        found: list[int] = []

        def look() -> bool:
            found[:] = [id_ for id_ in (0, 1) if self.leads(id_)]
            return bool(found)

        self.await_that(look, "none of the real members leads")
        return found[0]

    def leads(self, member_id: int) -> bool:
        is_up = self.nodes[member_id].process.poll() is None
        return is_up and cluster_tool(self.member_dir(member_id) / "cluster", "is-leader").status == 0

    def committed(self, member_id: int) -> int:
        with LogReader.open(dir=str(self.member_dir(member_id))) as reader:
            return reader.commit_position() if reader.is_live else -1

    def await_level(self) -> None:
        leader_id = self.leader()
        end = self.committed(leader_id)
        self.await_that(lambda: self.committed(OURS) >= end, f"ours does not come to {end}")

    def start(self, member_id: int) -> None:
        """A real one; its record is that of its last life."""
        record = self.record(member_id)
        options = ["--service", "script", "--record", str(record), *OPTIONS]
        self.nodes[member_id] = cluster_node(self.directory, member_id, *options)
        self.nodes[member_id].await_joined()

    def record(self, member_id: int) -> Path:
        return self.directory / f"record-{member_id}.jsonl"

    def work(self, seed: int) -> None:
        walk = ["--members", "3", "--messages", "100", "--phase", "1", "--connect-timeout", "60s"]
        workload(self.directory, *walk, "--seed", str(seed), *OPTIONS)

    def kill_leader(self) -> tuple[int, float]:
        """Which one, and when."""
        leader_id = self.leader()
        self.nodes[leader_id].stop(signal.SIGKILL)
        return leader_id, time.monotonic()

    def start_killed(self, member_id: int, killed_s: float) -> None:
        await_mark_file(killed_s)
        self.start(member_id)


@contextmanager
def mixed(directory: Path, service_mode: str) -> Iterator[Mixed]:
    """A cluster of real ones that has worked, of which ours has taken over the directory of the third."""
    with (
        media_driver() as aeron_dir,
        real_cluster(directory, "--service", "script", *OPTIONS) as nodes,
    ):
        cluster = Mixed(directory, nodes, aeron_dir, service_mode)
        cluster.work(0)
        nodes[OURS].stop()
        cluster.start_ours()
        try:
            yield cluster
        finally:
            cluster.kill_ours_if_it_runs()


def log_bytes(member_dir: Path, end: int) -> bytearray:
    """The recorded log, without the sessions of its frames."""
    segments = sorted((member_dir / "archive").glob("0-*.rec"), key=lambda path: int(path.stem[2:]))
    log = bytearray(b"".join(path.read_bytes() for path in segments)[:end])
    at = 0
    while at < end:
        log[at + IDS.start : at + IDS.stop] = bytes(4)  # real archives replicate under sessions of their own
        at += -(-struct.unpack_from("<i", log, at)[0] // 32) * 32
    return log


def check_all_are_equal(cluster: Mixed) -> int:
    """Log and callbacks of the three up to where all are level; returns how many callbacks."""
    cluster.await_level()
    end = cluster.committed(cluster.leader())
    cluster.await_that(lambda: min(map(cluster.committed, range(3))) >= end, "all are level")
    ours = log_bytes(cluster.member_dir(OURS), end)
    for member_id in (0, 1):
        assert log_bytes(cluster.member_dir(member_id), end) == ours, f"the log of member {member_id}"
    with LogReader.open(dir=str(cluster.member_dir(OURS))) as reader:
        read = entries_as_told(reader.entries())
    start, told = told_by(cluster.directory / RECORD_OF_OURS)
    assert start == 0
    assert told == read
    for member_id in (0, 1):
        if cluster.record(member_id).exists():
            start, of_real = told_by(cluster.record(member_id))
            assert start == 0
            assert of_real == told, f"the service of member {member_id}"
    return len(told)


@pytest.mark.timeout(900)
def test_it_votes_follows_and_has_what_real_ones_have_through_ten_kills_of_real_leaders(tmp_path):
    with mixed(tmp_path, "inline") as cluster:
        for kill in range(10):
            killed_id, killed_s = cluster.kill_leader()
            assert cluster.leader() == 1 - killed_id, "with the vote of ours"
            cluster.work(1 + kill)  # committed with ours alone
            if kill % 4 == 3:
                cluster.kill_ours()
                cluster.start_ours()
            cluster.start_killed(killed_id, killed_s)
        assert check_all_are_equal(cluster) > 500
        cluster.stop_ours()
        assert "voted for member 0" in cluster.story
        assert "voted for member 1" in cluster.story
        assert "RemoteProtocolError" not in cluster.story, "what real ones say is refused"


@pytest.mark.timeout(600)
def test_it_fetches_what_others_have_written_without_it_takes_snapshots_and_gives_its_place_back(tmp_path):
    with mixed(tmp_path, "process") as cluster:
        cluster.stop_ours()
        for seed in (1, 2):
            killed_id, killed_s = cluster.kill_leader()
            cluster.start_killed(killed_id, killed_s)
            cluster.work(seed)
        cluster.start_ours()
        assert "fetches term" in cluster.story
        check_all_are_equal(cluster)

        assert cluster_tool(cluster.member_dir(cluster.leader()) / "cluster", "snapshot").status == 0
        cluster.await_that(lambda: '"snapshot at ' in cluster.story, "a snapshot")
        cluster.work(3)
        cluster.await_level()
        cluster.stop_ours()
        cluster.start_ours()
        assert "starts from the snapshot at" in cluster.story
        cluster.stop_ours()

        cluster.await_that(lambda: is_free(PORT + 100 * OURS + 3), "the driver of ours listens still")
        cluster.start(OURS)
        cluster.work(4)
        cluster.nodes[0].stop()
        cluster.start(0)
        time.sleep(1)
        assert told_by(cluster.record(OURS))[1] == told_by(cluster.record(0))[1]


def end_of(copy: Path) -> int:
    """How far a backup has copied, -1 where it has nothing."""
    try:
        with LogReader.open(dir=str(copy)) as reader:
            return reader.commit_position()
    except ClusterError:
        return -1


@pytest.mark.timeout(300)
def test_a_real_backup_of_the_cluster_copies_ours(tmp_path):
    copy = tmp_path / "copy"
    with mixed(tmp_path, "inline") as cluster:
        assert cluster_tool(cluster.member_dir(cluster.leader()) / "cluster", "snapshot").status == 0
        cluster.await_that(lambda: '"snapshot at ' in cluster.story, "a snapshot")
        cluster.work(1)
        cluster.await_level()
        ours = f"localhost:{PORT + 100 * OURS + 3}"
        with real_backup(copy, "--member-id", "3", "--consensus-endpoints", ours, *OPTIONS) as backup:
            cluster.work(2)
            cluster.await_level()
            end = cluster.committed(OURS)
            cluster.await_that(lambda: end_of(copy) >= end, backup.errors())
        with (
            LogReader.open(dir=str(copy)) as copied,
            LogReader.open(dir=str(cluster.member_dir(OURS))) as own,
        ):
            assert copied.earliest_position() == 0
            assert list(copied.entries(0, end)) == list(own.entries(0, end))


def accept_that_ours_is_empty(cluster: Mixed) -> None:
    """It waits until somebody does."""
    cluster.launch_ours()
    waits = "waits for members 0, 1: its disk has no votes"
    cluster.await_that(lambda: waits in cluster.story, "it waits")
    cluster.stop_ours()
    accepted = run("tool", "accept-data-loss", "--dir", str(cluster.member_dir(OURS)), "--member", "2")
    assert accepted.returncode == 0, accepted.stderr


@pytest.mark.timeout(400)
@pytest.mark.parametrize("version", ["1.44.1", "1.46.9", "1.49.3"])
def test_an_empty_one_has_a_say_once_that_is_accepted_and_ends_with_the_cluster(tmp_path, version):
    """Here the real ones are of older releases that are read."""
    script = ["--service", "script", *OPTIONS]
    with media_driver() as aeron_dir, ExitStack() as running:

        def start(member_id: int) -> RealNode:
            node = cluster_node(tmp_path, member_id, *script, version=version)
            running.callback(node.stop)
            return node

        nodes = [start(0), start(1)]
        for node in nodes:
            node.await_joined()
        cluster = Mixed(tmp_path, nodes, aeron_dir, "inline")
        cluster.work(0)
        cluster.configure_ours("128k")
        accept_that_ours_is_empty(cluster)
        running.callback(cluster.kill_ours_if_it_runs)
        cluster.launch_ours()
        why = "has log_term_length = 65536, and this one 131072"
        cluster.await_that(lambda: why in cluster.story, "the wrong key is named")
        cluster.stop_ours()
        shutil.rmtree(cluster.member_dir(OURS))
        cluster.configure_ours()
        accept_that_ours_is_empty(cluster)
        cluster.start_ours()

        leader_id = cluster.leader()
        nodes[leader_id].stop()
        stopped_s = time.monotonic()
        assert cluster.leader() == 1 - leader_id
        cluster.work(1)
        await_mark_file(stopped_s)  # on a busy machine it did not end by itself
        nodes[leader_id] = start(leader_id)
        nodes[leader_id].await_joined()
        check_all_are_equal(cluster)
        assert cluster_tool(cluster.member_dir(1 - leader_id) / "cluster", "shutdown").status == 0
        assert cluster.ours.end()[0] == 0
        assert '"snapshot at ' in cluster.story
