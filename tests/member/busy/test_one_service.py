"""A service in whole turns of one member: its answers, and how far it is let into the log."""

import numpy as np
import pytest

from cluster.archive import recording_words as of_recording
from cluster.log.message_columns import COLUMNS
from cluster.log.session_table import APPENDED, find_slot
from cluster.member.busy import words as at
from cluster.member.log import log_words
from cluster.member.services.service_table import ANSWERED, FIRST_SENT_NS, LIMIT, SERVED
from cluster.protocol import streams
from cluster.protocol.link import CommitAck
from cluster.protocol.service_link import LogLimit, ServiceAnswers, ServicePosition, SnapshotBegin
from cluster.transport.message_frames import link_frame, message_frame
from tests.member.busy.one_member import (
    BEGIN,
    CLIENT_A,
    CLIENT_B,
    END,
    MS,
    ROWS,
    SERVICE,
    SERVICE_COUNTER,
    TERM,
    TERM_BEFORE,
    Function,
    OneMember,
    answers,
    committed,
    ingress,
)

# ---- the service in a process of its own


@pytest.mark.parametrize(("inline", "reason"), [(at.NO_SERVICE, 0), (at.PYTHON_SERVICE, at.SERVICES)])
def test_a_leaders_process_is_let_on_with_each_commit(inline, reason):
    leader = OneMember(leads=True, service=inline, processes=1)
    leader.turn((CLIENT_A, ingress(1, [b"one", b"two"])))
    assert leader.turn(leader.report(1, END), after_ns=MS) == reason
    acks = [(CLIENT_A, [CommitAck(1, TERM, 2, END)])]
    assert leader.told == [(SERVICE, [LogLimit(END)]), *([] if reason else acks)]
    assert leader.service(1)[[SERVED, ANSWERED, LIMIT]].tolist() == [BEGIN, 0, END]
    assert leader.service(1)[FIRST_SENT_NS] == leader.now_ns


def test_a_followers_process_is_let_on_after_a_while(log):
    follower = OneMember(leads=False, service=at.NO_SERVICE, processes=1)
    assert follower.turn(follower.from_member(1, *log, committed(END))) == 0
    assert (SERVICE, [LogLimit(END)]) not in follower.told
    assert follower.turn(after_ns=5 * MS) == at.IDLE
    assert follower.told == [(SERVICE, [LogLimit(END)])]
    assert follower.word(at.LIMIT_DUE_NS) == at.NEVER


def test_answers_of_a_leaders_process_go_to_their_clients_and_it_is_let_on():
    leader = OneMember(leads=True, service=at.NO_SERVICE, processes=1)
    leader.turn((CLIENT_A, ingress(1, [b"one", b"two"])))
    leader.turn(leader.report(1, END))
    leader.tables.member_log[log_words.COMMIT_POSITION] += 96
    said = answers((1, 11, 1, b"first"), (2, 12, 5, b"other"), (1, 13, 2, b"second"))
    assert leader.turn((SERVICE, said + link_frame(ServicePosition(END, 900, 3)))) == 0

    assert sorted(leader.told) == [
        (CLIENT_A, [(TERM_BEFORE, 1, 11, 1, b"first"), (TERM_BEFORE, 1, 13, 2, b"second")]),
        (CLIENT_B, [(TERM_BEFORE, 2, 12, 5, b"other")]),
        (SERVICE, [LogLimit(END + 96)]),
    ]
    assert leader.service(1)[[SERVED, ANSWERED, LIMIT]].tolist() == [END, 0, END + 96]
    assert leader.shown(1) == [END, 900, 3]


@pytest.mark.parametrize(
    "why", ["a follower", "too many", "too long", "odd", "another stream", "another kind"]
)
def test_what_a_process_says_that_is_rare_is_pythons(why):
    member = OneMember(leads=why != "a follower", service=at.NO_SERVICE, processes=1)
    said = answers((1, 11, 1, b"first"))
    match why:
        case "too many":
            said = answers(*[(1, 11, 1, b"")] * (ROWS + 1))
        case "too long":
            member.tables = member.tables._replace(egress=np.zeros(8 * 96 + 100, np.uint8))
            said = answers((1, 11, 1, b"x" * 40))
        case "odd":
            said = link_frame(ServiceAnswers(TERM, bytes(8 * COLUMNS + 8), b""))
        case "another stream":
            said = message_frame(ServicePosition(BEGIN, 0, 0), streams.SERVICE)
        case "another kind":
            said = link_frame(SnapshotBegin(BEGIN))
    assert member.turn((SERVICE, said)) == at.FRAMES
    assert member.told == []
    assert member.service(1)[[SERVED, ANSWERED, LIMIT]].tolist() == [BEGIN, 0, BEGIN]
    given = [member.word(place) for place in (at.GIVEN, at.GIVEN_BEGIN, at.GIVEN_END)]
    assert given == [SERVICE, 0, len(said)]


# ---- a function in compiled code


@pytest.mark.parametrize("leads", [True, False])
def test_a_function_is_given_each_message_once_and_a_leaders_answers_go_out(leads, log):
    member = OneMember(leads=leads)
    function = Function(member, 1)
    member.turn((CLIENT_A, ingress(1, [b"one", b"two"])) if leads else member.from_member(1, *log))
    reason = member.turn(member.report(1, END) if leads else member.from_member(1, committed(END)))

    assert reason == 0 and function.given == [(0, 1), (1, 2)]
    sent = [(CLIENT_A, [(TERM_BEFORE, 1, 0, 1, b"A"), CommitAck(1, TERM, 2, END)])]
    sent += [(CLIENT_A, [(TERM_BEFORE, 1, 0, 2, b"B")])]
    assert member.told == (sent if leads else [])
    assert member.tables.service_cursor.tolist() == [END, END]


def test_a_message_that_a_function_does_not_take_is_pythons_with_all_that_follow(leader):
    function = Function(leader, 4, pythons=[1])
    leader.turn((CLIENT_A, ingress(1, [b"one", b"two", b"three"])))
    assert leader.turn(leader.report(1, END + 96)) == at.SERVICES
    assert function.given == [(0, 1)]
    assert leader.tables.service_cursor.tolist() == [BEGIN + 96] * 2
    assert leader.tables.counters[SERVICE_COUNTER] == BEGIN + 96
    slot = find_slot(leader.tables.numbers, 1)
    assert leader.tables.numbers[slot + APPENDED] == 1


def test_a_function_that_answers_some_is_sent_for_those(leader):
    Function(leader, 4, silent=[0])
    leader.turn((CLIENT_A, ingress(1, [b"one", b"two"])))
    leader.turn(leader.report(1, END))
    assert leader.told == [(CLIENT_A, [(TERM_BEFORE, 1, 0, 2, b"B"), CommitAck(1, TERM, 2, END)])]


def test_more_messages_than_rows_are_served_in_one_turn(leader):
    leader.tables.words[at.SERVICE_ROWS] = 2
    function = Function(leader, 4)
    leader.turn((CLIENT_A, ingress(1, [b"one", b"two", b"three"])))
    leader.turn(leader.report(1, END + 96))
    assert len(function.given) == 3
    assert leader.tables.service_cursor.tolist() == [END + 96] * 2


def test_messages_in_fragments_are_served_from_where_they_are_joined(leader):
    payload = bytes(range(250)) * 8
    leader.tables.recording.words[of_recording.SEGMENT_LENGTH] = 1 << 16
    leader.turn((CLIENT_A, ingress(1, [b"one", payload])))
    end = int(leader.tables.log_end[log_words.FLUSHED])
    assert leader.turn(leader.report(1, end)) == 0
    ((_, (first, second, ack)),) = leader.told
    assert (first[-1], second[-1], ack[-1]) == (b"one", payload, end)
