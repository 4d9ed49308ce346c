"""A recording is the log as a file: what was appended is read, over segments and terms, and cut cleanly."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from cluster.archive.archive import Archive
from cluster.archive.files import OsFiles
from cluster.archive.recording import Recording
from cluster.errors import ConfigurationError, DirectoryInUse, LogDamaged
from cluster.log.checksum import Checksum, verify_checksums
from cluster.protocol.frame import align
from tests.archive.logs import SEGMENT_LENGTH, SESSION_ID, TERM_LENGTH, Clock, LogWriter, a_log
from tests.log.naive import scan


def open_archive(directory: Path, **options: object) -> Archive:
    options = {"segment_length": SEGMENT_LENGTH, "epoch_ms": Clock(), **options}
    return Archive.open(str(directory), **options)  # type: ignore[arg-type]


def record(archive: Archive, log: LogWriter) -> Recording:
    """A new recording that begins where the log does, and has nothing in it yet."""
    return archive.create_recording(
        stream_id=100,
        session_id=log.params.session_id,
        initial_term_id=log.params.initial_term_id,
        term_length=log.params.term_length,
        mtu=log.params.mtu,
        start_position=log.start,
    )


def pieces(log: LogWriter, size: int) -> list[tuple[int, np.ndarray]]:
    """The log in runs of whole frames of at most ``size`` bytes (or one frame)."""
    data, found, offset = log.frames(), [], 0
    while offset < len(data):
        end = scan(data, offset, min(offset + size, len(data)))
        end = end if end > offset else scan(data, offset, min(offset + TERM_LENGTH, len(data)))
        found.append((log.start + offset, data[offset:end]))
        offset = end
    return found


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("size", [1500, 20_000, 300_000])
def test_what_is_appended_is_read_back_over_segments_and_terms(tmp_path, level, size):
    log = a_log(1000)
    assert log.position > 3 * SEGMENT_LENGTH
    archive = open_archive(tmp_path, file_sync_level=level)
    recording = record(archive, log)

    for position, run in pieces(log, size):
        assert recording.append(position, run) == position + len(run)
        assert recording.sync() == recording.append_position

    assert recording.append_position == log.position
    read = np.concatenate([recording.read(p, 10_000) for p in _positions(recording, 10_000)])
    assert np.array_equal(read, log.frames())
    archive.close()


def _positions(recording: Recording, step: int) -> list[int]:
    position, found = recording.start_position, []
    while position < recording.append_position:
        found.append(position)
        position += len(recording.read(position, step))
    return found


def test_appended_bytes_count_as_synced_only_after_the_sync(tmp_path):
    log = a_log(10)
    recording = record(open_archive(tmp_path, file_sync_level=1), log)
    recording.append(0, log.frames())
    assert recording.synced_position == 0
    assert recording.sync() == recording.synced_position == log.position


def test_at_level_0_appended_bytes_count_at_once(tmp_path):
    log = a_log(10)
    recording = record(open_archive(tmp_path, file_sync_level=0), log)
    recording.append(0, log.frames())
    assert recording.synced_position == log.position


def test_the_position_counter_follows_what_is_synced(tmp_path):
    class Shown:
        value = -1

        def set(self, value: int) -> None:
            self.value = value

    log = a_log(10)
    recording = record(open_archive(tmp_path), log)
    recording.position_counter = shown = Shown()
    recording.append(0, log.frames())
    assert shown.value == -1
    recording.sync()
    assert shown.value == log.position


def test_a_read_ends_at_a_frame_and_gives_one_frame_however_long(tmp_path):
    log = a_log(100)
    recording = record(open_archive(tmp_path), log)
    recording.append(0, log.frames())
    assert len(recording.read(0, 100)) == 96
    assert len(recording.read(0, 1)) == 96
    assert len(recording.read(log.position, 100)) == 0
    out = np.zeros(4096, np.uint8)
    assert recording.read(96, 4096, out).base is out


def test_a_full_segment_is_followed_at_once_and_the_next_has_all_its_blocks(tmp_path):
    log = a_log(700)
    archive = open_archive(tmp_path)
    recording = record(archive, log)
    recording.append(0, log.frames(0, SEGMENT_LENGTH))
    recording.sync()
    names = sorted(path.name for path in tmp_path.glob("*.rec"))
    assert names == ["0-0.rec", f"0-{SEGMENT_LENGTH}.rec"]
    for path in tmp_path.glob("*.rec"):
        status = path.stat()
        assert status.st_size == SEGMENT_LENGTH
        assert status.st_blocks * 512 >= SEGMENT_LENGTH, "the segment is sparse: a write could fail"


class NotedSyncs(OsFiles):
    """Real files; which directories were synced."""

    def __init__(self) -> None:
        self.directories: list[str] = []

    def sync_directory(self, path: str) -> None:
        self.directories.append(path)
        super().sync_directory(path)


@pytest.mark.parametrize(("level", "syncs"), [(0, 0), (1, 1), (2, 1)])
def test_a_new_segments_name_is_synced_unless_nothing_is(tmp_path, level, syncs):
    # The device may be busy with all that was written: a sync has taken half a second beside full load.
    files, log = NotedSyncs(), a_log(700)
    recording = record(open_archive(tmp_path, files=files, file_sync_level=level), log)
    files.directories.clear()

    recording.append(0, log.frames(0, SEGMENT_LENGTH))
    recording.sync()

    assert (tmp_path / f"0-{SEGMENT_LENGTH}.rec").exists()
    assert files.directories == [str(tmp_path)] * syncs


def test_the_next_segment_is_made_ready_before_it_is_needed_and_never_seen(tmp_path):
    log = a_log(700)
    archive = open_archive(tmp_path)
    recording = record(archive, log)
    for position, run in pieces(log, 4096):
        if position >= SEGMENT_LENGTH * 3 // 4:
            break
        recording.append(position, run)
        recording.sync()
    while archive.do_work():
        pass
    assert (tmp_path / "recording-0.next").exists()
    assert [path.name for path in tmp_path.glob("*.rec")] == ["0-0.rec"]
    archive.close()
    assert not (tmp_path / "recording-0.next").exists()


def test_zeros_are_kept_ahead_of_what_is_written_a_piece_at_a_time(tmp_path):
    segment = 16 * 1024 * 1024
    archive = open_archive(tmp_path, segment_length=segment)
    log = a_log(700)
    recording = record(archive, log)
    assert recording.segment is not None
    recording.append(0, log.frames())
    recording.sync()
    first = recording.segment.zeroed_to
    recording.sync()
    while archive.do_work():
        pass
    assert first < recording.segment.zeroed_to <= segment
    archive.close()


def test_a_sparse_recording_takes_the_space_it_needs(tmp_path):
    archive = open_archive(tmp_path)
    log = a_log(20, term_length=1024 * 1024)
    recording = archive.create_recording(
        stream_id=100,
        session_id=SESSION_ID,
        initial_term_id=0,
        term_length=1024 * 1024,
        mtu=1408,
        is_sparse=True,
    )
    recording.append(0, log.frames())
    archive.close()
    status = (tmp_path / "0-0.rec").stat()
    assert status.st_size == 1024 * 1024
    assert status.st_blocks * 512 < 128 * 1024
    archive = open_archive(tmp_path)
    assert np.array_equal(archive.recording(0).read(0, 1 << 20), log.frames())
    archive.close()


@pytest.mark.parametrize("name", ["crc32", "crc32c"])
def test_with_checksums_each_frame_holds_one_and_damage_is_never_delivered(tmp_path, name):
    log = a_log(100)
    archive = open_archive(tmp_path, checksum=name)
    recording = record(archive, log)
    given = log.frames().copy()
    recording.append(0, given)
    recording.sync()
    assert np.array_equal(given, log.frames()), "what goes to followers keeps its session ids"
    stored = recording.read(0, 1 << 20)
    checksum = {"crc32": Checksum.CRC_32, "crc32c": Checksum.CRC_32C}[name]
    assert verify_checksums(checksum, stored, 0, len(stored)) == len(stored)
    archive.close()

    _flip(tmp_path / "0-0.rec", 2000)
    archive = open_archive(tmp_path, checksum=name)
    with pytest.raises(LogDamaged, match=r"0-0\.rec at offset \d+: checksum mismatch"):
        archive.recording(0).read(0, 1 << 20)
    archive.close()


def _flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)


def test_a_recording_goes_on_at_its_end_under_another_session(tmp_path):
    log = a_log(60)
    archive = open_archive(tmp_path)
    record(archive, log).append(0, log.frames(0, log.entries[40][1]))
    archive.close()

    archive = open_archive(tmp_path)
    assert archive.recovered == []
    recording = archive.extend(0, SESSION_ID + 1)
    assert recording.append_position == log.entries[40][1]
    recording.append(recording.append_position, log.frames(recording.append_position))
    archive.close()

    archive = open_archive(tmp_path)
    assert np.array_equal(archive.recording(0).read(0, 1 << 20), log.frames())
    assert archive.recordings()[0].session_id == SESSION_ID + 1
    archive.close()


def test_a_change_of_session_leaves_files_and_what_is_prepared_as_they_are(tmp_path):
    log = a_log(700)
    archive = open_archive(tmp_path)
    recording = record(archive, log)
    half = next(end for _, end in log.entries if end > SEGMENT_LENGTH * 3 // 4)
    recording.append(0, log.frames(0, half))
    while archive.do_work():
        pass
    segment, zeroed_to = recording.segment, recording.segment.zeroed_to
    made_ready = (tmp_path / "recording-0.next").stat().st_ino

    recording.change_session(SESSION_ID + 1)

    assert recording.synced_position == recording.append_position == half
    assert (recording.segment, segment.zeroed_to) == (segment, zeroed_to)
    assert archive.recordings()[0].session_id == recording.session_id == SESSION_ID + 1
    recording.append(half, log.frames(half))
    assert (tmp_path / f"0-{SEGMENT_LENGTH}.rec").stat().st_ino == made_ready
    recording.sync()
    archive.abandon()

    archive = open_archive(tmp_path)
    assert "sync proof" in str(archive.recovered[0])
    assert np.array_equal(archive.recording(0).read(0, 1 << 22), log.frames())
    archive.close()


def test_a_recording_may_start_within_a_term(tmp_path):
    log = LogWriter(start=TERM_LENGTH + 4096)
    log.term(3)
    log.walk(1, 200)
    archive = open_archive(tmp_path)
    recording = record(archive, log)
    recording.append(log.start, log.frames())
    archive.close()
    assert (tmp_path / f"0-{TERM_LENGTH}.rec").exists()
    archive = open_archive(tmp_path)
    assert np.array_equal(archive.recording(0).read(log.start, 1 << 20), log.frames())
    archive.close()


@pytest.mark.parametrize("is_active", [True, False])
@pytest.mark.parametrize(
    "place", ["in the last segment", "in the first segment", "at a segment's base", "at 0"]
)
def test_a_truncated_recording_ends_there_and_the_old_tail_never_joins_on(tmp_path, is_active, place):
    log = a_log(700)
    archive = open_archive(tmp_path)
    recording = record(archive, log)
    recording.append(0, log.frames())
    recording.sync()
    if not is_active:
        archive.close()
        archive = open_archive(tmp_path)
        recording = archive.recording(0)
    cut = {
        "in the last segment": log.entries[-2][0],
        "in the first segment": log.entries[7][0],
        "at a segment's base": SEGMENT_LENGTH,
        "at 0": 0,
    }[place]

    recording.truncate(cut)

    assert recording.append_position == recording.synced_position == cut
    base = cut // SEGMENT_LENGTH * SEGMENT_LENGTH
    kept = tmp_path / f"0-{base}.rec"
    assert kept.stat().st_size == SEGMENT_LENGTH, "a file that others may have mapped was shortened"
    assert not any(kept.read_bytes()[cut - base :])
    assert not (tmp_path / f"0-{base + SEGMENT_LENGTH}.rec").exists()
    if not is_active:
        recording = archive.extend(0, SESSION_ID)
    other = LogWriter(log.params, start=cut)
    other.term(9)
    other.message(b"another history")
    recording.append(cut, other.frames())
    recording.sync()
    archive.abandon()

    archive = open_archive(tmp_path)
    assert archive.recordings()[0].stop_position == other.position
    read = archive.recording(0).read(0, 1 << 20)
    assert np.array_equal(read, np.concatenate([log.frames(0, cut), other.frames()]))
    archive.close()


def test_a_truncation_where_no_frame_begins_changes_nothing(tmp_path):
    log = a_log(100)
    archive = open_archive(tmp_path)
    recording = record(archive, log)
    recording.append(0, log.frames())
    recording.sync()
    with pytest.raises(LogDamaged, match="no frame begins here"):
        recording.truncate(log.entries[5][0] + 32)
    assert recording.append_position == log.position
    archive.close()
    assert open_archive(tmp_path).recordings()[0].stop_position == log.position


def test_purging_drops_whole_segments_and_keeps_the_first_frame(tmp_path):
    log = a_log(1000)
    archive = open_archive(tmp_path)
    recording = record(archive, log)
    recording.append(0, log.frames())
    recording.sync()
    assert recording.purge_to(SEGMENT_LENGTH - 32) == 0
    assert recording.purge_to(2 * SEGMENT_LENGTH + 5000) == 2 * SEGMENT_LENGTH
    assert recording.start_position == 2 * SEGMENT_LENGTH
    assert not (tmp_path / "0-0.rec").exists()
    assert (tmp_path / f"0-{2 * SEGMENT_LENGTH}.rec").exists()
    assert (tmp_path / "recording-0.first").read_bytes() == log.frames(0, 96).tobytes()
    read = recording.read(recording.start_position, 1 << 20)
    assert np.array_equal(read, log.frames(2 * SEGMENT_LENGTH))
    recording.append(log.position, b"")
    archive.close()
    archive = open_archive(tmp_path)
    assert archive.recordings()[0].start_position == 2 * SEGMENT_LENGTH
    archive.close()


def test_a_second_process_on_the_directory_is_told_who_has_it(tmp_path):
    archive = open_archive(tmp_path)
    with pytest.raises(DirectoryInUse, match=rf"in use by process {OsFiles().process_id()}(?m:$)"):
        open_archive(tmp_path)
    archive.abandon()
    open_archive(tmp_path).close()


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"file_sync_level": 3}, "file_sync_level 3: expected 0, 1 or 2"),
        ({"segment_length": 100_000}, "segment_length 100000: expected a power of two"),
        ({"checksum": "md5"}, "checksum 'md5': expected none, crc32 or crc32c"),
    ],
)
def test_wrong_settings_are_named(tmp_path, options, what):
    with pytest.raises(ConfigurationError, match=what):
        open_archive(tmp_path, **options)


def test_where_frames_begin_is_known_and_damage_is_told_from_a_wrong_question(tmp_path):
    log = a_log(1000)
    archive = open_archive(tmp_path)
    recording = record(archive, log)
    recording.append(0, log.frames())
    recording.sync()
    data, boundaries = log.frames(), [0]
    while boundaries[-1] < log.position:
        boundaries.append(boundaries[-1] + align(int(data[boundaries[-1] :][:4].view("<i4")[0])))

    asked = [-32, *range(0, 5_000, 8), *range(SEGMENT_LENGTH - 500, SEGMENT_LENGTH + 500, 4)]
    asked += range(log.position - 3_000, log.position + 64, 8)
    assert [p for p in asked if recording.is_boundary(p)] == [p for p in asked if p in boundaries]

    begin, end = next((begin, end) for begin, end in pairwise(boundaries) if end - begin > 64)
    path = tmp_path / "0-0.rec"
    damaged = bytearray(path.read_bytes())
    damaged[begin + 8] ^= 1
    path.write_bytes(damaged)
    assert recording.is_boundary(end)
    for position in (begin, begin + 32):
        with pytest.raises(LogDamaged, match=rf"0-0\.rec at offset {begin}: term offset"):
            recording.is_boundary(position)
    archive.abandon()
