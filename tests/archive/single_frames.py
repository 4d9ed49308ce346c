"""Runs of a recording on a disk that tells what was asked of it; each raises AssertionError if it differs."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import patch
from zlib import crc32

from cluster.archive import sync_proof
from cluster.archive.archive import Archive
from cluster.archive.proof_slots import CHECKSUM, MARK_OFFSET, PAGE, SLOT_LENGTH
from cluster.archive.recording import Recording
from tests.archive.faulty_files import DIRECTORY, FaultyDisk, open_archive
from tests.archive.logs import SESSION_ID, TERM_LENGTH, LogWriter

MIN = 3
HANDED_OVER = ["pwrite", "pwrite proof", "push proof", "sync", "pwrite proof"]


def a_log_of_single_frames(count: int = 24) -> LogWriter:
    log = LogWriter()
    log.term(0)
    log.open_session(1)
    for number in range(count):
        log.message(bytes([number]) * (40 + 600 * (number % 3)))
    return log


LOG = a_log_of_single_frames()
ENDS = [end for _, end in LOG.entries]


def recording_in(archive: Archive) -> Recording:
    return archive.create_recording(
        stream_id=100, session_id=SESSION_ID, initial_term_id=0, term_length=TERM_LENGTH, mtu=1408
    )


def one_by_one(recording: Recording, begin: int, end: int) -> None:
    """Append and sync the entries from number ``begin`` to before ``end``."""
    for at in ENDS[begin:end]:
        recording.append(recording.append_position, LOG.frames(recording.append_position, at))
        recording.sync()


def operations(disk: FaultyDisk) -> list[str]:
    """What was asked of the disk since the last time."""
    asked = [
        what.split()[0] + (" proof" if what.endswith(".proof") else "")
        for what in disk.history
        if "catalog" not in what
    ]
    disk.history.clear()
    return asked


def after_some_single_frames_a_sync_is_one_sync_and_what_differs_costs_one_more() -> None:
    with patch.object(sync_proof, "SINGLE_FRAMES_MIN", MIN):
        disk = FaultyDisk()
        recording = recording_in(open_archive(disk, 1, "crc32c"))
        proof = recording.proof
        assert proof is not None
        one_by_one(recording, 0, MIN - 1)
        assert not proof.words[CHECKSUM]
        one_by_one(recording, MIN - 1, MIN)
        assert proof.words[CHECKSUM]
        assert all(slot.is_done for slot in sync_proof.decode_slots(proof.file.pread(sync_proof.LENGTH, 0)))
        operations(disk)
        one_by_one(recording, MIN, MIN + 1)
        assert operations(disk) == HANDED_OVER
        one_by_one(recording, MIN + 1, MIN + 2)
        assert operations(disk) == ["pwrite", "sync", "pwrite proof"]
        for page in (0, PAGE):
            assert not any(proof.file.pread(MARK_OFFSET - SLOT_LENGTH, page + SLOT_LENGTH))
        recording.append(ENDS[MIN + 1], LOG.frames(ENDS[MIN + 1], ENDS[MIN + 3]))
        recording.sync()
        before = ["pwrite proof", "push proof", "sync proof", "pwrite proof"]
        assert operations(disk) == before + HANDED_OVER
        for slot in sync_proof.decode_slots(proof.file.pread(sync_proof.LENGTH, 0)):
            proven = recording.read(slot.from_position, slot.to_position - slot.from_position)
            assert slot.data_crc == crc32(proven)
        one_by_one(recording, MIN + 4, MIN + 5)
        assert operations(disk) == HANDED_OVER


def syncs_of_two_frames_are_no_streak_of_single_ones() -> None:
    with patch.object(sync_proof, "SINGLE_FRAMES_MIN", MIN):
        disk = FaultyDisk()
        recording = recording_in(open_archive(disk, 1, "crc32c"))
        for at in ENDS[1 : 2 * (MIN + 3) : 2]:
            operations(disk)
            recording.append(recording.append_position, LOG.frames(recording.append_position, at))
            recording.sync()
            assert operations(disk) == HANDED_OVER


def frames_without_checksums_are_always_proven_before_they_are_synced() -> None:
    for level in (1, 2):
        disk = FaultyDisk()
        recording = recording_in(open_archive(disk, level, None))
        one_by_one(recording, 0, 10)
        operations(disk)
        one_by_one(recording, 10, 11)
        assert operations(disk) == HANDED_OVER


def the_device_begins_with_all_that_is_to_be_synced() -> None:
    disk = FaultyDisk()
    recording = recording_in(open_archive(disk, 1, None))
    one_by_one(recording, 0, 2)
    path = f"{DIRECTORY}/0-0.rec"
    assert disk.begun[-2:] == [(path, 0, ENDS[0]), (path, ENDS[0], ENDS[1] - ENDS[0])]


def frames_are_whole_for_whoever_finds_them() -> None:
    for checksum in (None, "crc32c"):
        disk = FaultyDisk()
        archive = open_archive(disk, 1, checksum)
        one_by_one(recording_in(archive), 0, 6)
        disk.restart()
        archive = open_archive(disk, 1, checksum)
        recording = archive.recording(0)
        assert archive.find_damage(0) is None
        assert (recording.checksum is None) == (checksum is None), "as its frames say"
        assert bytes(recording.read_published(0, 1 << 20)) == bytes(LOG.frames(0, ENDS[5]))


RUNS: tuple[Callable[[], None], ...] = (
    after_some_single_frames_a_sync_is_one_sync_and_what_differs_costs_one_more,
    syncs_of_two_frames_are_no_streak_of_single_ones,
    frames_without_checksums_are_always_proven_before_they_are_synced,
    the_device_begins_with_all_that_is_to_be_synced,
    frames_are_whole_for_whoever_finds_them,
)
