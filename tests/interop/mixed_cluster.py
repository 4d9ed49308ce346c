"""A cluster of two real members and one of ours, and what is to be equal on all three."""

from __future__ import annotations

import json
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster.counters import CountersReader
from cluster.errors import ClusterError, NotAClusterDirectory
from cluster.protocol.counter_types import CounterTypeId
from cluster.protocol.enums import ElectionState, Role
from cluster.reader import LogReader
from tests.interop.aeron import (
    START_SECONDS,
    VERSION,
    RealNode,
    cluster_node,
    entries_as_told,
    media_driver,
    real_cluster,
    told_by,
    workload,
)
from tests.interop.script_service import RECORD, Script
from tests.node.processes import Process

PORT = 26400
OURS = 2
OPTIONS = [
    *("--base-port", str(PORT), "--term-length", "64k", "--segment-length", "64k"),
    *("--heartbeat-timeout", "3s", "--heartbeat-interval", "100ms", "--canvass-timeout", "6s"),
    *("--session-timeout", "3s"),
]
MARK_FILE_S = 10.5  # for so long a real node that was killed is taken to live
RECORD_OF_OURS = "record-2-ours.jsonl"
IDS = slice(12, 16)  # of a frame's header: its session


def endpoints(member_id: int) -> str:
    """In a members string; java/Options.java has the ports."""
    return ",".join(f"localhost:{PORT + 100 * member_id + role}" for role in (2, 3, 4, 5, 1))


def configuration(
    directory: Path,
    aeron_dir: Path,
    service_mode: str,
    log_term_length: str,
    *,
    leads: bool,
    member_id: int = OURS,
) -> str:
    keys = {
        "member_id": member_id,
        "members": [f"{id_},{endpoints(id_)}" for id_ in range(3)],
        "dir": str(directory / f"member-{member_id}"),
        "consensus_channel": "aeron:udp?term-length=64k",
        "archive_control_channel": "aeron:udp",
        "aeron_dir": str(aeron_dir),
        "ingress_channel": "aeron:udp",
        "leads_java_members": leads,
        "services": [f"{Script.__module__}:Script"],
        "service_mode": [service_mode],
        "leader_heartbeat_timeout": "2s" if leads else "3s",  # so that it stands first
        "leader_heartbeat_interval": "100ms",
        "startup_canvass_timeout": "6s",
        "session_timeout": OPTIONS[-1],
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


def launched(config: Path, record: Path) -> Process:
    """One of ours, which listens."""
    process = Process("node", "--config", str(config), is_new=True, **{RECORD: str(record)})
    assert process.first_line, process.end()
    return process


def committed_in(member_dir: Path) -> int:
    """How far a member that runs has committed; -1 for one that does not, or has begun no log yet."""
    try:
        with LogReader.open(dir=str(member_dir)) as reader:
            return reader.commit_position() if reader.is_live else -1
    except NotAClusterDirectory:
        return -1


class Mixed:
    """Real members 0 and 1, ours is 2."""

    def __init__(
        self,
        directory: Path,
        nodes: list[RealNode],
        aeron_dir: Path,
        service_mode: str,
        *,
        leads: bool = False,
        version: str = VERSION,
    ) -> None:
        self.directory = directory
        self.version = version
        self.nodes = nodes
        self.ours: Process
        self._config = directory / "ours.toml"
        self._place = directory, aeron_dir, service_mode
        self.aeron_dir = aeron_dir
        self._leads = leads
        self.configure_ours()

    def configure_ours(self, log_term_length: str = "64k") -> None:
        self._config.write_text(configuration(*self._place, log_term_length, leads=self._leads))

    def launch_ours(self) -> None:
        self.ours = launched(self._config, self.directory / RECORD_OF_OURS)

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
        """Which member leads, once one does."""
        found: list[int] = []

        def look() -> bool:
            found[:] = [id_ for id_ in range(3) if self.leads(id_)]
            return bool(found)

        self.await_that(look, "no member leads")
        return found[0]

    def leads(self, member_id: int) -> bool:
        """Whether it runs, and its election is over."""
        is_ours = member_id == OURS
        if (self.ours if is_ours else self.nodes[member_id]).process.poll() is not None:
            return False
        folder = self.member_dir(OURS) / "driver" if is_ours else self.nodes[member_id].aeron_dir
        try:
            with CountersReader(f"{folder}/cnc.dat") as counters:
                role = counters.find(CounterTypeId.NODE_ROLE)
                election = counters.find(CounterTypeId.ELECTION_STATE)
                is_elected = election is not None and election.get() == ElectionState.CLOSED
                return is_elected and role is not None and role.get() == Role.LEADER
        except ClusterError:
            return False

    def committed(self, member_id: int) -> int:
        return committed_in(self.member_dir(member_id))

    def await_level(self) -> None:
        end = self.committed(self.leader())
        self.await_that(lambda: self.committed(OURS) >= end, f"ours does not come to {end}")

    def start(self, member_id: int) -> None:
        """A real one; its record is that of its last life."""
        record = self.record(member_id)
        options = ["--service", "script", "--record", str(record), *OPTIONS]
        self.nodes[member_id] = cluster_node(self.directory, member_id, *options, version=self.version)
        self.nodes[member_id].await_joined()

    def record(self, member_id: int) -> Path:
        return self.directory / f"record-{member_id}.jsonl"

    def work(self, seed: int) -> None:
        walk = ["--members", "3", "--messages", "100", "--phase", "1", "--connect-timeout", "60s"]
        workload(self.directory, *walk, "--seed", str(seed), *OPTIONS)

    def kill_leader(self) -> tuple[int, float]:
        """Which one, and when."""
        leader_id = self.leader()
        if leader_id == OURS:
            self.kill_ours()
        else:
            self.nodes[leader_id].stop(signal.SIGKILL)
        return leader_id, time.monotonic()

    def start_killed(self, member_id: int, killed_s: float) -> None:
        if member_id == OURS:
            self.start_ours()
        else:
            await_mark_file(killed_s)
            self.start(member_id)


@contextmanager
def mixed(
    directory: Path, service_mode: str, *, leads: bool = False, version: str = VERSION
) -> Iterator[Mixed]:
    """A cluster of real ones that has worked, of which ours has taken over the directory of the third."""
    with (
        media_driver() as aeron_dir,
        real_cluster(directory, "--service", "script", *OPTIONS, version=version) as nodes,
    ):
        cluster = Mixed(directory, nodes, aeron_dir, service_mode, leads=leads, version=version)
        cluster.work(0)
        nodes[OURS].stop()
        if version != VERSION:  # whose nodes leave their mark files as if they were killed
            await_mark_file(time.monotonic())
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
