"""Where frames and messages end, and which frames join on."""

import random
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.log import scan as scanning
from cluster.log.frames import LogParams
from cluster.log.scan import (
    check_run,
    fault_at,
    find_fault,
    last_message_end,
    split,
)
from tests.log import logs, naive
from tests.log.logs import PARAMS, array, seeds
from tests.log.naive import session_message

SMALL, LARGE = session_message(b"small"), session_message(b"L" * 5000)
LOG = naive.log_of([SMALL, LARGE, SMALL], PARAMS)  # begins at 0, 96, 5280; ends at 5376


def test_the_last_whole_message_never_ends_within_a_fragmented_one():
    run = array(LOG)

    assert last_message_end(run, 0, run.size) == run.size
    assert last_message_end(run, 0, 5280 - 32) == 96
    assert last_message_end(run, 0, 96) == 96


def test_cuts_move_to_where_no_message_is_split():
    run = array(LOG)

    assert split(run, 0, run.size, [0, 1, 96, 97, 3000, 5280, 5281]).tolist() == [
        0,
        96,
        96,
        5280,
        5280,
        5280,
        5376,
    ]
    assert split(run, 0, 3000, [50, 2000]).tolist() == [96, 96], "the run ends within the message"
    assert split(run, 0, run.size, []).tolist() == []


@settings(max_examples=50)
@given(seed=st.integers(0, 2**32), wanted=st.lists(st.integers(0, 40_000), max_size=6))
def test_ranges_between_cuts_hold_every_message_once(seed, wanted):
    rng = random.Random(seed)
    log = naive.log_of([logs.entry(rng) for _ in range(20)], PARAMS)
    run = array(log)

    cuts = split(run, 0, run.size, sorted(min(cut, len(log)) for cut in wanted)).tolist()
    edges = [0, *cuts, len(log)]

    parts = [naive.walk(log, begin, end).messages for begin, end in pairwise(edges)]
    assert [message for part in parts for message in part] == naive.walk(log, 0, len(log)).messages


@pytest.mark.parametrize("seed", seeds(40))
def test_frames_that_join_on_are_taken_up_to_the_first_that_does_not(seed):
    rng = random.Random(seed)
    params = logs.params(rng)
    position = rng.randrange(4096) * 32
    messages = [logs.entry(rng) for _ in range(rng.randrange(1, 30))]
    good = naive.log_of(messages, params, position)

    assert check_run(array(good), 0, len(good), position, params) == len(good)
    assert fault_at(array(good), 0, len(good), position, params) == ""
    if position >= 32:
        assert check_run(array(good), 0, len(good), position - 32, params) == 0, (
            "elsewhere it does not join on"
        )


FRAME = 96 + 1408  # the second fragment of LARGE, a middle one


@pytest.mark.parametrize(
    ("at", "value", "what"),
    [
        (0, 0, "frame length 0"),
        (0, -1408, "frame length -1408"),
        (0, 1 << 30, f"frame length {1 << 30}"),
        (0, 1409, "frame length 1409"),
        (4, 1, "version, flags and type 0x00000001"),
        (4, 0x0002_0000, "version, flags and type 0x00020000"),
        (4, 0x0001_2000, "version, flags and type 0x00012000"),
        (8, 96, "term offset 96"),
        (12, 5, "session id 5"),
        (16, 101, "stream id 101"),
        (20, 1, "term id 1"),
        (24, 1, "reserved value 0x1"),
        (28, 1, "reserved value 0x100000000"),
    ],
)
def test_a_frame_that_does_not_join_on_is_named(at, value, what):
    log = bytearray(LOG)
    log[FRAME + at : FRAME + at + 4] = value.to_bytes(4, "little", signed=True)
    run = array(bytes(log))

    assert check_run(run, 0, run.size, 0, PARAMS) == FRAME
    assert fault_at(run, 0, run.size, 0, PARAMS) == what
    assert find_fault(run, 0, run.size, 0, PARAMS)[0] == FRAME


def test_bytes_behind_a_payload_are_zero_except_in_a_recording():
    log = bytearray(LOG)
    log[95] = 1
    run = array(bytes(log))

    assert check_run(run, 0, run.size, 0, PARAMS) == 0
    assert fault_at(run, 0, run.size, 0, PARAMS) == "bytes of the padding are not zero"
    assert check_run(run, 0, run.size, 0, PARAMS, is_recording=True) == run.size


def test_a_padding_frame_is_zero_and_ends_with_the_term():
    position = PARAMS.term_length - 320
    log = bytearray(naive.append(position, bytes(1000), PARAMS))
    assert check_run(array(bytes(log)), 0, len(log), position, PARAMS) == len(log)

    log[200] = 1
    assert check_run(array(bytes(log)), 0, len(log), position, PARAMS) == 0
    log[200], log[0:2] = 0, (352).to_bytes(2, "little")
    assert find_fault(array(bytes(log)), 0, len(log), position, PARAMS) == (0, scanning.TERM_END)
    log[0:2] = (288).to_bytes(2, "little")
    assert find_fault(array(bytes(log)), 0, 288, position, PARAMS) == (0, scanning.FRAME_TYPE)


def test_a_message_that_has_begun_is_followed_by_its_rest_or_by_a_new_term():
    begun = naive.log_of([LARGE], PARAMS)[:1408]
    run = array(begun + naive.log_of([SMALL], PARAMS, 1408))
    assert find_fault(run, 0, run.size, 0, PARAMS) == (0, scanning.FRAGMENT)
    run = array(begun + naive.log_of([logs.entry(random.Random(1), "term")], PARAMS, 1408))
    assert find_fault(run, 0, run.size, 0, PARAMS) == (run.size, scanning.FINE)

    rest = naive.log_of([LARGE], PARAMS)[1408:]
    run = array(naive.log_of([SMALL], PARAMS, 1408 - 96) + rest)
    assert find_fault(run, 0, run.size, 1408 - 96, PARAMS) == (0, scanning.FRAGMENT), "nor one of another"


def test_the_lowest_term_id_follows_the_highest():
    params = LogParams(PARAMS.term_length, 1408, 2**31 - 1, session_id=1)
    run = array(naive.log_of([SMALL], params, params.term_length))

    assert int.from_bytes(run[20:24].tobytes(), "little", signed=True) == -(2**31)
    assert check_run(run, 0, run.size, params.term_length, params) == run.size


def test_a_recording_holds_the_sessions_of_all_its_leaders():
    other = LogParams(PARAMS.term_length, 1408, 0, session_id=99)
    log = naive.log_of([SMALL], PARAMS) + naive.log_of([SMALL], other, 96)
    run = array(log)

    assert check_run(run, 0, run.size, 0, PARAMS) == 96
    assert check_run(run, 0, run.size, 0, PARAMS, is_recording=True) == 192


def test_a_run_that_ends_within_a_frame_is_taken_up_to_it():
    run = array(LOG)

    for end in (97, 96 + 32, 96 + 1407):
        assert check_run(run, 0, end, 0, PARAMS) == 96
        assert "frame length" in fault_at(run, 0, end, 0, PARAMS)
    assert fault_at(np.zeros(0, np.uint8), 0, 0, 0, PARAMS) == ""
