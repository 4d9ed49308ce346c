"""Answers to supervised sessions in whole turns of one member: kept by each, sent by a leader."""

import numpy as np
import pytest

from cluster.archive import recording_words as of_recording
from cluster.log import kept_frames
from cluster.log.message_columns import COLUMNS, EXTRA, LENGTHS, OFFSETS, SESSION_IDS, TIMESTAMPS
from cluster.log.session_table import ANSWERED, APPENDED, find_slot
from cluster.member.busy import words as at
from cluster.member.services.service_table import ANSWERED as TAKEN_ANSWERS
from cluster.protocol.frame import RESERVED_VALUE_AT
from cluster.protocol.link import CommitAck
from cluster.protocol.service_link import ServiceAnswers
from cluster.protocol.session import answer_id_of
from cluster.transport.message_frames import link_frame
from tests.member.busy.one_member import (
    BEGIN,
    CLIENT_A,
    CLIENT_B,
    CONNECTIONS,
    END,
    SECOND,
    SERVICE,
    STAMP,
    TERM,
    TERM_BEFORE,
    Function,
    OneMember,
    committed,
    ingress,
)

CAREFUL = 3  # a session of CLIENT_A
FRAME = 96  # of a short answer


def careful(*, leads=True, service=at.COMPILED_SERVICE, processes=0, is_asking=True):
    """A member that has kept answers of the session before, whose client asks for them."""
    member = OneMember(leads=leads, service=service, processes=processes)
    member.supervise(CAREFUL)
    member.answers.take(CAREFUL, 0, 0)
    if is_asking:
        member.answers.ask(CAREFUL, CONNECTIONS[CLIENT_A])
    return member


def answer_ids(member, send):
    """The reserved values of the frames that a send had."""
    sent = [done[2] for done in member.done if done[0] == "send"][send]
    places = range(RESERVED_VALUE_AT, len(sent), FRAME)
    return [int.from_bytes(sent[place : place + 8], "little") for place in places]


def test_an_answer_goes_to_its_client_with_its_id_before_what_is_acknowledged():
    leader = careful()
    leader.turn((CLIENT_A, ingress(1, [b"one"]) + ingress(CAREFUL, [b"two"])))
    assert leader.turn(leader.report(1, END)) == 0

    plain, kept, acks = leader.told
    assert plain == (CLIENT_A, [(TERM_BEFORE, 1, STAMP, 1, b"one"), CommitAck(1, TERM, 1, BEGIN + 96)])
    assert kept == (CLIENT_A, [(TERM, CAREFUL, STAMP, 1, b"two")])
    assert acks == (CLIENT_A, [CommitAck(CAREFUL, TERM, 1, END)])
    assert answer_ids(leader, 1) == [1]
    assert leader.answers.byte_count(CAREFUL) == FRAME
    assert leader.numbers.slots["answered"][leader.numbers.slot_of(CAREFUL)] == 1
    assert leader.tables.kept[kept_frames.TOUCHED_COUNT] == 0


def test_the_first_answer_of_a_session_is_pythons_with_all_that_follow():
    leader = OneMember(leads=True)
    leader.supervise(CAREFUL)
    leader.turn((CLIENT_A, ingress(1, [b"one"]) + ingress(CAREFUL, [b"two"])))
    assert leader.turn(leader.report(1, END)) == at.SERVICES

    assert leader.tables.service_cursor.tolist() == [BEGIN + 96] * 2
    assert leader.told[0][1][0] == (TERM_BEFORE, 1, STAMP, 1, b"one")
    slot = find_slot(leader.tables.numbers, CAREFUL)
    assert leader.tables.numbers[slot + APPENDED] == leader.tables.numbers[slot + ANSWERED] == 0


def test_a_follower_keeps_what_it_sends_nobody(log):
    follower = careful(leads=False, is_asking=False)
    follower.supervise(1)
    follower.answers.take(1, 0, 1)  # which the client has of the leader
    assert follower.turn(follower.from_member(1, *log, committed(END))) == 0

    assert all(descriptor != CLIENT_A for descriptor, *_ in map(list, follower.told[2:]))
    assert follower.answers.byte_count(1) == FRAME
    (frames,) = follower.answers.due(1, TERM)
    assert bytes(frames[64:67]) == b"two"


@pytest.mark.parametrize("why", ["nobody asks", "over another connection"])
def test_what_nobody_asks_for_here_is_kept_unsent(why):
    leader = careful(is_asking=False)
    if why == "over another connection":
        leader.answers.ask(CAREFUL, CONNECTIONS[CLIENT_B])
    leader.turn((CLIENT_A, ingress(CAREFUL, [b"one"])))
    assert leader.turn(leader.report(1, BEGIN + 96)) == 0

    assert leader.told == [(CLIENT_A, [CommitAck(CAREFUL, TERM, 1, BEGIN + 96)])]
    assert leader.answers.byte_count(CAREFUL) == FRAME
    assert leader.tables.kept[kept_frames.TOUCHED_COUNT] == 0


def test_that_a_session_is_full_is_pythons_to_say():
    leader = careful()
    leader.tables.recording.words[of_recording.SEGMENT_LENGTH] = 1 << 16
    leader.supervise(2)
    leader.answers.take(2, 0, 0)
    leader.answers.touch(2)
    leader.turn((CLIENT_A, ingress(CAREFUL, [b"one", b"two", b"three", b"four"])))
    assert leader.turn(leader.report(1, BEGIN + 4 * 96)) == at.SERVICES

    sent = leader.told[0][1]
    assert [answer[-1] for answer in sent] == [b"one", b"two", b"three"], "no more are in flight"
    assert answer_ids(leader, 0) == [1, 2, 3]
    assert leader.answers.take_touched() == [CAREFUL]

    leader.sessions.slots["retained"][leader.sessions.slot_of(CAREFUL)] = 1
    leader.answers.touch(CAREFUL)
    leader.turn((CLIENT_B, ingress(2, [b"other"])))
    assert leader.turn(leader.report(1, BEGIN + 5 * 96)) == 0, "which it said"
    leader.answers.take(CAREFUL, 0, 2)
    leader.answers.touch(CAREFUL)
    leader.turn((CLIENT_B, ingress(2, [b"other"])))
    assert leader.turn(leader.report(1, BEGIN + 6 * 96)) == 0
    assert (CLIENT_A, [(TERM, CAREFUL, STAMP, 4, b"four")]) in leader.told


@pytest.mark.parametrize(("answers", "reason"), [(1, 0), (2, at.SERVICES)])
def test_a_session_that_has_all_that_may_be_in_flight_is_full(answers, reason):
    leader = careful()
    leader.answers.words[kept_frames.BYTES_MAX] = 2 * FRAME
    leader.turn((CLIENT_A, ingress(CAREFUL, [b"one", b"two"][:answers])))
    assert leader.turn(leader.report(1, BEGIN + 96 * answers)) == reason


@pytest.mark.parametrize("room", [True, False])
def test_what_a_function_answers_without_room_is_left_to_python_to_keep(room):
    leader = careful()
    function = Function(leader, 4)
    function.session_id = CAREFUL
    if not room:
        leader.answers.words[16 + kept_frames.SIZE] = FRAME
    leader.turn((CLIENT_A, ingress(CAREFUL, [b"one", b"two"])))
    reason = leader.turn(leader.report(1, END))

    assert reason == (0 if room else at.SERVICES)
    assert leader.word(at.UNKEPT) == (0 if room else 2)
    assert leader.tables.answer_ids[:2].tolist() == [1, 2]
    assert leader.tables.service_cursor.tolist() == [END] * 2, "it has taken both"
    assert leader.answers.byte_count(CAREFUL) == (2 * FRAME if room else FRAME)


def said(*rows):
    """Answers to (session, id), as a service's process says them."""
    columns = np.zeros((COLUMNS, len(rows)), np.int64)
    columns[SESSION_IDS], columns[EXTRA] = zip(*rows, strict=True)
    columns[TIMESTAMPS], columns[OFFSETS], columns[LENGTHS] = 11, np.arange(len(rows)), 1
    return link_frame(ServiceAnswers(TERM_BEFORE, columns.tobytes(), b"abcdefgh"[: len(rows)]))


def test_a_leaders_process_has_its_answers_kept_and_sent():
    leader = careful(service=at.NO_SERVICE, processes=1)
    assert leader.turn((SERVICE, said((CAREFUL, 1), (2, 0), (CAREFUL, 2)))) == 0

    assert leader.told[:2] == [
        (CLIENT_A, [(TERM, CAREFUL, 11, 0, b"a"), (TERM, CAREFUL, 11, 0, b"c")]),
        (CLIENT_B, [(TERM_BEFORE, 2, 11, 0, b"b")]),
    ]
    assert leader.service(1)[TAKEN_ANSWERS] == 1, "those that are numbered are not counted"


def test_answers_of_each_process_are_kept_and_sent_by_its_id():
    leader = careful(service=at.NO_SERVICE, processes=2)
    for service_id in (1, 2):
        leader.answers.take(CAREFUL, service_id, 0)
    first, second = answer_id_of(1, 1), answer_id_of(2, 1)
    assert leader.turn((SECOND, said((CAREFUL, second))), (SERVICE, said((CAREFUL, first)))) == 0

    assert [answer_ids(leader, send) for send in (0, 1)] == [[first], [second]]
    leader.answers.take(CAREFUL, 2, 1)
    assert leader.answers.byte_count(CAREFUL) == FRAME, "of the other"


def test_a_client_that_asks_is_sent_what_is_kept_of_each_service():
    leader = careful(service=at.NO_SERVICE, processes=2, is_asking=False)
    ids = [answer_id_of(service_id, 1) for service_id in (1, 2)]
    for service_id, answer_id, descriptor in zip((1, 2), ids, (SERVICE, SECOND)):
        leader.answers.take(CAREFUL, service_id, 0)
        leader.turn((descriptor, said((CAREFUL, answer_id))))
        assert leader.told == []
    leader.answers.ask(CAREFUL, CONNECTIONS[CLIENT_A])
    leader.answers.touch(CAREFUL)
    leader.turn((SERVICE, said((2, 0))))
    assert sorted(answer_ids(leader, send) for send in (0, 1)) == [[answer_id] for answer_id in ids]


@pytest.mark.parametrize(("rows", "is_taken"), [([(CAREFUL, 1)], True), ([(CAREFUL, 1), (2, 0)], False)])
def test_a_followers_process_has_its_answers_to_supervised_sessions_kept(rows, is_taken):
    follower = careful(leads=False, service=at.NO_SERVICE, processes=1, is_asking=False)
    assert follower.turn((SERVICE, said(*rows))) == (0 if is_taken else at.FRAMES)

    assert follower.told == []
    assert follower.answers.byte_count(CAREFUL) == FRAME * is_taken


def test_what_a_process_answers_without_room_is_pythons():
    leader = careful(service=at.NO_SERVICE, processes=1)
    leader.answers.words[16 + kept_frames.SIZE] = FRAME
    assert leader.turn((SERVICE, said((CAREFUL, 1), (CAREFUL, 2)))) == at.FRAMES

    assert leader.told == []
    leader.answers.words[16 + kept_frames.SIZE] = 4 * FRAME
    assert leader.turn((SERVICE, said((CAREFUL, 1), (CAREFUL, 2)))) == 0
    assert leader.answers.byte_count(CAREFUL) == 2 * FRAME, "none is kept twice"
