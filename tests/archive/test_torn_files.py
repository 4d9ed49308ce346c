"""A power cut keeps any sectors of an unsynced change: what is there reads as before the change or after."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from cluster.archive.catalog_file import CatalogFile
from cluster.archive.files import OsFiles
from cluster.archive.node_state_file import NodeStateFile
from cluster.archive.proof_slots import MAGIC, MARK_OFFSET, PAGE
from cluster.archive.sync_proof import (
    _DONE,
    _SLOT,
    LENGTH,
    SyncProofFile,
    _sealed,
    read_sync_proof,
    sync_proof_path,
)
from tests.archive.faulty_files import SECTOR
from tests.archive.logs import T0, a_descriptor

FILES = OsFiles()


def subsets(path: Path, before: bytes, after: bytes) -> Iterator[int]:
    """Put each mixture of the changed sectors on the disk; yields how many there are of the new file."""
    before = before.ljust(len(after), b"\0")
    changed = [i for i in range(0, len(after), SECTOR) if before[i : i + SECTOR] != after[i : i + SECTOR]]
    for kept in product([False, True], repeat=len(changed)):
        mixed = bytearray(before)
        for begin, is_kept in zip(changed, kept, strict=True):
            if is_kept:
                mixed[begin : begin + SECTOR] = after[begin : begin + SECTOR]
        path.write_bytes(mixed)
        yield sum(kept)


@pytest.mark.parametrize("count", range(1, 7))
def test_of_a_catalog_entry_that_is_stopped_and_extended(tmp_path, count):
    """Wherever the entry lies in its sectors: its end is the old one or the new one, all else as it was."""
    CatalogFile.create(FILES, str(tmp_path))
    path = tmp_path / "archive.catalog"
    catalog = CatalogFile.open(FILES, str(tmp_path), write=True)
    for _ in range(count):
        catalog.add(a_descriptor(0, stop_position=-1))
    for change in (lambda: catalog.stop(count - 1, 960, T0), lambda: catalog.extend(count - 1, 99)):
        before = path.read_bytes()
        ends = {catalog.entries[-1].descriptor.stop_position}
        change()
        ends.add(catalog.entries[-1].descriptor.stop_position)
        after = path.read_bytes()
        for _ in subsets(path, before, after):
            found = CatalogFile.open(FILES, str(tmp_path))
            found.close()
            assert [entry.descriptor.recording_id for entry in found.entries] == list(range(count))
            assert {entry.descriptor.stop_position for entry in found.entries[:-1]} <= {-1}
            assert found.entries[-1].descriptor.stop_position in ends
            found.check_entry(found.entries[-1], [])
        path.write_bytes(after)
    catalog.close()


def put_slot(data, number):
    slot = _sealed(_SLOT, MAGIC, number, 96 * (number - 1), 96 * number, 7, number, 0)
    offset = number % 2 * PAGE
    data[offset : offset + len(slot)] = slot


def put_mark(data, number):
    mark, offset = _sealed(_DONE, MAGIC, number, 96 * number, 0), number % 2 * PAGE + MARK_OFFSET
    data[offset : offset + len(mark)] = mark


@pytest.mark.parametrize("sequence", [1, 2])
def test_of_a_proof_file(tmp_path, sequence):
    """A slot and the mark that the sync before has returned: the newest that is whole is one of the two."""
    path = Path(sync_proof_path(str(tmp_path), 0))
    before = bytearray(LENGTH)
    for number in range(1, sequence + 1):
        put_slot(before, number)
    after = before.copy()
    put_mark(after, sequence)
    put_slot(after, sequence + 1)
    found = set()
    for _ in subsets(path, before, after):
        newest = read_sync_proof(FILES, str(tmp_path), 0, 7)
        assert newest is not None
        found.add((newest.from_position, newest.to_position, newest.is_done))
    promised = (96 * (sequence - 1), 96 * sequence)
    assert found == {(*promised, False), (*promised, True), (96 * sequence, 96 * (sequence + 1), False)}


def test_a_proof_file_is_of_its_session_and_of_the_one_before(tmp_path):
    folder = str(tmp_path)

    def proven(session_id):
        proof = read_sync_proof(FILES, folder, 0, session_id)
        return None if proof is None else proof.to_position

    file = SyncProofFile.create(FILES, folder, 0, 7, 96)
    assert (proven(7), proven(8)) == (96, None)
    file.change_session(8, 128)
    assert (proven(7), proven(8)) == (96, 128)
    file.close()


def test_of_a_node_state_there_is_one_sector(tmp_path):
    state = NodeStateFile.open(str(tmp_path), files=FILES)
    state.propose(3, 64, T0)
    path = tmp_path / "node-state.dat"
    before = path.read_bytes()
    state.propose(4, 960, T0 + 1)
    state.close()
    for kept in subsets(path, before, path.read_bytes()):
        again = NodeStateFile.open(str(tmp_path), files=FILES, write=False)
        assert again.candidate_term_id == 3 + kept
        again.close()
