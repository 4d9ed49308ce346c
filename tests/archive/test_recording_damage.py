"""Damage is found wherever it is, told with file and offset, and cut off without losing what is whole."""

import errno

import numpy as np
import pytest

from cluster.archive.archive import Archive
from cluster.archive.files import OsFile, OsFiles
from cluster.archive.recording_damage import SET_ASIDE_FOLDER
from cluster.errors import LogDamaged
from cluster.testing.python_calls import FileCalls
from tests.archive.damaged import LOG, damage_of, entry_at, flip, opened, recorded, unreadable_at
from tests.archive.logs import SEGMENT_LENGTH, SESSION_ID, TERM_LENGTH, Clock


def frame_at(position):
    """Where the frame begins that holds the position."""
    frames = LOG.frames(0)
    offset = 0
    while True:
        length = int.from_bytes(frames[offset : offset + 4].tobytes(), "little") + 31 & -32
        if offset + length > position:
            return offset
        offset += length


def frame_before(position):
    return frame_at(position - 1)


@pytest.mark.parametrize("is_stopped", [True, False])
def test_a_flipped_bit_is_found_at_its_frame_with_what_was_expected(tmp_path, is_stopped):
    recorded(tmp_path, is_stopped=is_stopped)
    begin, _ = entry_at(SEGMENT_LENGTH + 5_000)
    path = tmp_path / f"0-{SEGMENT_LENGTH}.rec"
    flip(path, begin - SEGMENT_LENGTH + 40)

    damage = damage_of(tmp_path)

    assert damage.position == begin
    assert str(damage.error).startswith(
        f"{path} at offset {begin - SEGMENT_LENGTH}: checksum mismatch at log position {begin}: expected 0x"
    )
    assert ", found 0x" in str(damage.error)


def test_frames_before_the_given_position_are_not_read_but_their_files_must_be_there(tmp_path):
    recorded(tmp_path)
    flip(tmp_path / "0-0.rec", 40)
    assert damage_of(tmp_path, SEGMENT_LENGTH) is None
    (tmp_path / "0-0.rec").unlink()
    assert damage_of(tmp_path, SEGMENT_LENGTH).position == 0


@pytest.mark.parametrize("is_stopped", [True, False])
def test_a_missing_segment_is_damage_from_its_begin_on(tmp_path, is_stopped):
    recorded(tmp_path, is_stopped=is_stopped)
    (tmp_path / f"0-{SEGMENT_LENGTH}.rec").unlink()

    damage = damage_of(tmp_path)

    assert (damage.position, damage.error.what) == (SEGMENT_LENGTH, "the segment file is missing")


@pytest.mark.parametrize("is_stopped", [True, False])
@pytest.mark.parametrize("checksum", ["crc32c", None])
@pytest.mark.parametrize("left", [8, 40])
def test_a_short_segment_is_damage_from_the_frame_that_it_cuts(tmp_path, left, checksum, is_stopped):
    """Without checksums too, where the header of the frame is whole: what the file lacks reads as zeros."""
    recorded(tmp_path, is_stopped=is_stopped, checksum=checksum)
    for place in (3_000, SEGMENT_LENGTH + 5_000):
        begin, _ = entry_at(place)
        base = begin // SEGMENT_LENGTH * SEGMENT_LENGTH
        path = tmp_path / f"0-{base}.rec"
        whole = path.read_bytes()
        path.write_bytes(whole[: begin - base + left])

        damage = damage_of(tmp_path, checksum=checksum)
        assert damage.position == (begin if checksum else frame_before(begin))
        assert f"{path} at offset {begin - base}: " in str(damage.error)
        path.write_bytes(whole)


@pytest.mark.parametrize("hole", [40, 100])
def test_a_hole_without_checksums_is_damage_from_the_frame_before_it(tmp_path, hole):
    """The header of that frame tells nothing of its body: a live member went on to write behind a cut."""
    recorded(tmp_path, checksum=None)
    begin, end = entry_at(3_000)
    path = tmp_path / "0-0.rec"
    data = bytearray(path.read_bytes())
    data[begin + hole : end + 2 * 4096] = bytes(end + 2 * 4096 - begin - hole)
    path.write_bytes(data)

    assert damage_of(tmp_path, checksum=None).position == frame_at(begin + hole)


def test_an_unreadable_sector_is_damage_from_a_frame_close_before_it(tmp_path, monkeypatch):
    recorded(tmp_path, is_stopped=False)
    bad = SEGMENT_LENGTH // 2 + 512
    read = OsFile.pread_into

    def fails_there(self, buffer, offset):
        if self.path.endswith("0-0.rec") and offset <= bad < offset + len(buffer):
            raise OSError(errno.EIO, "Input/output error", self.path)
        return read(self, buffer, offset)

    monkeypatch.setattr(OsFile, "pread_into", fails_there)

    damage = damage_of(tmp_path)

    assert bad - 8_192 <= damage.position <= bad
    header = LOG.frames(damage.position, damage.position + 32)[:12].view("<i4")
    assert header[2] == damage.position % TERM_LENGTH, "a frame begins there"
    assert "0-0.rec" in str(damage.error)
    assert "Input/output error" in str(damage.error)


def test_a_bad_sector_in_the_page_where_the_log_goes_on_is_damage_though_a_snapshot_stands_for_it(
    tmp_path, monkeypatch
):
    recorded(tmp_path)
    last = LOG.entries[-1][1]
    base = last // SEGMENT_LENGTH * SEGMENT_LENGTH
    unreadable_at(monkeypatch, base, (last - base) // 4096 * 4096)

    damage = damage_of(tmp_path, last)

    assert damage is not None
    assert last - 8_192 <= damage.position < last


def test_a_bad_sector_behind_the_end_is_left_behind_with_its_file(tmp_path, monkeypatch):
    recorded(tmp_path)
    last = LOG.entries[-1][1]
    base = last // SEGMENT_LENGTH * SEGMENT_LENGTH
    unreadable_at(monkeypatch, base, last - base + 20_000)

    archive = opened(tmp_path)
    assert archive.find_damage(0) is None
    extended = archive.extend(0, SESSION_ID)

    assert extended.append_position == last
    restored = extended.read_published(base, 1 << 22)
    assert np.array_equal(restored, LOG.frames(base, last))
    archive.abandon()


def test_a_new_file_that_cannot_be_had_after_a_failure_is_damage_at_the_bad_sector(tmp_path, monkeypatch):
    recorded(tmp_path, is_stopped=False)
    last = LOG.entries[-1][1]
    base = last // SEGMENT_LENGTH * SEGMENT_LENGTH
    unreadable_at(monkeypatch, base, 100)

    archive = opened(tmp_path, is_after_failure=True)
    damage = archive.find_damage(0, last)

    assert damage.position == base
    archive.cut_damage(damage)
    assert archive.recording(0).append_position == base
    archive.abandon()


@pytest.mark.parametrize("place", [0, 3_000, SEGMENT_LENGTH, 2 * SEGMENT_LENGTH + 7_000])
def test_what_is_before_the_damage_stays_in_new_files_and_the_rest_is_set_aside(tmp_path, place):
    recorded(tmp_path)
    begin, _ = entry_at(place)
    base = begin // SEGMENT_LENGTH * SEGMENT_LENGTH
    path = tmp_path / f"0-{base}.rec"
    flip(path, begin - base + 40)
    was = {name.name: name.stat().st_ino for name in tmp_path.glob("*.rec")}

    archive = opened(tmp_path)
    archive.cut_damage(archive.find_damage(0))

    recording = archive.recording(0)
    assert recording.append_position == begin
    kept = recording.read_published(0, 1 << 22)[:begin] if begin else np.zeros(0, np.uint8)
    assert np.array_equal(kept, LOG.frames(0, begin))
    assert path.stat().st_ino != was[path.name]
    behind = {name for name in was if int(name[2:-4]) >= base}
    assert {name.name for name in (tmp_path / SET_ASIDE_FOLDER).iterdir()} == behind
    extended = archive.extend(0, SESSION_ID)
    extended.append(begin, LOG.frames(begin))
    extended.sync()
    archive.drop_set_aside()
    archive.close()
    assert list((tmp_path / SET_ASIDE_FOLDER).iterdir()) == []
    assert damage_of(tmp_path) is None


def test_without_being_asked_for_damage_an_archive_refuses_to_open(tmp_path):
    recorded(tmp_path, is_stopped=False)
    (tmp_path / f"0-{SEGMENT_LENGTH}.rec").unlink()
    before = (tmp_path / "archive.catalog").read_bytes()
    with pytest.raises(LogDamaged, match="the segment file is missing"):
        Archive.open(str(tmp_path), segment_length=SEGMENT_LENGTH, epoch_ms=Clock())
    archive = opened(tmp_path)
    assert not archive.has_recording(0)
    archive.abandon()
    assert (tmp_path / "archive.catalog").read_bytes() == before


@pytest.mark.parametrize("has_end", [True, False], ids=["end told", "end not told"])
def test_after_a_failed_sync_the_recording_goes_on_in_a_new_file(tmp_path, monkeypatch, has_end):
    archive = opened(tmp_path)
    recording = archive.create_recording(
        stream_id=100, session_id=SESSION_ID, initial_term_id=0, term_length=TERM_LENGTH, mtu=1408
    )
    half = LOG.entries[20][1]
    recording.append(0, LOG.frames(0, half))
    recording.sync()
    recording.append(half, LOG.frames(half, LOG.entries[40][1]))
    inode = (tmp_path / "0-0.rec").stat().st_ino
    with monkeypatch.context() as patched:
        patched.setattr(OsFile, "datasync", _fails)
        _call_by_python(recording)
        if not has_end:
            patched.setattr(type(archive._catalog), "stop", _fails)
        with pytest.raises(Exception, match="Input/output error"):
            recording.sync()
    archive.abandon()

    archive = opened(tmp_path, is_after_failure=True)

    assert archive.recording(0).append_position == (half if has_end else LOG.entries[40][1])
    assert (tmp_path / "0-0.rec").stat().st_ino != inode
    assert archive.find_damage(0) is None
    tail = (tmp_path / "0-0.rec").read_bytes()[archive.recording(0).append_position :]
    assert tail.count(0) == len(tail)
    archive.close()
    assert OsFiles().list_directory(str(tmp_path)) == ["0-0.rec", "archive-mark.lock", "archive.catalog"]


def _fails(self, *_):
    raise OSError(errno.EIO, "Input/output error", getattr(self, "path", None))


def _call_by_python(recording):
    """Its calls come to the methods of its files."""
    files = [recording.segment.file, recording.proof.file]
    recording._calls = FileCalls({file.fileno(): file for file in files})
    recording.tables = recording.tables._replace(calls=recording._calls.table)


def in_two_syncs(directory, monkeypatch=None):
    """Recorded without checksums up to (first, second), and killed."""
    archive = opened(directory, checksum=None)
    recording = archive.create_recording(
        stream_id=100, session_id=SESSION_ID, initial_term_id=0, term_length=TERM_LENGTH, mtu=1408
    )
    first, second = LOG.entries[20][1], LOG.entries[40][1]
    recording.append(0, LOG.frames(0, first))
    recording.sync()
    recording.append(first, LOG.frames(first, second))
    if monkeypatch is not None:
        monkeypatch.setattr(OsFile, "datasync", _fails)
        _call_by_python(recording)
        with pytest.raises(Exception, match="Input/output error"):
            recording.sync()
        monkeypatch.undo()
        archive._catalog.extend(0, SESSION_ID)  # as if the catalog had refused the end too
    else:
        recording.sync()
    archive.abandon()
    return first, second


def test_bytes_that_were_acknowledged_and_have_changed_are_damage_although_no_frame_tells(tmp_path):
    first, second = in_two_syncs(tmp_path)
    flip(tmp_path / "0-0.rec", LOG.entries[30][0] + 40)
    archive = opened(tmp_path, checksum=None)
    damage = archive.find_damage(0)
    assert damage.position == first
    assert f"log positions {first} to {second} were synced and have changed since" in str(damage.error)
    assert "expected CRC-32 0x" in str(damage.error)
    archive.abandon()


def test_bytes_whose_sync_never_returned_may_have_changed_and_are_cut(tmp_path, monkeypatch):
    first, _ = in_two_syncs(tmp_path, monkeypatch)
    flip(tmp_path / "0-0.rec", LOG.entries[30][0] + 40)
    archive = opened(tmp_path, checksum=None)
    assert archive.find_damage(0) is None
    assert archive.recording(0).append_position == first
    archive.close()


@pytest.mark.parametrize("length", [0, -96, 1 << 20])
@pytest.mark.parametrize("entry", [10, 40])
def test_a_reader_is_never_led_past_a_frame_that_is_none(tmp_path, entry, length):
    _, second = in_two_syncs(tmp_path)
    begin = LOG.entries[entry][0]
    path = tmp_path / "0-0.rec"
    archive = opened(tmp_path, checksum=None)
    recording = archive.recording(0)
    data = bytearray(path.read_bytes())
    data[begin : begin + 4] = length.to_bytes(4, "little", signed=True)
    path.write_bytes(data)

    assert len(recording.read(0, begin)) == begin, "what is before it is read"
    for position, max_length in ((0, second), (begin, 4096), (begin, second - begin)):
        if position == 0 and entry == 10:
            run = recording.read(0, second - 32)
            assert len(run) == begin, "up to it"
            continue
        with pytest.raises(LogDamaged, match=rf"0-0\.rec at offset {begin}: no whole frame"):
            recording.read(position, max_length)
    archive.abandon()


# ---- how far a damaged recording reached, as its member has told others


@pytest.mark.parametrize("is_stopped", [True, False])
@pytest.mark.parametrize("what", ["a bit", "the first segment", "the last segment"])
def test_where_a_damaged_recording_ended_is_known(tmp_path, is_stopped, what):
    recorded(tmp_path, is_stopped=is_stopped)
    end = LOG.entries[-1][1]
    if what == "a bit":
        flip(tmp_path / "0-0.rec", 40)
    else:
        base = 0 if what == "the first segment" else end // SEGMENT_LENGTH * SEGMENT_LENGTH
        (tmp_path / f"0-{base}.rec").unlink()

    damage = damage_of(tmp_path)

    assert damage.position < damage.acknowledged_end == end


def test_of_bytes_that_were_synced_and_have_changed_it_is_known_too(tmp_path):
    _, second = in_two_syncs(tmp_path)
    flip(tmp_path / "0-0.rec", LOG.entries[30][0] + 40)
    archive = opened(tmp_path, checksum=None)
    assert archive.find_damage(0).acknowledged_end == second
    archive.abandon()


@pytest.mark.parametrize(
    "reached", ["first", "second", "second, of a log that is lost", "unreadable", "no proof"]
)
def test_a_sync_counts_unless_its_bytes_show_that_it_never_returned(tmp_path, monkeypatch, reached):
    first, second = in_two_syncs(tmp_path, monkeypatch)
    # A gap, for the recording's end not to be found.
    (tmp_path / f"0-{2 * SEGMENT_LENGTH}.rec").write_bytes(bytes(SEGMENT_LENGTH))
    if reached == "first":
        flip(tmp_path / "0-0.rec", LOG.entries[30][0] + 40)
    elif reached == "unreadable":
        unreadable_at(monkeypatch, 0, LOG.entries[30][0])
    elif reached == "no proof":
        (tmp_path / "recording-0.proof").unlink()

    elif reached == "second, of a log that is lost":
        for path in tmp_path.glob("*.rec"):
            path.unlink()

    archive = opened(tmp_path, checksum=None)

    expected = {"first": first, "no proof": None}.get(reached, second)
    assert archive.find_damage(0).acknowledged_end == expected
    archive.abandon()


@pytest.mark.parametrize("slot_offset", [0, 4096])
@pytest.mark.parametrize("checksum", ["crc32c", None])
def test_a_damaged_slot_of_the_proof_takes_back_nothing_that_was_acknowledged(
    tmp_path, slot_offset, checksum
):
    """The older slot proves less: taken for the newest, it cut off what the last sync had promised."""
    recorded(tmp_path, is_stopped=False, checksum=checksum)
    flip(tmp_path / "recording-0.proof", slot_offset + 20)

    archive = opened(tmp_path, checksum=checksum)

    assert archive.recordings()[0].stop_position == LOG.position
    assert archive.find_damage(0) is None
    archive.abandon()


def test_with_a_damaged_slot_it_is_still_known_how_far_a_damaged_recording_reached(tmp_path):
    recorded(tmp_path, is_stopped=False)
    (tmp_path / f"0-{LOG.position // SEGMENT_LENGTH * SEGMENT_LENGTH}.rec").unlink()
    for slot_offset in (0, 4096):
        flip(tmp_path / "recording-0.proof", slot_offset + 20)
        assert damage_of(tmp_path).acknowledged_end == LOG.position
        flip(tmp_path / "recording-0.proof", slot_offset + 20)
