"""Answers to each connection, and a client's batches."""

import random

import numpy as np
import pytest

from cluster.errors import LocalProtocolError
from cluster.log.follow import follow_log
from cluster.log.frames import DONE, MALFORMED, OTHER_MESSAGE, OUT_FULL
from cluster.log.session_frames import (
    ACK_LENGTH,
    EgressMessages,
    frame_egress,
    frame_ingress,
    join_payloads,
    parse_egress,
)
from cluster.log.session_table import NULL_VALUE, SessionTable
from cluster.protocol.frame import frame, header_at
from cluster.protocol.link import CommitAck
from cluster.protocol.session import SessionEvent, answer_id_of, split_answer_id
from cluster.service.channel import NO_NUMBERS
from cluster.transport.message_frames import link_frame
from tests.answer_frames import answer_frame
from tests.log import logs, naive
from tests.log.logs import PARAMS, array, room, seeds
from tests.log.naive import session_message

TERM_ID, ACKS_TERM_ID = 3, 12


def egress_frame(payload: bytes, session: int, timestamp: int) -> bytes:
    message = session_message(payload, term=TERM_ID, session=session, timestamp=timestamp)
    return frame(message, session_id=0, stream_id=102)


def a_table(connections: dict[int, int]) -> SessionTable:
    table = SessionTable(16)
    for session, connection in connections.items():
        table.open(session, connection)
    return table


def answers(rows: list[tuple[int, int, bytes]], table: SessionTable, *, length: int = 1 << 16):
    """Frame (session, timestamp, payload) rows; what each connection got, in the order of the ranges."""
    offsets, lengths, buffer = join_payloads([payload for _, _, payload in rows])
    sessions = np.array([session for session, _, _ in rows], np.int64)
    timestamps = np.array([timestamp for _, timestamp, _ in rows], np.int64)
    sent: list[tuple[int, bytes]] = []
    row = 0
    while row < len(rows):
        out = room(length)
        taken, ranges = frame_egress(
            out, sessions, timestamps, offsets, lengths, NO_NUMBERS, buffer, row, TERM_ID, ACKS_TERM_ID, table
        )
        assert taken > row, "no progress"
        row = taken
        assert [begin for _, begin, _ in ranges] == [0, *(end for _, _, end in ranges)][: len(ranges)]
        assert (out[ranges[-1][2] if ranges else 0 :] == 0xEE).all()
        sent += [(connection, out[begin:end].tobytes()) for connection, begin, end in ranges]
    assert (table.slots["egress_end"] == 0).all()
    return sent


def test_each_connection_gets_one_run_with_its_sessions_answers_in_their_order():
    table = a_table({1: 70, 2: 50, 3: 70})
    rows = [(1, 10, b"a"), (2, 10, b"b"), (3, 11, b"c"), (1, 12, b""), (2, 13, b"e" * 5000)]

    first, second = answers(rows, table)

    assert first == (50, egress_frame(b"b", 2, 10) + egress_frame(b"e" * 5000, 2, 13)), (
        "ascending connections"
    )
    assert second == (
        70,
        egress_frame(b"a", 1, 10) + egress_frame(b"", 1, 12) + egress_frame(b"c", 3, 11),
    )


def test_one_timestamp_serves_all_rows():
    out = room(1 << 12)
    columns = (
        *(np.full(2, 1, np.int64), np.array([99], np.int64), np.zeros(2, np.int64), np.ones(2, np.int64)),
        NO_NUMBERS,
    )

    taken, ranges = frame_egress(out, *columns, array(b"x"), 0, TERM_ID, TERM_ID, a_table({1: 5}))

    assert (taken, ranges) == (2, [[5, 0, 192]])
    assert out[:192].tobytes() == egress_frame(b"x", 1, 99) * 2


def test_answers_to_sessions_that_are_closed_or_not_connected_are_dropped():
    table = a_table({1: 5, 2: -1})

    assert answers([(2, 0, b"x"), (9, 0, b"x"), (-5, 0, b"x")], table) == []
    assert naive.counts(table)["dropped_egress"] == 3
    assert answers([(9, 0, b"x"), (1, 0, b"x")], table) == [(5, egress_frame(b"x", 1, 0))]


def test_a_full_output_takes_the_first_rows_and_the_rest_comes_next():
    table = a_table({1: 5, 2: 6})
    rows = [(1 + i % 2, i, b"%d" % i * 20) for i in range(10)]

    sent = answers(rows, table, length=4 * 96)

    assert len(sent) == 6, "three times two connections"
    for session, connection in ((1, 5), (2, 6)):
        assert b"".join(run for to, run in sent if to == connection) == b"".join(
            egress_frame(payload, s, time) for s, time, payload in rows if s == session
        )


def committed_in(table: SessionTable, *sessions: int) -> dict[int, bytes]:
    """Have messages of these sessions committed; the acknowledgement of each session then."""
    log = naive.log_of([session_message(b"", session=session) for session in sessions], PARAMS)
    follow_log(array(log), 0, len(log), 0, table)
    acks = [
        CommitAck(row["cluster_session_id"], ACKS_TERM_ID, row["committed"], row["committed_position"])
        for row in table.slots
    ]
    return {ack.cluster_session_id: link_frame(ack) for ack in acks}


def acks_in(table: SessionTable) -> list[tuple[int, bytes]]:
    """What connections get beside all answers."""
    nothing, out = np.zeros(0, np.int64), room(16 * ACK_LENGTH)
    columns = nothing, nothing, nothing, nothing, NO_NUMBERS, array(b"")
    taken, ranges = frame_egress(out, *columns, 0, TERM_ID, ACKS_TERM_ID, table)
    assert taken == 0
    return [(connection, out[begin:end].tobytes()) for connection, begin, end in ranges]


def test_each_connection_gets_one_run_with_the_acknowledgements_of_its_touched_sessions():
    table = a_table({3: 7, 5: 6, 4: 7, 9: NULL_VALUE, 1: 6})
    acks = committed_in(table, 3, 9, 4, 5, 3)

    assert acks_in(table) == [(6, acks[5]), (7, acks[3] + acks[4])]
    assert acks_in(table) == []
    acks = committed_in(table, 3)
    assert acks_in(table) == [(7, acks[3])], "whatever is touched again"


def test_a_session_that_gets_no_answers_is_acknowledged_after_those_that_do_whatever_came_first():
    table = a_table({1: 5, 2: 6})
    acks = committed_in(table, 1, 2)
    one, nothing = np.ones(1, np.int64), np.zeros(1, np.int64)
    frame_egress(
        room(1024), one, nothing, nothing, nothing, nothing, array(b""), 0, TERM_ID, ACKS_TERM_ID, table
    )

    assert acks_in(table) == [(6, acks[2])]


def test_a_session_that_gets_answers_is_acknowledged_behind_the_last_of_them():
    table = a_table({1: 5, 2: 6, 3: 7})
    acks = committed_in(table, 2, 1)
    rows = [(session, i, b"%d" % i) for i, session in enumerate((1, 1, 1, 1, 3, 1))]

    sent = answers(rows, table, length=2 * 96 + 2 * ACK_LENGTH)

    one, two, three, four, of_3, last = (egress_frame(payload, s, i) for s, i, payload in rows)
    assert sent == [(5, one + two), (5, three + four), (5, last + acks[1]), (7, of_3)]
    assert acks_in(table) == [(6, acks[2])]


@pytest.mark.parametrize(
    ("offset", "length"), [(-1, 1), (0, 4), (3, 1), (0, -1), (2**62, 2**62), (2**63 - 9, 20)]
)
def test_a_row_that_lies_outside_its_buffer_is_the_callers_mistake(offset, length):
    columns = (np.full(2, 1, np.int64), np.zeros(1, np.int64), np.array([0, offset]), np.array([1, length]))
    numbers = np.array([1, 2])
    table = a_table({1: 5})

    with pytest.raises(LocalProtocolError, match="row 1"):
        frame_egress(room(4096), *columns, numbers, array(b"abc"), 0, TERM_ID, TERM_ID, table)
    assert (table.slots["egress_end"] == 0).all()
    with pytest.raises(LocalProtocolError, match="row 1"):
        frame_ingress(room(4096), 0, *columns[2:], array(b"abc"), 0, TERM_ID, 1)


@pytest.mark.parametrize("seed", seeds(40))
def test_answers_are_grouped_as_the_slow_twin_groups_them(seed):
    rng = random.Random(seed)
    connections = {session: rng.choice((-1, 3, 4, 5, 6, 7, 8)) for session in rng.sample(range(1, 40), 12)}
    rows = [
        (rng.choice([*connections, 99]), rng.randrange(9), logs.payload(rng))
        for _ in range(rng.randrange(60))
    ]

    sent = dict(answers(rows, a_table(connections), length=1 << 20))

    assert set(sent) == {connections.get(session, -1) for session, _, _ in rows} - {-1}
    assert list(sent) == sorted(sent)
    for connection, run in sent.items():
        batch = EgressMessages(64)
        assert parse_egress(array(run), 0, len(run), batch) == (DONE, len(run))
        for session in connections:
            got = [
                (int(batch.timestamps[i]), bytes(batch.payload(i)))
                for i in range(batch.count)
                if batch.session_ids[i] == session
            ]
            mine = [(time, payload) for s, time, payload in rows if s == session]
            assert got == (mine if connections[session] == connection else [])


def test_a_client_frames_many_messages_at_once():
    offsets, lengths, buffer = join_payloads([b"a", b"", b"c" * 3000])
    out = room(1 << 13)

    taken, end = frame_ingress(out, 0, offsets, lengths, buffer, 0, TERM_ID, 8)

    expected = b"".join(
        frame(session_message(payload, session=8), session_id=0, stream_id=101)
        for payload in (b"a", b"", b"c" * 3000)
    )
    assert (taken, out[:end].tobytes()) == (3, expected)


def test_equal_messages_share_one_payload():
    out = room(1 << 12)
    taken, end = frame_ingress(
        out, 0, np.zeros(3, np.int64), np.full(3, 4, np.int64), array(b"same"), 0, TERM_ID, 8
    )

    assert (taken, out[:end].tobytes()) == (
        3,
        frame(session_message(b"same", session=8), session_id=0, stream_id=101) * 3,
    )


def test_a_client_frames_through_full_outputs():
    offsets, lengths, buffer = join_payloads([b"%d" % i for i in range(5)])
    framed, row = b"", 0
    while row < 5:
        out = room(200)
        row, end = frame_ingress(out, 0, offsets, lengths, buffer, row, TERM_ID, 8)
        framed += out[:end].tobytes()

    assert framed == b"".join(
        frame(session_message(b"%d" % i, session=8), session_id=0, stream_id=101) for i in range(5)
    )


def test_received_answers_come_as_columns_over_the_receive_buffer():
    run = array(egress_frame(b"hello", 7, 42) + egress_frame(b"", 7, 43))
    batch = EgressMessages()

    assert parse_egress(run, 0, run.size, batch) == (DONE, run.size)
    assert batch.session_ids.tolist() == [7, 7]
    assert batch.timestamps.tolist() == [42, 43]
    assert batch.answer_ids.tolist() == [0, 0]
    assert [bytes(batch.payload(i)) for i in range(2)] == [b"hello", b""]
    assert np.shares_memory(batch.buffer, run)


def test_the_reserved_value_of_an_answer_is_its_id():
    message = session_message(b"x", term=TERM_ID, session=7, timestamp=1)
    run = array(frame(message, session_id=0, stream_id=102, reserved_value=answer_id_of(9, 1 << 40)))
    batch = EgressMessages()

    parse_egress(run, 0, run.size, batch)

    (answer_id,) = batch.answer_ids.tolist()
    assert split_answer_id(answer_id) == (9, 1 << 40)


def test_an_answer_has_the_number_of_its_message_where_a_frame_of_the_log_has_term_offset_and_session_id():
    numbers = np.array([1, 0, 1 << 33], np.int64)
    offsets, lengths, buffer = join_payloads([b"a", b"b", b"c"])
    sessions, timestamps = np.full(3, 7, np.int64), np.arange(3, dtype=np.int64)
    out, batch = room(1 << 10), EgressMessages()

    _, ((_, _, end),) = frame_egress(
        out, sessions, timestamps, offsets, lengths, numbers, buffer, 0, TERM_ID, TERM_ID, a_table({7: 5})
    )
    parse_egress(out, 0, end, batch)

    assert batch.numbers.tolist() == numbers.tolist()
    assert header_at(out).reserved_value == 0
    kept = answer_frame(TERM_ID, 7, b"a", answered=(1 << 33) - 1, answer_id=answer_id_of(0, 1))
    parse_egress(array(kept), 0, len(kept), batch)
    assert (batch.numbers.tolist(), batch.answer_ids.tolist()) == ([(1 << 33) - 1], [1])


def test_another_egress_message_stops_the_columns():
    answer = egress_frame(b"x", 1, 0)
    event = frame(SessionEvent(1, 2, 3, 0, 0, detail="").encode(), session_id=0, stream_id=102)
    run = array(answer + event + answer)
    batch = EgressMessages()

    assert parse_egress(run, 0, run.size, batch) == (OTHER_MESSAGE, len(answer))
    assert batch.count == 1
    ours = frame(session_message(b""), session_id=0, stream_id=1000)
    assert parse_egress(array(ours), 0, len(ours), batch) == (OTHER_MESSAGE, 0)


def test_a_client_with_fewer_rows_than_came_goes_on_where_it_stopped():
    run = array(egress_frame(b"x", 1, 0) * 3)
    batch = EgressMessages(rows=2)

    assert parse_egress(run, 0, run.size, batch) == (OUT_FULL, 192)
    assert parse_egress(run, 192, run.size, batch) == (DONE, 288)
    assert batch.count == 1
    assert parse_egress(run, 192, 288 - 1, batch) == (DONE, 192), "half a frame waits"


def test_a_frame_length_that_cannot_be_is_malformed():
    assert parse_egress(array(bytes(64)), 0, 64, EgressMessages()) == (MALFORMED, 0)
    run = bytearray(egress_frame(b"x", 1, 0))
    run[32] = 200  # a block longer than the message
    assert parse_egress(array(bytes(run)), 0, len(run), EgressMessages()) == (MALFORMED, 0)
