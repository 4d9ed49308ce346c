"""Aeron's own ClusterTool and ArchiveTool read what we write, without complaint, and say what we meant."""

from __future__ import annotations

import os
import re
from contextlib import closing
from pathlib import Path

import pytest

from cluster.archive.files import OsFiles
from cluster.archive.recording_log import RecordingLog
from cluster.protocol.frame import align
from tests.archive.logs import LogWriter
from tests.archive.members import CLUSTER_ID, live_counters
from tests.interop.aeron import archive_tool, cluster_tool
from tests.interop.our_directory import SEGMENT_LENGTH, write_our_member

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, LogWriter]:
    directory = tmp_path_factory.mktemp("ours")
    return directory, write_our_member(directory)


def test_recording_log_lists_both_terms(ours):
    said = cluster_tool(ours[0] / "cluster", "recording-log")
    assert said.status == 0, said.err
    entries = re.findall(r"Entry\{([^}]*)\}", said.out)
    assert len(entries) == 2
    assert "leadershipTermId=0, termBaseLogPosition=0" in entries[0]
    second = re.search(r"termBaseLogPosition=(\d+)", entries[1])
    assert second is not None
    assert f"logPosition={second[1]}," in entries[0], "the first term ends where the second begins"
    assert "logPosition=-1" in entries[1]
    assert all("type=TERM, isValid=true" in entry for entry in entries)


def test_describe_shows_consensus_module_and_service(ours):
    said = cluster_tool(ours[0] / "cluster", "describe")
    assert said.status == 0, said.err
    assert "Type: CONSENSUS_MODULE" in said.out
    assert "Type: CONTAINER" in said.out
    assert f"clusterId={CLUSTER_ID}|" in said.out
    assert "activityTimestamp=-1|" in said.out
    assert "serviceName='clustered-service-3-0'" in said.out


@pytest.mark.conformance("S-129")
def test_pid_is_that_of_the_writer(ours):
    said = cluster_tool(ours[0] / "cluster", "pid")
    assert (said.status, said.out.strip()) == (0, str(os.getpid()))


def test_archive_describe_shows_the_recording(ours):
    directory, log = ours
    said = archive_tool(directory / "archive", "describe")
    assert said.status == 0, said.err
    assert f"stopPosition={log.position}|" in said.out
    assert f"segmentFileLength={SEGMENT_LENGTH}|termBufferLength=65536|mtuLength=1408|" in said.out


def test_archive_verify_finds_all_segments_well_and_changes_nothing(ours):
    directory, _ = ours
    before = (directory / "archive" / "archive.catalog").read_bytes()
    said = archive_tool(directory / "archive", "verify", "-a")
    assert (said.status, said.out.strip()) == (0, "(recordingId=0) OK"), said.err
    assert (directory / "archive" / "archive.catalog").read_bytes() == before


def test_archive_dump_walks_all_frames(ours):
    directory, log = ours
    said = archive_tool(directory / "archive", "dump", "100000")
    assert said.status == 0, said.err
    data, offset, positions = log.frames(), 0, []
    while offset < len(data):
        positions.append(offset)
        offset += align(int.from_bytes(data[offset : offset + 4].tobytes(), "little"))
    assert [int(p) for p in re.findall(r"Frame at position \[(\d+)\]", said.out)] == positions


@pytest.mark.parametrize("checksum", ["crc32", "crc32c"])
def test_archive_verify_agrees_with_our_checksums(tmp_path, checksum):
    write_our_member(tmp_path, checksum=checksum)
    name = {"crc32": "org.agrona.checksum.Crc32", "crc32c": "org.agrona.checksum.Crc32c"}[checksum]
    said = archive_tool(tmp_path / "archive", "verify", "-a", "-checksum", name)
    assert (said.status, said.out.strip()) == (0, "(recordingId=0) OK"), said.err


def test_archive_verify_finds_the_end_that_a_kill_left_open(tmp_path):
    log = write_our_member(tmp_path, is_clean=False)
    said = archive_tool(tmp_path / "archive", "verify", "-a")
    assert (said.status, said.out.strip()) == (0, "(recordingId=0) OK"), said.err
    said = archive_tool(tmp_path / "archive", "describe")
    assert f"stopPosition={log.position}|" in said.out


@pytest.mark.conformance("S-128")
@pytest.mark.parametrize(("is_leader", "status"), [(True, 0), (False, 1)])
def test_is_leader_believes_our_counters(ours, is_leader, status):
    with live_counters(ours[0], is_leader=is_leader):
        assert cluster_tool(ours[0] / "cluster", "is-leader").status == status


@pytest.mark.conformance("S-145")
def test_errors_shows_component_driver_and_service_logs(ours):
    with live_counters(ours[0], is_leader=True) as counters:
        counters.record_error("a driver's error", 1_700_000_000_000)
        said = cluster_tool(ours[0] / "cluster", "errors")
    assert said.status == 0, said.err
    assert "a test's error: nothing is wrong" in said.out
    assert "a driver's error" in said.out
    assert "Type: CONTAINER" in said.out


@pytest.mark.conformance("S-130")
def test_what_needs_a_media_driver_is_refused_at_once(ours):
    with live_counters(ours[0], is_leader=True):
        said = cluster_tool(ours[0] / "cluster", "list-members")
    assert said.status == 1
    assert "this member has no media driver" in said.err


STANDBYS = ("a:1", "standby.example.com:9100", "[2001:db8::17]:9100", "x" * 200 + ".example.com:9100")


def entries_in(text: str) -> list[dict[str, str]]:
    """Fields of each entry that Aeron lists, by their names."""
    return [dict(re.findall(r"(\w+)='?([^,'}]*)", entry)) for entry in re.findall(r"Entry\{([^}]*)\}", text)]


def append_standby_snapshot(log: RecordingLog, position: int, endpoint: str, recording_id: int) -> None:
    for service_id in (0, -1):
        log.append_snapshot(recording_id - service_id, 1, log.entries[-1].term_base_log_position, position,
                            7, service_id, endpoint)  # fmt: skip


@pytest.mark.conformance("C-314")
def test_recording_log_lists_the_snapshots_of_standbys_with_their_endpoints(tmp_path):
    write_our_member(tmp_path)
    directory = tmp_path / "cluster"
    with closing(RecordingLog.open(str(directory), files=OsFiles())) as log:
        base = log.entries[-1].term_base_log_position
        for number, endpoint in enumerate(STANDBYS, 1):
            append_standby_snapshot(log, base + 32 * number, endpoint, 10 * number)
    said = cluster_tool(directory, "recording-log")
    assert said.status == 0, said.err
    listed = [entry for entry in entries_in(said.out) if entry["type"] == "STANDBY_SNAPSHOT"]
    assert [
        (int(e["recordingId"]), int(e["logPosition"]), int(e["serviceId"]), e["archiveEndpoint"])
        for e in listed
    ] == [
        (10 * number + (service_id == -1), base + 32 * number, service_id, endpoint)
        for number, endpoint in enumerate(STANDBYS, 1)
        for service_id in (0, -1)
    ]


@pytest.mark.conformance("S-137")
def test_entries_that_aeron_made_invalid_are_used_again_and_aeron_reads_them(tmp_path):
    """Of a snapshot at the same place and an entry of the same length; a longer one is new."""
    write_our_member(tmp_path)
    directory = tmp_path / "cluster"
    with closing(RecordingLog.open(str(directory), files=OsFiles())) as log:
        position = log.entries[-1].term_base_log_position + 32
        append_standby_snapshot(log, position, STANDBYS[1], 10)
    size = (directory / "recording.log").stat().st_size
    said = cluster_tool(directory, "invalidate-latest-snapshot")
    assert said.status == 0, said.err
    with closing(RecordingLog.open(str(directory), files=OsFiles())) as log:
        assert [e.is_valid for e in log.entries if e.archive_endpoint] == [False, False]
        append_standby_snapshot(log, position, STANDBYS[1].upper(), 20)
    assert (directory / "recording.log").stat().st_size == size, "no entry is new"

    listed = entries_in(cluster_tool(directory, "recording-log").out)
    standbys = [entry for entry in listed if entry["type"] == "STANDBY_SNAPSHOT"]
    assert [(e["recordingId"], e["archiveEndpoint"], e["isValid"]) for e in standbys] == [
        ("20", STANDBYS[1].upper(), "true"),
        ("21", STANDBYS[1].upper(), "true"),
    ]
    assert cluster_tool(directory, "invalidate-latest-snapshot").status == 0
    with closing(RecordingLog.open(str(directory), files=OsFiles())) as log:
        append_standby_snapshot(log, position, STANDBYS[3], 30)
    assert (directory / "recording.log").stat().st_size > size
    listed = entries_in(cluster_tool(directory, "recording-log").out)
    assert [(e["recordingId"], e["isValid"]) for e in listed if e["type"] == "STANDBY_SNAPSHOT"] == [
        ("20", "false"),
        ("30", "true"),
        ("21", "false"),
        ("31", "true"),
    ]
