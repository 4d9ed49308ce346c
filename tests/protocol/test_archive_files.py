"""Catalog and mark files: round trips, old and new kinds, and what is said of damaged ones."""

import struct
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.errors import ConfigurationError, LogDamaged
from cluster.protocol import catalog
from cluster.protocol.enums import ClusterComponentType, RecordingState
from cluster.protocol.mark_file import (
    ACTIVITY_TIMESTAMP_OFFSET,
    ArchiveMarkFileHeader,
    ClusterMarkFileHeader,
    decode_archive_mark_file,
    decode_cluster_mark_file,
    encode_mark_file_header,
    field_offset,
    is_legacy,
    mark_file_length,
    service_mark_file_name,
)
from tests.protocol.examples import composites

DESCRIPTORS = composites(catalog.RecordingDescriptor)


def a_descriptor(recording_id=0, channel="aeron:ipc"):
    return catalog.RecordingDescriptor(
        0, 0, recording_id, 5, -1, 0, -1, 7, 131_072, 65_536, 1408, 9, 100, channel, channel, "aeron:ipc"
    )


# -- catalog --------------------------------------------------------------------------------------


@settings(max_examples=50)
@given(st.lists(DESCRIPTORS, max_size=4), st.sampled_from([64, 0]), st.sampled_from(RecordingState))
def test_a_catalog_reads_back_as_it_was_written(descriptors, alignment, state):
    header = catalog.new_catalog_header(len(descriptors)).replace(alignment=alignment)
    file = header.encode_body().ljust(catalog.first_entry_offset(header), b"\0")
    for descriptor in descriptors:
        file += catalog.encode_catalog_entry(descriptor, alignment=alignment, state=state)
    file += bytes(100)

    assert catalog.decode_catalog_header(file) == header
    entries = list(catalog.decode_entries(file, header))
    assert [entry.descriptor for entry in entries] == descriptors
    assert {entry.header.state for entry in entries} <= {state}
    for entry in entries:
        assert entry.end - entry.offset == len(
            catalog.encode_catalog_entry(entry.descriptor, alignment=alignment)
        )
        assert entry.offset % (alignment or 1024) == (32 if alignment else 0)


def test_an_entry_carries_a_checksum_over_all_behind_its_header():
    entry = catalog.encode_catalog_entry(a_descriptor(), checksum=lambda body: zlib.crc32(body) - 2**32)

    (found,) = struct.unpack_from("<i", entry, catalog.CHECKSUM_OFFSET)
    assert found & 0xFFFF_FFFF == zlib.crc32(entry[32:])


def test_fields_are_found_in_place():
    file = catalog.new_catalog_header(1).encode_body() + catalog.encode_catalog_entry(a_descriptor())
    (entry,) = catalog.decode_entries(file, catalog.decode_catalog_header(file))

    assert entry.field_offset("stop_position") == 32 + 80
    assert file[112 - 32 + 32 : 120] == b"\xff" * 8
    assert catalog.NEXT_RECORDING_ID_OFFSET == 8
    assert catalog.STATE_OFFSET == 4


def test_a_damaged_entry_is_named_after_those_before_it_were_read():
    header = catalog.new_catalog_header(2)
    first = catalog.encode_catalog_entry(a_descriptor(0))
    second = bytearray(catalog.encode_catalog_entry(a_descriptor(1)))
    second[32 + 80 : 32 + 84] = (10_000).to_bytes(4, "little")  # length of the stripped channel
    entries = catalog.decode_entries(header.encode_body() + first + second, header)

    assert next(entries).descriptor == a_descriptor(0)
    with pytest.raises(LogDamaged, match=r"stripped_channel: 10000 bytes") as caught:
        next(entries)
    assert str(caught.value.at("/a/archive.catalog", 0)).startswith("/a/archive.catalog at offset")


@pytest.mark.parametrize(
    ("offset", "value", "said"),
    [
        (0, 4 << 16, "catalog version 4.0.0 .262144., expected 3.x"),
        (0, 0, "catalog version 0.0.0"),
        (4, 64, "catalog header length 64, expected 32"),
        (16, 100, "catalog alignment 100"),
        (36, 7, "state at offset 36: 7, expected one of 0, 1, 2"),
        (32, 1_000_000, "entry of 1000000 bytes, 160 are left in the file"),
    ],
)
def test_a_damaged_catalog_says_what_was_expected(offset, value, said):
    file = bytearray(
        catalog.new_catalog_header(1).encode_body() + catalog.encode_catalog_entry(a_descriptor())
    )
    assert len(file) == 32 + 192
    file[offset : offset + 4] = value.to_bytes(4, "little")

    with pytest.raises(LogDamaged, match=said):
        list(catalog.decode_entries(file, catalog.decode_catalog_header(file)))


def test_a_catalog_cut_off_is_damaged_not_shorter():
    file = catalog.new_catalog_header(1).encode_body() + catalog.encode_catalog_entry(a_descriptor())
    for length in [*range(32), *range(64, len(file))]:
        with pytest.raises(LogDamaged):
            list(catalog.decode_entries(file[:length], catalog.decode_catalog_header(file[:length])))


def test_segment_file_names():
    assert catalog.segment_file_name(0, 131_072) == "0-131072.rec"
    assert catalog.parse_segment_file_name("12-131072.rec") == (12, 131_072)
    for name in ("0-0.rec.del", "00-0.rec", "0-01.rec", "0.rec", "-1-0.rec", "a-0.rec", "archive.catalog"):
        assert catalog.parse_segment_file_name(name) is None


# -- mark files -----------------------------------------------------------------------------------

CLUSTER_MARK = ClusterMarkFileHeader(
    768, ClusterComponentType.BACKUP, 5, 4, 42, -1, 10, 104, 105, 101, 1, -1, 8192, 1_048_576, 3, "/dev/shm/a"
)
ARCHIVE_MARK = ArchiveMarkFileHeader(196_864, 5, 4, 42, 10, 10, 30, 8192, 1_048_576, 77, "c", "l", "", "/d")


@settings(max_examples=50)
@given(composites(ClusterMarkFileHeader), composites(ArchiveMarkFileHeader))
def test_mark_files_read_back_as_they_were_written(cluster_mark, archive_mark):
    cluster_mark, archive_mark = cluster_mark.replace(version=768), archive_mark.replace(version=196_864)

    assert decode_cluster_mark_file(encode_mark_file_header(cluster_mark)) == cluster_mark
    assert decode_archive_mark_file(encode_mark_file_header(archive_mark)) == archive_mark


def test_fields_of_mark_files_lie_where_tools_look_for_them():
    assert ACTIVITY_TIMESTAMP_OFFSET == 16
    assert field_offset(ClusterMarkFileHeader, "candidate_term_id") == 40
    assert field_offset(ClusterMarkFileHeader, "cluster_id") == 80
    assert field_offset(ArchiveMarkFileHeader, "control_stream_id") == 40
    assert field_offset(ArchiveMarkFileHeader, "archive_id") == 64
    assert encode_mark_file_header(CLUSTER_MARK)[136:150] == b"\x0a\0\0\0/dev/shm/a"
    assert mark_file_length() == 1_056_768
    assert service_mark_file_name(0) == "cluster-mark-service-0.dat"


def test_a_mark_file_without_a_message_header_is_of_the_oldest_kind():
    cluster_file = CLUSTER_MARK.encode_body().ljust(8192, b"\0")
    archive_file = ARCHIVE_MARK.encode_body().ljust(8192, b"\0")

    assert is_legacy(ClusterMarkFileHeader, cluster_file)
    assert not is_legacy(ClusterMarkFileHeader, encode_mark_file_header(CLUSTER_MARK))
    assert decode_cluster_mark_file(cluster_file) == CLUSTER_MARK
    assert decode_archive_mark_file(archive_file) == ARCHIVE_MARK.replace(
        header_length=0, error_buffer_length=0, archive_id=-1
    )


def test_a_newer_mark_file_with_a_longer_block_is_read():
    encoded = CLUSTER_MARK.encode()
    newer = struct.pack("<HHHH", 256, 200, 110, 9) + encoded[8:136] + bytes(128) + encoded[136:]

    assert decode_cluster_mark_file(newer.ljust(8192, b"\0")) == CLUSTER_MARK


@pytest.mark.parametrize("version", [0, -1])
def test_a_mark_file_that_is_not_ready_or_whose_start_failed_can_be_read(version):
    assert decode_cluster_mark_file(CLUSTER_MARK.replace(version=version).encode().ljust(8192, b"\0")) == (
        CLUSTER_MARK.replace(version=version)
    )


def test_another_version_and_garbage_are_no_mark_file():
    with pytest.raises(LogDamaged, match=r"offset 8: mark file version 1\.0\.0 \(65536\), expected 0\.x"):
        decode_cluster_mark_file(CLUSTER_MARK.replace(version=65_536).encode().ljust(8192, b"\0"))
    with pytest.raises(LogDamaged, match="mark file version"):
        decode_archive_mark_file(b"garbage!" * 1024)
    for length in (0, 5, 20, 100, 140):
        with pytest.raises(LogDamaged):
            decode_cluster_mark_file(CLUSTER_MARK.encode()[:length])


def test_strings_that_do_not_fit_the_header_are_a_configuration_error():
    with pytest.raises(ConfigurationError, match=r"take 8[0-9]{3} bytes, at most 8192 fit"):
        encode_mark_file_header(CLUSTER_MARK.replace(ingress_channel="x" * 8100))
