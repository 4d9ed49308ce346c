"""Three real members are read over their own medium: what the reader gives is what their directories hold."""

from __future__ import annotations

import json
import signal
import struct
import time
from typing import Any

import pytest
from typer.testing import CliRunner

from cluster.cli.archive import app
from cluster.cli.status import app as status_app
from cluster.errors import ConfigurationError, LogPurged, MediaDriverError, TimedOut
from cluster.media.aeron import Aeron
from cluster.media.aeron_archive import AeronArchive, ArchiveRefusal
from cluster.reader import LogReader
from tests.interop.aeron import (
    START_SECONDS,
    RealNode,
    cluster_tool,
    leader_of,
    media_driver,
    real_cluster,
    workload,
)

pytestmark = pytest.mark.interop
PORT = 24800
CONSENSUS = ",".join(f"localhost:{PORT + 100 * member + 3}" for member in range(3))
ARCHIVES = [f"localhost:{PORT + 100 * member + 1}" for member in range(3)]
OPTIONS = [
    *("--base-port", str(PORT), "--term-length", "64k", "--segment-length", "64k"),
    *("--heartbeat-timeout", "2s", "--heartbeat-interval", "100ms", "--session-timeout", "2s"),
]
MEMBER = ["--service", "script", *OPTIONS]
WALK = ["--members", "3", "--messages", "150", "--seed", "7", *OPTIONS]


@pytest.fixture(scope="module")
def aeron_dir():
    with media_driver() as aeron_dir:
        yield str(aeron_dir)


@pytest.fixture
def nodes(tmp_path):
    with real_cluster(tmp_path, *MEMBER) as nodes:
        yield nodes


def open_reader(aeron_dir: str, **options: Any) -> LogReader:
    return LogReader.open(consensus_endpoints=CONSENSUS, aeron_dir=aeron_dir, **options)


def entries_in(node: RealNode, end: int) -> list[dict[str, Any]]:
    with LogReader.open(dir=str(node.directory)) as reader:
        return list(reader.entries(0, end))


def await_committed(reader: LogReader, nodes: list[RealNode]) -> int:
    """Until the members that run and the reader are as far as the first of them is now; returns how far."""
    running = [node for node in nodes if node.process.poll() is None]
    end = 0
    for node in running:
        with LogReader.open(dir=str(node.directory)) as directory:
            end = max(end, directory.commit_position())
    for node in running:
        await_level(node, end)
    deadline = time.monotonic() + START_SECONDS
    while reader.commit_position() < end:
        assert time.monotonic() < deadline, f"at {reader.commit_position()} of {end}"
        time.sleep(0.05)
    return end


def await_level(node: RealNode, end: int) -> None:
    """Until the member has committed as far."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        assert time.monotonic() < deadline, node.errors()
        with LogReader.open(dir=str(node.directory)) as reader:
            if reader.is_live and reader.commit_position() >= end:
                return
        time.sleep(0.05)


def status_of(aeron_dir: str) -> dict[str, Any]:
    """The document of ``cluster status``."""
    command = ["--json", "--consensus-endpoints", CONSENSUS, "--aeron-dir", aeron_dir]
    document: dict[str, Any] = json.loads(CliRunner().invoke(status_app, command).stdout)
    return document


@pytest.mark.conformance("M-41", "M-42", "M-43", "M-45", "M-46", "M-47")
def test_a_running_cluster_reads_as_its_directories_do(tmp_path, nodes, aeron_dir):
    workload(tmp_path, *WALK, "--phase", "1")
    assert any(cluster_tool(node.directory / "cluster", "snapshot").status == 0 for node in nodes)
    workload(tmp_path, *WALK, "--phase", "2")
    with open_reader(aeron_dir) as reader, LogReader.open(dir=str(nodes[0].directory)) as directory:
        end = await_committed(reader, nodes)
        assert (reader.identity, reader.time_unit) == (directory.identity, directory.time_unit)
        assert (reader.start_position, reader.term_length) == (0, directory.term_length)
        entries = entries_in(nodes[0], end)
        assert list(reader.entries(0, end)) == entries
        assert len({entry["position"] // reader.term_length for entry in entries}) >= 3
        for first, last in ((0, 1), (7, 30), (len(entries) // 2, len(entries) - 1)):
            begin, until = entries[first]["position"], entries[last]["position"] + 32
            assert list(reader.entries(begin, until)) == entries[first : last + 1]
            blocks = list(reader.blocks(begin, until, is_committed=True, max_bytes=4096))
            assert blocks[0][0] == begin
            assert sum(len(block) for _, block in blocks) == entries[last]["endPosition"] - begin


@pytest.mark.conformance("M-44", "M-45")
def test_an_archive_lists_its_recordings_and_says_why_it_does_not_replay(tmp_path, nodes, aeron_dir):
    with Aeron.connect(aeron_dir) as aeron, AeronArchive.connect(aeron, ARCHIVES[0]) as archive:
        recordings = archive.list_recordings()
        assert [recording.stream_id for recording in recordings][:1] == [100]
        again = archive.recording(0)
        assert again.replace(correlation_id=recordings[0].correlation_id) == recordings[0]
        assert archive.recorded_position(0) > 0
        with pytest.raises(ArchiveRefusal, match="has no recording 77"):
            archive.recording(77)
        with pytest.raises(ArchiveRefusal, match="refuses: unknown recording id: 77"):
            archive.replay(77, 0, 64, limit_counter_id=0)
        with pytest.raises(ArchiveRefusal, match="limit counter"):
            archive.replay(0, 0, 64, limit_counter_id=2**30)


@pytest.mark.conformance("M-44")
def test_any_recording_of_an_archive_is_read_a_log_by_entries_a_snapshot_by_fragments(
    tmp_path, nodes, aeron_dir
):
    workload(tmp_path, *WALK, "--phase", "1")
    leader = next(
        i for i, node in enumerate(nodes) if cluster_tool(node.directory / "cluster", "snapshot").status == 0
    )
    archived: dict[str, Any] = {"aeron_archive": ARCHIVES[leader], "aeron_dir": aeron_dir}
    with pytest.raises(ConfigurationError, match=r"0: stream 100 of aeron:udp.*; 1: stream 106 of aeron:ipc"):
        LogReader.open(**archived)
    with pytest.raises(ConfigurationError, match="recording 77 is not there; archive localhost"):
        LogReader.open(**archived, recording_id=77)
    with LogReader.open(**archived, recording_id=0) as reader, open_reader(aeron_dir) as committed:
        end = await_committed(committed, nodes)
        assert (reader.is_live, reader.identity) == (True, committed.identity)
        assert list(reader.entries(0, end)) == entries_in(nodes[leader], end)
    with LogReader.open(**archived, recording_id=1) as reader:
        assert not reader.is_live
        fragments = list(reader.entries())
    dump = ["dump", "1", "--limit", "0", "--json", "--dir", str(nodes[leader].directory)]
    _, *frames = map(json.loads, CliRunner().invoke(app, dump).stdout.splitlines())
    assert [(each["position"], each["payload"].hex(), each["streamId"]) for each in fragments] == [
        (each["position"], each["payload"], 106) for each in frames if each["type"] == "DATA"
    ]
    assert len(fragments) > 2


@pytest.mark.conformance("M-46", "M-48")
def test_a_stream_goes_on_through_the_death_of_the_leader_and_gives_nothing_twice(tmp_path, nodes, aeron_dir):
    read: list[dict[str, Any]] = []
    with open_reader(aeron_dir) as reader:
        for phase in ("1", "2"):
            workload(tmp_path, *WALK, "--phase", phase)
            end = await_committed(reader, nodes)
            read.extend(reader.entries(read[-1]["endPosition"] if read else 0, end))
            if phase == "1":
                dead = leader_of(nodes)
                healthy = status_of(aeron_dir)
                nodes[dead].stop(signal.SIGKILL)
        left = [node for node in nodes if node is not nodes[dead]]
        assert len({entry["leadershipTermId"] for entry in read}) > 1
        at_risk = status_of(aeron_dir)
    assert (healthy["verdict"], healthy["cluster"]["leader"]) == ("healthy", dead)
    assert healthy["mayFail"] == {"withoutStopping": 1, "withoutLoss": 2}
    assert (at_risk["verdict"], at_risk["mayFail"]["withoutStopping"]) == ("at-risk", 0)
    assert at_risk["cluster"]["leader"] in {0, 1, 2} - {dead}
    assert at_risk["cluster"]["leadershipTermId"] > healthy["cluster"]["leadershipTermId"]
    assert at_risk["cluster"]["commitPosition"] >= read[-1]["endPosition"]
    for node in left:
        node.stop()
        assert entries_in(node, read[-1]["endPosition"]) == read


def test_what_a_member_has_purged_is_read_from_another_and_what_all_have_is_said(tmp_path, nodes, aeron_dir):
    for phase in ("1", "2"):
        workload(tmp_path, *WALK, "--phase", phase)
    with open_reader(aeron_dir, give_up_s=10.0) as reader:
        end = await_committed(reader, nodes)
        whole = entries_in(nodes[0], end)
        for member in range(3):
            _purge(aeron_dir, ARCHIVES[member], 65536)
            if member < 2:
                assert list(reader.entries(0, end)) == whole
        with pytest.raises(LogPurged) as purged:
            list(reader.entries(0, end))
        assert purged.value.start_position == reader.earliest_position() == 65536
        assert list(reader.entries(65536, end)) == [e for e in whole if e["position"] >= 65536]


def _purge(aeron_dir: str, endpoint: str, position: int) -> None:
    """PurgeSegmentsRequest of the log's recording."""
    with Aeron.connect(aeron_dir) as aeron, AeronArchive.connect(aeron, endpoint) as archive:
        correlation_id = aeron.next_correlation_id()
        body = struct.pack("<qqqq", archive._session_id, correlation_id, 0, position)
        assert archive._requests.offer(struct.pack("<HHHH", len(body), 55, 101, 12) + body) > 0
        archive._await_response(correlation_id)


def test_without_a_driver_or_a_cluster_that_is_said(aeron_dir, tmp_path):
    with pytest.raises(MediaDriverError, match="no media driver runs with directory"):
        LogReader.open(
            consensus_endpoints="localhost:1", aeron_dir=str(tmp_path), timeout_s=0.2, give_up_s=0.5
        )
    with pytest.raises(TimedOut, match=r"no member goes on: localhost:1: it does not answer within 0\.5 s"):
        LogReader.open(consensus_endpoints="localhost:1", aeron_dir=aeron_dir, timeout_s=0.5, give_up_s=1.0)
    with pytest.raises(TimedOut, match=r"nowhere\.invalid:1"):
        LogReader.open(
            consensus_endpoints="nowhere.invalid:1", aeron_dir=aeron_dir, timeout_s=0.5, give_up_s=1.0
        )


@pytest.mark.timeout(300)
def test_spark_reads_it_and_a_checkpoint_goes_on_with_a_directory(tmp_path, nodes, aeron_dir, spark):
    over_media = {"consensusEndpoints": CONSENSUS, "aeronDir": aeron_dir, "maxBytesPerPartition": "64k"}
    in_files = {"clusterDir": str(nodes[0].directory)}
    copied, checkpoint = str(tmp_path / "copied"), str(tmp_path / "checkpoint")

    def copy(options: dict[str, str]) -> None:
        rows = spark.readStream.format("cluster").options(**options, startingOffsets="earliest").load()
        query = rows.writeStream.format("parquet").option("checkpointLocation", checkpoint)
        query.trigger(availableNow=True).start(copied).awaitTermination()

    for phase, options in (("1", over_media), ("2", in_files), ("3", over_media)):
        workload(tmp_path, *WALK, "--phase", phase)
        with open_reader(aeron_dir) as reader:
            end = await_committed(reader, nodes)
        copy(options)
    expected = [entry["position"] for entry in entries_in(nodes[0], end)]
    found = sorted(row.position for row in spark.read.parquet(copied).select("position").collect())
    assert found[: len(expected)] == expected
    assert len(found) == len(set(found))
    del over_media["consensusEndpoints"]
    archived = over_media | {"aeronArchive": ARCHIVES[1], "recordingId": "0"}
    for place in (over_media | {"consensusEndpoints": CONSENSUS}, archived):
        rows = spark.read.format("cluster").options(**place, endingOffsets=f'{{"position": {end}}}').load()
        assert sorted(row.position for row in rows.select("position").collect()) == expected
