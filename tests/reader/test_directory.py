"""LogReader over a member's directory: as far as it is committed, and the readable part of damage."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from cluster.archive.files import OsFiles
from cluster.archive.recording_words import CHECKSUM
from cluster.counters import CountersFile
from cluster.errors import ConfigurationError, DataLoss, LogDamaged, NotAClusterDirectory
from cluster.log.checksum import Checksum
from cluster.log.columns import ROW_SCHEMA
from cluster.protocol.enums import ClusterTimeUnit
from cluster.reader import LogReader
from cluster.transport.clock import epoch_ms
from tests.archive.logs import SEGMENT_LENGTH, SESSION_ID, T0, TERM_LENGTH, LogWriter, a_log
from tests.archive.members import CLUSTER_ID, Member, allocate_counters, write_member
from tests.reader.real import a_copy, as_read, expected, members, remove_unpacked


@pytest.fixture(scope="module", autouse=True)
def _unpacked() -> Iterator[None]:
    yield
    remove_unpacked()


def read(directory: Path, **options: object) -> LogReader:
    return LogReader.open(dir=str(directory), **options)


def positions(reader: LogReader, *arguments: int) -> list[tuple[int, int]]:
    return [(entry["position"], entry["endPosition"]) for entry in reader.entries(*arguments)]


# ---- a real cluster's


@pytest.mark.parametrize("member", [0, 1, 2])
def test_every_entry_of_every_real_member_is_what_java_reads(member):
    with read(members() / f"member-{member}") as reader:
        entries = [as_read(entry) for entry in reader.entries()]
        assert reader.warnings == []
        assert reader.log.checksum is None
    assert tuple(entries) == expected()


def test_the_identity_of_a_log_is_the_same_on_every_member():
    identities = set()
    for member in range(3):
        with read(members() / f"member-{member}") as reader:
            identities.add(reader.identity)
    assert identities == {(0, 1795233405608, 1877313736)}


@pytest.mark.parametrize("bytes_max", [1, 5000, 70_000, 1 << 24])
def test_blocks_of_any_size_hold_the_same_entries(bytes_max):
    with read(members() / "member-1") as reader:
        columns = iter(["position"])  # which ends, however many blocks there are
        found = [
            entry
            for batch in reader.batches(columns=columns, max_bytes=bytes_max)
            for entry in batch.column(0).to_pylist()
        ]
    assert found == [entry["position"] for entry in expected()]


@pytest.mark.parametrize("cuts", [(100_000,), (65_536, 131_072), (32, 10_400, 10_432, 139_424, 250_112)])
def test_ranges_that_share_their_ends_share_no_entry_and_miss_none(cuts):
    """An entry belongs to the range in which its first frame begins."""
    all_positions = [entry["position"] for entry in expected()]
    ends = [0, *cuts, 250_144]
    with read(members() / "member-2") as reader:
        found = []
        for begin, end in pairwise(ends):
            first = next(p for p in [*all_positions, 250_144] if p >= begin)
            part = [position for position, _ in positions(reader, first, end)]
            assert all(begin <= position < end for position in part)
            found += part
    assert found == all_positions


def test_batches_have_the_row_schema_and_can_be_pruned():
    with read(members() / "member-0") as reader:
        table = pa.Table.from_batches(reader.batches())
        assert table.schema == ROW_SCHEMA
        assert table.num_rows == len(expected())
        pruned = pa.Table.from_batches(
            reader.batches(columns=["correlationId", "position"], entry_types=["TIMER"], rows_per_batch=7)
        )
    timers = [entry for entry in expected() if entry["entryType"] == "TIMER"]
    assert pruned.column_names == ["correlationId", "position"]
    assert pruned.column(0).to_pylist() == [entry["correlationId"] for entry in timers]


def test_directories_that_lie_apart_are_given_apart(tmp_path):
    copy = a_copy(tmp_path)
    (copy / "cluster").rename(tmp_path / "a")
    (copy / "archive").rename(tmp_path / "b")
    with LogReader.open(cluster_dir=str(tmp_path / "a"), archive_dir=str(tmp_path / "b")) as reader:
        assert len(list(reader)) == len(expected())
    with LogReader.open(archive_dir=str(tmp_path / "b")) as reader:
        assert len(list(reader)) == len(expected())
    with LogReader.open(dir=str(tmp_path / "b")) as reader:
        assert len(list(reader)) == len(expected())


def test_the_cluster_directory_alone_finds_the_archive_beside_it():
    with LogReader.open(dir=str(members() / "member-0" / "cluster")) as reader:
        assert reader.end_position() == 250_144


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("nowhere", "nowhere: no such directory"),
        ("empty", "empty: not a member's directory, no archive.catalog is in it"),
        ("file", "file: is a file, expected a member's directory"),
    ],
)
def test_what_is_no_member_s_directory_is_told(tmp_path, path, what):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(NotAClusterDirectory, match=what):
        read(tmp_path / path)


def test_a_reader_needs_a_source_and_only_one():
    with pytest.raises(ConfigurationError, match="give endpoints, or the directory of a member"):
        LogReader.open()
    with pytest.raises(ConfigurationError, match="give endpoints or a directory, not both"):
        LogReader.open(dir="a", endpoints="0=h:1")


# ---- other geometries


@pytest.mark.parametrize("checksum", [None, "crc32", "crc32c"])
@pytest.mark.parametrize(
    ("term_length", "segment_length", "mtu"),
    [(64 * 1024, 64 * 1024, 1408), (128 * 1024, 1024 * 1024, 8192), (1024 * 1024, 1024 * 1024, 288)],
)
def test_logs_of_any_geometry_with_or_without_checksums(tmp_path, checksum, term_length, segment_length, mtu):
    log = a_log(600, term_length=term_length, mtu=mtu, initial_term_id=2**31 - 2)
    write_member(tmp_path, log, checksum=checksum, segment_length=segment_length)
    with read(tmp_path) as reader:
        assert positions(reader) == log.entries
        names = {None: None, "crc32": Checksum.CRC_32, "crc32c": Checksum.CRC_32C}
        assert reader.log.checksum == names[checksum]
        assert reader.identity == (CLUSTER_ID, T0, SESSION_ID)


@pytest.mark.parametrize("unit", list(ClusterTimeUnit))
def test_timestamps_are_in_the_log_s_own_unit(tmp_path, unit):
    scale = 1000 ** int(unit)
    log = LogWriter(time=T0 * scale, time_unit=unit)
    log.term(0)
    log.walk(1, 5)
    write_member(tmp_path, log)
    with read(tmp_path) as reader:
        first, *_, last = list(reader.entries())
    assert first["clusterTime"] == T0 * scale
    assert first["timestamp"].timestamp() == T0 / 1000
    assert last["timestamp"].timestamp() == T0 / 1000 + 0.007
    assert first["timeUnit"] == unit.name


@pytest.mark.parametrize("unit", list(ClusterTimeUnit))
@pytest.mark.parametrize("is_ours", [True, False])
def test_a_log_without_its_head_keeps_its_identity_and_its_time_unit(tmp_path, is_ours, unit):
    log = LogWriter(time=T0 * 1000 ** int(unit), time_unit=unit)
    log.term(0)
    log.walk(1, 1000)
    member = Member(tmp_path)
    member.write(log)
    start = member.recording.purge_to(2 * SEGMENT_LENGTH)
    assert start == 2 * SEGMENT_LENGTH
    member.stop()
    if not is_ours:  # a real archive keeps nothing of the head
        (tmp_path / "archive" / "recording-0.first").unlink()
    with read(tmp_path) as reader:
        assert reader.start_position == start
        assert positions(reader) == [entry for entry in log.entries if entry[0] >= start]
        assert next(reader.entries())["timestamp"].year == 2023
        assert reader.identity == (
            (CLUSTER_ID, log_time(log), SESSION_ID) if is_ours else (CLUSTER_ID, None, None)
        )
        with pytest.raises(DataLoss, match=f"position 0 was purged, the log begins at {start} now"):
            next(reader.entries(0))


def log_time(log: LogWriter) -> int:
    return T0 * 1000 ** int(log.time_unit)


def test_an_empty_log_has_no_entries_and_no_identity(tmp_path):
    member = Member(tmp_path)
    member.archive.create_recording(
        stream_id=100, session_id=1, initial_term_id=0, term_length=TERM_LENGTH, mtu=1408
    )
    member.stop()
    with read(tmp_path) as reader:
        assert (reader.identity, list(reader), reader.end_position()) == (None, [], 0)


def test_a_member_without_any_log_says_so(tmp_path):
    Member(tmp_path).stop()
    with pytest.raises(NotAClusterDirectory, match="no recording of a cluster's log is in it"):
        read(tmp_path)


# ---- how far


class Live:
    """A running member, whose duty cycle is the test's."""

    def __init__(self, directory: Path, log: LogWriter) -> None:
        self.now_ms = epoch_ms()
        self.member = Member(directory, clock=lambda: self.now_ms)
        self.log = log
        self.open_counters()

    def open_counters(self) -> None:
        path = str(self.member.directory / "driver" / "cnc.dat")
        self.counters = CountersFile.create(path, pid=OsFiles().process_id(), now_ms=self.now_ms)
        self.commit = allocate_counters(self.counters)

    def write(self, end: int) -> None:
        self.member.write(self.log, end)
        recording = self.member.recording
        if recording.position_counter is None:
            recording.position_counter = self.counters.allocate_recording_position(
                0, recording.session_id, 100, position=recording.append_position
            )

    def reader(self) -> LogReader:
        return LogReader.open(dir=str(self.member.directory), now_ms=lambda: self.now_ms)


def test_a_running_member_is_read_up_to_its_commit_position(tmp_path):
    log = a_log(200)
    live = Live(tmp_path, log)
    live.write(log.entries[99][1])
    with live.reader() as reader:
        assert reader.is_live
        assert list(reader) == []
        live.commit.set(log.entries[49][1])
        assert positions(reader) == log.entries[:50]
        live.write(log.position)
        assert reader.commit_position() == reader.end_position() == log.entries[49][1]
        live.commit.set(log.position)
        assert positions(reader) == log.entries


def test_a_commit_position_ahead_of_what_is_recorded_here_shows_nothing_unwritten(tmp_path):
    log = a_log(200)
    live = Live(tmp_path, log)
    live.write(log.entries[99][1])
    live.commit.set(log.position)
    with live.reader() as reader:
        assert reader.commit_position() == log.entries[99][1]


def test_a_commit_within_a_message_shows_the_messages_before_it(tmp_path):
    log = LogWriter()
    log.term(0)
    log.message(b"a" * 100)
    log.message(b"b" * 5000)
    log.message(b"c")
    live = Live(tmp_path, log)
    live.write(log.position)
    live.commit.set(log.entries[2][0] + 1408)
    with live.reader() as reader:
        assert positions(reader) == log.entries[:2]
        follow = reader.follow(columns=["position"], wait=lambda _: live.commit.set(log.position))
        assert next(follow).column(0).to_pylist() == [p for p, _ in log.entries[:2]]
        assert next(follow).column(0).to_pylist() == [p for p, _ in log.entries[2:]]


def test_following_goes_on_as_commits_come_and_waits_in_between(tmp_path):
    log = a_log(100)
    live = Live(tmp_path, log)
    live.write(log.position)
    commits = iter([log.entries[i][1] for i in (10, 10, 60, 101, 102)])
    waited = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        live.now_ms += 100
        live.counters.update_heartbeat(live.now_ms)
        live.commit.set(next(commits, log.position))

    with live.reader() as reader:
        entries = reader.entries(to_position=log.entries[90][1], follow=True, wait=wait)
        assert [entry["position"] for entry in entries] == [begin for begin, _ in log.entries[:91]]
    assert len(waited) == 4
    assert all(0 < seconds < 1 for seconds in waited)


def test_a_reader_lives_through_the_member_s_stop_and_restart(tmp_path):
    log = a_log(200)
    live = Live(tmp_path, log)
    live.write(log.entries[50][1])
    live.commit.set(log.entries[40][1])
    with live.reader() as reader:
        assert positions(reader) == log.entries[:41]
        live.commit.set(log.entries[50][1])
        live.member.stop()
        live.counters.close()
        assert not reader.is_live
        assert positions(reader) == log.entries[:51]

        live.member = Member(tmp_path, clock=lambda: live.now_ms)
        live.open_counters()
        live.member.recording = live.member.archive.extend(0, SESSION_ID)
        live.write(log.position)
        live.commit.set(log.entries[150][1])
        assert reader.is_live
        assert positions(reader) == log.entries[:151]


def test_a_log_that_goes_on_in_a_new_file_of_the_same_name_is_read_there(tmp_path):
    log = a_log(200)
    live = Live(tmp_path, log)
    live.write(log.entries[50][1])
    live.commit.set(log.entries[40][1])
    with live.reader() as reader:
        assert positions(reader) == log.entries[:41]
        live.member.kill()
        live.counters.close(orderly=False)
        live.member = Member(tmp_path, clock=lambda: live.now_ms, is_after_failure=True)
        live.open_counters()
        live.member.recording = live.member.archive.extend(0, SESSION_ID)
        live.write(log.position)
        live.commit.set(log.position)
        assert positions(reader) == log.entries


@pytest.mark.parametrize("is_extended", [False, True], ids=["stopped", "extended, without a counter yet"])
def test_between_two_terms_a_running_member_is_known_by_its_process(tmp_path, is_extended):
    log = a_log(50)
    live = Live(tmp_path, log)
    live.write(log.position)
    live.commit.set(log.entries[30][1])
    live.member.recording.stop(live.now_ms)
    if is_extended:
        live.member.archive.extend(0, SESSION_ID + 1)
    live.counters.free(live.counters.find(100))
    with live.reader() as reader:
        assert reader.is_live
        assert reader.commit_position() == log.entries[30][1]
        assert positions(reader) == log.entries[:31]


def test_the_counters_of_another_cluster_are_not_believed(tmp_path):
    """The host may run one under the same names: same cluster id, other recording, other process."""
    log = a_log(50)
    write_member(tmp_path, log)
    path = str(tmp_path / "driver" / "cnc.dat")
    counters = CountersFile.create(path, pid=1, now_ms=epoch_ms())
    allocate_counters(counters, commit_position=96)
    counters.allocate_recording_position(0, SESSION_ID + 1, 100, position=96)
    with read(tmp_path) as reader:
        assert not reader.is_live
        assert reader.end_position() == log.position
    counters.close()


@pytest.mark.parametrize("has_stopped", [False, True], ids=["in a term", "between two terms"])
def test_of_our_member_that_crashed_a_stream_ends_at_what_is_known_to_be_committed(tmp_path, has_stopped):
    log = a_log(100)
    live = Live(tmp_path, log)
    live.write(log.position)
    live.commit.set(log.entries[60][1])
    (live.member.stop if has_stopped else live.member.kill)()
    live.counters.close(orderly=False)
    live.now_ms += 60_000
    with live.reader() as reader:
        assert not reader.is_live
        assert reader.commit_position() == log.entries[60][1]
        assert reader.end_position() == log.position
        assert positions(reader) == log.entries
        told = f"after position {log.entries[60][1]}, up to {log.position}, is recorded"
        assert [told in warning for warning in reader.warnings] == ([] if has_stopped else [True])


def test_a_later_term_does_not_prove_that_what_came_before_it_is_committed(tmp_path):
    """Its leader begins it at the end of its own log, which only a minority of five may hold."""
    log = a_log(50)
    log.term(1)
    log.walk(3, 10)
    write_member(tmp_path, log, is_clean=False)
    with read(tmp_path) as reader:
        assert reader.commit_position() == 0
        assert reader.end_position() == log.position


def test_a_real_member_that_crashed_is_read_whole_with_a_warning(tmp_path):
    copy = a_copy(tmp_path)
    catalog = copy / "archive" / "archive.catalog"
    data = bytearray(catalog.read_bytes())
    data[112:120] = b"\xff" * 8  # the stop position of recording 0
    catalog.write_bytes(data)
    with read(copy) as reader:
        assert reader.commit_position() == reader.end_position() == 250_144
        (warning,) = reader.warnings
        assert "its counters are gone" in warning
        assert len(list(reader)) == len(expected())


def test_a_range_that_is_known_to_be_committed_is_read_before_the_commit_is_known_again(tmp_path):
    """A member that has just started does not know yet what it once knew."""
    log = a_log(100)
    live = Live(tmp_path, log)
    live.write(log.position)
    with live.reader() as reader:
        end = log.entries[40][1]
        assert list(reader.batches(0, end)) == []
        rows = pa.Table.from_batches(reader.batches(0, end, is_committed=True))
        assert rows.column("position").to_pylist() == [begin for begin, _ in log.entries[:41]]


def test_a_purge_while_reading_is_told_with_where_the_log_begins_now(tmp_path):
    log = a_log(1000)
    live = Live(tmp_path, log)
    live.write(log.position)
    live.commit.set(log.position)
    with live.reader() as reader:
        blocks = reader.blocks(max_bytes=4096)
        next(blocks)
        start = live.member.recording.purge_to(2 * SEGMENT_LENGTH)
        assert reader.earliest_position() == start > 0
        with pytest.raises(DataLoss, match="was purged"):
            for _ in blocks:
                pass


# ---- damage


def damaged(directory: Path, **options: object) -> tuple[list[dict[str, object]], list[str]]:
    """What can be read, and what is told about the rest."""
    told: list[str] = []
    with read(directory, **options) as reader:
        entries = list(reader.entries(on_damage=lambda damage: told.append(str(damage))))
    return entries, told


def spoil(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


@pytest.mark.parametrize("checksum", [None, "crc32c"])
def test_a_garbled_frame_is_named_and_all_entries_around_it_are_read(tmp_path, checksum):
    log = a_log(400)
    write_member(tmp_path, log, checksum=checksum)
    begin, _ = log.entries[100]
    segment = tmp_path / "archive" / "0-0.rec"
    spoil(segment, begin + 8, b"\xde\xad\xbe\xef")
    entries, told = damaged(tmp_path)
    assert [entry["position"] for entry in entries] == [p for p, _ in log.entries if p != begin]
    (line,) = told
    assert line.startswith(f"{segment} at offset {begin}: term offset")
    assert f"nothing is readable from position {begin} to " in line
    with read(tmp_path) as reader, pytest.raises(LogDamaged, match=f"at offset {begin}: term offset"):
        list(reader)


def test_a_flipped_payload_byte_is_found_by_checksums(tmp_path):
    log = a_log(400)
    write_member(tmp_path, log, checksum="crc32")
    begin, _ = log.entries[200]
    base = begin // SEGMENT_LENGTH * SEGMENT_LENGTH
    segment = tmp_path / "archive" / f"0-{base}.rec"
    with segment.open("r+b") as file:
        file.seek(begin - base + 64)
        byte = file.read(1)[0]
        file.seek(begin - base + 64)
        file.write(bytes([byte ^ 1]))
    entries, told = damaged(tmp_path)
    assert begin not in [entry["position"] for entry in entries]
    assert len(entries) == len(log.entries) - 1
    assert f"{segment} at offset {begin - base}: checksum mismatch" in told[0]


def test_a_garbled_message_within_a_good_frame_is_named(tmp_path):
    log = a_log(100)
    write_member(tmp_path, log)
    begin, _ = log.entries[50]
    segment = tmp_path / "archive" / "0-0.rec"
    spoil(segment, begin + 32, b"\xff\xff")  # the block length of its SBE header
    entries, told = damaged(tmp_path)
    assert [entry["position"] for entry in entries] == [p for p, _ in log.entries if p != begin]
    assert told[0].startswith(f"{segment} at offset {begin}: ")


@pytest.mark.parametrize("keep", [0, 1000, 100_000])
def test_a_1900_a_truncated_segment_is_read_up_to_its_end_and_the_next_one_too(tmp_path, keep):
    """aeron-io/aeron issue 1900: a reader of such a segment waited for ever."""
    log = a_log(1000)
    write_member(tmp_path, log)
    segment = tmp_path / "archive" / "0-0.rec"
    with segment.open("r+b") as file:
        file.truncate(keep)
    entries, told = damaged(tmp_path)
    found = [entry["position"] for entry in entries]
    assert found == [p for p, end in log.entries if end <= keep or p >= SEGMENT_LENGTH]
    assert str(segment) in told[0]
    assert f"to {SEGMENT_LENGTH}" in told[-1]


def test_a_missing_segment_is_named_and_the_others_are_read(tmp_path):
    log = a_log(1000)
    write_member(tmp_path, log)
    (tmp_path / "archive" / f"0-{SEGMENT_LENGTH}.rec").unlink()
    entries, told = damaged(tmp_path)
    outside = [p for p, _ in log.entries if not SEGMENT_LENGTH <= p < 2 * SEGMENT_LENGTH]
    assert [entry["position"] for entry in entries] == outside
    assert "the segment file is missing" in told[0]


@pytest.mark.parametrize("seed", range(30))
def test_whatever_is_garbled_nothing_false_is_read_where_checksums_are_on(tmp_path, seed):
    """And always something is told, and the reader ends."""
    log = a_log(60)
    write_member(tmp_path, log, checksum="crc32c")
    rng = np.random.default_rng(seed)
    segment = tmp_path / "archive" / "0-0.rec"
    whole = {entry["position"]: entry for entry in read(tmp_path).entries()}
    data = np.frombuffer(segment.read_bytes(), np.uint8).copy()
    for at in rng.integers(0, log.position, rng.integers(1, 6)):
        data[at : at + rng.integers(1, 200)] ^= rng.integers(1, 256, dtype=np.uint8)
    segment.write_bytes(data.tobytes())
    entries, told = damaged(tmp_path)
    for entry in entries:
        assert entry == whole[entry["position"]]
    assert told or len(entries) == len(whole)


def test_a_garbled_mark_file_and_recording_log_do_not_hide_the_log(tmp_path):
    copy = a_copy(tmp_path)
    spoil(copy / "cluster" / "cluster-mark.dat", 8, b"\xff\xff\xff\x7f")
    spoil(copy / "cluster" / "recording.log", 3 * 64 + 44, b"\x09")
    with read(copy) as reader:
        assert len(list(reader)) == len(expected())
        told = sorted(str(damage) for damage in reader.damage)
    assert [line.rpartition("/")[2].partition(":")[0] for line in told] == [
        "cluster-mark.dat at offset 8",
        "recording.log at offset 236",
    ]


def test_a_garbled_catalog_is_named_and_what_is_before_is_read(tmp_path):
    copy = a_copy(tmp_path)
    data = bytearray((copy / "archive" / "archive.catalog").read_bytes())
    second = 64 + int.from_bytes(data[32:36], "little")
    data[second : second + 4] = b"\xff\xff\xff\x7f"
    (copy / "archive" / "archive.catalog").write_bytes(data)
    with read(copy) as reader:
        assert len(list(reader)) == len(expected())
        assert f"archive.catalog at offset {second}: catalog entry" in str(reader.damage[0])
    (copy / "archive" / "archive.catalog").write_bytes(b"\xa5" * 100)
    with pytest.raises(LogDamaged, match=r"archive\.catalog at offset 0: catalog version"):
        read(copy)
    (copy / "archive" / "archive.catalog").write_bytes(bytes(data[:20]))
    with pytest.raises(LogDamaged, match=r"archive\.catalog at offset 0"):
        read(copy)


def test_a_recording_that_verify_marked_invalid_is_still_read_with_a_warning(tmp_path):
    copy = a_copy(tmp_path)
    spoil(copy / "archive" / "archive.catalog", 36, bytes(4))
    with read(copy) as reader:
        assert len(list(reader)) == len(expected())
        assert reader.warnings == [f"{copy}/archive: recording 0 is marked invalid in the catalog"]


def test_frames_without_checksums_behind_ones_with_them_are_read_with_a_warning(tmp_path):
    log = a_log(60)
    member = Member(tmp_path, checksum="crc32c")
    member.write(log, half := log.entries[30][1])
    member.stop()
    shutil.rmtree(tmp_path / "driver", ignore_errors=True)
    member = Member(tmp_path)
    member.archive.extend(0, SESSION_ID)._words[CHECKSUM] = 0  # as an archive that keeps none
    member.write(log)
    member.stop()
    with read(tmp_path) as reader:
        assert positions(reader) == log.entries
        (warning,) = reader.warnings
        assert f"frames from position {half} on carry no checksum" in warning
