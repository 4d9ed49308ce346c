"""Whatever the disk does, what was promised is there afterwards, and nothing that was never written.

A history (append and sync, change the session, roll over, truncate, go on, stop) meets a fault at its first
operation, then at its second, and so on until a run meets none, as SQLite's tests do.
"""

from __future__ import annotations

import errno
from contextlib import suppress

import pytest

from cluster.archive.node_state_file import NodeStateFile
from cluster.archive.recording_log import RecordingLog
from cluster.errors import LogDamaged, StorageError
from tests.archive.faulty_files import DIRECTORY, FaultyDisk, PowerCut, io_error, open_archive
from tests.archive.logs import SEGMENT_LENGTH, SESSION_ID, TERM_LENGTH, LogWriter, a_log, append_term
from tests.archive.promises import Promises, append, check


def live(disk: FaultyDisk, told: Promises, level: int, checksum: str | None) -> None:
    """One member's life, under several leaders."""
    archive = open_archive(disk, level, checksum)
    log = told.log
    recording = archive.create_recording(
        stream_id=100, session_id=SESSION_ID, initial_term_id=0, term_length=TERM_LENGTH, mtu=1408
    )
    ends = [end for _, end in log.entries]
    for number, end in enumerate([*ends[10:400:90], ends[-1]]):
        append(recording, told, log.frames(recording.append_position, end))
        recording.change_session(SESSION_ID + number // 2)  # to another one, and then to the same
    cut = log.entries[180][0]
    assert cut < SEGMENT_LENGTH < log.position
    told.cut_to = cut
    told.synced = min(told.synced, cut)
    recording.truncate(cut)
    other = LogWriter(log.params, start=cut)
    other.term(9)
    other.walk(3, 20)
    told.after_cut, told.cut_to = other, None
    append(recording, told, other.frames())
    archive.close()


@pytest.mark.parametrize(("level", "checksum"), [(1, None), (2, None), (1, "crc32c")])
@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(2, 8), marks=pytest.mark.slow)])
def test_a_power_cut_at_any_moment_loses_nothing_that_was_synced(level, checksum, seeds):
    for at in range(1, 10_000):
        for seed in seeds:
            disk, told = FaultyDisk(seed), Promises()
            disk.fail(at, PowerCut())
            try:
                live(disk, told, level, checksum)
                is_over = True
            except PowerCut:
                is_over = False
            disk.lose_power()
            check(disk, told, level, checksum)
        if is_over:
            assert at > 50, "the history is too short to prove anything"
            return
    raise AssertionError("the history does not end")


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_process_killed_at_any_moment_loses_nothing_that_it_was_told(level):
    for at in range(1, 10_000):
        disk, told = FaultyDisk(), Promises()
        disk.fail(at, PowerCut())
        try:
            live(disk, told, level, None)
            is_over = True
        except PowerCut:
            is_over = False
        disk.restart()
        check(disk, told, level, None, has_all_pages=True)
        if is_over:
            return
    raise AssertionError("the history does not end")


@pytest.mark.parametrize("tail", [b"y", b"\0"])
def test_a_killed_process_leaves_no_half_frame_and_keeps_frames_that_end_in_zeros(tail):
    """At level 0, where neither a sync proof nor a checksum tells one from the other."""
    log = a_log(1, mtu=8192)
    for length in range(1000, 7000, 500):
        log.message(b"x" * 900 + tail * length)
    for at in range(1, 10_000):
        disk, told = FaultyDisk(), Promises(log=log)
        disk.fail(at, PowerCut())
        is_over = False
        with suppress(PowerCut):
            recording = open_archive(disk, 0).create_recording(
                stream_id=100, session_id=SESSION_ID, initial_term_id=0, term_length=TERM_LENGTH, mtu=8192
            )
            for begin, end in [(0, log.entries[2][0]), *log.entries[2:]]:
                append(recording, told, log.frames(begin, end))
            is_over = True
        disk.restart()
        check(disk, told, 0, None, has_all_pages=True)
        if is_over:
            assert told.synced == log.position
            return
    raise AssertionError("the history does not end")


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_failed_operation_is_told_with_its_file_and_never_becomes_a_promise(number):
    for at in range(1, 10_000):
        disk, told = FaultyDisk(), Promises()
        disk.fail(at, io_error(number))
        try:
            live(disk, told, 1, None)
            return
        except StorageError as error:
            assert error.errno == number
            assert error.path is not None and DIRECTORY in error.path, str(error)
        disk.lose_power()
        check(disk, told, 1, None)
    raise AssertionError("the history does not end")


def test_after_a_failed_sync_the_recording_is_not_trusted_again():
    disk = FaultyDisk()
    archive = open_archive(disk)
    log = a_log(50)
    recording = archive.create_recording(
        stream_id=100, session_id=SESSION_ID, initial_term_id=0, term_length=TERM_LENGTH, mtu=1408
    )
    half = log.entries[25][1]
    recording.append(0, log.frames(0, half))
    recording.sync()
    recording.append(half, log.frames(half))
    disk.fail(3, io_error())  # the proof's slot, its push, the segment's sync
    with pytest.raises(StorageError, match=r"0-0\.rec"):
        recording.sync()
    assert disk.history[2] == f"sync {DIRECTORY}/0-0.rec"
    for again in (recording.sync, lambda: recording.append(log.position, log.frames(0, 96))):
        with pytest.raises(StorageError, match="writing the recording failed"):
            again()
    assert recording.synced_position == half
    archive.close()
    disk.restart()

    archive = open_archive(disk)
    assert archive.recording(0).append_position == half, "the cache reads back as good, and is not"
    archive.close()


def test_a_full_disk_keeps_a_recording_from_beginning_and_says_so():
    disk = FaultyDisk()
    archive = open_archive(disk)
    allocation = 1 + next(i for i, what in enumerate(_history_of_creation()) if what.startswith("allocate"))
    disk.fail(allocation, io_error(errno.ENOSPC))
    with pytest.raises(StorageError, match=r"0-0\.rec.*No space left on device"):
        archive.create_recording(
            stream_id=100, session_id=SESSION_ID, initial_term_id=0, term_length=TERM_LENGTH, mtu=1408
        )


def _history_of_creation() -> list[str]:
    disk = FaultyDisk()
    archive = open_archive(disk)
    disk.fail(10_000, io_error())
    archive.create_recording(
        stream_id=100, session_id=SESSION_ID, initial_term_id=0, term_length=TERM_LENGTH, mtu=1408
    )
    return disk.history


def test_the_candidate_term_is_durable_when_it_is_spoken_of():
    for at in range(1, 100):
        for seed in range(4):
            disk = FaultyDisk(seed)
            told = -1
            disk.fail(at, PowerCut())
            try:
                state = NodeStateFile.open("/member/cluster", files=disk)
                for term in (0, 3, 4, 9):
                    told = state.propose(term, 64 * term, 1000)
                is_over = True
            except PowerCut:
                is_over = False
            disk.lose_power()
            found = NodeStateFile.open("/member/cluster", files=disk).candidate_term_id
            assert found >= told
        if is_over:
            return
    raise AssertionError("the history does not end")


def test_a_term_entry_is_durable_when_it_was_appended():
    for at in range(1, 100):
        for seed in range(4):
            disk = FaultyDisk(seed)
            told: list[int] = []
            disk.fail(at, PowerCut())
            try:
                log = RecordingLog.open("/member/cluster", files=disk)
                for term in range(4):
                    append_term(log, 0, term, 96 * term, 1000)
                    told.append(term)
                is_over = True
            except PowerCut:
                is_over = False
            disk.lose_power()
            try:
                found = RecordingLog.open("/member/cluster", files=disk)
            except LogDamaged:
                raise AssertionError("half an entry is left") from None
            terms = [entry.leadership_term_id for entry in found.entries]
            assert terms[: len(told)] == told
            for before, after in zip(found.entries[: len(told)], found.entries[1 : len(told)]):
                assert before.log_position == after.term_base_log_position
        if is_over:
            return
    raise AssertionError("the history does not end")


def test_a_disk_that_fills_up_fails_a_recording_when_its_segment_is_full_and_no_sooner():
    disk = FaultyDisk()
    archive = open_archive(disk)
    recording = archive.create_recording(
        stream_id=100, session_id=SESSION_ID, initial_term_id=0, term_length=TERM_LENGTH, mtu=1408
    )
    log = a_log(1000)
    disk.is_full = True
    ends = [end for begin, end in log.entries if begin < SEGMENT_LENGTH]
    for end in ends[:-1]:
        recording.append(recording.append_position, log.frames(recording.append_position, end))
        recording.sync()
    assert recording.synced_position == ends[-2]
    assert f"allocate {DIRECTORY}/recording-0.next" in disk.history, "it was tried in time"
    with pytest.raises(StorageError, match="No space left on device"):
        recording.append(ends[-2], log.frames(ends[-2]))
    archive.abandon()
    disk.restart()

    disk.is_full = False
    archive = open_archive(disk)
    assert archive.recording(0).append_position == ends[-2]
    archive.close()


def test_a_disk_that_has_space_again_in_time_is_noticed():
    disk = FaultyDisk()
    archive = open_archive(disk)
    recording = archive.create_recording(
        stream_id=100, session_id=SESSION_ID, initial_term_id=0, term_length=TERM_LENGTH, mtu=1408
    )
    log = a_log(1000)
    disk.is_full = True
    recording.append(0, log.frames(0, next(end for _, end in log.entries if end > SEGMENT_LENGTH * 0.6)))
    recording.sync()
    recording.do_work()
    assert f"allocate {DIRECTORY}/recording-0.next" in disk.history
    assert not disk.exists(f"{DIRECTORY}/recording-0.next")
    disk.is_full = False
    for end in [end for _, end in log.entries if end > recording.append_position]:
        recording.append(recording.append_position, log.frames(recording.append_position, end))
        recording.sync()
        recording.do_work()
    assert recording.append_position == log.position > 2 * SEGMENT_LENGTH
    archive.close()


def test_in_steady_state_an_append_writes_into_zeroed_blocks_and_allocates_none():
    disk = FaultyDisk()
    archive = open_archive(disk)
    log = a_log(1000)
    recording = archive.create_recording(
        stream_id=100, session_id=SESSION_ID, initial_term_id=0, term_length=TERM_LENGTH, mtu=1408
    )
    idle = set()
    for _, end in log.entries:
        disk.history.clear()
        recording.append(recording.append_position, log.frames(recording.append_position, end))
        assert not any(what.startswith(("allocate", "create", "resize")) for what in disk.history)
        recording.sync()
        while recording.do_work():
            pass
        idle |= {what.split()[0] for what in disk.history}
    assert "allocate" in idle, "the next segment is made when there is time"
    archive.close()


@pytest.mark.parametrize(("level", "syncs"), [(0, 0), (1, 1), (2, 1)])
def test_one_sync_covers_all_that_was_appended_since_the_last_one(level, syncs):
    disk = FaultyDisk()
    archive = open_archive(disk, level)
    log = a_log(200)
    recording = archive.create_recording(
        stream_id=100, session_id=SESSION_ID, initial_term_id=0, term_length=TERM_LENGTH, mtu=1408
    )
    disk.history.clear()
    for _, end in log.entries[:50]:
        recording.append(recording.append_position, log.frames(recording.append_position, end))
        assert recording.synced_position == (0 if level else end)
    assert not any(what.startswith("sync") for what in disk.history)
    assert recording.sync() == recording.append_position
    assert sum(what.startswith("sync") for what in disk.history) == syncs
    assert recording.sync() == recording.append_position
    assert sum(what.startswith("sync") for what in disk.history) == syncs, "nothing to sync"
    archive.close()
