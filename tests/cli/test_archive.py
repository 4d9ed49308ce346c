"""``cluster archive`` says what Aeron's ArchiveTool says, and does what it does."""

from __future__ import annotations

import errno
import io
import json
import os
from pathlib import Path

import pytest

from cluster.archive.archive import Archive
from cluster.archive.files import OsFile
from tests.archive.logs import SEGMENT_LENGTH, Clock, LogWriter, a_log
from tests.archive.members import Member, live_counters, write_member
from tests.cli.conftest import Run
from tests.reader.real import a_copy, members, said

GROUP = "archive"
ALL_WELL = "(recordingId=0) OK\n(recordingId=1) OK\n(recordingId=2) OK\n"


def states(run: Run, directory: Path) -> list[str]:
    _, out, _ = run("describe-all", "--dir", directory, "--json")
    return [recording["state"] for recording in json.loads(out)["recordings"]]


@pytest.mark.parametrize("member", [0, 1, 2])
def test_describe_prints_the_real_tool_s_lines(run, member):
    real = said(member, "ArchiveTool describe").splitlines()
    status, out, err = run("describe", "--raw", "--dir", members() / f"member-{member}")
    assert (status, err) == (0, "")
    ours = out.splitlines()
    assert ours[2:] == real[3:], "catalog capacity and descriptors"
    assert ours[1].partition("|aeronDirectory")[0] == real[2].partition("|aeronDirectory")[0]
    # The real tool prints the time of -1, which is what an orderly end leaves.
    lived = real[1].split(" (")[1].replace("1969-12-31 23:59:59", "none, it ended in order")
    assert ours[0].split(" (")[1] == lived


def test_describe_prints_tables_for_people(run):
    status, out, err = run("describe", "--dir", members() / "member-0")
    assert (status, err) == (0, "")
    mark, catalog, recordings = out.splitlines()[:2], out.splitlines()[2], out.splitlines()[3:]
    assert mark[0].split() == ["archive", "pid", "started", "last", "alive"]
    assert mark[1].endswith("ended in order") and catalog.startswith("catalog of ")
    assert [row.split()[:3] for row in recordings] == [["recording", "state", "from"]] + [
        [str(i), "VALID", "0"] for i in range(3)
    ]


def test_describe_of_one_recording_and_of_none(run):
    _, out, _ = run("describe", 1, "--dir", members() / "member-0", "--json")
    (recording,) = json.loads(out)["recordings"]
    assert (recording["recordingId"], recording["streamId"], recording["state"]) == (1, 106, "VALID")
    status, _, err = run("describe", 9, "--dir", members() / "member-0")
    assert (status, "archive.catalog: no recording 9" in err) == (1, True)


@pytest.mark.conformance("S-146")
def test_describe_lists_valid_recordings_and_describe_all_all_with_their_state(run, tmp_path):
    copy = a_copy(tmp_path)
    assert run("mark-invalid", 1, "--dir", copy) == (0, "(recordingId=1) INVALID\n", "")
    _, out, _ = run("describe", "--raw", "--dir", copy)
    assert [f"recordingId={i}|" in out for i in range(3)] == [True, False, True]
    _, out, _ = run("describe-all", "--raw", "--dir", copy)
    assert out.count("|VALID\n") == 2
    assert out.count("|INVALID\n") == 1
    assert run("count-entries", "--dir", copy)[1] == "2\n"


@pytest.mark.conformance("S-147")
@pytest.mark.parametrize("arguments", [[], ["--all"]])
def test_verify_of_intact_recordings_changes_nothing(run, tmp_path, arguments):
    copy = a_copy(tmp_path)
    before = (copy / "archive" / "archive.catalog").read_bytes()
    assert run("verify", *arguments, "--dir", copy) == (0, ALL_WELL, "")
    assert (copy / "archive" / "archive.catalog").read_bytes() == before


@pytest.mark.conformance("S-148")
def test_verify_of_a_corrupted_frame_header_marks_the_recording(run, tmp_path):
    copy = a_copy(tmp_path)
    segment = copy / "archive" / "0-131072.rec"
    data = bytearray(segment.read_bytes())
    data[65536 + 8] ^= 1
    segment.write_bytes(data)
    status, out, _ = run("verify", "--dir", copy)
    assert status == 1
    assert out.splitlines()[0] == (
        f"(recordingId=0) ERR: {segment} at offset 65536: term offset 1 at log position 196608, expected 0"
    )
    assert states(run, copy) == ["INVALID", "VALID", "VALID"]
    data[65536 + 8] ^= 1
    segment.write_bytes(data)
    assert run("verify", "--dir", copy)[:2] == (0, ALL_WELL)
    assert states(run, copy) == ["VALID", "VALID", "VALID"]


def damage_term_id(path: Path) -> str:
    data = bytearray(path.read_bytes())
    data[96 + 20] ^= 4
    path.write_bytes(data)
    return "at offset 96: term id 4 at log position 96, expected 0"


def damage_stream(path: Path) -> str:
    data = bytearray(path.read_bytes())
    data[96 + 16] ^= 1
    path.write_bytes(data)
    return "at offset 96: stream id 101 at log position 96, expected 100"


def damage_length(path: Path) -> str:
    data = bytearray(path.read_bytes())
    data[96 + 3] = 0x7F
    path.write_bytes(data)
    return "at offset 96: frame of 2130706550 bytes at log position 96, expected at most 130976"


def damage_payload(path: Path) -> str:
    data = bytearray(path.read_bytes())
    data[96 + 40] ^= 1
    path.write_bytes(data)
    return "at offset 96: checksum mismatch at log position 96: expected 0x"


def zero_a_frame(path: Path) -> str:
    data = bytearray(path.read_bytes())
    data[96 : 96 + 32] = bytes(32)
    path.write_bytes(data)
    return "at offset 96: no frame was written here at log position 96, expected frames to "


def cut_short(path: Path) -> str:
    with path.open("r+b") as file:
        file.truncate(96)
    return "at offset 96: no frame was written here"


def remove(path: Path) -> str:
    path.unlink()
    return "the segment file is missing"


@pytest.mark.parametrize(
    "damage",
    [damage_term_id, damage_stream, damage_length, damage_payload, zero_a_frame, cut_short, remove],
)
def test_verify_names_file_offset_what_was_expected_and_what_is_there(run, tmp_path, damage):
    write_member(tmp_path, a_log(1000), checksum="crc32c")
    assert run("verify", "--all", "--checksum", "crc32c", "--dir", tmp_path)[0] == 0
    segment = tmp_path / "archive" / "0-0.rec"
    what = damage(segment)
    status, out, _ = run("verify", "--all", "--checksum", "crc32c", "--dir", tmp_path)
    assert status == 1
    assert out.startswith(f"(recordingId=0) ERR: {segment}")
    assert what in out


def test_verify_of_a_whole_cluster_goes_on_after_a_damaged_member(run, tmp_path):
    for member_id in range(3):
        write_member(tmp_path / f"member-{member_id}", a_log(5))
    (tmp_path / "member-0/archive/archive.catalog").write_bytes(b"\xff" * 4_096)
    damage_stream(tmp_path / "member-1/archive/0-0.rec")

    status, out, err = run("verify", "--dir", tmp_path)

    assert status == 1 and "member-0/archive/archive.catalog" in err
    heads = [f"{tmp_path}/member-{member_id}" for member_id in range(3)]
    assert [line for line in out.splitlines() if line in heads] == heads
    assert "ERR: " in out.partition(heads[1])[2] and out.endswith(f"{heads[2]}\n(recordingId=0) OK\n")
    found = [json.loads(line) for line in run("verify", "--dir", tmp_path, "--json")[1].splitlines()]
    assert [each["dir"] for each in found] == heads[1:]


def test_verify_says_what_the_disk_cannot_read(run, tmp_path, monkeypatch):
    write_member(tmp_path, a_log(100))

    def fails(self: OsFile, buffer: object, offset: int) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(OsFile, "pread_into", fails)
    status, out, _ = run("verify", "--dir", tmp_path)
    assert status == 1
    assert "0-0.rec at offset 0: reading failed at log position 0: Input/output error" in out


@pytest.mark.conformance("S-149")
def test_verify_writes_down_the_end_that_a_crash_left_open(run, tmp_path):
    log = a_log(100)
    write_member(tmp_path, log, is_clean=False)
    assert run("verify", "--dir", tmp_path) == (0, "(recordingId=0) OK\n", "")
    _, out, _ = run("describe", "--dir", tmp_path, "--json")
    assert json.loads(out)["recordings"][0]["stopPosition"] == log.position


@pytest.mark.parametrize("checksum", ["none", "crc32", "crc32c"])
def test_describe_tells_what_the_frames_hold(run, tmp_path, checksum):
    write_member(tmp_path, a_log(100), checksum=checksum)
    _, out, _ = run("describe", "--dir", tmp_path, "--json")
    assert json.loads(out)["recordings"][0]["frameChecksum"] == checksum
    assert f"  {checksum}  " in run("describe", "--dir", tmp_path)[1].splitlines()[-1]
    _, out, _ = run("describe", "--raw", "--dir", tmp_path)
    assert (f"\n  frameChecksum={checksum}\n" in out) == (checksum != "none")


def test_neither_dump_nor_verify_passes_a_frame_whose_checksum_is_wrong(run, tmp_path):
    log = a_log(100)
    write_member(tmp_path, log, checksum="crc32c")
    begin = log.entries[50][0]
    segment = tmp_path / "archive" / "0-0.rec"
    data = bytearray(segment.read_bytes())
    data[begin + 40] ^= 1
    segment.write_bytes(data)

    status, out, err = run("dump", "--limit", 0, "--dir", tmp_path, "--json")
    frames = [json.loads(line) for line in out.splitlines()[1:]]
    assert (status, frames[-1]["position"] < begin) == (1, True)
    assert f"checksum mismatch at log position {begin}" in err
    status, out, _ = run("verify", "--dir", tmp_path)
    assert (status, f"checksum mismatch at log position {begin}" in out) == (1, True)


@pytest.mark.conformance("S-150")
@pytest.mark.parametrize("name", ["crc32", "crc32c", "org.agrona.checksum.Crc32c"])
def test_verify_finds_a_flipped_payload_byte_once_there_are_checksums(run, tmp_path, name):
    copy = a_copy(tmp_path)
    status, out, _ = run("checksum", name, "--all", "--dir", copy)
    assert (status, out.splitlines()[0]) == (0, "(recordingId=0) 250144 bytes")
    assert run("verify", "--all", "--checksum", name, "--dir", copy)[:2] == (0, ALL_WELL)
    segment = copy / "archive" / "0-0.rec"
    data = bytearray(segment.read_bytes())
    data[5300] ^= 0x80
    segment.write_bytes(data)
    status, out, _ = run("verify", "--all", "--checksum", name, "--dir", copy)
    assert status == 1
    assert f"(recordingId=0) ERR: {segment} at offset 5184: checksum mismatch" in out


@pytest.mark.conformance("S-151")
def test_marks_only_switch_between_valid_and_invalid(run, tmp_path):
    copy = a_copy(tmp_path)
    before = (copy / "archive" / "archive.catalog").read_bytes()
    assert run("mark-valid", 2, "--dir", copy)[0] == 1
    assert run("mark-invalid", 2, "--dir", copy)[0] == 0
    assert run("mark-invalid", 2, "--dir", copy)[0] == 1
    assert run("mark-valid", 2, "--dir", copy)[0] == 0
    assert (copy / "archive" / "archive.catalog").read_bytes() == before
    assert run("mark-valid", 7, "--dir", copy)[0] == 1


@pytest.mark.conformance("S-152")
def test_compact_drops_what_is_not_valid_with_its_files_and_keeps_ids(run, tmp_path):
    copy = a_copy(tmp_path)
    run("mark-invalid", 1, "--dir", copy)
    status, out, _ = run("compact", "--yes", "--dir", copy)
    assert (status, out) == (0, "deleted 1 records (256 bytes), 1 segments\n")
    _, out, _ = run("describe-all", "--dir", copy, "--json")
    assert [recording["recordingId"] for recording in json.loads(out)["recordings"]] == [0, 2]
    assert not (copy / "archive" / "1-0.rec").exists()
    assert run("verify", "--dir", copy)[1] == "(recordingId=0) OK\n(recordingId=2) OK\n"
    archive = Archive.open(str(copy / "archive"), epoch_ms=Clock(), segment_length=65536)
    log = LogWriter()
    recording = archive.create_recording(
        stream_id=100, session_id=1, initial_term_id=0, term_length=65536, mtu=1408
    )
    assert recording.recording_id == 3, "an id came back"
    recording.append(0, log.frames())
    archive.close()


@pytest.mark.conformance("S-153")
def test_orphaned_segments_are_those_outside_the_recorded_range(run, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO())
    log = a_log(1000)
    member = Member(tmp_path)
    member.write(log)
    member.recording.purge_to(SEGMENT_LENGTH)
    member.stop()
    archive = tmp_path / "archive"
    kept = sorted(path.name for path in archive.iterdir())
    orphans = ["0-0.rec", f"0-{100 * SEGMENT_LENGTH}.rec", "7-0.rec", "0-12.rec", "x.rec", "0-5.rec.del"]
    for name in orphans:
        (archive / name).write_bytes(b"x")
    status, out, err = run("delete-orphaned-segments", "--dir", tmp_path)
    assert status == 1, "nobody said yes"
    assert sorted(path.name for path in archive.iterdir()) == sorted([*kept, *orphans])
    assert "not confirmed" in err
    status, out, _ = run("delete-orphaned-segments", "--yes", "--dir", tmp_path)
    assert (status, sorted(out.splitlines())) == (0, sorted(orphans))
    assert sorted(path.name for path in archive.iterdir()) == kept


@pytest.mark.conformance("S-154")
def test_dump_goes_on_behind_an_invalid_entry(run, tmp_path):
    copy = a_copy(tmp_path)
    run("mark-invalid", 0, "--dir", copy)
    status, out, _ = run("dump", "--limit", 2, "--dir", copy)
    assert status == 0
    assert out.count("[RecordingDescriptor]") == 3
    assert out.count("position=") >= 6
    assert "position=0 frameLength=88 version=0 flags=11000000 type=DATA termOffset=0" in out


def test_dump_shows_each_frame_as_an_object_on_demand(run):
    _, out, _ = run("dump", 2, "--limit", 0, "--json", "--dir", members() / "member-0")
    descriptor, *frames = [json.loads(line) for line in out.splitlines()]
    assert descriptor["stopPosition"] == 576
    assert [frame["position"] for frame in frames] == [0, 96, 192, 352, 416, 480]
    assert bytes.fromhex(frames[0]["payload"])[2:4] == (100).to_bytes(2, "little")


def test_an_archive_that_runs_is_looked_at_and_not_changed(run, tmp_path):
    log = a_log(200)
    member = Member(tmp_path)
    member.write(log)
    with live_counters(tmp_path) as counters:
        recording = member.recording
        recording.position_counter = counters.allocate_recording_position(
            0, recording.session_id, 100, position=recording.append_position
        )
        before = (tmp_path / "archive" / "archive.catalog").read_bytes()
        status, out, err = run("verify", "--all", "--dir", tmp_path)
        assert (status, out) == (0, "(recordingId=0) OK\n")
        assert err.startswith("warning: nothing will be changed: ")
        assert (tmp_path / "archive" / "archive.catalog").read_bytes() == before
        for command in (["compact", "--yes"], ["checksum", "crc32"], ["mark-invalid", 0]):
            status, _, err = run(*command, "--dir", tmp_path)
            assert (status, "in use by process" in err) == (1, True)
        status, out, _ = run("dump", "--limit", 1, "--dir", tmp_path)
        assert (status, out.count("position=0 ")) == (0, 1)
    member.stop()


@pytest.mark.parametrize(
    ("arguments", "status", "what"),
    [
        (["describe"], 1, "cluster-data: no such directory"),
        (["describe", "--dir", "{tmp}/nowhere"], 1, "no such directory"),
        (["verify", "--dir", "{tmp}"], 1, "no archive.catalog is in it"),
        (
            ["verify", "--dir", "{tmp}", "--checksum", "md5"],
            2,
            "checksum 'md5': expected none, crc32 or crc32c",
        ),
        (["checksum", "none", "--dir", "{tmp}"], 2, "expected crc32 or crc32c"),
        (["repair", "--dir", "{tmp}"], 2, "repair"),
    ],
)
def test_what_goes_wrong_is_one_plain_line_and_a_status(run, tmp_path, arguments, status, what):
    found, _, err = run(*(argument.replace("{tmp}", str(tmp_path)) for argument in arguments))
    assert (found, what in err, len(err.splitlines())) == (status, True, 1), err


def test_a_garbled_catalog_is_named_and_its_readable_part_described(run, tmp_path):
    copy = a_copy(tmp_path)
    path = copy / "archive" / "archive.catalog"
    data = bytearray(path.read_bytes())
    second = 64 + int.from_bytes(data[32:36], "little")
    data[second : second + 4] = b"\xff\xff\xff\x7f"
    path.write_bytes(data)
    status, out, err = run("describe", "--raw", "--dir", copy)
    assert (status, out.count("[RecordingDescriptor]")) == (1, 1)
    assert err.startswith(f"{path} at offset {second}: catalog entry of 2147483647 bytes")
    status, out, _ = run("verify", "--dir", copy)
    assert (status, out) == (1, "(recordingId=0) OK\n")


@pytest.mark.parametrize("command", ["describe", "dump", "verify", "checksum", "compact", "mark-valid"])
def test_help_has_an_example(run, command):
    status, out, _ = run(command, "--help")
    assert (status, f"cluster archive {command}" in out) == (0, True)


# ---- purging


def purgeable(tmp_path: Path, snapshot_at: int | None) -> tuple[Path, LogWriter]:
    """A stopped member with several segments of log, and a snapshot at the position: recordings 1 and 2."""
    log = a_log(800)
    member = Member(tmp_path)
    member.write(log)
    if snapshot_at is not None:
        member.take_snapshot(log, snapshot_at)
    member.stop()
    return tmp_path, log


def test_purge_drops_whole_segments_that_a_snapshot_stands_for(run, tmp_path):
    directory, log = purgeable(tmp_path, 2 * SEGMENT_LENGTH + 4096)
    assert log.position > 2 * SEGMENT_LENGTH + 4096
    said = run("purge", 2 * SEGMENT_LENGTH, "--dir", directory, "--yes")
    assert said == (0, f"the log began at 0, it begins at {2 * SEGMENT_LENGTH}\n", "")
    names = sorted(path.name for path in (directory / "archive").glob("0-*.rec"))
    assert names[0] == f"0-{2 * SEGMENT_LENGTH}.rec"
    assert run("verify", "--dir", directory, "--all")[0] == 0
    assert run("purge", 2 * SEGMENT_LENGTH, "--dir", directory, "--yes")[0] == 0


@pytest.mark.parametrize("position", [-32, SEGMENT_LENGTH + 32, 2 * SEGMENT_LENGTH])
def test_purge_elsewhere_is_refused_and_the_nearest_position_named(run, tmp_path, position):
    directory, _ = purgeable(tmp_path, SEGMENT_LENGTH + 4096)
    nearest = 0 if position < 0 else SEGMENT_LENGTH
    status, _, err = run("purge", "--dir", directory, "--yes", "--", position)
    assert (status, err.startswith(f"cannot purge to {position}: the log begins at 0,")) == (1, True)
    assert err.endswith(f"the nearest is {nearest}\n")


@pytest.mark.parametrize("lost", ["1-0.rec", "2-0.rec"])
def test_a_snapshot_that_cannot_be_loaded_stands_for_no_log(run, tmp_path, lost):
    """JDRaftKeeper/RaftKeeper PR 392: logs were compacted up to a snapshot that nobody could load."""
    directory, _ = purgeable(tmp_path, 2 * SEGMENT_LENGTH + 4096)
    (directory / "archive" / lost).unlink()
    status, _, err = run("purge", 2 * SEGMENT_LENGTH, "--dir", directory, "--yes")
    assert (status, err.startswith("the log is needed: its last snapshot is damaged")) == (1, True)
    assert (directory / "archive" / "0-0.rec").exists()


def test_without_a_snapshot_nothing_is_purged(run, tmp_path):
    directory, _ = purgeable(tmp_path, None)
    status, _, err = run("purge", SEGMENT_LENGTH, "--dir", directory, "--yes")
    assert (status, err) == (1, "the log from 0 on is needed: there is no snapshot to start from\n")


@pytest.mark.parametrize("is_clean", [False, True])
def test_the_number_of_a_process_that_is_gone_is_not_handed_to_kill(run, tmp_path, is_clean):
    write_member(tmp_path, a_log(5), is_clean=is_clean)
    message = f"{tmp_path}: no archive runs here; the last one was process {os.getpid()}\n"
    assert run("pid", "--dir", tmp_path) == (1, "", message)


def test_the_number_of_one_that_runs_is_printed_alone(run, tmp_path):
    member = Member(tmp_path)
    assert run("pid", "--dir", tmp_path) == (0, f"{os.getpid()}\n", "")
    assert run("pid", "--dir", tmp_path, "--json") == (0, json.dumps({"pid": os.getpid()}) + "\n", "")
    member.stop()


@pytest.mark.parametrize(("verb", "key"), [("count-entries", "count"), ("capacity", "capacity")])
def test_what_is_one_number_is_an_object_on_demand(run, verb, key):
    member = members() / "member-0"
    _, number, _ = run(verb, "--dir", member)
    assert run(verb, "--dir", member, "--json") == (0, json.dumps({key: int(number)}) + "\n", "")
