"""Frames and positions against the arithmetic of the seed and slow, obvious versions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.protocol.frame import (
    DataFrameHeader,
    align,
    compute_position,
    frame,
    header_at,
    is_mtu,
    is_term_length,
    message_length_max,
    position_bits,
    term_id_at,
    term_offset_at,
)

TERM_LENGTHS = [1 << bits for bits in range(16, 31)]
int32s = st.integers(-(2**31), 2**31 - 1)


@given(st.integers(0, 10**9), st.sampled_from([8, 32, 64, 4096]))
def test_align_is_the_next_multiple(n, a):
    assert align(n, a) == next(m for m in range(n, n + a) if m % a == 0)


@given(st.sampled_from(TERM_LENGTHS), int32s, st.integers(0, 2**31 - 1), st.data())
def test_a_position_is_a_term_and_an_offset_and_back(term_length, initial_term_id, term_count, data):
    bits = position_bits(term_length)
    offset = data.draw(st.integers(0, term_length - 1))
    position = term_count * term_length + offset

    term_id = term_id_at(position, bits, initial_term_id)
    assert -(2**31) <= term_id < 2**31
    assert term_offset_at(position, bits) == offset
    assert compute_position(term_id, offset, bits, initial_term_id) == position


def test_a_boundary_belongs_to_the_term_that_begins():
    assert (term_id_at(65_536, 16, 7), term_offset_at(65_536, 16)) == (8, 0)
    assert compute_position(7, 65_536, 16, 7) == compute_position(8, 0, 16, 7) == 65_536


def test_limits():
    assert message_length_max(64 * 1024) == 8 * 1024
    assert message_length_max(64 * 1024 * 1024) == 8 * 1024 * 1024
    assert message_length_max(1024 * 1024 * 1024) == 16 * 1024 * 1024
    assert all(map(is_term_length, TERM_LENGTHS))
    assert not any(map(is_term_length, [0, 32 * 1024, 65_537, 96 * 1024, 2 * 1024 * 1024 * 1024]))
    assert not any(map(is_mtu, [0, 32, 1400, 65_536]))


@pytest.mark.parametrize("length", [0, 1, 31, 32, 33, 1000])
def test_a_frame_is_aligned_and_zero_behind_its_payload(length):
    whole = frame(b"\xff" * length, session_id=-5, stream_id=100, term_id=3, term_offset=64)

    assert len(whole) == align(length + 32)
    assert int.from_bytes(whole[:4], "little") == length + 32
    assert whole[32 : 32 + length] == b"\xff" * length
    assert not any(whole[32 + length :])


def test_a_header_is_read_as_it_was_written():
    first = frame(b"\xff" * 40, session_id=-5, stream_id=100, term_id=3, term_offset=64, reserved_value=-1)
    second = frame(b"", session_id=7, stream_id=101, flags=0x80)

    header = DataFrameHeader(72, 0, 0xC0, 1, 64, -5, 100, 3, -1)
    assert header_at(first) == header
    assert header.aligned_length == len(first) == 96
    assert header_at(first + second, 96) == DataFrameHeader(32, 0, 0x80, 1, 0, 7, 101, 0, 0)


@pytest.mark.parametrize("length", [0, 3, 4, 20, 31])
def test_what_a_buffer_lacks_of_a_header_reads_as_unwritten(length):
    whole = frame(b"", session_id=-1, stream_id=-1, term_id=-1, term_offset=-1, reserved_value=-1)

    assert header_at(b"xx" + whole[:length], 2) == header_at(whole[:length].ljust(32, b"\0"))
