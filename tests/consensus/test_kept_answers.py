"""What is kept for supervised sessions, and for how long."""

import pytest

from cluster.consensus.kept_answers import LOST_FACTOR, PIECE_LENGTH, KeptAnswer, KeptAnswers
from cluster.protocol import decode
from cluster.protocol.link import answer_id_of

SESSION, SERVICE = 7, 2


def kept(count: int, *, bytes_max: int = 10_000, length: int = 36) -> KeptAnswers:
    """``count`` answers of 100 bytes each."""
    answers = KeptAnswers(bytes_max)
    for number in range(1, count + 1):
        answers.keep(SESSION, an_answer(number, length))
    return answers


def an_answer(number: int, length: int = 36, service_id: int = SERVICE) -> KeptAnswer:
    return KeptAnswer(answer_id_of(service_id, number), 5, bytes([number]) * length)


def due(answers: KeptAnswers) -> list[int]:
    return [answer.number for answer in answers.due(SESSION)]


@pytest.mark.conformance("S-187")
def test_what_is_in_flight_is_bounded_and_goes_on_as_the_client_takes_it():
    answers = kept(9, bytes_max=300)

    assert due(answers) == [1, 2, 3]
    assert due(answers) == []
    assert answers.take(SESSION, SERVICE, 2)
    assert due(answers) == [4, 5]
    assert answers.byte_count(SESSION) == 700


@pytest.mark.conformance("S-187")
def test_another_leader_sends_what_the_client_lacks():
    answers = kept(5)
    assert due(answers) == [1, 2, 3, 4, 5]
    answers.take(SESSION, SERVICE, 3)

    answers.restart(SESSION)

    assert due(answers) == [4, 5]


@pytest.mark.conformance("S-187")
def test_as_much_is_sent_over_another_connection_as_over_the_first():
    answers = kept(9, bytes_max=300)
    assert due(answers) == [1, 2, 3]
    for _ in range(3):
        answers.restart(SESSION)
        assert due(answers) == [1, 2, 3]

    answers.take(SESSION, SERVICE, 1)
    assert due(answers) == [4]


def test_what_was_taken_unsent_makes_no_room_for_what_is_in_flight():
    """The client has it of the leader before."""
    answers = kept(9, bytes_max=300)
    answers.take(SESSION, SERVICE, 2)

    assert due(answers) == [3, 4, 5]


def test_an_answer_that_is_given_again_or_that_the_client_has_is_not_kept():
    answers = kept(3)
    for number in (1, 2, 3):
        answers.keep(SESSION, an_answer(number))
    assert answers.byte_count(SESSION) == 300
    answers.take(SESSION, SERVICE, 5)  # of another leader, whose service was further

    for number in (2, 3, 4, 5, 6):
        answers.keep(SESSION, an_answer(number))

    assert due(answers) == [6]
    assert not answers.take(SESSION, SERVICE, 4), "no news"


def test_services_are_counted_apart():
    answers = kept(2)
    answers.keep(SESSION, an_answer(1, service_id=0))

    answers.take(SESSION, SERVICE, 2)

    assert [answer.answer_id for answer in answers.due(SESSION)] == [answer_id_of(0, 1)]
    assert list(answers.taken()) == [(SESSION, SERVICE, 2)]


def test_a_snapshot_has_all_that_is_kept_whatever_its_length():
    answers = kept(2, length=PIECE_LENGTH + 1)
    answers.keep(SESSION, KeptAnswer(answer_id_of(0, 1), 9, b"", answered=3))
    assert next(answers.due(SESSION)).number == 1  # in flight, it is kept, too
    other = KeptAnswers(10_000)

    other.load([decode(record) for record in answers.records()])

    assert all(len(record) < PIECE_LENGTH + 64 for record in answers.records())
    assert list(other.due(SESSION)) == [
        KeptAnswer(answer_id_of(0, 1), 9, b"", answered=3),
        an_answer(1, PIECE_LENGTH + 1),
        an_answer(2, PIECE_LENGTH + 1),
    ]


def test_what_a_client_lacks_and_nobody_keeps_is_known():
    answers = kept(LOST_FACTOR, bytes_max=100)
    assert not answers.has_lost(SESSION)

    answers.keep(SESSION, an_answer(LOST_FACTOR + 1))

    assert answers.byte_count(SESSION) <= LOST_FACTOR * 100
    assert answers.has_lost(SESSION)
    answers.take(SESSION, SERVICE, 5)
    assert not answers.has_lost(SESSION), "the client has it"


def test_an_answer_that_is_longer_than_all_that_may_be_kept_is_kept_alone():
    answers = kept(1, bytes_max=10, length=5_000)

    assert due(answers) == [1]


def test_a_session_that_has_ended_is_forgotten():
    answers = kept(2)
    answers.keep(SESSION + 1, an_answer(1))

    answers.prune(lambda session_id: session_id != SESSION)

    assert due(answers) == [] and answers.byte_count(SESSION) == 0
    assert len(list(answers.due(SESSION + 1))) == 1
