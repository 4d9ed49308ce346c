"""A power cut within an operation on several files keeps any sectors of what was not synced, of each of them.

Each operation is cut off at its first change, then at its second, and so on; then mixtures of old and new
sectors and names are opened: all of them where there are few, else each sector alone, all but each, and some.
What they mean is in docs/formats.md, under "What a power cut leaves".
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from itertools import count, product
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from cluster.archive.archive import Archive
from cluster.archive.recording_log import RecordingLog
from cluster.archive.snapshot_archive import SnapshotArchive
from cluster.counters import CountersFile, CountersReader
from cluster.errors import ClusterError
from cluster.protocol import streams
from cluster.protocol.counter_types import CounterTypeId
from tests.archive.faulty_files import PAGE, SECTOR, FaultyDisk, PowerCut, open_archive
from tests.archive.logs import SEGMENT_LENGTH, SESSION_ID, T0, TERM_LENGTH, a_log, append_term

CLUSTER = "/member/cluster"
LOG = a_log(420)
KEPT_AT_RANDOM = 12


def dirty_sectors(disk: FaultyDisk) -> list[tuple[str, int]]:
    """Path and begin of each sector that the device has not got."""
    found = []
    for path, inode in sorted(disk.names.items()):
        for page, before in sorted(inode.before.items()):
            now = bytes(inode.cache[page * PAGE : (page + 1) * PAGE])
            before = before.ljust(len(now), b"\0")
            changed = (at for at in range(0, len(now), SECTOR) if now[at:][:SECTOR] != before[at:][:SECTOR])
            found += [(path, page * PAGE + at) for at in changed]
    return found


def choices(sectors: int) -> Iterator[tuple[bool, ...]]:
    if sectors <= 4:
        yield from product([False, True], repeat=sectors)
        return
    random = Random(sectors)
    for is_kept in (False, True):
        yield (is_kept,) * sectors
        for other in random.sample(range(sectors), min(sectors, KEPT_AT_RANDOM)):
            yield tuple(is_kept != (index == other) for index in range(sectors))
    for _ in range(KEPT_AT_RANDOM):
        yield tuple(random.random() < 0.5 for _ in range(sectors))


def mixtures(disk: FaultyDisk) -> Iterator[FaultyDisk]:
    """The disk as the next start may find it."""
    sectors, whole = dirty_sectors(disk), pickle.dumps(disk)  # read again sooner than copied deeply
    for has_names, has_lengths in product([False, True], repeat=2):
        if not disk.names_before and not has_names:
            continue
        for kept in choices(len(sectors)):
            mixed = pickle.loads(whole)
            for (path, begin), is_kept in zip(sectors, kept, strict=True):
                if not is_kept:
                    inode = mixed.names[path]
                    page = begin // PAGE
                    old = inode.before[page].ljust(PAGE, b"\0")[begin % PAGE :][:SECTOR]
                    inode.cache[begin : begin + SECTOR] = old[: len(inode.cache) - begin]
            for inode in mixed.names.values() if not has_lengths else ():
                if inode.before:
                    del inode.cache[inode.size_before :]
            for folder, before in mixed.names_before.items() if not has_names else ():
                inside = [path for path in mixed.names if path.rpartition("/")[0] == folder]
                for path in inside:
                    del mixed.names[path]
                mixed.names.update(before)
            for inode in mixed.names.values():
                inode.durable()
            mixed.names_before.clear()
            mixed.pushed.clear()
            mixed.restart()
            yield mixed


def cut_off(
    prepare: Callable[[FaultyDisk], Any], act: Callable[[Any], object]
) -> Iterator[tuple[FaultyDisk, bool]]:
    """What ``act`` leaves on the disk when it is cut off anywhere, and whether it had returned."""
    for at in count(1):
        disk = FaultyDisk()
        prepared = prepare(disk)
        disk.fail(at, PowerCut())
        try:
            act(prepared)
            is_over = True
        except PowerCut:
            is_over = False
        for mixed in mixtures(disk):
            yield mixed, is_over
        if is_over:
            assert at > 2, "the operation is too short to prove anything"
            return


def a_recording(disk: FaultyDisk, end: int, checksum: str | None) -> Archive:
    archive = open_archive(disk, checksum=checksum)
    recording = archive.create_recording(
        stream_id=streams.LOG, session_id=SESSION_ID, initial_term_id=0, term_length=TERM_LENGTH, mtu=1408
    )
    recording.append(0, LOG.frames(0, end))
    recording.sync()
    return archive


def log_in(archive: Archive, recording_id: int = 0) -> tuple[int, int]:
    """Start and end of a recording that holds the log and nothing else."""
    recording = archive.recording(recording_id)
    start, end = recording.start_position, recording.append_position
    assert archive.find_damage(recording_id) is None
    found = archive.whole_frames(recording_id, start, end, 1 << 22)
    pieces = [found]
    while (position := start + sum(map(len, pieces))) < end:
        pieces.append(archive.whole_frames(recording_id, position, end, 1 << 22))
    assert np.array_equal(np.concatenate(pieces), LOG.frames(start, end))
    return start, end


with_and_without_checksums = pytest.mark.parametrize("checksum", [None, "crc32c"])
FIRST_END = LOG.entries[20][1]


@with_and_without_checksums
def test_of_a_new_catalog_entry_there_is_all_with_its_id_taken_or_nothing(checksum):
    def act(archive: Archive) -> None:
        archive.create_recording(
            stream_id=7, session_id=5, initial_term_id=0, term_length=TERM_LENGTH, mtu=1408
        )

    for disk, is_over in cut_off(lambda disk: a_recording(disk, FIRST_END, checksum), act):
        archive = open_archive(disk, checksum=checksum)
        found = {descriptor.recording_id: descriptor for descriptor in archive.recordings()}
        assert set(found) == {0, 1} if is_over else {0} <= set(found) <= {0, 1}
        assert log_in(archive) == (0, FIRST_END)
        if 1 in found:
            assert (found[1].stream_id, found[1].stop_position) == (7, 0)
        created = archive.create_recording(
            stream_id=8, session_id=6, initial_term_id=0, term_length=TERM_LENGTH, mtu=1408
        )
        assert created.recording_id not in found
        archive.close()


@with_and_without_checksums
def test_of_a_segment_that_is_full_and_the_next_one_there_is_what_was_synced_and_nothing_else(checksum):
    ends = [end for _, end in LOG.entries]
    before = max(end for end in ends if end < SEGMENT_LENGTH - 2048)
    after = min(end for end in ends if end > SEGMENT_LENGTH + 2048)

    def act(archive: Archive) -> None:
        archive.recording(0).append(before, LOG.frames(before, after))
        archive.recording(0).sync()

    for disk, is_over in cut_off(lambda disk: a_recording(disk, before, checksum), act):
        archive = open_archive(disk, checksum=checksum)
        _, end = log_in(archive)
        assert (after if is_over else before) <= end <= after
        archive.close()


@with_and_without_checksums
def test_a_purged_log_begins_where_it_did_or_at_a_segment_and_is_whole_from_there(checksum):
    def act(archive: Archive) -> None:
        archive.recording(0).purge_to(2 * SEGMENT_LENGTH)

    end = LOG.position
    assert end > 2 * SEGMENT_LENGTH
    first = LOG.frames(0, 32).tobytes()
    for disk, is_over in cut_off(lambda disk: a_recording(disk, end, checksum), act):
        archive = open_archive(disk, checksum=checksum)
        start, found = log_in(archive)
        assert found == end
        assert start == 2 * SEGMENT_LENGTH if is_over else start in (0, 2 * SEGMENT_LENGTH)
        known = bytearray(archive.recording(0).first_frame()[:32])
        known[12:16] = first[12:16]  # with checksums, one stands there
        assert bytes(known) == first, "by which logs are told apart"
        archive.close()


@pytest.mark.parametrize("checksum", [pytest.param(None, marks=pytest.mark.slow), "crc32c"])
def test_a_snapshot_counts_when_all_of_its_recordings_are_whole(checksum):
    messages = [b"%d" % number * 300 for number in range(20)]

    def prepare(disk: FaultyDisk) -> tuple[Archive, RecordingLog]:
        archive = a_recording(disk, FIRST_END, checksum)
        recording_log = RecordingLog.open(CLUSTER, files=disk)
        append_term(recording_log, 0, 0, 0, T0)
        return archive, recording_log

    def act(files: tuple[Archive, RecordingLog]) -> None:
        archive, recording_log = files
        snapshots = SnapshotArchive(archive, term_length=TERM_LENGTH, mtu=1408)
        taken = []
        for stream_id, service_id in (
            (streams.SERVICE_SNAPSHOT, 0),
            (streams.CONSENSUS_MODULE_SNAPSHOT, -1),
        ):
            publication = snapshots.create(stream_id, service_id, FIRST_END)
            for message in messages:
                publication.offer(message)
            taken.append((snapshots.complete(publication), service_id))
        for recording_id, service_id in taken:
            recording_log.append_snapshot(recording_id, 0, 0, FIRST_END, T0, service_id)

    for disk, is_over in cut_off(prepare, act):
        archive = open_archive(disk, checksum=checksum)
        recording_log = RecordingLog.open(CLUSTER, files=disk, find_recording=archive.find_recording)
        snapshots = SnapshotArchive(archive, term_length=TERM_LENGTH, mtu=1408)
        found = list(recording_log.snapshot_sets(1))
        assert len(found) == 1 if is_over else len(found) <= 1
        for entry in found[0] if found else ():
            assert list(snapshots.open(entry.recording_id)) == messages
        assert [term.leadership_term_id for term in recording_log.entries if term.service_id == -1][:1] == [0]
        assert log_in(archive) == (0, FIRST_END)
        archive.close()


def test_of_a_counters_file_nothing_is_believed_whatever_sectors_of_it_there_are(tmp_path: Path):
    """It is never synced, and made anew by each start; who reads a torn one is told, or finds what it had."""
    path = tmp_path / "cnc.dat"

    def create() -> CountersFile:
        counters = CountersFile.create(str(path), pid=42, now_ms=T0)
        counters.allocate_cluster_counter(CounterTypeId.COMMIT_POSITION, 0, 960)
        return counters

    create().close()
    whole = path.read_bytes()
    used = [at for at in range(0, len(whole), SECTOR) if any(whole[at : at + SECTOR])]
    assert 2 < len(used) < 40
    for kept in choices(len(used)):
        torn = bytearray(whole)
        for at, is_kept in zip(used, kept, strict=True):
            if not is_kept:
                torn[at : at + SECTOR] = bytes(SECTOR)
        path.write_bytes(torn)
        try:
            reader = CountersReader(str(path))
            counter = reader.find(CounterTypeId.COMMIT_POSITION)
            assert counter is None or counter.get() in (0, 960)
            reader.close()
        except ClusterError as error:
            assert str(path) in str(error)
        create().close()
        assert path.read_bytes() == whole
