"""A flipped bit in the catalog is put back, in an entry by its checksum; one that is stale is no damage."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import pytest

from cluster.archive import catalog_file, catalog_repair
from cluster.archive.catalog_checksum import descriptor_checksum
from cluster.archive.catalog_file import CatalogFile
from cluster.archive.catalog_repair import put_back_flips
from cluster.archive.files import OsFiles
from cluster.archive.flipped_bit import LENGTH_MAX
from cluster.errors import LogDamaged, StorageError
from cluster.log.checksum import Checksum
from cluster.protocol.catalog import CHECKSUM_OFFSET, HEADER_LENGTH, STATE_OFFSET, CatalogEntry
from tests.archive.damaged import opened
from tests.archive.logs import T0, a_descriptor, a_log

FILES = OsFiles()
COVERED = {*range(4), *range(CHECKSUM_OFFSET, CHECKSUM_OFFSET + 4)}  # of the header


def a_catalog(directory: Path, checksum: Checksum | None) -> tuple[bytes, CatalogEntry]:
    """The file with three entries, and the one in the middle."""
    CatalogFile.create(FILES, str(directory))
    catalog = CatalogFile.open(FILES, str(directory), write=True)
    for stop in (960, 1920, -1):
        catalog.add(a_descriptor(0, stop_position=stop), checksum)
    catalog.close()
    path = directory / "archive.catalog"
    path.write_bytes(path.read_bytes()[:4096])
    return path.read_bytes(), catalog.entries[1]


def flip(data: bytes, *bits: int) -> bytes:
    flipped = bytearray(data)
    for bit in bits:
        flipped[bit // 8] ^= 1 << bit % 8
    return bytes(flipped)


def mended(catalog: bytes) -> bytes:
    data = bytearray(catalog)
    put_back_flips(data)
    return bytes(data)


@pytest.mark.parametrize("checksum", list(Checksum))
def test_a_flipped_bit_is_put_back_by_the_checksum_of_its_entry(tmp_path, checksum):
    whole, entry = a_catalog(tmp_path, checksum)
    covered = [entry.offset + at for at in COVERED] + list(range(entry.offset + HEADER_LENGTH, entry.end))
    for number, offset in enumerate(covered):
        assert mended(flip(whole, 8 * offset + number % 8)) == whole, offset - entry.offset


def test_what_is_put_back_is_read_and_written_and_told(tmp_path):
    whole, entry = a_catalog(tmp_path, Checksum.CRC_32C)
    path = tmp_path / "archive.catalog"
    path.write_bytes(flip(whole, 8 * entry.field_offset("start_position") + 17))
    reader = CatalogFile.open(FILES, str(tmp_path))
    assert reader.entries[1] == entry
    reader.close()
    assert path.read_bytes() != whole
    archive = opened(tmp_path, checksum=None)
    archive.abandon()
    assert path.read_bytes()[entry.offset : entry.end] == whole[entry.offset : entry.end]
    [told] = archive.put_back
    assert str(told).startswith(f"{path} at offset {entry.offset}: a bit of the entry had flipped")


@pytest.mark.parametrize("checksum", [None, Checksum.CRC_32C])
def test_so_is_one_in_headers_and_behind_the_last_entry_but_for_what_cannot_be_told(tmp_path, checksum):
    """A higher next id, another version of the same major, and a state that may have been another one."""
    whole, entry = a_catalog(tmp_path, checksum)
    length = entry.end - entry.offset
    places = {"header": 0, "state": entry.offset + STATE_OFFSET, "end": HEADER_LENGTH + 3 * length}
    kept = [
        (name, bit)
        for name, offset in places.items()
        for bit in range(160 if name == "header" else 32)
        if mended(flip(whole, 8 * offset + bit)) != whole
    ]
    other_version = [("header", bit) for bit in range(16)]
    higher_id = [("header", bit) for bit in range(64, 128)]
    legacy = ("header", 134)
    assert set(kept) <= {*other_version, *higher_id, legacy, ("state", 0), ("state", 1), ("end", 31)}


@pytest.mark.parametrize("flips", [2, 3])
def test_two_or_three_flipped_bits_are_never_taken_for_one(tmp_path, flips):
    whole, entry = a_catalog(tmp_path, Checksum.CRC_32C)
    random_bits = random.Random(flips)
    bits = range(8 * (entry.offset + HEADER_LENGTH), 8 * entry.end)
    for _ in range(50):
        flipped = flip(whole, *random_bits.sample(bits, flips))
        assert mended(flipped)[entry.offset : entry.end] == flipped[entry.offset : entry.end]


def test_nothing_is_put_back_in_an_entry_that_is_longer_than_the_code_can_tell(tmp_path):
    CatalogFile.create(FILES, str(tmp_path))
    catalog = CatalogFile.open(FILES, str(tmp_path), write=True)
    catalog.add(a_descriptor(0, stop_position=960).replace(stripped_channel="x" * 400), Checksum.CRC_32C)
    catalog.close()
    assert catalog.entries[0].header.length > LENGTH_MAX
    data = (tmp_path / "archive.catalog").read_bytes()[:4096]
    assert put_back_flips(bytearray(data)) == []
    assert put_back_flips(bytearray(flip(data, 8 * 104 + 5))) == []  # its start position


def test_a_checksum_that_aeron_did_not_renew_is_no_damage(tmp_path):
    """As after its recovery of an unclean stop, which writes the end and nothing else."""
    whole, entry = a_catalog(tmp_path, Checksum.CRC_32C)
    stale = bytearray(whole)
    offset = entry.field_offset("stop_position")
    stale[offset : offset + 8] = (64 * 1024 + 960).to_bytes(8, "little")
    (tmp_path / "archive.catalog").write_bytes(stale)
    catalog = CatalogFile.open(FILES, str(tmp_path), write=True)
    assert catalog.put_back == []
    assert catalog.entries[1].descriptor.stop_position == 64 * 1024 + 960
    descriptor = catalog.stop(1, 1920, T0)
    assert descriptor.stop_position == 1920
    [_, again, _] = catalog.entries
    assert again.header.checksum == descriptor_checksum(Checksum.CRC_32C, catalog.descriptor_bytes(again))
    catalog.close()


def test_a_reader_does_not_search_entries_whose_checksum_is_stale(tmp_path, monkeypatch):
    CatalogFile.create(FILES, str(tmp_path))
    catalog = CatalogFile.open(FILES, str(tmp_path), write=True)
    for number in range(100):
        catalog.add(a_descriptor(0, stop_position=32 * number), Checksum.CRC_32C)
        catalog.set_checksum(number, 0x1234_5678 + number)
    catalog.close()
    taken = []
    monkeypatch.setattr(
        catalog_repair, "descriptor_checksum", lambda *of: taken.append(of) or descriptor_checksum(*of)
    )

    reader = CatalogFile.open(FILES, str(tmp_path))
    reader.close()

    assert (len(reader.entries), reader.put_back) == (100, [])
    assert 100 <= len(taken) < 100 * 50, "one bit after the other would be 4,000 an entry"


@pytest.mark.parametrize("field", ["initial_term_id", "stream_id"])
def test_an_entry_that_none_of_its_frames_is_of_is_damaged(tmp_path, field):
    log = a_log(800)
    archive = opened(tmp_path, checksum=None)
    recording = archive.create_recording(
        stream_id=100, session_id=log.params.session_id, initial_term_id=0, term_length=64 * 1024, mtu=1408
    )
    recording.append(0, log.frames())
    archive.close()
    catalog = CatalogFile.open(FILES, str(tmp_path))
    offset = catalog.entries[0].field_offset(field)
    catalog.close()
    path = tmp_path / "archive.catalog"
    path.write_bytes(flip(path.read_bytes(), 8 * offset + 14))

    archive = opened(tmp_path, checksum=None)
    with pytest.raises(
        LogDamaged, match=r"archive\.catalog at offset \d+: no frame is of terms of 65536 bytes"
    ):
        archive.check_start(0)
    archive.abandon()


@pytest.mark.parametrize("refused", ["open", "read_at_rest"])
def test_a_catalog_that_the_system_does_not_open_or_read_is_named(tmp_path, monkeypatch, refused):
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    a_catalog(tmp_path, Checksum.CRC_32C)
    monkeypatch.setattr(*((OsFiles, "open") if refused == "open" else (catalog_file, refused)), refuse)
    with pytest.raises(StorageError, match=r"archive\.catalog: opening failed: Input/output error"):
        CatalogFile.open(FILES, str(tmp_path))
