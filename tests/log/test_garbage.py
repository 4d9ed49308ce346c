"""Whatever the bytes: a kernel ends, stays within its arrays, and says how far it came.

Outputs lie in the middle of larger arrays whose other bytes are watched. With compilation off every load and
store asserts its bounds as well (``test_kernels.py`` runs this file so).
"""

import random
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.errors import LogDamaged
from cluster.log.checksum import Checksum, restore_session_ids, store_checksums, verify_checksums
from cluster.log.columns import log_to_record_batch
from cluster.log.deliver import DeliveredMessages, deliver, read_message
from cluster.log.follow import follow_log
from cluster.log.frames import DONE, MALFORMED, OTHER_MESSAGE, OUT_FULL
from cluster.log.ingress import append_ingress
from cluster.log.scan import check_run, fault_at, last_message_end, split
from cluster.log.session_frames import EgressMessages, parse_egress
from cluster.log.session_table import SessionTable
from tests.log import logs, naive
from tests.log.logs import PARAMS, array, seeds
from tests.log.naive import ingress_frame, keep_alive, session_message

BATCH, ANSWERS = DeliveredMessages(rows=8, message_length_max=1 << 15), EgressMessages(rows=8)
GUARD = 256


def guarded(length: int) -> tuple[np.ndarray, np.ndarray]:
    """An output, and the array around it; ``intact`` tells whether that is still as it was."""
    around = np.full(length + 2 * GUARD, 0xEE, np.uint8)
    return around[GUARD : GUARD + length], around


def intact(around: np.ndarray) -> bool:
    return bool((around[:GUARD] == 0xEE).all() and (around[-GUARD:] == 0xEE).all())


def read_everything(data: bytes) -> None:
    """Run every kernel that reads a log over the bytes, until each has come to its end."""
    run, size = array(data), len(data)
    turns = size // 32 + 3  # more than there can be frames

    assert 0 <= naive.scan(run, 0, size) <= size
    assert 0 <= last_message_end(run, 0, size) <= naive.scan(run, 0, size)
    assert all(0 <= cut <= size for cut in split(run, 0, size, [size // 3, size // 2, size]))
    valid_end = check_run(run, 0, size, 0, PARAMS)
    assert (valid_end == size) == (fault_at(run, 0, size, 0, PARAMS) == "")

    consumed = 0
    for _ in range(turns):
        status, consumed = deliver(run, consumed, size, consumed, BATCH)
        for row in range(BATCH.count):
            assert len(BATCH.payload(row)) == BATCH.lengths[row] >= 0
        if status == OTHER_MESSAGE:
            message, end = read_message(run, consumed, size)
            assert message is not None
            assert end > consumed
            consumed = end
        elif status in (DONE, MALFORMED):
            break
    else:
        raise AssertionError("deliver makes no progress")

    table = SessionTable(4)
    table.open(1)
    consumed = 0
    for _ in range(turns):
        status, consumed, _ = follow_log(run, consumed, size, consumed, table)
        if status != OTHER_MESSAGE:
            break
        _, consumed = read_message(run, consumed, size)
    else:
        raise AssertionError("follow_log makes no progress")

    position = 0
    for _ in range(turns):
        try:
            decoded = log_to_record_batch(run, position, size, position, rows_max=5)
        except LogDamaged:
            break
        decoded.record_batch.validate(full=True)
        if decoded.next_position == position:
            break
        position = decoded.next_position
    else:
        raise AssertionError("log_to_record_batch makes no progress")

    copy = np.frombuffer(bytearray(data), np.uint8)
    whole = verify_checksums(Checksum.CRC_32C, run, 0, size)
    assert 0 <= whole <= size
    assert store_checksums(Checksum.CRC_32, copy, 0, size) == naive.scan(run, 0, size)
    assert restore_session_ids(copy, 0, size, 5) == naive.scan(run, 0, size)


def take_everything(data: bytes) -> None:
    """Run every kernel that reads what a peer sends over the bytes."""
    run, size = array(data), len(data)
    table = SessionTable(4)
    table.open(1, connection_id=7)
    out, around = guarded(1 << 16)
    consumed = 0
    for _ in range(size // 32 + 3):
        status, end_position, consumed = append_ingress(
            out, 0, 0, PARAMS, run, consumed, size, table, 7, 3, 99, 88
        )
        assert check_run(out, 0, end_position, 0, PARAMS) == end_position, (
            "only whole, right frames are appended"
        )
        if status in (DONE, MALFORMED):
            break
        if status != OUT_FULL:
            consumed += (
                (int(run[consumed : consumed + 4].view("<i4")[0]) + 31) // 32 * 32
            )  # the caller steps over it
    else:
        raise AssertionError("append_ingress makes no progress")
    assert intact(around)
    status, consumed = parse_egress(run, 0, size, ANSWERS)
    assert 0 <= consumed <= size
    for row in range(ANSWERS.count):
        assert len(ANSWERS.payload(row)) == ANSWERS.lengths[row] >= 0


def garbled_logs(rng: random.Random) -> Iterator[bytes]:
    log = naive.log_of([logs.entry(rng) for _ in range(rng.randrange(1, 12))], logs.params(rng))
    yield logs.garbled(rng, log)
    yield log[: rng.randrange(len(log) + 1)]
    yield bytes(rng.randrange(200)) + log
    yield rng.randbytes(rng.randrange(300))


@pytest.mark.parametrize("seed", seeds(150))
def test_no_log_leads_a_kernel_astray(seed):
    rng = random.Random(seed)
    for data in garbled_logs(rng):
        read_everything(data)


@pytest.mark.parametrize("seed", seeds(150))
def test_no_peer_leads_a_kernel_astray(seed):
    rng = random.Random(seed)
    messages = [
        session_message(logs.payload(rng)),
        keep_alive(),
        logs.entry(rng),
        session_message(bytes(9000)),
    ]
    data = b"".join(ingress_frame(rng.choice(messages), rng.choice((101, 101, 102))) for _ in range(8))
    for piece in (data, logs.garbled(rng, data), data[: rng.randrange(len(data))], rng.randbytes(200)):
        take_everything(piece)


HEADERS = st.tuples(
    st.sampled_from([-(2**31), -1, 0, 1, 31, 32, 33, 40, 63, 64, 72, 96, 128, 4096, 2**31 - 32, 2**31 - 1]),
    st.sampled_from([0, 0x40, 0x80, 0xC0, 0xFF]),
    st.sampled_from([0, 1, 2, 0xFFFF]),
    st.integers(0, 96),
)


@settings(max_examples=150)
@given(frames=st.lists(HEADERS, max_size=8), cut=st.integers(0, 64))
def test_no_sequence_of_headers_leads_a_kernel_astray(frames, cut):
    data = b""
    for length, flags, kind, room in frames:
        body = session_message(bytes(range(64)))[:room]
        header = naive.frame_header(length, session_id=1, stream_id=100, flags=flags, frame_type=kind)
        data += header + body.ljust((room + 31) // 32 * 32, b"\0")
    data = data[: len(data) - min(cut, len(data))]
    read_everything(data)
    take_everything(data)
