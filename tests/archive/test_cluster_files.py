"""The files of a cluster directory: recording log, candidate term, mark files; and who may have it."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.archive.archive import Archive
from cluster.archive.directory_lock import read_mark_header
from cluster.archive.files import OsFile, OsFiles
from cluster.archive.mark_files import ClusterMarkFile
from cluster.archive.node_state_file import NodeStateFile
from cluster.archive.recording_log import RecordingLog
from cluster.archive.recording_log_tool import seed_from_latest_snapshot, sort_file
from cluster.errors import DirectoryInUse, LocalProtocolError, LogDamaged, NotAClusterDirectory
from cluster.protocol.enums import ClusterComponentType
from cluster.protocol.mark_file import ACTIVATING, TERMINATED
from cluster.protocol.recording_log import SNAPSHOT, STANDBY_SNAPSHOT, TERM, encode_recording_log_entry
from tests.archive.faulty_files import DIRECTORY, FaultyDisk, PowerCut
from tests.archive.logs import T0, Clock, a_descriptor, append_term
from tests.archive.mark_files import leave_mark_of_another_process, mark

ROOT = Path(__file__).resolve().parent.parent.parent


def a_recording_log(directory: Path) -> RecordingLog:
    return RecordingLog.open(str(directory), files=OsFiles())


def terms(log: RecordingLog) -> list[tuple[int, int, int]]:
    return [
        (entry.leadership_term_id, entry.term_base_log_position, entry.log_position)
        for entry in log.entries
        if entry.entry_type is TERM
    ]


def with_snapshots(directory: Path, *positions: int, services: int = 1) -> RecordingLog:
    """A log of two terms, and complete snapshots of term 0 at the positions."""
    log = a_recording_log(directory)
    append_term(log, 0, 0, 0, T0)
    recording_id = 1
    for position in positions:
        for service_id in [*range(services - 1, -1, -1), -1]:
            log.append_snapshot(recording_id, 0, 0, position, T0 + position, service_id)
            recording_id += 1
    append_term(log, 0, 1, 4096, T0 + 5000)
    return log


# ---- recording log


@pytest.mark.conformance("C-323", "C-324")
def test_appending_a_term_closes_the_one_before_at_its_base(tmp_path):
    log = a_recording_log(tmp_path)
    append_term(log, 3, 0, 0, T0)
    append_term(log, 3, 1, 6144, T0 + 9)
    assert terms(log) == [(0, 0, 6144), (1, 6144, -1)]
    data = (tmp_path / "recording.log").read_bytes()
    assert len(data) == 128
    assert int.from_bytes(data[64:72], "little") == 3
    assert int.from_bytes(data[64 + 16 : 64 + 24], "little") == 6144
    assert data[64 + 24 : 64 + 32] == b"\xff" * 8
    assert int.from_bytes(data[24:32], "little") == 6144
    assert terms(a_recording_log(tmp_path)) == terms(log)


@pytest.mark.conformance("C-325")
def test_a_second_entry_for_a_term_is_refused(tmp_path):
    log = a_recording_log(tmp_path)
    append_term(log, 0, 0, 0, T0)
    with pytest.raises(LocalProtocolError, match="term 0 is already in"):
        append_term(log, 0, 0, 96, T0)


@pytest.mark.conformance("C-326")
def test_a_term_of_another_recording_is_refused(tmp_path):
    log = a_recording_log(tmp_path)
    append_term(log, 0, 0, 0, T0)
    with pytest.raises(LocalProtocolError, match="term 1 of recording 5: the log is recording 0"):
        append_term(log, 5, 1, 96, T0)


@pytest.mark.conformance("C-327")
def test_terms_that_were_missed_are_filled_in_empty(tmp_path):
    log = a_recording_log(tmp_path)
    append_term(log, 0, 0, 0, T0)
    log.ensure_coherent(
        recording_id=0,
        leadership_term_id=4,
        term_base_log_position=640,
        timestamp=T0,
    )
    assert terms(log) == [(0, 0, 640), (1, 640, 640), (2, 640, 640), (3, 640, 640), (4, 640, -1)]


@pytest.mark.parametrize(
    ("base", "expected"), [(0, [(0, 0, 0), (1, 0, 0), (2, 0, 1024)]), (640, [(2, 640, 1024)])]
)
def test_a_log_without_terms_is_filled_unless_a_snapshot_stands_before_it(tmp_path, base, expected):
    log = a_recording_log(tmp_path)
    log.ensure_coherent(
        recording_id=0, leadership_term_id=2, term_base_log_position=base, log_position=1024, timestamp=T0
    )
    assert terms(log) == expected


def test_an_open_term_needs_a_base_to_be_closed_at(tmp_path):
    log = a_recording_log(tmp_path)
    append_term(log, 0, 0, 0, T0)
    with pytest.raises(LocalProtocolError, match="term 0 is open and the base of term 2 is not known"):
        log.ensure_coherent(
            recording_id=0,
            leadership_term_id=2,
            term_base_log_position=-1,
            timestamp=T0,
        )


def test_a_known_term_only_gets_its_end(tmp_path):
    log = a_recording_log(tmp_path)
    for log_position in (-1, 128):
        log.ensure_coherent(
            recording_id=0,
            leadership_term_id=0,
            term_base_log_position=0,
            log_position=log_position,
            timestamp=T0,
        )
    assert terms(log) == [(0, 0, 128)]


def test_a_term_before_a_known_one_ends_where_that_begins(tmp_path):
    log = a_recording_log(tmp_path)
    append_term(log, 0, 3, 960, T0)
    append_term(log, 0, 2, 640, T0)
    assert terms(log) == [(2, 640, 960), (3, 960, -1)]


@pytest.mark.conformance("C-313", "C-314", "C-316", "S-137")
def test_the_plan_takes_the_newest_valid_complete_snapshot_and_never_a_standby_s(tmp_path):
    log = with_snapshots(tmp_path, 960, 1920, services=2)
    for service_id in (1, 0, -1):
        log.append_snapshot(77, 0, 0, 2880, T0, service_id, archive_endpoint="localhost:8010")
    plan = log.recovery_plan(2, {0: a_descriptor(0, stop_position=8192)}.get)
    assert [(e.service_id, e.log_position, e.recording_id) for e in plan.snapshots] == [
        (-1, 1920, 6),
        (0, 1920, 5),
        (1, 1920, 4),
    ]
    assert plan.log is not None
    assert (plan.last_leadership_term_id, plan.appended_log_position, plan.committed_log_position) == (
        1,
        8192,
        1920,
    )
    assert all(e.entry_type is STANDBY_SNAPSHOT for e in log.entries if e.archive_endpoint)

    assert log.invalidate_latest_snapshot()  # the standby's is the highest
    assert log.invalidate_latest_snapshot()
    plan = log.recovery_plan(2, {0: a_descriptor(0, stop_position=8192)}.get)
    assert [entry.log_position for entry in plan.snapshots] == [960, 960, 960]


@pytest.mark.conformance("C-315")
def test_without_a_snapshot_the_plan_is_to_replay_from_the_start(tmp_path):
    log = with_snapshots(tmp_path)
    plan = log.recovery_plan(1, {0: a_descriptor(0, start_position=64, stop_position=8192)}.get)
    assert plan.snapshots == ()
    assert plan.log is not None and plan.log.start_position == 64
    assert (plan.last_term_base_log_position, plan.committed_log_position) == (4096, 0)


def test_the_plan_of_an_empty_directory_is_empty(tmp_path):
    plan = a_recording_log(tmp_path).recovery_plan(1, {}.get)
    assert (plan.last_leadership_term_id, plan.snapshots, plan.log) == (-1, (), None)


def test_a_snapshot_that_lacks_a_service_is_passed_over_for_the_one_before(tmp_path):
    log = with_snapshots(tmp_path, 960, services=2)
    find_recording = {0: a_descriptor(0, stop_position=8192)}.get
    log.append_snapshot(41, 0, 0, 1920, T0, 0)
    log.append_snapshot(42, 0, 0, 1920, T0, -1)
    assert [entry.log_position for entry in log.recovery_plan(2, find_recording).snapshots] == [960] * 3
    assert [entry.log_position for entry in log.recovery_plan(1, find_recording).snapshots] == [1920] * 2
    log.invalidate(log.recovery_plan(2, find_recording).snapshots[1])
    assert log.recovery_plan(2, find_recording).snapshots == ()


def test_a_recording_that_the_archive_does_not_know_is_named(tmp_path):
    log = with_snapshots(tmp_path, 960, services=1)
    with pytest.raises(LogDamaged, match="the archive has no recording 0"):
        log.recovery_plan(1, {}.get)


def test_an_invalid_snapshot_entry_is_used_again_for_the_same_snapshot(tmp_path):
    log = with_snapshots(tmp_path, 960)
    size = (tmp_path / "recording.log").stat().st_size
    log.invalidate_latest_snapshot()
    log.append_snapshot(50, 0, 0, 960, T0 + 1, 0)
    log.append_snapshot(51, 0, 0, 960, T0 + 1, -1)
    assert (tmp_path / "recording.log").stat().st_size == size
    assert log.latest_snapshot().recording_id == 51
    assert a_recording_log(tmp_path).entries == log.entries


@pytest.mark.conformance("S-139")
def test_there_may_be_no_snapshot_to_invalidate(tmp_path):
    assert not with_snapshots(tmp_path).invalidate_latest_snapshot()


def test_a_snapshot_of_an_unknown_term_is_not_invalidated(tmp_path):
    log = a_recording_log(tmp_path)
    log.append_snapshot(1, 5, 0, 96, T0, -1)
    with pytest.raises(LocalProtocolError, match="of term 5, which is not in"):
        log.invalidate_latest_snapshot()


def test_a_removed_entry_is_skipped_and_keeps_its_index(tmp_path):
    log = with_snapshots(tmp_path, 960)
    log.remove(log.latest_snapshot(0))
    log.append_snapshot(9, 0, 0, 1920, T0, -1)
    again = a_recording_log(tmp_path)
    assert again.entries == log.entries
    assert [entry.entry_index for entry in again.entries] == [0, 2, 4, 3]


@pytest.mark.conformance("S-141")
def test_sorting_rewrites_a_file_that_is_out_of_order_and_leaves_invalid_entries_invalid(tmp_path):
    log = a_recording_log(tmp_path)
    append_term(log, 0, 1, 640, T0)
    append_term(log, 0, 0, 0, T0)
    log.append_snapshot(1, 0, 0, 96, T0, -1)
    log.invalidate(log.latest_snapshot())
    before = [(e.leadership_term_id, e.entry_type, e.is_valid) for e in log.entries]
    assert sort_file(log)
    assert [entry.entry_index for entry in log.entries] == [0, 1, 2]
    assert [
        (e.leadership_term_id, e.entry_type, e.is_valid) for e in a_recording_log(tmp_path).entries
    ] == before
    assert not sort_file(log)


@pytest.mark.conformance("S-140")
def test_seeding_keeps_one_snapshot_at_position_0_and_a_backup(tmp_path):
    log = with_snapshots(tmp_path, 960, 1920, services=2)
    before = (tmp_path / "recording.log").read_bytes()
    assert seed_from_latest_snapshot(OsFiles(), log)
    assert (tmp_path / "recording.log.bak").read_bytes() == before
    kept = a_recording_log(tmp_path).entries
    assert [(e.service_id, e.recording_id, e.log_position, e.term_base_log_position) for e in kept] == [
        (1, 4, 0, 0),
        (0, 5, 0, 0),
        (-1, 6, 0, 0),
    ]
    assert all(entry.entry_type is SNAPSHOT for entry in kept)


def test_seeding_without_a_snapshot_removes_the_recording_log(tmp_path):
    assert not seed_from_latest_snapshot(OsFiles(), with_snapshots(tmp_path))
    assert not (tmp_path / "recording.log").exists()
    assert (tmp_path / "recording.log.bak").exists()


def test_garbage_in_the_recording_log_is_named_and_what_is_before_it_is_read(tmp_path):
    with_snapshots(tmp_path, 960).close()
    path = tmp_path / "recording.log"
    data = bytearray(path.read_bytes())
    data[64 + 44] = 9
    path.write_bytes(data)
    with pytest.raises(LogDamaged, match=r"recording\.log at offset 108: entry type 9"):
        a_recording_log(tmp_path)
    readable = RecordingLog.open(str(tmp_path), files=OsFiles(), write=False, readable_part=True)
    assert len(readable.entries) == 1
    assert readable.damage is not None


@pytest.mark.parametrize("kept", [1, 8, 31, 42, 63])
def test_a_part_of_an_entry_that_a_crash_left_never_becomes_one(tmp_path, kept):
    log = a_recording_log(tmp_path)
    append_term(log, 0, 0, 0, 1)
    log.close()
    lost = log.entries[0]._replace(leadership_term_id=1, term_base_log_position=96)
    with (tmp_path / "recording.log").open("ab") as file:
        file.write(encode_recording_log_entry(lost)[:kept])

    log = a_recording_log(tmp_path)
    assert terms(log) == [(0, 0, -1)]
    append_term(log, 0, 1, 128, 2)

    assert terms(a_recording_log(tmp_path)) == [(0, 0, 128), (1, 128, -1)]


def test_zeros_that_a_power_cut_left_are_no_entry_and_never_become_one(tmp_path):
    with_snapshots(tmp_path).close()
    with (tmp_path / "recording.log").open("ab") as file:
        file.write(bytes(64))
    log = a_recording_log(tmp_path)
    assert len(log.entries) == 2
    append_term(log, 0, 2, 9600, T0)
    again = a_recording_log(tmp_path)
    assert terms(again) == [(0, 0, 4096), (1, 4096, 9600), (2, 9600, -1)]
    assert (tmp_path / "recording.log").read_bytes()[128 + 44 : 128 + 48] == b"\xff" * 4


def test_standby_entries_keep_their_endpoint(tmp_path):
    log = with_snapshots(tmp_path)
    log.append_snapshot(4, 0, 0, 960, T0, -1, archive_endpoint="host-" + "x" * 100)
    entry = a_recording_log(tmp_path).entries[1]
    assert entry.archive_endpoint == "host-" + "x" * 100
    assert len(encode_recording_log_entry(entry)) == 192


def test_an_invalid_entry_is_not_used_again_for_one_that_is_longer(tmp_path):
    log = with_snapshots(tmp_path)
    log.append_snapshot(4, 0, 0, 960, T0, -1, archive_endpoint="a:1")
    log.append_snapshot(5, 0, 0, 1920, T0, -1, archive_endpoint="a:1")
    log.invalidate(log.entries[1])
    log.append_snapshot(6, 0, 0, 960, T0, -1, archive_endpoint="host-" + "x" * 100)

    found = [entry for entry in a_recording_log(tmp_path).entries if entry.is_valid]
    assert sorted(e.recording_id for e in found if e.entry_type is STANDBY_SNAPSHOT) == [5, 6]


# ---- node state


@pytest.mark.parametrize("name", ["node-state.dat", "recording.log", "archive.catalog"])
def test_a_file_with_a_sector_that_cannot_be_read_is_damaged(tmp_path, monkeypatch, name):
    """As one that was overwritten: a member that has others fetches from them what it stood for."""
    with_snapshots(tmp_path).close()
    NodeStateFile.open(str(tmp_path), files=OsFiles()).close()
    Archive.open(str(tmp_path), segment_length=65536, epoch_ms=Clock()).close()
    read = OsFile.pread

    def pread(self, length, offset):
        if self.path.endswith(name):
            raise OSError(errno.EIO, "Input/output error", self.path)
        return read(self, length, offset)

    monkeypatch.setattr(OsFile, "pread", pread)

    with pytest.raises(LogDamaged, match=f"{name}.*cannot be read"):
        a_recording_log(tmp_path).close()
        NodeStateFile.open(str(tmp_path), files=OsFiles()).close()
        Archive.open(str(tmp_path), segment_length=65536, epoch_ms=Clock()).close()


def test_reading_what_is_not_there_makes_nothing(tmp_path):
    with pytest.raises(NotAClusterDirectory, match=r"node-state\.dat is missing"):
        NodeStateFile.open(str(tmp_path), files=OsFiles(), write=False)
    with pytest.raises(NotAClusterDirectory, match=r"recording\.log is missing"):
        RecordingLog.open(str(tmp_path), files=OsFiles(), write=False)
    assert list(tmp_path.iterdir()) == []


# ---- mark files and locks


@pytest.mark.conformance("S-173")
def test_the_mark_file_tells_when_its_owner_was_last_alive_and_that_it_ended(tmp_path):
    file = mark(tmp_path)
    path = str(tmp_path / "cluster-mark.dat")
    assert read_mark_header(OsFiles(), path).activity_timestamp == T0
    file.update_activity(T0 + 1000)
    header = read_mark_header(OsFiles(), path)
    assert (header.activity_timestamp, header.pid, header.member_id) == (T0 + 1000, os.getpid(), 2)
    file.close()
    assert read_mark_header(OsFiles(), path).activity_timestamp == TERMINATED


@pytest.mark.conformance("S-174")
def test_a_second_module_on_a_live_directory_is_refused(tmp_path):
    file = mark(tmp_path)
    with pytest.raises(DirectoryInUse, match=f"in use by process {os.getpid()}"):
        mark(tmp_path)
    file.close()
    mark(tmp_path).close()


def test_a_member_that_was_killed_starts_again_at_once(tmp_path):
    """The kernel gives its lock back, and its mark file, fresh as it is, is its own."""
    program = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from tests.archive.mark_files import mark\n"
        f"mark(Path({str(tmp_path)!r}))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False, timeout=60)
    assert done.returncode == -9
    header = read_mark_header(OsFiles(), str(tmp_path / "cluster-mark.dat"))
    assert (header.activity_timestamp, header.pid != os.getpid()) == (T0, True)
    mark(tmp_path, T0 + 1).close()


@pytest.mark.conformance("S-175")
@pytest.mark.parametrize(("age_ms", "is_free"), [(0, False), (9_999, False), (10_000, True), (-5_000, False)])
def test_a_real_component_s_mark_file_keeps_us_out_for_ten_seconds(tmp_path, age_ms, is_free):
    leave_mark_of_another_process(tmp_path, T0)
    if is_free:
        mark(tmp_path, T0 + age_ms).close()
    else:
        with pytest.raises(DirectoryInUse, match=r"cluster-mark\.dat is active, in use by process 4242"):
            mark(tmp_path, T0 + age_ms)


@pytest.mark.parametrize("damage", [b"\x55" * 4096, b"", bytes(100)], ids=["noise", "empty", "too short"])
def test_a_damaged_mark_file_of_ours_is_written_anew_and_told(tmp_path, damage):
    mark(tmp_path).close()
    (tmp_path / "cluster-mark.dat").write_bytes(damage)
    file = mark(tmp_path)
    if damage[:1] == b"\x55":
        (entry,) = file.errors()
        assert f"{tmp_path}/cluster-mark.dat" in entry.text
    file.close()
    assert read_mark_header(OsFiles(), str(tmp_path / "cluster-mark.dat")).member_id == 2


def test_a_mark_file_that_is_none_of_ours_is_not_written_over(tmp_path):
    (tmp_path / "cluster-mark.dat").write_bytes(b"\x55" * 4096)
    with pytest.raises(LogDamaged, match="no member runs here"):
        mark(tmp_path)
    assert (tmp_path / "cluster-mark.dat").read_bytes() == b"\x55" * 4096


def test_a_start_that_never_finished_keeps_us_out(tmp_path):
    leave_mark_of_another_process(tmp_path, ACTIVATING)
    with pytest.raises(DirectoryInUse):
        mark(tmp_path, T0)


def test_a_mark_file_that_is_none_is_named(tmp_path):
    (tmp_path / "cluster-mark.dat").write_bytes(b"\xa5" * 9000)
    with pytest.raises(LogDamaged, match=r"cluster-mark\.dat"):
        mark(tmp_path)


@pytest.mark.conformance("S-176")
def test_an_error_that_comes_again_is_counted_not_repeated(tmp_path):
    file = mark(tmp_path)
    for at in (T0, T0 + 5, T0 + 9):
        file.record_error("the disk is tired", at)
    file.record_error("another thing", T0 + 6)
    first, second = file.errors()
    assert (first.text, first.observation_count) == ("the disk is tired", 3)
    assert (first.first_observation_timestamp, first.last_observation_timestamp) == (T0, T0 + 9)
    assert (second.text, second.observation_count) == ("another thing", 1)


@pytest.mark.parametrize("write", [1, 2])
def test_an_error_whose_record_is_cut_short_is_not_in_the_log_and_in_nothings_way(write):
    disk = FaultyDisk()
    file = ClusterMarkFile.create(
        DIRECTORY, files=disk, component_type=ClusterComponentType.CONSENSUS_MODULE, now_ms=T0
    )
    disk.fail(write, PowerCut())
    with pytest.raises(PowerCut):
        file.record_error("the disk is tired", T0)

    assert file.errors() == []
    file.record_error("another thing", T0)
    assert [error.text for error in file.errors()] == ["another thing"]


@pytest.mark.conformance("S-177")
def test_errors_of_the_run_before_are_kept_in_a_dated_file(tmp_path):
    file = mark(tmp_path)
    file.record_error("the disk is tired", T0)
    file.close()
    file = mark(tmp_path, T0 + 60_000)
    assert file.errors() == []
    (kept,) = tmp_path.glob("CONSENSUS_MODULE-2023-11-14-22-14-20-000+0000-error.log")
    assert "1 observations from 2023-11-14 22:13:20.000+0000" in kept.read_text()
    assert "the disk is tired" in kept.read_text()


def test_archive_and_cluster_directory_are_locked_apart(tmp_path):
    archive = Archive.open(str(tmp_path / "archive"), epoch_ms=Clock())
    archive_mark = archive.create_mark_file(archive_id=7, aeron_directory="/driver")
    cluster_mark = mark(tmp_path / "cluster")
    service = ClusterMarkFile.create(
        str(tmp_path / "cluster"),
        files=OsFiles(),
        component_type=ClusterComponentType.CONTAINER,
        now_ms=T0,
        member_id=2,
        service_id=0,
        service_name="echo",
    )
    header = read_mark_header(OsFiles(), str(tmp_path / "cluster" / "cluster-mark-service-0.dat"))
    assert (header.member_id, header.service_id, header.service_name) == (2, 0, "echo")
    assert read_mark_header(OsFiles(), str(tmp_path / "archive" / "archive-mark.dat")).archive_id == 7
    for part in (service, cluster_mark, archive_mark):
        part.close()
    archive.close()
