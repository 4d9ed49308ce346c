"""A term as its leader sees it, from the election that it won to the end of its leadership."""

import pytest

from cluster.consensus.cluster_member import MemberTable
from cluster.consensus.context import MS, NULL_POSITION, NULL_VALUE, SECOND
from cluster.consensus.leader import Leader
from cluster.consensus.leadership import Leadership
from cluster.protocol.consensus import CommitPosition, NewLeadershipTerm
from tests.consensus.language import (
    TERM,
    a_context,
    a_log,
    in_leader_log_replication,
    sent,
)

BASE = 1000  # of the term that is led
INTERVAL_NS, TIMEOUT_NS = 200 * MS, 10 * SECOND  # of the leader's heartbeat


class ATerm:
    """Term 5 of three members, led by member 0, and its clock."""

    def __init__(self):
        context = a_context()
        self.members = MemberTable(context.member_ids)
        terms = a_log(400, BASE)
        terms.record(TERM, BASE)
        self.now_ns = 3_600 * SECOND
        self.leadership = Leadership(
            context,
            self.members,
            terms,
            leadership_term_id=TERM,
            term_base=BASE,
            log_session_id=77,
            log_recording_id=4,
            now_ns=self.now_ns,
        )

    def reports(self, member_id, position, term=TERM):
        self.members[member_id].report(term, position, self.now_ns)

    def passes(self, duration_ns):
        self.now_ns += duration_ns
        return self.now_ns


@pytest.mark.conformance("C-168")
def test_the_quorum_position_is_what_a_majority_holds_and_the_leader_too():
    term = ATerm()
    term.reports(0, 1600)
    term.reports(1, 1300)
    assert term.leadership.quorum_position_at(1600, term.now_ns) == 1300
    for other_term in (TERM - 1, TERM + 1):
        term.reports(2, 5000, other_term)
        assert term.leadership.quorum_position_at(1600, term.now_ns) == 1300, "it says nothing of this one"
    term.reports(2, 5000)
    assert term.leadership.quorum_position_at(1600, term.now_ns) == 1600


def test_a_term_has_a_quorum_where_a_majority_holds_the_log_up_to_it():
    term = ATerm()
    term.reports(0, BASE)
    term.reports(1, BASE - 32)
    assert not term.leadership.has_quorum(term.now_ns)
    term.reports(2, BASE, term=TERM - 1)
    assert not term.leadership.has_quorum(term.now_ns)
    term.reports(1, BASE)
    assert term.leadership.has_quorum(term.now_ns)


def test_a_commit_position_is_due_at_once_each_interval_and_when_it_is_asked_for():
    term = ATerm()
    leadership = term.leadership
    assert leadership.is_commit_due(term.now_ns)
    leadership.on_commit_reported(1300, term.now_ns)

    assert leadership.commit_position_message() == CommitPosition(TERM, 1300, 0)
    assert not leadership.is_commit_due(term.passes(INTERVAL_NS - 1))
    assert leadership.is_commit_due(term.passes(1))
    leadership.on_commit_reported(1300, term.now_ns)
    leadership.make_commit_due()
    assert leadership.is_commit_due(term.now_ns)


def test_who_is_heard_and_does_not_follow_is_waited_for_twice_the_heartbeat_timeout():
    term = ATerm()
    term.reports(1, BASE)
    assert term.leadership.is_followed(term.passes(TIMEOUT_NS))
    term.reports(1, BASE, term=TERM - 1)

    assert term.leadership.is_followed(term.passes(2 * TIMEOUT_NS - 1))
    assert not term.leadership.is_followed(term.passes(1))


@pytest.mark.parametrize(
    ("log_term_id", "open_end", "next_term"),
    [
        (0, NULL_POSITION, (1, 400, BASE)),
        (1, NULL_POSITION, (TERM, BASE, NULL_POSITION)),
        (1, 1600, (TERM, BASE, 1600)),
        (TERM, 1600, (NULL_VALUE, NULL_POSITION, NULL_POSITION)),
    ],
)
def test_a_member_is_told_of_the_term_and_of_the_one_behind_its_own(log_term_id, open_end, next_term):
    leadership = ATerm().leadership
    told = leadership.new_leadership_term(log_term_id, 1600, 99, commit_position=1300, open_end=open_end)

    next_id, next_base, next_end = next_term
    assert told == NewLeadershipTerm(
        log_leadership_term_id=log_term_id,
        next_leadership_term_id=next_id,
        next_term_base_log_position=next_base,
        next_log_position=next_end,
        leadership_term_id=TERM,
        term_base_log_position=BASE,
        log_position=1600,
        leader_recording_id=4,
        timestamp=99,
        leader_member_id=0,
        log_session_id=77,
        app_version=a_context().app_version,
        is_startup=False,
        commit_position=1300,
    )


# ---- from the election to the established leader


def test_a_log_that_is_made_for_the_term_is_told_from_then_on():
    driven = in_leader_log_replication()
    driven.election.on_log_created(9)

    told = sent(driven.work(after=INTERVAL_NS), NewLeadershipTerm)
    assert [message.leader_recording_id for message in told] == [9, 9]


@pytest.mark.parametrize("reported", [BASE, BASE + 96])
def test_an_established_leader_speaks_at_once_and_counts_what_the_election_was_told(reported):
    term = ATerm()
    term.reports(1, reported)
    term.leadership.on_commit_reported(BASE, term.now_ns)
    leader = Leader(a_context(), term.members, term.leadership, commit_position=BASE, candidate_term_id=TERM)

    assert leader.update(BASE + 192, term.now_ns)
    assert leader.commit_position == term.leadership.quorum_position == reported
