"""Frames that are synced one by one wait for no proof file, and are as safe as with it."""

import zlib
from pathlib import Path

import pytest

from cluster.archive import sync_proof
from tests.archive.damaged import damage_of, flip, opened
from tests.archive.faulty_files import FaultyDisk, PowerCut, open_archive
from tests.archive.logs import SESSION_ID, LogWriter
from tests.archive.promises import Promises, append, check
from tests.archive.single_frames import ENDS, LOG, MIN, RUNS, one_by_one, operations, recording_in


@pytest.fixture(autouse=True)
def short_streaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync_proof, "SINGLE_FRAMES_MIN", MIN)


def test_another_session_begins_without_a_promise_about_what_follows():
    disk = FaultyDisk()
    archive = open_archive(disk, 1, "crc32c")
    recording = recording_in(archive)
    one_by_one(recording, 0, MIN + 2)
    disk.history.clear()
    recording.change_session(SESSION_ID + 1)
    assert [what for what in disk.history if what.startswith("sync")] == [
        "sync /member/archive/archive.catalog"
    ]
    assert operations(disk) == ["pwrite proof", "push proof"]
    recording.append(ENDS[MIN + 1], LOG.frames(ENDS[MIN + 1], ENDS[MIN + 3]))
    recording.sync()
    assert operations(disk) == ["pwrite", "pwrite proof", "push proof", "sync", "pwrite proof"]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.__name__)
def test_what_is_asked_of_the_disk_in_which_order(run):
    run()


def live(disk: FaultyDisk, told: Promises) -> None:
    """Streaks of single frames, changes of session, batches of pages, two appends before a sync, a cut."""
    archive = open_archive(disk, 1, "crc32c")
    recording = recording_in(archive)
    for begin, end, batch_end in ((0, 5, 10), (12, 16, 16), (18, 23, 23)):
        for at in ENDS[begin:end]:
            append(recording, told, LOG.frames(recording.append_position, at))
        recording.change_session(SESSION_ID + begin)
        told.appended = ENDS[batch_end + 1]
        recording.append(recording.append_position, LOG.frames(recording.append_position, ENDS[batch_end]))
        recording.append(recording.append_position, LOG.frames(recording.append_position, told.appended))
        told.synced = recording.sync()
    cut = ENDS[14]
    told.cut_to = told.synced = cut
    recording.truncate(cut)
    other = LogWriter(LOG.params, start=cut)
    other.term(9)
    for _ in range(5):
        other.message(b"after the cut")
    told.after_cut, told.cut_to = other, None
    for _, at in other.entries:
        append(recording, told, other.frames(recording.append_position, at))
    archive.close()


@pytest.mark.parametrize(
    ("end", "seeds"),
    [
        (FaultyDisk.restart, range(1)),
        (FaultyDisk.lose_power, range(3)),
        pytest.param(FaultyDisk.lose_power, range(3, 12), marks=pytest.mark.slow),
    ],
)
def test_a_crash_at_any_moment_loses_nothing_that_was_synced(end, seeds):
    for at in range(1, 10_000):
        for seed in seeds:
            disk, told = FaultyDisk(seed), Promises(log=LOG)
            disk.fail(at, PowerCut())
            try:
                live(disk, told)
                is_over = True
            except PowerCut:
                is_over = False
            end(disk)
            check(disk, told, 1, "crc32c")
        if is_over:
            assert at > 100, "the history is too short to prove anything"
            return
    raise AssertionError("the history does not end")


def in_single_frames(directory: Path, *, is_slot_old: bool) -> int:
    """Nine more than it takes, then killed; ``is_slot_old``: a power cut took all slots of these nine."""
    archive = opened(directory)
    recording = recording_in(archive)
    one_by_one(recording, 0, MIN + 1)
    proof = directory / "recording-0.proof"
    slots = bytearray(proof.read_bytes())
    for mark in (512, 4096 + 512):
        slots[mark : mark + 512] = bytes(512)
    one_by_one(recording, MIN + 1, MIN + 10)
    archive.abandon()
    if is_slot_old:
        proof.write_bytes(slots)
    return recording.synced_position


@pytest.mark.parametrize("is_slot_old", [True, False])
def test_all_that_was_synced_is_found_whether_the_newest_slots_are_there_or_not(tmp_path, is_slot_old):
    end = in_single_frames(tmp_path, is_slot_old=is_slot_old)
    archive = opened(tmp_path)
    assert archive.recordings()[0].stop_position == end == ENDS[MIN + 9]
    assert archive.find_damage(0) is None
    archive.close()


@pytest.mark.parametrize("number", [0, MIN, MIN + 1, MIN + 5, MIN + 8])
@pytest.mark.parametrize("is_slot_old", [True, False])
def test_a_bit_that_flips_before_the_last_frame_is_damage_and_takes_nothing_back(
    tmp_path, is_slot_old, number
):
    end = in_single_frames(tmp_path, is_slot_old=is_slot_old)
    begin = LOG.entries[number][0]
    flip(tmp_path / "0-0.rec", begin + 60)
    if not is_slot_old or number < MIN:  # before what the newest slot is about: the log's reader finds it
        archive = opened(tmp_path)
        assert (archive.recordings()[0].stop_position, archive.find_damage(0).position) == (end, begin)
        archive.close()
        return
    damage = damage_of(tmp_path)
    assert (damage.position, damage.acknowledged_end) == (begin, end)
    assert "checksum mismatch" in str(damage.error) or "have changed since" in str(damage.error)


@pytest.mark.parametrize("is_slot_old", [True, False])
def test_the_last_frame_is_torn_unless_its_sync_is_known_to_have_returned(tmp_path, is_slot_old):
    end = in_single_frames(tmp_path, is_slot_old=is_slot_old)
    begin = LOG.entries[MIN + 9][0]
    flip(tmp_path / "0-0.rec", end - 10)
    archive = opened(tmp_path)
    damage = archive.find_damage(0)
    if is_slot_old:
        assert (damage, archive.recordings()[0].stop_position) == (None, begin)
    else:
        assert (damage.position, damage.acknowledged_end) == (begin, end)
    archive.abandon()


@pytest.mark.parametrize("slot_offset", [0, 4096])
def test_behind_a_damaged_slot_frames_are_found_as_well(tmp_path, slot_offset):
    end = in_single_frames(tmp_path, is_slot_old=True)
    flip(tmp_path / "recording-0.proof", slot_offset + 20)
    archive = opened(tmp_path)
    assert archive.recordings()[0].stop_position == end
    archive.close()


def test_slots_of_the_release_before_are_read_as_it_read_them(tmp_path):
    archive = opened(tmp_path)
    recording = recording_in(archive)
    one_by_one(recording, 0, 2)
    archive.abandon()
    slot = sync_proof._sealed(
        sync_proof._OLD_SLOT, sync_proof._OLD_MAGIC, 9, 0, ENDS[0], SESSION_ID, crc_of(tmp_path, ENDS[0])
    )
    (tmp_path / "recording-0.proof").write_bytes(slot.ljust(sync_proof.LENGTH, b"\0"))
    archive = opened(tmp_path)
    assert archive.recordings()[0].stop_position == ENDS[0]
    archive.close()


def crc_of(directory: Path, end: int) -> int:
    return zlib.crc32((directory / "0-0.rec").read_bytes()[:end])
