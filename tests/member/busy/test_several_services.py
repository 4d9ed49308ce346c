"""Several services of a member, in whole turns and in runs: in processes of their own, beside one in line."""

import numpy as np
import pytest

from cluster.log.connection_table import PART_BYTES, PART_LENGTH
from cluster.member.busy import lend
from cluster.member.busy import words as at
from cluster.member.log.log_words import COMMIT_POSITION
from cluster.member.services.service_table import ANSWERED, LIMIT, LIMITS_MAX, SERVED
from cluster.protocol.link import CommitAck
from cluster.protocol.service_link import LogLimit, ServicePosition, SnapshotBegin
from cluster.service.echo import EchoService
from cluster.transport.message_frames import link_frame
from tests.member.busy.busy_cluster import PAYLOADS, processes, run
from tests.member.busy.one_member import (
    BEGIN,
    CLIENT_A,
    CLIENT_B,
    END,
    MS,
    SECOND,
    SERVICE,
    STAMP,
    TERM,
    TERM_BEFORE,
    OneMember,
    answers,
    committed,
    ingress,
)
from tests.node.counting_service import Repeating

TO_BOTH = [(SERVICE, [LogLimit(END)]), (SECOND, [LogLimit(END)])]
ACK = CommitAck(1, TERM, 2, END)
ECHOED = [(TERM_BEFORE, 1, STAMP, 1, b"one"), (TERM_BEFORE, 1, STAMP, 2, b"two")]


def with_two_messages(service=at.NO_SERVICE, processes=2):
    """A leader that has written them."""
    leader = OneMember(leads=True, service=service, processes=processes)
    leader.turn((CLIENT_A, ingress(1, [b"one", b"two"])))
    return leader


def progress(member, service_id):
    return member.service(service_id)[[SERVED, ANSWERED, LIMIT]].tolist()


@pytest.mark.parametrize(
    ("service", "processes", "reason", "sent"),
    [
        (at.NO_SERVICE, 0, 0, [(CLIENT_A, [ACK])]),
        (at.NO_SERVICE, 2, 0, [*TO_BOTH, (CLIENT_A, [ACK])]),
        (at.COMPILED_SERVICE, 2, 0, [*TO_BOTH, (CLIENT_A, [*ECHOED, ACK])]),
        (at.PYTHON_SERVICE, 2, at.SERVICES, TO_BOTH),
    ],
)
def test_each_of_a_leaders_services_has_what_is_committed_at_once(service, processes, reason, sent):
    leader = with_two_messages(service, processes)
    assert leader.turn(leader.report(1, END)) == reason
    assert leader.told == sent
    is_compiled = service == at.COMPILED_SERVICE
    assert leader.tables.service_cursor.tolist() == [END if is_compiled else BEGIN] * 2
    assert leader.shown(0)[0] == (END if is_compiled else 0)


def test_a_followers_processes_are_let_on_after_a_while_whoever_is_in_line(log):
    follower = OneMember(leads=False, processes=2)
    assert follower.turn(follower.from_member(1, *log, committed(END))) == 0
    assert {SERVICE, SECOND}.isdisjoint(told[0] for told in follower.told)
    assert follower.tables.service_cursor.tolist() == [END, END]
    assert follower.turn(after_ns=5 * MS) == at.IDLE
    assert follower.told == TO_BOTH
    assert follower.word(at.LIMIT_DUE_NS) == at.NEVER


@pytest.mark.parametrize("service", [at.NO_SERVICE, at.COMPILED_SERVICE, at.PYTHON_SERVICE])
def test_each_answers_for_itself_and_by_its_id_in_the_term_in_which_it_read(service):
    leader = with_two_messages(service)
    leader.turn(leader.report(1, END))
    of_second = answers((1, 11, 1, b"b"), term=TERM) + link_frame(ServicePosition(BEGIN + 96, 700, 2))
    of_first = (
        answers((2, 12, 1, b"a")) + link_frame(ServicePosition(END, 900, 3)) + answers((1, 13, 2, b"c"))
    )
    assert leader.turn((SECOND, of_second), (SERVICE, of_first)) == 0

    assert leader.told == [
        (CLIENT_B, [(TERM_BEFORE, 2, 12, 1, b"a")]),
        (CLIENT_A, [(TERM_BEFORE, 1, 13, 2, b"c")] + [ACK] * (service == at.PYTHON_SERVICE)),
        (CLIENT_A, [(TERM, 1, 11, 1, b"b")]),
    ]
    assert (progress(leader, 1), progress(leader, 2)) == ([END, 1, END], [BEGIN + 96, 0, END])
    assert (leader.shown(1), leader.shown(2)) == ([END, 900, 3], [BEGIN + 96, 700, 2])


def test_the_one_in_line_answers_in_its_own_term_whatever_a_process_says_of_another():
    leader = with_two_messages(at.COMPILED_SERVICE)
    assert leader.turn(leader.report(1, END), (SECOND, answers((1, 11, 1, b"b"), term=TERM - 4))) == 0
    assert leader.told == [(CLIENT_A, [(TERM - 4, 1, 11, 1, b"b")]), *TO_BOTH, (CLIENT_A, [*ECHOED, ACK])]


def test_one_that_does_not_read_holds_up_no_other():
    leader = with_two_messages()
    of_stuck = leader.service(1)
    for position in range(BEGIN + 32, BEGIN + 32 * (LIMITS_MAX + 3), 32):
        leader.tables.member_log[COMMIT_POSITION] = position
        leader.turn((SECOND, link_frame(ServicePosition(leader.service(2)[LIMIT], 0, 0))))
    assert of_stuck[LIMIT] == BEGIN + 32 * LIMITS_MAX
    assert leader.told == [(SECOND, [LogLimit(position)])]
    leader.turn((SERVICE, link_frame(ServicePosition(int(of_stuck[LIMIT]), 0, 0))))
    assert leader.told == [(SERVICE, [LogLimit(position)])]


def test_what_one_says_that_is_rare_is_pythons_and_what_others_say_comes_after_it():
    leader = with_two_messages()
    leader.turn(leader.report(1, END))
    said = answers((1, 11, 1, b"a")) + (rare := link_frame(SnapshotBegin(BEGIN)))
    assert leader.turn((SERVICE, said), (SECOND, answers((1, 12, 1, b"b")))) == at.FRAMES
    assert leader.left == {SECOND}
    assert leader.told == [(CLIENT_A, [(TERM_BEFORE, 1, 11, 1, b"a")])]
    given = [leader.word(place) for place in (at.GIVEN, at.GIVEN_BEGIN, at.GIVEN_END)]
    assert given == [SERVICE, len(said) - len(rare), len(said)]
    assert (progress(leader, 1), progress(leader, 2)) == ([BEGIN, 1, END], [BEGIN, 0, END])


def test_half_a_frame_of_each_waits_for_its_rest():
    leader = OneMember(leads=True, service=at.NO_SERVICE, processes=2)
    first, second = answers((1, 11, 1, b"a" * 300)), answers((2, 12, 1, b"b" * 400))
    assert leader.turn((SERVICE, first[:200]), (SECOND, second[:250])) == 0 and leader.told == []
    assert [leader.table.get(fd, PART_LENGTH) for fd in (SERVICE, SECOND)] == [200, 250]
    assert leader.turn((SECOND, second[250:])) == 0
    assert leader.told == [(CLIENT_B, [(TERM_BEFORE, 2, 12, 1, b"b" * 400)])]
    assert leader.turn((SERVICE, first[200:])) == 0
    assert leader.told == [(CLIENT_A, [(TERM_BEFORE, 1, 11, 1, b"a" * 300)])]
    assert not leader.table.keepers.any()


def test_a_frame_that_is_longer_than_half_frames_may_be_is_pythons_from_its_begin_on():
    leader = OneMember(leads=True, service=at.NO_SERVICE, processes=2)
    begin = answers((2, 12, 1, bytes(PART_BYTES)))[:8000]
    answer = answers((1, 11, 1, b"a"))
    assert leader.turn((SERVICE, answer), (SECOND, answer + begin)) == at.FRAMES
    assert leader.told == [(CLIENT_A, [(TERM_BEFORE, 1, 11, 1, b"a")])] * 2
    given = [leader.word(place) for place in (at.GIVEN, at.GIVEN_BEGIN, at.GIVEN_END)]
    assert given == [SECOND, len(answer), len(answer) + 8000]
    assert np.count_nonzero(leader.table.keepers) == 0


# ---- in runs


class First(Repeating):
    """What it answers says whose it is."""

    def on_session_message(self, session, timestamp, buffer):
        session.offer(type(self).__name__.encode() + bytes(buffer))


class Second(First):
    pass


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize(
    ("beside", "is_pythons"),
    [
        ([(Second, "process"), (EchoService, "process")], False),
        ([(EchoService, "inline"), (Second, "process")], False),
        ([(Second, "inline")], True),
    ],
)
def test_each_answers_all_in_order_whoever_takes_the_turns(monkeypatch, beside, is_pythons, is_compiled):
    reasons, turns = [], lend.busy_turns
    monkeypatch.setattr(lend, "busy_turns", lambda t: reasons.append(turns(t)) or reasons[-1])
    cluster = run(PAYLOADS, is_compiled=is_compiled, service=First, mode="process", beside=beside)

    services = [First, *(service for service, _ in beside)]
    for client, payloads in zip(cluster.clients, PAYLOADS):
        for service in services:
            whose = b"" if service is EchoService else service.__name__.encode()
            expected = [whose + payload for payload in payloads]
            assert [answer for answer in client.answers if answer in expected] == expected
        assert len(client.answers) == len(services) * len(payloads)
    for member in processes(cluster):
        shown = [service.counters.position.get() for service in member.life.services]
        assert shown == [member.life.consensus_module.log.commit_position] * len(services)
    if is_compiled:
        given = sum(reason & at.SERVICES > 0 and not reason & at.ENTRY for reason in reasons)
        assert given > 20 if is_pythons else given == 0
