"""recording.log, node-state.dat and the distinct error log: round trips and damage."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.errors import LocalProtocolError, LogDamaged
from cluster.protocol.error_log import decode_error_log, encode_error, record_error
from cluster.protocol.node_state import (
    CANDIDATE_TERM_OFFSET,
    CandidateTerm,
    FrameHeader,
    decode_node_state,
    encode_node_state,
)
from cluster.protocol.recording_log import (
    ENTRY_TYPE_OFFSET,
    SNAPSHOT,
    STANDBY_SNAPSHOT,
    TERM,
    RecordingLogEntry,
    decode_recording_log,
    encode_recording_log_entry,
    sort_entries,
)

i64s = st.integers(-(2**63), 2**63 - 1)


# -- recording.log --------------------------------------------------------------------------------


@st.composite
def entries(draw):
    entry_type = draw(st.sampled_from([TERM, SNAPSHOT, STANDBY_SNAPSHOT]))
    endpoint = draw(st.text("abc:0123456789", min_size=1, max_size=4044)) if entry_type == 2 else ""
    numbers = draw(st.lists(i64s, min_size=5, max_size=5))
    return RecordingLogEntry(*numbers, draw(st.integers(-1, 9)), entry_type, endpoint, draw(st.booleans()))


@settings(max_examples=50)
@given(st.lists(entries(), max_size=6))
def test_a_recording_log_reads_back_as_it_was_written(written):
    file = b"".join(map(encode_recording_log_entry, written))
    read = list(decode_recording_log(file))

    assert [entry._replace(entry_index=-1, offset=-1) for entry in read] == written
    assert [entry.entry_index for entry in read] == list(range(len(written)))
    assert all(entry.offset % 64 == 0 for entry in read)
    assert sum(entry.length for entry in read) == len(file)


def a_term(term_id=0, base=0, end=-1, index=-1):
    return RecordingLogEntry(0, term_id, base, end, 5, -1, TERM, entry_index=index)


def a_snapshot(service_id, term_id=0, position=64, entry_type=SNAPSHOT):
    endpoint = "h:8010" if entry_type is STANDBY_SNAPSHOT else ""
    return RecordingLogEntry(9, term_id, 0, position, 5, service_id, entry_type, endpoint)


def test_entries_are_closed_invalidated_and_removed_in_place():
    file = bytearray(
        encode_recording_log_entry(a_term())
        + encode_recording_log_entry(a_snapshot(0))
        + encode_recording_log_entry(a_term(1))
    )
    file[24:32] = (96).to_bytes(8, "little")
    file[64 + ENTRY_TYPE_OFFSET : 64 + ENTRY_TYPE_OFFSET + 4] = (SNAPSHOT | 1 << 31).to_bytes(4, "little")

    term, snapshot, last = decode_recording_log(file)
    assert (term.log_position, snapshot.is_valid, snapshot.entry_type) == (96, False, SNAPSHOT)
    assert (snapshot.entry_index, last.entry_index) == (1, 2)

    file[64 + ENTRY_TYPE_OFFSET : 64 + ENTRY_TYPE_OFFSET + 4] = b"\xff" * 4
    assert [entry.entry_index for entry in decode_recording_log(file)] == [0, 2]


def test_bytes_behind_an_entrys_fields_may_be_anything():
    file = bytearray(encode_recording_log_entry(a_term()))
    file[48:64] = b"stale, from what"
    assert [entry.archive_endpoint for entry in decode_recording_log(file)] == [""]


def test_a_tail_shorter_than_an_entry_ends_the_log():
    file = encode_recording_log_entry(a_term()) * 2

    assert [len(list(decode_recording_log(file[:length]))) for length in (0, 48, 49, 64, 112, 113, 128)] == (
        [0, 0, 1, 1, 1, 2, 2]
    )


def test_memory_order_puts_a_snapshots_services_before_its_consensus_module():
    shuffled = [
        a_snapshot(-1, position=64),
        a_snapshot(0, position=64, entry_type=STANDBY_SNAPSHOT),
        a_term(1, 128, index=4),
        a_snapshot(0, position=32),
        a_snapshot(1, position=64),
        a_snapshot(-1, position=32),
        a_term(0, index=3),
        a_snapshot(0, position=64),
    ]

    assert [
        (entry.leadership_term_id, entry.entry_type.name, entry.log_position, entry.service_id)
        for entry in sort_entries(shuffled)
    ] == [
        (0, "TERM", -1, -1),
        (0, "STANDBY_SNAPSHOT", 64, 0),
        (0, "SNAPSHOT", 32, 0),
        (0, "SNAPSHOT", 32, -1),
        (0, "SNAPSHOT", 64, 1),
        (0, "SNAPSHOT", 64, 0),
        (0, "SNAPSHOT", 64, -1),
        (1, "TERM", -1, -1),
    ]


def test_an_entry_of_no_known_type_is_damage_at_its_place():
    file = bytearray(encode_recording_log_entry(a_term()) * 2)
    file[64 + 44] = 7
    read = decode_recording_log(file)

    assert next(read).entry_index == 0
    with pytest.raises(LogDamaged, match="offset 108: entry type 7, expected 0, 1 or 2"):
        next(read)


def test_a_standby_snapshot_needs_its_endpoint():
    with pytest.raises(LocalProtocolError, match="archive endpoint of 0 bytes, expected 1 to 4044"):
        encode_recording_log_entry(a_snapshot(0, entry_type=STANDBY_SNAPSHOT)._replace(archive_endpoint=""))
    with pytest.raises(LogDamaged, match="archive_endpoint"):
        list(
            decode_recording_log(encode_recording_log_entry(a_snapshot(0, entry_type=STANDBY_SNAPSHOT))[:56])
        )


# -- node-state.dat -------------------------------------------------------------------------------


@settings(max_examples=50)
@given(i64s, i64s, i64s)
def test_a_node_state_reads_back_as_it_was_written(candidate_term_id, timestamp, log_position):
    state = CandidateTerm(candidate_term_id, timestamp, log_position)
    file = encode_node_state(state)

    assert decode_node_state(file) == decode_node_state(file + bytes(1000)) == (state, CANDIDATE_TERM_OFFSET)
    assert len(file) == 64


def test_records_that_we_do_not_know_are_skipped():
    file = encode_node_state(CandidateTerm(3, 5, 96))
    members = FrameHeader(4, 303, 112, 11, 16 + 9).encode_body() + b"members!!".ljust(16, b"\0")
    read = decode_node_state(file[:8] + members + file[8:])

    assert read == (CandidateTerm(3, 5, 96), 8 + len(members) + 16)


def test_a_newer_candidate_term_with_a_longer_block_is_read():
    file = encode_node_state(CandidateTerm(3, 5, 96))
    newer = FrameHeader(32, 301, 112, 12, 48).encode_body() + file[24:48] + b"8 bytes!"

    assert decode_node_state(file[:8] + newer + file[48:]).candidate_term == CandidateTerm(3, 5, 96)


@pytest.mark.parametrize(
    ("offset", "value", "said"),
    [
        (0, 1 << 24, "node state version 0.0.0 .16777216."),
        (0, 65_536, "node state version 1.0.0"),
        (12, 111, "schema 111 and frame length 40, expected schema 112"),
        (16, -1, "frame length -1"),
        (16, 8, "frame length 8"),
        (8, 16, "CandidateTerm: block length 16"),
        (10, 302, "no candidate term before its footer"),
        (56, 0, "ends without a footer"),
        (50, 305, "FrameHeader: block of 16 bytes at offset 64"),
    ],
)
def test_a_damaged_node_state_says_what_was_expected(offset, value, said):
    file = bytearray(encode_node_state(CandidateTerm(3, 5, 96)))
    width = 2 if offset in (8, 10, 12, 50) else 4
    file[offset : offset + width] = value.to_bytes(width, "little", signed=value < 0)

    with pytest.raises(LogDamaged, match=said):
        decode_node_state(file)


def test_a_file_of_zeros_holds_no_state():
    with pytest.raises(LogDamaged, match="offset 8: node state ends without a footer"):
        decode_node_state(bytes(4096))


# -- distinct error log ---------------------------------------------------------------------------


def test_an_error_is_kept_once_and_counted():
    buffer = bytearray(512)

    assert record_error(buffer, "disk full", 100)
    assert record_error(buffer, "link down", 150)
    assert record_error(buffer, "disk full", 300)
    assert record_error(buffer, "disk full", 200)
    assert [entry[2:] for entry in decode_error_log(buffer)] == [
        (3, 100, 300, "disk full"),
        (1, 150, 150, "link down"),
    ]
    assert [e.offset for e in decode_error_log(buffer)] == [0, 40]


def test_a_full_error_log_stays_as_it_is():
    buffer = bytearray(100)
    assert record_error(buffer, "a" * 30, 1)
    before = bytes(buffer)

    assert not record_error(buffer, "b" * 30, 2)
    assert bytes(buffer) == before
    assert record_error(buffer, "c" * 20, 2)


@settings(max_examples=50)
@given(st.lists(st.text(max_size=30), max_size=8), st.integers(0, 400))
def test_whatever_errors_come_they_read_back_in_order(texts, size):
    buffer = bytearray(size)
    kept = [text for text in texts if record_error(buffer, text, 7)]

    assert [entry.text for entry in decode_error_log(buffer)] == list(dict.fromkeys(kept))


def test_a_text_that_is_no_utf_8_does_not_shift_the_next_entry():
    first = bytearray(encode_error("caf?", 1))
    first[-1] = 0xE9
    buffer = bytearray(first.ljust(32, b"\0") + bytes(200))

    assert record_error(buffer, "next", 2)
    assert [entry.offset for entry in decode_error_log(buffer)] == [0, 32]


def test_a_length_that_points_outside_is_damage():
    buffer = bytearray(encode_error("disk full", 1)) + bytes(40)
    buffer[0:4] = (1000).to_bytes(4, "little")

    with pytest.raises(LogDamaged, match="error log entry of 1000 bytes, expected 24 to"):
        list(decode_error_log(buffer))
