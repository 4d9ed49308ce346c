"""What is kept for supervised sessions, and for how long."""

import numpy as np
import pytest

from cluster.consensus.kept_answers import BUFFER_BYTES, LOST_FACTOR, PIECE_LENGTH, AnswerColumns, KeptAnswers
from cluster.errors import LocalProtocolError
from cluster.log import kept_frames
from cluster.log.session_frames import EgressMessages, parse_egress
from cluster.log.session_table import SessionTable
from cluster.protocol import decode
from cluster.protocol.session import answer_id_of, split_answer_id

SESSION, SERVICE, TERM_ID = 7, 2, 3
CONNECTION = 5
LENGTH = 64  # of an answer, whose frame takes 128


def a_table(*sessions: int) -> SessionTable:
    table = SessionTable(64)
    for session_id in sessions or (SESSION,):
        table.open(session_id, CONNECTION, is_supervised=True)
    return table


def kept(count: int, *, bytes_max: int = 12_800, length: int = LENGTH) -> KeptAnswers:
    """``count`` answers of 128 bytes each."""
    answers = KeptAnswers(bytes_max, a_table())
    keep(answers, *range(1, count + 1), length=length)
    return answers


def keep(answers: KeptAnswers, *numbers: int, session_id: int = SESSION, service_id: int = SERVICE, **given):
    payloads = [bytes([number % 256]) * given.get("length", LENGTH) for number in numbers]
    lengths = np.array([len(payload) for payload in payloads], np.int64)
    answers.keep(
        AnswerColumns(
            np.full(len(numbers), session_id, np.int64),
            np.full(len(numbers), 5, np.int64),
            np.cumsum(lengths) - lengths,
            lengths,
            np.full(len(numbers), given.get("answered", 0), np.int64),
            np.array([answer_id_of(service_id, number) for number in numbers], np.int64),
            np.frombuffer(b"".join(payloads) or b"\0", np.uint8),
        )
    )


def sent(answers: KeptAnswers, session_id: int = SESSION) -> list[tuple[int, int, bytes]]:
    """Service, number and payload of what is due."""
    found = []
    for frames in answers.due(session_id, TERM_ID):
        batch = EgressMessages(20_000)
        buffer = np.array(frames)
        parse_egress(buffer, 0, len(buffer), batch, session_id)
        for row, answer_id in enumerate(batch.answer_ids.tolist()):
            found.append((*split_answer_id(answer_id), bytes(batch.payload(row))))
    return found


def due(answers: KeptAnswers) -> list[int]:
    return [number for _, number, _ in sent(answers)]


@pytest.mark.conformance("S-187")
def test_what_is_in_flight_is_bounded_and_goes_on_as_the_client_takes_it():
    answers = kept(9, bytes_max=384)

    assert due(answers) == [1, 2, 3]
    assert due(answers) == []
    assert answers.take(SESSION, SERVICE, 2)
    assert due(answers) == [4, 5]
    assert answers.byte_count(SESSION) == 7 * 128


@pytest.mark.conformance("S-187")
def test_another_leader_sends_what_the_client_lacks():
    answers = kept(5)
    answers.ask(SESSION, CONNECTION)
    assert due(answers) == [1, 2, 3, 4, 5]
    answers.take(SESSION, SERVICE, 3)

    answers.stop_asking()
    answers.ask(SESSION, CONNECTION)

    assert due(answers) == [4, 5]


@pytest.mark.conformance("S-187")
def test_as_much_is_sent_over_another_connection_as_over_the_first():
    answers = kept(9, bytes_max=384)
    assert due(answers) == [1, 2, 3]
    for connection_id in range(3):
        answers.ask(SESSION, connection_id)
        assert due(answers) == [1, 2, 3]
        answers.ask(SESSION, connection_id)
        assert due(answers) == [], "it was asked over this one before"

    answers.take(SESSION, SERVICE, 1)
    assert due(answers) == [4]


def test_what_was_taken_unsent_makes_no_room_for_what_is_in_flight():
    """The client has it of the leader before."""
    answers = kept(9, bytes_max=384)
    answers.take(SESSION, SERVICE, 2)

    assert due(answers) == [3, 4, 5]


def test_an_answer_that_is_given_again_or_that_the_client_has_is_not_kept():
    answers = kept(3)
    keep(answers, 1, 2, 3)
    assert answers.byte_count(SESSION) == 384
    answers.take(SESSION, SERVICE, 5)  # of another leader, whose service was further

    keep(answers, 2, 3, 4, 5, 6)

    assert due(answers) == [6]
    assert not answers.take(SESSION, SERVICE, 4), "no news"


def test_services_are_counted_apart():
    answers = kept(2)
    keep(answers, 1, service_id=0)

    answers.take(SESSION, SERVICE, 2)

    assert [answer[:2] for answer in sent(answers)] == [(0, 1)]
    assert list(answers.taken()) == [(SESSION, SERVICE, 2)]


def test_a_frame_has_the_term_of_the_leader_that_sends_it():
    answers = kept(1)
    (frames,) = answers.due(SESSION, 9)

    assert int.from_bytes(frames[40:48], "little") == 9
    assert decode(frames[32:]).timestamp == 5


def test_a_snapshot_has_all_that_is_kept_whatever_its_length():
    answers = kept(2, length=PIECE_LENGTH + 1)
    keep(answers, 1, service_id=0, length=0, answered=3)
    assert due(answers)[0] == 1  # in flight, it is kept, too
    other = KeptAnswers(12_800, a_table())

    other.load([decode(record) for record in answers.records()])

    assert all(len(record) < PIECE_LENGTH + 64 for record in answers.records())
    assert list(other.records()) == list(answers.records())
    long = PIECE_LENGTH + 1
    assert sorted(sent(other)) == [(0, 1, b""), (2, 1, b"\1" * long), (2, 2, b"\2" * long)]


def test_a_snapshot_has_what_was_kept_when_it_was_begun():
    answers = kept(600)
    records = answers.records()
    first = next(records)

    answers.take(SESSION, SERVICE, 500)
    keep(answers, *range(601, 3_000))

    assert [decode(record).answer_id & 0xFFFF for record in [first, *records]] == list(range(1, 601))


def test_what_a_client_lacks_and_nobody_keeps_is_known():
    answers = kept(LOST_FACTOR, bytes_max=128)
    answers.ask(SESSION, CONNECTION)
    assert answers.lost() == []

    keep(answers, LOST_FACTOR + 1)

    assert answers.byte_count(SESSION) <= LOST_FACTOR * 128
    assert answers.lost() == [SESSION]
    answers.take(SESSION, SERVICE, 5)
    assert answers.lost() == [], "the client has it"


def test_nobody_lacks_anything_who_has_not_asked():
    answers = kept(LOST_FACTOR + 1, bytes_max=128)

    assert answers.lost() == []


def test_more_than_a_buffer_at_first_is_kept_and_what_is_taken_makes_room_for_more():
    answers = kept(0, bytes_max=100 * BUFFER_BYTES)
    count = 5 * BUFFER_BYTES // 128
    keep(answers, *range(1, count + 1))
    assert len(sent(answers)) == count
    for number in range(count + 1, 20 * count, 1_000):
        answers.take(SESSION, SERVICE, number - 10)
        keep(answers, *range(number, number + 1_000))
        assert due(answers) == list(range(number, number + 1_000))

    assert answers.byte_count(SESSION) == 128 * (1_000 + 9)


def test_many_sessions_have_each_their_own_also_after_others_have_ended():
    table = a_table(*range(1, 60))
    answers = KeptAnswers(12_800, table)
    for session_id in range(1, 60):
        keep(answers, 1, 2, session_id=session_id)
        keep(answers, 1, session_id=session_id, service_id=0)
        answers.ask(session_id, session_id)
        answers.touch(session_id)
    for session_id in range(1, 60, 2):
        table.close(session_id)
    answers.prune()
    for session_id in range(61, 90):
        table.open(session_id, is_supervised=True)
        keep(answers, 1, session_id=session_id)

    assert answers.take_touched() == list(range(2, 60, 2))
    assert answers.take_touched() == []
    for session_id in range(2, 60, 2):
        assert sorted(answer[:2] for answer in sent(answers, session_id)) == [(0, 1), (2, 1), (2, 2)]
    for session_id in range(61, 90):
        assert [answer[:2] for answer in sent(answers, session_id)] == [(2, 1)]
    assert answers.byte_count(1) == 0


def test_answers_to_a_session_that_is_closed_are_dropped():
    answers = kept(0)

    keep(answers, 1, session_id=8)

    assert answers.byte_count(8) == 0


def test_an_answer_that_does_not_lie_in_its_buffer_is_refused():
    answers = kept(1)
    column = np.ones(1, np.int64)
    with pytest.raises(LocalProtocolError, match="row 0"):
        answers.keep(
            AnswerColumns(SESSION * column, column, column, 9 * column, column, column, np.zeros(9, np.uint8))
        )


@pytest.mark.parametrize(("begin", "has_room"), [(192, True), (160, False)])
def test_answers_move_to_the_begin_of_their_buffer_where_they_do_not_move_over_themselves(
    monkeypatch, begin, has_room
):
    words, moved = np.zeros(kept_frames.ROW_WORDS, np.int64), []
    words[[kept_frames.SIZE, kept_frames.BEGIN, kept_frames.SENT, kept_frames.END]] = 400, begin, 256, 384
    monkeypatch.setattr(kept_frames, "copy_bytes", lambda *given: moved.append(given[-2:]))
    room = getattr(kept_frames._has_room, "py_func", kept_frames._has_room)

    assert room(words, 0, None, 96) == has_room
    assert moved == [(192, 192)] * has_room
    places = words[[kept_frames.BEGIN, kept_frames.SENT, kept_frames.END]].tolist()
    assert places == ([0, 64, 192] if has_room else [160, 256, 384])
