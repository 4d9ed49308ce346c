"""Out of the log: columns for services, single entries, what the session table learns."""

import random
import struct

import numpy as np
import pytest

from cluster.log.deliver import DeliveredMessages, deliver, read_message
from cluster.log.follow import follow_log
from cluster.log.frames import DONE, MALFORMED, OTHER_MESSAGE, OUT_FULL
from cluster.log.session_table import SessionTable
from cluster.protocol.log import SessionOpenEvent, TimerEvent
from tests.log import logs, naive
from tests.log.logs import PARAMS, array, seeds
from tests.log.naive import session_message

SMALL, LARGE = session_message(b"small", session=1, timestamp=11), session_message(b"L" * 5000, session=2)
TIMER = TimerEvent(3, 42, 99).encode()
BATCH = DeliveredMessages(rows=64, message_length_max=1 << 16)


def delivered(log: bytes, *, start: int = 0, limit: int | None = None, position: int = 0, batch=BATCH):
    run = array(log)
    status, consumed = deliver(run, start, len(log) if limit is None else limit, position + start, batch)
    rows = list(zip(batch.session_ids.tolist(), batch.timestamps.tolist(), batch.positions.tolist()))
    return status, consumed, rows, [bytes(batch.payload(row)) for row in range(batch.count)]


def test_messages_come_as_columns_over_the_logs_own_bytes():
    log = naive.log_of([SMALL, session_message(b"", session=-(2**63) + 5, timestamp=12)], PARAMS)

    status, consumed, rows, payloads = delivered(log)

    assert (status, consumed) == (DONE, len(log))
    assert rows == [(1, 11, 96), (-(2**63) + 5, 12, 160)]
    assert payloads == [b"small", b""]
    assert BATCH.offsets.tolist() == [64, 96 + 64]
    assert BATCH.buffer[64:69].tobytes() == b"small"


def test_fragments_are_joined_and_all_payloads_of_the_batch_lie_in_one_buffer():
    log = naive.log_of([SMALL, LARGE, SMALL], PARAMS)

    status, _, rows, payloads = delivered(log)

    assert status == DONE
    assert payloads == [b"small", b"L" * 5000, b"small"]
    assert [position for _, _, position in rows] == [96, 96 + 5184, 192 + 5184], "ends of last fragments"


def test_a_message_whose_last_fragment_lies_beyond_the_limit_is_left_whole():
    log = naive.log_of([SMALL, LARGE], PARAMS)

    for limit in (96, 128, 96 + 1408, len(log) - 32):
        assert delivered(log, limit=limit)[1:] == (96, [(1, 11, 96)], [b"small"])
    assert delivered(log, limit=64)[:3] == (DONE, 0, [])


def test_padding_is_skipped():
    position = PARAMS.term_length - 160
    log = naive.log_of([SMALL, SMALL], PARAMS, position)

    status, consumed, rows, _ = delivered(log, position=position)

    assert (status, consumed) == (DONE, 96 + 64 + 96)
    assert [end for _, _, end in rows] == [position + 96, position + 256]


def test_fragments_of_a_message_that_began_before_are_skipped():
    log = naive.log_of([LARGE, SMALL], PARAMS)

    assert delivered(log, start=1408)[2:] == ([(1, 11, len(log))], [b"small"])


def test_a_message_that_another_one_breaks_off_is_dropped():
    first_fragment = naive.log_of([LARGE], PARAMS)[:1408]
    log = first_fragment + naive.log_of([SMALL], PARAMS)

    assert delivered(log)[3] == [b"small"]


def test_a_message_that_padding_breaks_off_is_dropped():
    """Padding never stands within a message that was written whole, so what follows it is another one's."""
    run = bytearray(naive.log_of([LARGE, SMALL], PARAMS))
    run[1408 + 6] = 0  # its second fragment: type padding

    assert delivered(bytes(run))[3] == [b"small"]


def test_another_entry_ends_the_columns_and_is_read_alone():
    opening = SessionOpenEvent(3, 42, 1, 5, 102, "aeron:udp", bytes(4096)).encode()
    log = naive.log_of([SMALL, opening, TIMER, SMALL], PARAMS)
    run = array(log)

    status, consumed, rows, _ = delivered(log)
    assert (status, consumed, len(rows)) == (OTHER_MESSAGE, 96, 1)
    message, end = read_message(run, consumed, run.size)
    assert message == opening, "joined from its fragments"
    assert read_message(run, end, run.size) == (TIMER, end + 64)
    assert delivered(log, start=end + 64)[3] == [b"small"]


def test_reading_one_message_skips_padding_and_waits_for_what_is_not_whole():
    log = naive.append(PARAMS.term_length - 64, SMALL, PARAMS)
    run = array(log)

    assert read_message(run, 0, run.size) == (None, 64)
    assert read_message(run, 64, run.size) == (SMALL, 160)
    assert read_message(run, 64, run.size - 32) == (None, 64)


def test_a_full_batch_goes_on_where_it_stopped():
    log = naive.log_of([SMALL] * 5, PARAMS)
    batch = DeliveredMessages(rows=2, message_length_max=1 << 16)
    taken, consumed, status = [], 0, OUT_FULL

    while status == OUT_FULL:
        status, consumed, rows, _ = delivered(log, start=consumed, batch=batch)
        taken += [end for _, _, end in rows]

    assert (status, taken) == (DONE, [96, 192, 288, 384, 480])


def test_a_batch_that_would_not_fit_the_side_buffer_ends_before_the_fragmented_message():
    log = naive.log_of([SMALL] * 40 + [LARGE] * 2, PARAMS)
    batch = DeliveredMessages(rows=64, message_length_max=4096)

    assert delivered(log, batch=batch)[:2] == (OUT_FULL, 40 * 96)
    assert delivered(log, start=40 * 96, batch=batch)[3] == [b"L" * 5000]


def test_padding_before_a_fragmented_message_takes_no_room_in_the_side_buffer():
    begin = PARAMS.term_length - 4096
    log = naive.log_of([LARGE], PARAMS, begin)
    batch = DeliveredMessages(rows=64, message_length_max=4096)

    assert len(log) > len(batch.side) > len(log) - 4096
    assert delivered(log, position=begin, batch=batch)[3] == [b"L" * 5000]


def test_a_message_that_no_side_buffer_holds_is_damage():
    batch = DeliveredMessages(rows=64, message_length_max=2048)
    log = naive.log_of([SMALL, LARGE], PARAMS)

    assert delivered(log, batch=batch)[:2] == (OUT_FULL, 96)
    assert delivered(log, start=96, batch=batch)[:2] == (MALFORMED, 96)


@pytest.mark.parametrize("damage", [(0, 0), (0, 31), (0, -5), (0, 39), (0, 63), (32, 23), (32, 60_000)])
def test_damage_below_the_limit_ends_the_columns_before_it(damage):
    at, value = damage
    log = bytearray(naive.log_of([SMALL, SMALL], PARAMS))
    struct.pack_into("<i" if at == 0 else "<H", log, 96 + at, value)

    assert delivered(bytes(log))[:3] == (MALFORMED, 96, [(1, 11, 96)])
    if at == 0:  # whoever counts messages reads no payloads
        assert follow_log(array(bytes(log)), 0, len(log), 0, SessionTable(8)) == (MALFORMED, 96, 1)


@pytest.mark.parametrize("seed", seeds(60))
def test_the_whole_log_comes_out_as_the_slow_twin_reads_it(seed):
    rng = random.Random(seed)
    params = logs.params(rng)
    position = rng.randrange(4096) * 32
    log = naive.log_of([logs.entry(rng) for _ in range(rng.randrange(80))], params, position)
    limit = rng.randrange(len(log) + 1) // 32 * 32
    batch = DeliveredMessages(rows=rng.choice((1, 7, 64)), message_length_max=1 << 14)
    twin = naive.walk(log, 0, limit)

    out, consumed, status = [], 0, OUT_FULL
    while status in (OUT_FULL, OTHER_MESSAGE):
        status, consumed, rows, payloads = delivered(
            log, start=consumed, limit=limit, position=position, batch=batch
        )
        out += [(end - position, *row, payload) for (*row, end), payload in zip(rows, payloads)]
        if status == OTHER_MESSAGE:
            message, consumed = read_message(array(log), consumed, limit)
            out.append((consumed, message))

    expected = []
    for _, end, message in twin.messages:
        if naive.is_session_message(message):
            _, session, timestamp = struct.unpack_from("<qqq", message, 8)
            expected.append((end, session, timestamp, naive.payload_of(message)))
        else:
            expected.append((end, message))
    assert out == expected
    assert (status, consumed) == (DONE, twin.stop)


@pytest.mark.conformance("C-225")
def test_committed_messages_are_counted_and_renew_no_activity():
    table = SessionTable(8)
    table.open(1, active_ns=5)
    of_services = {service_id: -(2**63) + (service_id << 56) + 9 for service_id in (3, 126)}
    of_each = [session_message(b"", session=session_id) for session_id in of_services.values()]
    log = naive.log_of([SMALL, LARGE, SMALL, *of_each], PARAMS)

    assert follow_log(array(log), 0, len(log), 1024, table) == (DONE, len(log), 5)

    slot = table.slots[table.slot_of(1)]
    assert (slot["committed"], slot["appended"], slot["active_ns"]) == (2, 2, 5)
    assert slot["committed_position"] == 1024 + 96 + 5184 + 96
    assert {id_: table.service_message_ids[id_] for id_ in of_services} == of_services
    assert table.last_timestamp == 11
    assert table.take_touched().tolist() == [table.slot_of(1)]
    assert table.take_touched().tolist() == []


def test_the_last_timestamp_is_the_highest_and_a_foreign_message_with_its_template_is_none():
    table = SessionTable(8)
    foreign = bytearray(session_message(b"", session=1, timestamp=99))
    foreign[4:6] = (1112).to_bytes(2, "little")  # its schema
    earlier = session_message(b"", session=1, timestamp=9)
    log = naive.log_of([SMALL, earlier, bytes(foreign)], PARAMS)

    assert follow_log(array(log), 0, len(log), 0, table) == (OTHER_MESSAGE, 96 + 64, 2)
    assert table.last_timestamp == 11


def test_a_leaders_own_count_of_what_it_appended_runs_ahead_of_what_is_committed():
    table = SessionTable(8)
    slot = table.open(1)
    table.slots["appended"][slot] = 7
    log = naive.log_of([SMALL], PARAMS)

    follow_log(array(log), 0, len(log), 0, table)

    assert (table.slots["appended"][slot], table.slots["committed"][slot]) == (7, 1)


def test_a_closed_session_is_no_longer_among_the_touched():
    table = SessionTable(8)
    log = b""
    for session in (1, 2, 3):
        table.open(session)
        log += naive.log_of([session_message(b"", session=session)], PARAMS, len(log))
    follow_log(array(log), 0, len(log), 0, table)

    table.close(2)
    reused = table.open(4)

    assert table.take_touched().tolist() == [table.slot_of(1), table.slot_of(3)]
    assert table.slots["touched"][reused] == 0


@pytest.mark.parametrize("seed", seeds(30))
def test_following_counts_what_the_slow_twin_counts(seed):
    rng = random.Random(seed)
    params = logs.params(rng)
    log = naive.log_of([logs.entry(rng) for _ in range(60)], params)
    limit = rng.randrange(len(log) + 1) // 32 * 32
    table = SessionTable(8)
    counts = dict.fromkeys(range(1, 6), 0)
    for session in counts:
        table.open(session)

    consumed, status = 0, OTHER_MESSAGE
    while status == OTHER_MESSAGE:
        status, consumed, _ = follow_log(array(log), consumed, limit, consumed, table)
        if status == OTHER_MESSAGE:
            _, consumed = read_message(array(log), consumed, limit)

    twin = naive.walk(log, 0, limit)
    for _, _, message in twin.messages:
        session = struct.unpack_from("<q", message, 16)[0]
        if naive.is_session_message(message) and session in counts:
            counts[session] += 1
    assert (status, consumed) == (DONE, twin.stop)
    assert {session: table.slots["committed"][table.slot_of(session)] for session in counts} == counts
    assert set(table.take_touched()) == {table.slot_of(session) for session, n in counts.items() if n}
    assert np.all(table.slots["touched"] == 0)
