"""The leader's path into the log."""

import random

import pytest

from cluster.log.frames import (
    DONE,
    MALFORMED,
    OTHER_MESSAGE,
    OUT_FULL,
    SESSION_HEADER_LENGTH,
    TOO_LONG,
    UNLINKED,
)
from cluster.log.ingress import append_ingress
from cluster.log.session_table import CLOSING, DROPPED_SESSION, KEEP_ALIVES, MESSAGES, SessionTable
from cluster.protocol.session import SessionCloseRequest
from tests.log import logs, naive
from tests.log.logs import PARAMS, array, room, seeds
from tests.log.naive import ingress_frame, keep_alive, session_message

TERM_ID, NOW, CONNECTION = 3, 1_700_000_000_000, 7
NOW_NS = 86_400_000_000_000  # of the monotonic clock


def a_table(*sessions: int, connection: int = CONNECTION) -> SessionTable:
    table = SessionTable(16)
    for session in sessions:
        table.open(session, connection, active_ns=5)
    return table


def sequence(data: bytes, table: SessionTable, *, position: int = 0, length: int = 1 << 18, params=PARAMS):
    out = room(length)
    run = array(data)
    status, end_position, consumed = append_ingress(
        out, 0, position, params, run, 0, run.size, table, CONNECTION, TERM_ID, NOW, NOW_NS
    )
    taken = end_position - position
    assert (out[taken:] == 0xEE).all(), "wrote beyond the end"
    return status, out[:taken].tobytes(), consumed


@pytest.mark.conformance("C-215")
def test_a_message_is_appended_with_the_current_term_its_session_and_the_cluster_time():
    data = ingress_frame(session_message(b"hello", session=1))

    status, log, consumed = sequence(data, a_table(1))

    stamped = session_message(b"hello", term=TERM_ID, session=1, timestamp=NOW)
    assert (status, consumed) == (DONE, len(data))
    assert log == naive.append(0, stamped, PARAMS)


@pytest.mark.conformance("C-200")
def test_a_message_of_an_unknown_session_is_ignored():
    table = a_table(1)
    data = ingress_frame(session_message(b"x", session=2))

    assert sequence(data, table) == (DONE, b"", len(data))
    assert naive.counts(table)["dropped_session"] == 1


@pytest.mark.conformance("C-201")
def test_a_message_of_another_leadership_term_is_ignored():
    table = a_table(1)
    data = ingress_frame(session_message(b"x", term=TERM_ID - 1))

    assert sequence(data, table) == (DONE, b"", len(data))
    assert naive.counts(table)["dropped_term"] == 1


@pytest.mark.conformance("S-187")
def test_messages_of_a_session_that_is_held_are_dropped_and_it_lives_on():
    table = a_table(1, 2)
    table.slots["retained"][table.slot_of(1)] = 1
    held, other = (ingress_frame(session_message(b"x", session=session)) for session in (1, 2))

    status, log, consumed = sequence(held + other + held, table)

    stamped = session_message(b"x", term=TERM_ID, session=2, timestamp=NOW)
    assert (status, log, consumed) == (DONE, naive.append(0, stamped, PARAMS), 3 * len(held))
    assert naive.counts(table)["dropped_session"] == 2
    assert table.slots["appended"][[table.slot_of(1), table.slot_of(2)]].tolist() == [0, 1]
    assert table.slots["active_ns"][table.slot_of(1)] == NOW_NS


def test_a_session_takes_messages_from_its_own_connection_only():
    table = a_table(1, connection=CONNECTION + 1)
    data = ingress_frame(session_message(b"x"))

    assert sequence(data, table) == (DONE, b"", len(data))


def test_a_session_that_is_closing_takes_no_more_messages():
    table = a_table(1)
    table.slots["state"][table.slot_of(1)] = CLOSING

    assert sequence(ingress_frame(session_message(b"x")), table)[1] == b""


@pytest.mark.conformance("C-202", "C-203")
@pytest.mark.parametrize("message", [session_message(b"x"), keep_alive()])
def test_a_message_or_keep_alive_renews_the_activity_of_its_session(message):
    table = a_table(1, 2)
    sequence(ingress_frame(message), table)

    assert table.slots["active_ns"][table.slot_of(1)] == NOW_NS
    assert table.slots["active_ns"][table.slot_of(2)] == 5


def test_what_is_taken_is_counted_and_a_held_session_keeps_itself_alive():
    table = a_table(1)
    sequence(ingress_frame(session_message(b"x", session=1)), table)
    table.slots["retained"][table.slot_of(1)] = 1
    sequence(ingress_frame(keep_alive()), table)

    assert table.words[[MESSAGES, KEEP_ALIVES, DROPPED_SESSION]].tolist() == [1, 1, 0]


def test_a_session_that_is_closing_is_linked_to_no_connection_any_more():
    table = a_table(1, connection=-1)
    table.slots["state"][table.slot_of(1)] = CLOSING
    data = ingress_frame(keep_alive())

    assert sequence(data, table) == (DONE, b"", len(data))
    assert table.words[DROPPED_SESSION] == 1


def test_a_session_without_a_connection_is_for_the_caller_to_link():
    """After an election: the client comes over a connection that the new leader has not seen."""
    table = a_table(1, connection=-1)
    data = ingress_frame(keep_alive())

    assert sequence(data, table) == (UNLINKED, b"", 0)
    table.link(1, CONNECTION)
    assert sequence(data, table) == (DONE, b"", len(data))


def test_every_other_message_stops_the_run_before_it():
    first, other = (
        ingress_frame(session_message(b"x")),
        ingress_frame(SessionCloseRequest(TERM_ID, 1).encode()),
    )

    status, log, consumed = sequence(first + other + first, a_table(1))

    assert (status, consumed) == (OTHER_MESSAGE, len(first))
    assert len(log) == 96


@pytest.mark.parametrize(
    "frame",
    [
        ingress_frame(session_message(b"x", schema=112)),
        ingress_frame(session_message(b"x"), stream=1000),
        ingress_frame(b"short"),
    ],
    ids=["foreign schema", "our own stream", "too short for any message"],
)
def test_what_is_not_of_the_session_protocol_stops_the_run(frame):
    assert sequence(frame, a_table(1)) == (OTHER_MESSAGE, b"", 0)


@pytest.mark.parametrize("block_length", [0, 23, 60000])
def test_a_block_that_cannot_be_is_malformed(block_length):
    frame = bytearray(ingress_frame(session_message(b"x")))
    frame[32:34] = block_length.to_bytes(2, "little")

    assert sequence(bytes(frame), a_table(1)) == (MALFORMED, b"", 0)


def test_the_block_of_a_newer_client_is_not_taken_for_payload():
    frame = ingress_frame(session_message(b"hello", extra_block=b"new-fields", version=18))

    _, log, _ = sequence(frame, a_table(1))

    assert log == naive.append(0, session_message(b"hello", timestamp=NOW), PARAMS)


def test_half_a_frame_waits_for_its_other_half():
    data = ingress_frame(session_message(b"x" * 100))

    for end in (31, 32, 100, len(data) - 1):
        assert sequence(data[:end], a_table(1)) == (DONE, b"", 0)


def test_a_message_over_the_maximum_is_refused_and_others_go_on():
    payload_length_max = PARAMS.message_length_max - SESSION_HEADER_LENGTH
    too_long = ingress_frame(session_message(bytes(payload_length_max + 1)))
    fits = ingress_frame(session_message(bytes(payload_length_max)))
    table = a_table(1)

    assert sequence(too_long + fits, table) == (TOO_LONG, b"", 0)
    status, log, _ = sequence(fits, table)
    assert (status, len(naive.walk(log, 0, len(log)).messages)) == (DONE, 1)


@pytest.mark.conformance("C-216")
def test_a_message_that_the_output_has_no_room_for_comes_again():
    frames = [ingress_frame(session_message(b"%d" % i * 50)) for i in range(5)]
    data, table = b"".join(frames), a_table(1)

    status, log, consumed = sequence(data, table, length=2 * 128)
    assert (status, consumed) == (OUT_FULL, len(frames[0]) * 2)
    status, rest, _ = sequence(data[consumed:], table, position=256)

    whole, _ = sequence(data, a_table(1))[1:]
    assert status == DONE
    assert log + rest == whole
    assert table.slots["appended"][table.slot_of(1)] == 5


def test_padding_needs_room_too():
    position = PARAMS.term_length - 64
    data = ingress_frame(session_message(b"x"))

    assert sequence(data, a_table(1), position=position, length=159)[0] == OUT_FULL
    assert sequence(data, a_table(1), position=position, length=160)[0] == DONE


@pytest.mark.parametrize("seed", seeds(40))
def test_a_run_is_sequenced_as_the_slow_twin_does(seed):
    rng = random.Random(seed)
    params = logs.params(rng)
    position = rng.randrange(8192) * 32
    table = SessionTable(8)
    sessions = {}
    for session in range(1, 7):
        connection = rng.choice((CONNECTION, CONNECTION, 8))
        table.open(session, connection)
        sessions[session] = naive.Session(connection)
    twin = naive.Leader(params, sessions)

    frames = []
    for _ in range(rng.randrange(60)):
        term, session = rng.choice((TERM_ID,) * 9 + (2,)), rng.randrange(1, 9)
        if rng.random() < 0.2:
            message = keep_alive(term=term, session=session)
        else:
            message = session_message(logs.payload(rng, 7000), term=term, session=session)
        frames.append(ingress_frame(message))
    data = b"".join(frames)

    twin.take(data, CONNECTION, TERM_ID, NOW, NOW_NS, position)
    status, log, consumed = sequence(data, table, position=position, length=1 << 20, params=params)

    assert (status, consumed) == (DONE, len(data))
    assert log == twin.log
    assert (naive.counts(table)["dropped_term"], naive.counts(table)["dropped_session"]) == (
        twin.dropped_term,
        twin.dropped_session,
    )
    for session, expected in sessions.items():
        slot = table.slots[table.slot_of(session)]
        assert (slot["appended"], slot["active_ns"]) == (expected.appended, expected.active_ns)
