"""One bit of a recording has changed: whoever checks its frames stops at or before the frame that has it."""

import numba
import numpy as np
import pytest

from cluster.log.checksum import Checksum, store_checksums, verify_checksums
from cluster.log.frames import LogParams
from cluster.log.scan import check_run, fault_at
from cluster.protocol.enums import ClusterTimeUnit
from cluster.protocol.log import NewLeadershipTermEvent
from tests.log import naive
from tests.log.logs import PARAMS
from tests.log.naive import session_message

FRAME_HEADER = 32
SMALL, LARGE = session_message(b"small"), session_message(b"L" * 3000)
TERM_EVENT = NewLeadershipTermEvent(1, 0, 0, 0, 0, 7, ClusterTimeUnit.MILLIS, 1).encode()
END_OF_TERM = PARAMS.term_length


def a_run(position: int, *messages: bytes, params: LogParams = PARAMS) -> bytes:
    return naive.log_of(list(messages), params, position)


# Within a term, and from one that ends with padding, or exactly with a message, to the next.
RUNS = {
    "in a term": (0, a_run(0, SMALL, LARGE, SMALL, SMALL)),
    "over padding": (END_OF_TERM - 320, a_run(END_OF_TERM - 320, SMALL, LARGE, SMALL)),
    "over a term's end": (END_OF_TERM - 192, a_run(END_OF_TERM - 192, SMALL, SMALL, LARGE, SMALL)),
}


def frames_of(run: bytes) -> list[tuple[int, int]]:
    """Begin and aligned end of each."""
    found, begin = [], 0
    while begin < len(run):
        length = int.from_bytes(run[begin : begin + 4], "little")
        end = begin + (length + 31) // 32 * 32
        found.append((begin, end))
        begin = end
    return found


def taken(run: bytes, position: int, checksum: Checksum | None) -> int:
    """Offset up to which a reader of the recording takes it."""
    data = np.frombuffer(run, np.uint8)
    good = check_run(data, 0, len(data), position, PARAMS, is_recording=True)
    assert (good == len(data)) == (fault_at(data, 0, len(data), position, PARAMS, is_recording=True) == "")
    return good if checksum is None else verify_checksums(checksum, data, 0, good)


def is_told(at: int, bit: int, frame: bytes, *, has_checksum: bool, ends_term: bool) -> bool:
    """Whether the bit of that byte of a frame can be seen to have changed.

    Not what nobody reads of padding; nor a length that ends in the same 32 bytes, which no checksum covers;
    nor, without checksums, session ids, payloads, and whether a term ends with a message or padding.
    """
    is_padding = frame[6] == 0
    if at == 0:
        return (frame[0] - 1) // 32 != ((frame[0] ^ 1 << bit) - 1) // 32
    if 12 <= at < 16 or at >= FRAME_HEADER:
        return has_checksum and not is_padding
    return has_checksum or not ends_term or (at, bit) != (6, 0)


# As plain Python, which takes seconds for a kind, the default one stands for both.
KINDS = [None, Checksum.CRC_32C] if numba.config.DISABLE_JIT else [None, *Checksum]


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("checksum", KINDS)
def test_no_flipped_bit_is_taken_for_the_log(name, checksum):
    position, log = RUNS[name]
    data = np.frombuffer(bytearray(log), np.uint8)
    if checksum is not None:
        store_checksums(checksum, data, 0, len(data))
    run = data.tobytes()
    assert taken(run, position, checksum) == len(run)
    for begin, end in frames_of(run):
        frame = run[begin:end]
        for at in [*range(min(len(frame), FRAME_HEADER + 2)), len(frame) - 1]:
            for bit in range(8):
                if end == len(run) and (at, bit) == (5, 6):
                    continue  # the rest of the last message may be to come
                if begin == 0 < position and (at, bit) == (5, 7):
                    continue  # and of the first one be before the run
                flipped = bytearray(run)
                flipped[begin + at] ^= 1 << bit
                good = taken(bytes(flipped), position, checksum)
                ends_term = (position + end) % END_OF_TERM == 0
                if is_told(at, bit, frame, has_checksum=checksum is not None, ends_term=ends_term):
                    is_length = checksum is None and at < 4  # seen where the next frame should begin
                    assert good < len(run) if is_length else good <= begin, (begin, at, bit)
                else:
                    assert good == len(run), (begin, at, bit)


@pytest.mark.parametrize("padding", [0, 64])
def test_a_message_that_a_leader_left_unfinished_is_followed_by_a_new_term(padding):
    position = END_OF_TERM - 1408 - padding if padding else 0
    unfinished = a_run(0, LARGE)[:1408]
    head = bytearray(a_run(position, session_message(bytes(1408 - 64))))
    head[5] = unfinished[5]
    run = bytes(head) + a_run(position + 1408, TERM_EVENT, SMALL)
    assert taken(run, position, None) == len(run)
    other = bytes(head) + a_run(position + 1408, SMALL, SMALL)
    if not padding:
        assert taken(other, position, None) == 0, "no leader goes on like this"


def test_a_run_may_begin_within_a_message():
    run = a_run(96, LARGE, SMALL)
    assert taken(run[1408:], 96 + 1408, None) == len(run) - 1408


def test_a_term_does_not_begin_within_a_message():
    run = bytearray(a_run(0, SMALL))
    run[5] = 0x40
    assert taken(bytes(run), 0, None) == 0
