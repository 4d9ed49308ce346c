"""One bit of a stopped member's files has changed: its cluster leads, and the member comes back whole.

Each field of each record is tried: by its lowest bit, its highest and one in between, in ``make test`` by one
of these in turn. Payloads of the log are not: with checksums off nothing can tell.
"""

from __future__ import annotations

import pytest

from cluster.archive.identity_file import IDENTITY_FILE_NAME
from cluster.member.disk.life_note import LIFE_FILE_NAME
from cluster.protocol.catalog import (
    CATALOG_FILE_NAME,
    CatalogHeader,
    RecordingDescriptor,
    RecordingDescriptorHeader,
    decode_catalog_header,
    decode_entries,
)
from cluster.protocol.node_state import NODE_STATE_FILE_NAME
from cluster.protocol.recording_log import RECORDING_LOG_FILE_NAME, EntryRecord, decode_recording_log
from tests.member.cluster_steps import a_busy_cluster, send, take_snapshot
from tests.member.in_memory.cluster import SECOND

WORD = 4


def fields_of(record, offset):  # type: ignore[no-untyped-def]
    """Offset and length in bytes of each field of a record that begins at ``offset``."""
    for field in record.layout().fields:
        yield offset + field.offset, record.DTYPE[field.name].itemsize


def catalog_fields(data):  # type: ignore[no-untyped-def]
    yield from fields_of(CatalogHeader, 0)
    for entry in decode_entries(data, decode_catalog_header(data)):
        yield from fields_of(RecordingDescriptorHeader, entry.offset)
        begin = entry.offset + RecordingDescriptorHeader.BLOCK_LENGTH
        yield from fields_of(RecordingDescriptor, begin)
        yield begin + RecordingDescriptor.BLOCK_LENGTH, WORD  # the length of the first string


def recording_log_fields(data):  # type: ignore[no-untyped-def]
    for entry in decode_recording_log(data):
        yield from fields_of(EntryRecord, entry.offset)
        yield from ((entry.offset + 48 + word, WORD) for word in range(0, 12, WORD))


def node_state_fields(data):  # type: ignore[no-untyped-def]
    yield from ((word, WORD) for word in range(0, 72, WORD))


def words(data):  # type: ignore[no-untyped-def]
    """Of a small file under one checksum: eight bytes at a time."""
    yield from ((begin, min(2 * WORD, len(data) - begin)) for begin in range(0, len(data), 2 * WORD))


FILES = {
    f"archive/{CATALOG_FILE_NAME}": catalog_fields,
    f"cluster/{RECORDING_LOG_FILE_NAME}": recording_log_fields,
    f"cluster/{NODE_STATE_FILE_NAME}": node_state_fields,
    f"cluster/{IDENTITY_FILE_NAME}": words,
    f"archive/{IDENTITY_FILE_NAME}": words,
    f"cluster/{LIFE_FILE_NAME}": words,
}


def bits(fields, are_all):  # type: ignore[no-untyped-def]
    for number, (offset, length) in enumerate(fields):
        three = (0, 8 * length // 2 + 5, 8 * length - 1)
        yield from (8 * offset + bit for bit in (three if are_all else three[number % 3 :][:1]))


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("is_killed", "are_all"),
    [(True, False), *(pytest.param(how, True, marks=pytest.mark.slow) for how in (True, False))],
)
@pytest.mark.parametrize("name", FILES)
def test_a_member_of_which_a_bit_was_flipped_comes_back_and_all_promises_are_kept(name, is_killed, are_all):
    cluster = a_busy_cluster(messages=30)
    take_snapshot(cluster)
    former = cluster.leader
    former.kill()
    cluster.await_leader()
    former.start()
    send(cluster, 10)
    member = cluster.followers[0]
    path = f"member/{name}"
    file = member.files.open(path)
    for bit in bits(FILES[name](file.pread(file.size(), 0)), are_all):
        if is_killed:
            member.kill()
        else:
            member.stop()
        file = member.files.open(path, write=True)
        [byte] = file.pread(1, bit // 8)
        file.pwrite(bytes([byte ^ 1 << bit % 8]), bit // 8)
        member.start()
        cluster.run_until(lambda: member.is_following or member.death)
        assert member.is_running, (bit // 8, bit % 8, member.death)
        cluster.await_leader()
        send(cluster, 1)
    cluster.check_promises()


@pytest.mark.parametrize(("name", "offset"), [("recording.log", 16), ("node-state.dat", 24)])
def test_a_member_that_is_alone_says_which_file_is_damaged_and_ends(name, offset):
    cluster = a_busy_cluster(members=1)
    [member] = cluster.members
    member.stop()
    file = member.files.open(f"member/cluster/{name}", write=True)
    [byte] = file.pread(1, offset)
    file.pwrite(bytes([byte ^ 32]), offset)
    member.start()
    assert member.death.startswith(f"LogDamaged: member/cluster/{name} at offset "), member.death
    assert "checksum mismatch" in member.death


@pytest.mark.parametrize("field", ["initial_term_id", "term_buffer_length", "stream_id"])
def test_a_log_without_checksums_whose_catalog_entry_fits_none_of_its_frames_is_fetched_again(field):
    """Else what is missing would be asked for again and again, and never join on."""
    cluster = a_busy_cluster(messages=500)
    take_snapshot(cluster)
    member = cluster.followers[0]
    member.stop()
    file = member.files.open(f"member/archive/{CATALOG_FILE_NAME}", write=True)
    offset = 2 * CatalogHeader.BLOCK_LENGTH + RecordingDescriptor.offset_of(field) + 2
    [byte] = file.pread(1, offset)
    file.pwrite(bytes([byte ^ 0b11]), offset)  # a term length of 128 KiB, among others
    member.start()
    cluster.run(5 * SECOND)
    assert member.is_running, member.death
    send(cluster, 1)
    cluster.check()
    cluster.check_promises()
