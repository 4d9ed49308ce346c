"""The kernel that finds whole frames, beside a slow twin, and the walk from header to header."""

import random

import numpy as np
import pytest

from cluster.log.runs import NOT_A_FRAME, headers, last_frame, whole_frames
from cluster.protocol.frame import HEADER_LENGTH, TYPE_AT, VERSION_AT, frame

LENGTH_MAX = 1000


def naive(data: bytes, is_log_allowed: bool) -> tuple[int, int]:
    end = 0
    while len(data) - end >= 32:
        length = int.from_bytes(data[end : end + 4], "little", signed=True)
        version, flags, kind = data[end + 4], data[end + 5], int.from_bytes(data[end + 6 : end + 8], "little")
        if not 32 <= length <= LENGTH_MAX or version != 0 or kind not in (0, 1):
            return end, NOT_A_FRAME
        if not is_log_allowed and (kind, flags) != (1, 0xC0):
            return end, NOT_A_FRAME
        aligned = (length + 31) // 32 * 32
        if end + aligned > len(data):
            return end, aligned
        end += aligned
    return end, 0


@pytest.mark.parametrize("seed", range(200))
def test_the_kernel_agrees_with_its_twin_on_good_and_garbled_streams(seed):
    chance = random.Random(seed)
    flags = [0xC0, 0x80, 0x40, 0x00] if seed % 2 else [0xC0]
    data = bytearray()
    for _ in range(chance.randrange(20)):
        longest = LENGTH_MAX - HEADER_LENGTH
        payload = chance.randbytes(chance.choice((*[chance.randrange(1, 400)] * 9, longest, longest + 1)))
        data += frame(payload, session_id=1, stream_id=101, flags=chance.choice(flags))
    if chance.random() < 0.5 and data:
        data[chance.randrange(len(data))] = chance.randrange(256)
    data = data[: chance.randrange(len(data) + 1)]
    buffer = np.frombuffer(bytes(data), np.uint8)

    for is_log_allowed in (True, False):
        assert whole_frames(buffer, 0, len(buffer), LENGTH_MAX, is_log_allowed) == naive(data, is_log_allowed)


@pytest.mark.parametrize("at", [VERSION_AT, TYPE_AT, TYPE_AT + 1])
@pytest.mark.parametrize("is_log_allowed", [True, False])
def test_no_frame_has_another_version_or_an_unknown_type(at, is_log_allowed):
    data = np.frombuffer(2 * frame(b"payload", session_id=1, stream_id=101), np.uint8).copy()
    data[len(data) // 2 + at] = 2
    found = whole_frames(data, 0, len(data), LENGTH_MAX, is_log_allowed)
    assert found == (len(data) // 2, NOT_A_FRAME)


def test_a_run_is_walked_from_header_to_header():
    run = b"".join(frame(bytes(length), session_id=length, stream_id=101) for length in (0, 100, 1, 64))

    walked = [(offset, header.session_id) for offset, header in headers(run)]

    assert walked == [(0, 0), (32, 100), (192, 1), (256, 64)]
    assert [offset for offset, _ in headers(run, 32, 256)] == [32, 192]
    offset, header = last_frame(run)
    assert (offset, header.session_id) == (256, 64)


def test_a_length_that_no_frame_has_does_not_hold_a_walk():
    with pytest.raises(AssertionError):
        list(headers(bytes(64)))
