"""CANDIDATE_BALLOT and FOLLOWER_BALLOT: votes asked for, given and refused (§2.4, §2.6)."""

import pytest

from cluster.consensus import actions
from cluster.protocol.consensus import NewLeadershipTerm, RequestVote, Vote
from tests.consensus.elections import (
    MS,
    SECOND,
    Member,
    State,
    canvass_position,
    of_kind,
    request_vote,
    sent,
    vote,
)

LOG = [(0, 0, 96), (1, 96, -1)]
END = 160


def a_candidate(**settings):
    return Member(terms=LOG, append_position=END, **settings).stands()


@pytest.mark.conformance("C-77")
def test_a_request_tells_the_log_on_disk_and_the_candidate_term():
    member = a_candidate()

    assert member.sent(RequestVote, to=2) == [request_vote(0, 2, 1, END)]


@pytest.mark.conformance("C-78")
def test_a_request_that_could_not_be_sent_is_sent_again_and_one_that_was_is_not():
    member = Member(terms=LOG, append_position=END)
    member.unreachable = {2}
    member.stands()
    member.work(cycles=2)
    assert len(member.sent(RequestVote, to=1)) == 1
    assert len(member.sent(RequestVote, to=2)) >= 3

    member.unreachable = set()
    member.work()
    member.forget()
    member.work(cycles=3)
    assert member.sent(RequestVote) == []


def test_a_request_that_was_on_a_broken_link_is_sent_again():
    member = a_candidate()
    member.does(member.election.on_link_down(2, member.now_ns))
    member.forget()
    member.work()

    assert len(member.sent(RequestVote, to=2)) == 1


@pytest.mark.conformance("C-79")
def test_a_candidate_with_all_votes_leads_at_once():
    member = a_candidate()
    member.hears(vote(1, 2))
    member.work()
    assert member.state is State.CANDIDATE_BALLOT

    member.hears(vote(2, 2))
    member.work()
    assert member.state is State.LEADER_LOG_REPLICATION
    assert member.election.leadership_term_id == 2


@pytest.mark.conformance("C-80")
def test_with_a_silent_member_a_majority_is_enough_after_the_election_time_out():
    member = a_candidate()
    begin = member.now_ns
    member.hears(vote(1, 2))
    member.work(at=begin + SECOND - 1)
    assert member.state is State.CANDIDATE_BALLOT

    member.work(at=begin + SECOND)
    assert member.state is State.LEADER_LOG_REPLICATION


def test_with_a_member_gone_a_majority_is_enough_at_once():
    member = a_candidate(gone={2})
    member.hears(vote(1, 2))
    member.work()

    assert member.state is State.LEADER_LOG_REPLICATION


@pytest.mark.conformance("C-81")
def test_a_majority_with_one_refusal_does_not_lead():
    member = a_candidate()
    member.hears(vote(1, 2))
    member.hears(vote(2, 2, False))
    member.work(at=member.now_ns + SECOND)

    assert member.state is State.CANVASS


@pytest.mark.conformance("C-82")
def test_a_candidate_without_a_majority_canvasses_again():
    member = a_candidate()
    member.work(at=member.now_ns + SECOND)

    assert member.state is State.CANVASS


@pytest.mark.conformance("C-83")
def test_a_voter_without_a_leader_canvasses_again():
    member = Member(terms=LOG, append_position=END).canvasses()
    member.hears(request_vote(1, 2, 1, END))
    member.work(at=member.now_ns + SECOND - 1)
    assert member.state is State.FOLLOWER_BALLOT

    member.work(at=member.now_ns + 1)
    assert member.state is State.CANVASS


@pytest.mark.conformance("C-84")
@pytest.mark.parametrize("term_id", [0, 6, 7])
def test_a_term_that_is_not_above_the_own_candidate_term_is_refused(term_id):
    member = Member(terms=LOG, append_position=END, candidate_term_id=7).canvasses()
    wanted = member.hears(request_vote(1, term_id, 5, 999))

    assert [(v.candidate_term_id, v.vote) for v in sent(wanted, Vote, to=1)] == [(7, False)]
    assert member.state is State.CANVASS


@pytest.mark.conformance("C-85")
@pytest.mark.parametrize("candidate", [1, 2])
def test_a_second_request_for_a_granted_term_is_refused(candidate):
    member = Member(terms=LOG, append_position=END).canvasses()
    member.hears(request_vote(1, 2, 1, END))
    wanted = member.hears(request_vote(candidate, 2, 1, END))

    assert [v.vote for v in sent(wanted, Vote, to=candidate)] == [False]


@pytest.mark.conformance("C-86")
def test_a_refusal_for_a_worse_log_keeps_the_higher_term():
    member = Member(terms=LOG, append_position=END).canvasses()
    wanted = member.hears(request_vote(1, 9, 1, 0))

    assert of_kind(wanted, actions.ProposeTerm) == [actions.ProposeTerm(9, END)]
    assert member.election.candidate_term_id == 9


@pytest.mark.conformance("C-87")
def test_a_vote_is_durable_before_it_is_spoken_of():
    member = Member(terms=LOG, append_position=END).canvasses()
    wanted = member.hears(request_vote(1, 2, 1, END))

    assert [type(action) for action in wanted[:2]] == [actions.ProposeTerm, actions.Send]
    assert wanted[0].candidate_term_id == 2


@pytest.mark.conformance("C-88")
def test_a_granted_term_is_refused_after_a_restart():
    member = Member(terms=LOG, append_position=END).canvasses()
    member.hears(request_vote(1, 2, 1, END))
    persisted = max(action.candidate_term_id for action in of_kind(member.done, actions.ProposeTerm))

    again = Member(terms=LOG, append_position=END, candidate_term_id=persisted).canvasses()
    wanted = again.hears(request_vote(2, 2, 1, END))
    assert [v.vote for v in sent(wanted, Vote, to=2)] == [False]


@pytest.mark.conformance("C-89")
def test_the_own_request_is_ignored():
    member = a_candidate()

    assert member.hears(request_vote(0, 99, 1, END)) == []


@pytest.mark.conformance("C-90")
def test_votes_of_another_candidate_term_are_ignored():
    member = a_candidate()
    member.hears(vote(1, 1))
    member.hears(vote(2, 3))
    member.work()

    assert member.members[1].vote is None
    assert member.members[2].vote is None


@pytest.mark.conformance("C-91")
def test_a_candidate_votes_for_a_higher_term():
    member = a_candidate()
    wanted = member.hears(request_vote(1, 5, 1, END))

    assert [v.vote for v in sent(wanted, Vote, to=1)] == [True]
    assert member.state is State.FOLLOWER_BALLOT


def test_a_candidate_that_meets_a_later_vote_looks_again_and_stands_above_it():
    member = a_candidate()
    member.hears(vote(1, 12, False))
    assert member.state is State.CANVASS

    for other in (1, 2):
        member.hears(canvass_position(other, 1, END))
    member.work()
    member.work(at=member.now_ns + 500 * MS)
    assert member.election.candidate_term_id == 13


@pytest.mark.conformance("C-92")
def test_a_leader_to_be_does_not_answer_a_request_that_it_could_grant():
    member = Member(terms=LOG, append_position=END).wins()

    assert member.hears(request_vote(1, 9, 2, END)) == []
    assert member.state is State.LEADER_LOG_REPLICATION
    assert member.election.candidate_term_id == 2


@pytest.mark.conformance("C-93")
def test_a_leader_to_be_answers_a_stale_candidate_with_a_refusal_and_its_term():
    member = Member(terms=LOG, append_position=END).wins()
    wanted = member.hears(request_vote(1, 9, 0, 32))

    assert [v.vote for v in sent(wanted, Vote, to=1)] == [False]
    assert [m.log_leadership_term_id for m in sent(wanted, NewLeadershipTerm, to=1)] == [0]
    assert sent(wanted, NewLeadershipTerm, to=2) == []


def test_a_leader_to_be_steps_aside_for_a_later_vote():
    member = Member(terms=LOG, append_position=END).wins()
    member.hears(vote(1, 12, False))
    member.work(cycles=2)

    assert State.INIT in member.states[member.states.index(State.LEADER_LOG_REPLICATION) :]
    assert member.election.candidate_term_id == 12


@pytest.mark.parametrize("is_granted", [True, False])
def test_votes_that_come_late_are_ignored(is_granted):
    member = Member(terms=LOG, append_position=END).canvasses()
    member.hears(vote(1, 12, is_granted))

    assert member.state is State.CANVASS
    assert member.election.candidate_term_id == 1


def test_messages_of_strangers_are_ignored():
    member = Member(terms=LOG, append_position=END).canvasses()

    assert member.hears(canvass_position(9, 5, 999)) == []
    assert member.hears(request_vote(9, 5, 5, 999)) == []
    assert member.hears(vote(9, 5, False)) == []
