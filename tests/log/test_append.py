"""A message in the log: frames, fragments, and the padding at the end of a term."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.log.append import BACK_PRESSURED, append_message, message_end_position
from cluster.log.deliver import read_message
from cluster.log.frames import LogParams, framed_length
from cluster.log.scan import check_run
from cluster.protocol.frame import HEADER_LENGTH, align
from tests.log import naive
from tests.log.logs import MTUS, PARAMS, array, params, room, seeds

TERM = PARAMS.term_length


def appended(message: bytes, position: int = 0, params: LogParams = PARAMS, length: int = 1 << 17) -> bytes:
    out = room(length)
    end_position = append_message(out, 0, position, params, message)
    taken = end_position - position
    assert (out[taken:] == 0xEE).all(), "wrote beyond the end"
    return out[:taken].tobytes()


def lengths_and_flags(run: bytes) -> list[tuple[int, int]]:
    frames, offset = [], 0
    while offset < len(run):
        length = int.from_bytes(run[offset : offset + 4], "little")
        frames.append((length, run[offset + 5]))
        offset += (length + 31) // 32 * 32
    return frames


def test_a_message_that_fits_the_mtu_is_one_frame_with_both_flags():
    assert lengths_and_flags(appended(bytes(1376))) == [(1408, 0xC0)]


def test_a_longer_one_is_fragmented_into_frames_of_the_mtu_and_a_rest():
    """5,000 bytes of payload behind the session header."""
    run = appended(bytes(5032))

    assert lengths_and_flags(run) == [(1408, 0x80), (1408, 0x00), (1408, 0x00), (936, 0x40)]
    assert len(run) == 5184


def test_a_length_that_divides_evenly_has_no_empty_last_frame():
    assert lengths_and_flags(appended(bytes(2 * 1376))) == [(1408, 0x80), (1408, 0x40)]


def test_what_does_not_fit_the_term_begins_the_next_one_behind_padding():
    position = TERM - 1120  # as observed in a real recording: offset 64,416 of a 64 KiB term
    run = appended(bytes(1200), position)

    assert lengths_and_flags(run) == [(1120, 0xC0), (1232, 0xC0)]
    assert run[6:8] == b"\0\0", "type padding"
    assert run[32:1120] == bytes(1088), "zero body"
    assert int.from_bytes(run[1120 + 20 : 1120 + 24], "little") == 1, "term id of the next term"
    assert check_run(array(run), 0, len(run), position, PARAMS) == len(run)


def test_what_fits_the_term_exactly_needs_no_padding():
    assert lengths_and_flags(appended(bytes(1088), TERM - 1120)) == [(1120, 0xC0)]
    assert lengths_and_flags(appended(bytes(1089), TERM - 1120))[0] == (1120, 0xC0)  # the padding


def test_padding_may_be_a_bare_header():
    assert lengths_and_flags(appended(bytes(100), TERM - 32)) == [(32, 0xC0), (132, 0xC0)]


def test_no_fragment_crosses_a_term():
    run = appended(bytes(8192), TERM - 8192)

    assert lengths_and_flags(run)[0] == (8192, 0xC0)
    assert lengths_and_flags(run)[1] == (1408, 0x80)


def test_term_ids_count_on_through_the_overflow():
    wrapping = LogParams(64 * 1024, 1408, initial_term_id=2**31 - 1, session_id=-1)
    run = appended(b"x", TERM, wrapping)

    assert int.from_bytes(run[20:24], "little", signed=True) == -(2**31)
    assert run == naive.append(TERM, b"x", wrapping)


def test_nothing_is_written_when_the_output_is_too_short():
    out = room(159)
    assert append_message(out, 0, 0, PARAMS, bytes(100)) == BACK_PRESSURED
    assert append_message(out, 128, TERM - 32, PARAMS, bytes(1)) == BACK_PRESSURED, "padding counts too"
    assert (out == 0xEE).all()


def test_the_least_batch_length_is_enough_for_any_message():
    for mtu in MTUS:
        small = LogParams(64 * 1024, mtu, 0, 0)
        longest = bytes(small.message_length_max)
        framed = len(naive.append(0, longest, small))
        run = appended(longest, TERM - framed + 32, small, small.batch_length_min)
        assert len(run) == 2 * framed - 32


@pytest.mark.parametrize("seed", seeds(60))
def test_frames_are_those_of_the_slow_twin(seed):
    rng = random.Random(seed)
    geometry = params(rng)
    for _ in range(20):
        position = rng.randrange(4 * TERM // 32) * 32
        length = rng.choice((1, 32, geometry.mtu - 32, geometry.mtu, rng.randrange(1, 8193)))
        message = rng.randbytes(min(length, geometry.message_length_max))

        run = appended(message, position, geometry)

        assert run == naive.append(position, message, geometry)
        assert message_end_position(position, len(message), geometry) == position + len(run)
        begin = len(run) - framed_length(len(message), geometry.mtu)
        assert read_message(array(run), begin, len(run)) == (message, len(run))


@settings(max_examples=60)
@given(
    slots_to_term_end=st.integers(1, 300),
    length=st.integers(1, 8192),
    mtu=st.sampled_from(MTUS),
)
def test_the_end_position_is_known_before_the_message_is_written(slots_to_term_end, length, mtu):
    """What NewLeadershipTermEvent and ClusterActionRequest carry as logPosition."""
    geometry = LogParams(64 * 1024, mtu, 0, 5)
    position = 3 * TERM - 32 * slots_to_term_end
    end_position = message_end_position(position, length, geometry)

    assert end_position == position + len(
        appended(bytes(length), position, geometry, geometry.batch_length_min)
    )
    begin_position = end_position - framed_length(length, geometry.mtu)
    assert begin_position // TERM == (end_position - 1) // TERM, "crosses a term"


def slowly_framed_length(length, mtu):
    total = 0
    while length > mtu - HEADER_LENGTH:
        total += mtu
        length -= mtu - HEADER_LENGTH
    return total + align(length + HEADER_LENGTH)


@given(st.integers(0, 200_000), st.integers(2, 2047).map(lambda n: n * 32))
def test_a_fragmented_message_takes_the_length_of_its_frames(length, mtu):
    assert framed_length(length, mtu) == slowly_framed_length(length, mtu)


def test_the_figures_of_five_thousand_bytes_at_the_default_mtu():
    assert framed_length(5_032, 1408) == 1408 * 3 + 960
