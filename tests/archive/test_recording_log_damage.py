"""recording.log after a power cut, after rot, and after one of Aeron's programs has changed it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path

import pytest

from cluster.archive.files import OsFiles
from cluster.archive.recording_log import RecordingLog
from cluster.errors import LogDamaged, StorageError
from cluster.member.disk.recovery import leadership_terms
from tests.archive.faulty_files import SECTOR, FaultyDisk, PowerCut, io_error
from tests.archive.logs import a_descriptor, append_term

DIRECTORY = "/member/cluster"
ENTRY = 64


def find_recording(stop: int):  # type: ignore[no-untyped-def]
    """An archive whose only recording, 0, ends at ``stop``."""
    return {0: a_descriptor(0, stop_position=stop)}.get


def a_log(path, *terms: tuple[int, int], snapshot_at: int | None = None) -> None:  # type: ignore[no-untyped-def]
    """A file with these terms (id, base), each synced, and a snapshot of the module and one service."""
    log = RecordingLog.open(str(path), files=OsFiles())
    for term_id, base in terms:
        append_term(log, 0, term_id, base, 1000 + term_id)
    if snapshot_at is not None:
        for service_id in (0, -1):
            log.append_snapshot(7 - service_id, terms[0][0], terms[0][1], snapshot_at, 1500, service_id)
    log.close()


def terms_of(log: RecordingLog) -> list[tuple[int, int, int]]:
    return [tuple(term) for term in leadership_terms(log)]


def opened(path, stop: int) -> RecordingLog:  # type: ignore[no-untyped-def]
    return RecordingLog.open(str(path), files=OsFiles(), find_recording=find_recording(stop))


def opened_with_flips(path: Path, bits: Iterable[int]) -> Iterator[tuple[int, RecordingLog | None]]:
    """Each of these bits and the log with that one turned; None where it is found to be damaged."""
    file = path / "recording.log"
    whole = file.read_bytes()
    for bit in bits:
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        file.write_bytes(flipped)
        try:
            log = opened(path, stop=4096)
        except LogDamaged:
            yield bit, None
        else:
            yield bit, log
            log.close()


@pytest.mark.parametrize("first", [0, 5, 6, 7, 8])
@pytest.mark.parametrize("missing", [0, 1, 3, 9])
@pytest.mark.parametrize("seeds", [range(8), pytest.param(range(8, 40), marks=pytest.mark.slow)])
def test_terms_that_are_recorded_together_are_there_together_after_a_power_cut(first, missing, seeds):
    """Whatever sectors of an unsynced write a power cut keeps, no term is there without those before it."""

    def record(log: RecordingLog, term_id: int, base: int) -> None:
        log.ensure_coherent(
            recording_id=0,
            leadership_term_id=term_id,
            term_base_log_position=base,
            timestamp=1000,
        )

    last = first + missing + 1
    whole = [(term_id, 0, 0) for term_id in range(first)] + [(first, 0, -1)]
    after = [*whole[:-1], (first, 0, 960), *((t, 960, 960) for t in range(first + 1, last)), (last, 960, -1)]
    for at in range(1, 20):
        for seed in seeds:
            disk = FaultyDisk(seed)
            log = RecordingLog.open(DIRECTORY, files=disk)
            record(log, first, 0)
            disk.fail(at, PowerCut())
            try:
                record(log, last, 960)
                expected = [after]
            except PowerCut:
                expected = [whole, after, [*whole[:-1], (first, 0, 960)]]
            disk.lose_power()
            found = RecordingLog.open(DIRECTORY, files=disk, find_recording=find_recording(960))
            assert terms_of(found) in expected
            record(found, last, 960)
            assert terms_of(RecordingLog.open(DIRECTORY, files=disk)) == after
        if at > disk.operations:
            return
    raise AssertionError("the history does not end")


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("level", [1, 2])
def test_what_a_start_reads_after_a_failed_sync_is_there_after_a_power_cut(level, seed):
    """The cache has what the device has not, and the kernel takes it for clean."""
    disk = FaultyDisk(seed)
    log = RecordingLog.open(DIRECTORY, files=disk, file_sync_level=level)
    append_term(log, 0, 0, 0, 1000)
    disk.fail(3, io_error())  # the end of term 0, the entry of term 1, the sync
    with pytest.raises(StorageError, match="syncing failed"):
        append_term(log, 0, 1, 960, 2000)
    disk.restart()

    read = RecordingLog.open(DIRECTORY, files=disk, file_sync_level=level, find_recording=find_recording(960))
    found = terms_of(read)
    disk.lose_power()

    assert found == terms_of(RecordingLog.open(DIRECTORY, files=disk)) == [(0, 0, 960), (1, 960, -1)]


def test_any_subset_of_the_sectors_of_a_term_and_of_the_end_before_it_can_be_read(tmp_path):
    """The end of term 7 and the entry of term 8 lie in different sectors and are synced together."""
    a_log(tmp_path, *((term_id, 96 * term_id) for term_id in range(8)))
    path = tmp_path / "recording.log"
    before = path.read_bytes().ljust(9 * ENTRY, b"\0")
    log = RecordingLog.open(str(tmp_path), files=OsFiles())
    append_term(log, 0, 8, 960, 2000)
    log.close()
    after = path.read_bytes()
    assert len(before) == len(after) == SECTOR + ENTRY

    for kept in product([False, True], repeat=2):
        first, second = (after if is_kept else before for is_kept in kept)
        path.write_bytes(first[:SECTOR] + second[SECTOR:])
        found = terms_of(opened(tmp_path, stop=960))
        ends = [end for _, _, end in found]
        assert [term_id for term_id, _, _ in found] == list(range(9 if kept[1] else 8))
        assert ends[7] == (960 if any(kept) else -1)
        assert terms_of(RecordingLog.open(str(tmp_path), files=OsFiles(), write=False)) == found


def test_a_gap_between_terms_is_damage_and_no_bug(tmp_path):
    """As a version that wrote missing terms in place may have left it."""
    a_log(tmp_path, *((term_id, 96 * term_id) for term_id in range(10)))
    path = tmp_path / "recording.log"
    data = path.read_bytes()
    path.write_bytes(data[: 6 * ENTRY] + bytes(2 * ENTRY) + data[8 * ENTRY :])
    for find in (None, find_recording(4096)):
        with pytest.raises(LogDamaged, match="term 8 from 768 on does not follow term 5, which ends at 576"):
            RecordingLog.open(str(tmp_path), files=OsFiles(), find_recording=find)
    assert path.read_bytes()[6 * ENTRY : 8 * ENTRY] == bytes(2 * ENTRY), "nothing is changed by the look"


@pytest.mark.parametrize("zeros", [slice(0, SECTOR), slice(SECTOR, 2 * SECTOR)])
def test_zeros_in_the_place_of_entries_that_were_synced_are_damage(tmp_path, zeros):
    a_log(tmp_path, *((term_id, 96 * term_id) for term_id in range(16)))
    path = tmp_path / "recording.log"
    data = bytearray(path.read_bytes())
    data[zeros] = bytes(SECTOR)
    path.write_bytes(data)
    with pytest.raises(LogDamaged, match="zeros, but the log has bytes of other terms"):
        opened(tmp_path, stop=4096)


def test_no_flipped_bit_is_believed(tmp_path):
    """Either the entries are as they were, or the log is damaged, or a term's removal shows as a gap."""
    a_log(tmp_path, (0, 0), (1, 960), (2, 960), (3, 1920), snapshot_at=640)
    path = tmp_path / "recording.log"
    whole = path.read_bytes()
    entries = opened(tmp_path, stop=4096).entries
    assert path.read_bytes() == whole
    damaged = 0
    for bit, log in opened_with_flips(tmp_path, range(8 * len(whole))):
        if log is None:
            damaged += 1
            continue
        unused = [entry for entry, old in zip(log.entries, entries, strict=True) if entry != old]
        assert all(not entry.is_valid for entry in unused), (bit // 8, bit % 8, log.entries)
        assert all(entry.entry_type.name == "SNAPSHOT" for entry in unused)
    assert damaged > 0.8 * 8 * 48 * len(entries)


def test_no_flipped_bit_of_a_standby_snapshot_is_believed(tmp_path):
    a_log(tmp_path, (0, 0))
    log = opened(tmp_path, stop=4096)
    log.append_snapshot(9, 0, 0, 640, 1500, -1, "localhost:20104")
    log.close()
    path = tmp_path / "recording.log"
    whole = path.read_bytes()
    entries = opened(tmp_path, stop=4096).entries
    assert path.read_bytes() == whole
    for bit, found in opened_with_flips(tmp_path, range(8 * ENTRY, 8 * len(whole), 5)):
        if found is not None:
            [term, standby] = found.entries
            assert term == entries[0]
            assert standby == entries[1] or not standby.is_valid, bit - 8 * ENTRY


def test_a_standby_snapshot_whose_endpoint_fills_its_entry_has_no_checksum(tmp_path):
    a_log(tmp_path, (0, 0))
    log = opened(tmp_path, stop=4096)
    log.append_snapshot(9, 0, 0, 640, 1500, -1, "x" * 70)
    [_, standby] = log.entries
    assert standby.length == 128
    log.close()
    assert opened(tmp_path, stop=4096).entries[1] == standby


def test_what_aeron_changes_in_place_is_believed_and_gets_a_new_checksum(tmp_path):
    a_log(tmp_path, (0, 0), (1, 960), snapshot_at=640)
    path = tmp_path / "recording.log"
    data = bytearray(path.read_bytes())
    data[ENTRY + 24 : ENTRY + 32] = (1920).to_bytes(8, "little")  # RecordingLog.commitLogPosition
    data[2 * ENTRY + 44 : 2 * ENTRY + 48] = (1 | 1 << 31).to_bytes(4, "little")  # invalidateLatestSnapshot
    path.write_bytes(data)
    log = opened(tmp_path, stop=1920)
    assert [entry.offset for entry in log.changed_by_others] == [ENTRY, 2 * ENTRY]
    assert terms_of(log) == [(0, 0, 960), (1, 960, 1920)]
    assert [entry.is_valid for entry in log.entries] == [True, False, True, True]
    assert opened(tmp_path, stop=1920).changed_by_others == []


def test_entries_without_a_checksum_are_believed_and_get_one(tmp_path):
    a_log(tmp_path, (0, 0), (1, 960))
    path = tmp_path / "recording.log"
    sealed = path.read_bytes()
    unsealed = bytearray(sealed)
    unsealed[48:64] = bytes(16)  # of an older version
    unsealed[ENTRY + 48 : 2 * ENTRY] = sealed[48:64]  # what Aeron's buffer had left of another entry
    path.write_bytes(unsealed)
    assert terms_of(opened(tmp_path, stop=1920)) == [(0, 0, 960), (1, 960, -1)]
    assert path.read_bytes() == sealed


@pytest.mark.parametrize(("field", "value"), [(8, -1), (16, -96), (24, 900), (24, -2)])
def test_an_entry_without_a_checksum_that_cannot_be_is_damage(tmp_path, field, value):
    a_log(tmp_path, (1, 960))
    path = tmp_path / "recording.log"
    data = bytearray(path.read_bytes())
    data[48:64] = bytes(16)
    data[field : field + 8] = value.to_bytes(8, "little", signed=True)
    path.write_bytes(data)
    with pytest.raises(LogDamaged, match=r"recording\.log at offset 0: term .* cannot be"):
        opened(tmp_path, stop=1920)
