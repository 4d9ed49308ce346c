"""Votes: asked for, given once a term, and counted (group C)."""

import pytest

from cluster.consensus.actions import ProposeTerm, Send, SetRole
from cluster.consensus.context import MS, SECOND
from cluster.consensus.election import REFUSED_BALLOTS_MAX
from cluster.protocol.consensus import NewLeadershipTerm, RequestVote, Vote
from cluster.protocol.enums import ElectionState, Role
from cluster.protocol.link import TransferLeadership
from tests.consensus.language import (
    OTHER_ID,
    TERM,
    WAYS,
    an_election,
    an_election_in,
    canvass,
    in_candidate_ballot,
    in_canvass,
    in_follower_ballot,
    in_nominate,
    of_kind,
    receivers,
    request_vote,
    sent,
    the_one,
    vote,
)

S = ElectionState
LEADER_STATES = [S.LEADER_LOG_REPLICATION, S.LEADER_REPLAY, S.LEADER_INIT, S.LEADER_READY]
FOLLOWING_STATES = [s for s in WAYS if s.name.startswith("FOLLOWER_") and s is not S.FOLLOWER_BALLOT]
VOTING_STATES = [S.CANVASS, S.NOMINATE, S.CANDIDATE_BALLOT, S.FOLLOWER_BALLOT]
OUR_LOG, BETTER_LOG, WORSE_LOG = (1, 1000), (TERM - 1, 64), (0, 5000)


# ---- the candidate


@pytest.mark.conformance("C-77")
def test_a_request_states_the_candidates_real_log_and_term():
    driven = in_candidate_ballot(400, 1000)

    [message, _] = sent(driven.work(), RequestVote)

    assert (message.log_leadership_term_id, message.log_position) == OUR_LOG
    assert message.candidate_term_id == TERM
    assert message.candidate_member_id == 0


def test_a_candidate_says_that_it_is_one():
    driven = in_nominate(1000)

    assert the_one(driven.work(after=500 * MS), SetRole) == SetRole(Role.CANDIDATE)


@pytest.mark.conformance("C-78")
def test_a_request_that_could_not_be_sent_is_tried_again_each_cycle_and_a_sent_one_not():
    driven = in_candidate_ballot(1000)
    driven.blocked = {2}

    assert receivers(driven.work(), RequestVote) == [1, 2]
    assert receivers(driven.work(), RequestVote) == [2]
    driven.blocked = set()
    assert receivers(driven.work(), RequestVote) == [2]
    assert receivers(driven.work(), RequestVote) == []


def test_over_a_new_connection_a_request_without_an_answer_is_sent_again():
    driven = in_candidate_ballot(1000)
    driven.work()

    driven.link_down(2)

    assert receivers(driven.work(), RequestVote) == [2]


@pytest.mark.conformance("C-78")
def test_one_that_was_answered_is_not():
    """The voter would refuse the second request (C-85), and the refusal would defeat the candidate."""
    driven = in_candidate_ballot(1000)
    driven.work()
    driven.hears(vote(2, TERM))

    driven.link_down(2)

    assert receivers(driven.work(), RequestVote) == []


@pytest.mark.conformance("C-79")
def test_the_votes_of_all_make_a_leader_at_once():
    driven = in_candidate_ballot(1000)
    driven.hears(vote(1, TERM), vote(2, TERM))

    driven.work()

    assert driven.state is S.LEADER_LOG_REPLICATION
    assert driven.election.leader_member_id == 0
    assert driven.election.leadership_term_id == TERM


@pytest.mark.conformance("C-80")
def test_the_votes_of_a_majority_make_a_leader_after_a_second():
    driven = in_candidate_ballot(1000)
    driven.hears(vote(1, TERM))

    driven.work(after=1 * SECOND - 1)
    assert driven.state is S.CANDIDATE_BALLOT
    driven.work(after=1)
    assert driven.state is S.LEADER_LOG_REPLICATION


@pytest.mark.conformance("C-81")
def test_one_refusal_defeats_a_majority():
    driven = in_candidate_ballot(1000, members=5)
    driven.hears(vote(1, TERM), vote(2, TERM), vote(3, TERM), vote(4, TERM, granted=False))

    driven.work(after=1 * SECOND)

    assert driven.path[-2:] == [S.CANDIDATE_BALLOT, S.CANVASS]


def test_a_candidate_that_was_refused_does_not_wait_for_the_timeout():
    """Two that stand at once, as the two that a dead leader leaves may, know at once that neither leads."""
    driven = in_candidate_ballot(1000, members=3)
    driven.hears(vote(1, TERM, granted=False))

    driven.work(after=1)

    assert driven.path[-2:] == [S.CANDIDATE_BALLOT, S.CANVASS]


def test_the_fourth_time_a_refusal_does_not_defeat_a_majority():
    """Whoever refuses has a better log, and was given time to lead with it; it seems that it cannot."""
    driven = in_candidate_ballot(1000, members=5)
    for _ in range(REFUSED_BALLOTS_MAX):
        term_id = driven.election.candidate_term_id
        driven.hears(*(vote(id_, term_id, granted=id_ != 4) for id_ in driven.other_ids))
        driven.work()
        assert driven.path[-2:] == [S.CANDIDATE_BALLOT, S.CANVASS]
        driven.hears(*(canvass(id_, 0, 500) for id_ in driven.other_ids))
        driven.work()
        driven.work(after=500 * MS)
        assert driven.state is S.CANDIDATE_BALLOT

    term_id = driven.election.candidate_term_id
    driven.hears(vote(4, term_id, granted=False), vote(1, term_id))
    driven.work()
    assert driven.state is S.CANDIDATE_BALLOT, "two of five are no majority"
    driven.hears(vote(2, term_id))
    driven.work()

    assert driven.state is S.LEADER_LOG_REPLICATION
    assert driven.election.leadership_term_id == term_id


@pytest.mark.conformance("C-82")
@pytest.mark.parametrize(("members", "votes"), [(2, 0), (3, 0), (5, 1)])
def test_without_a_majority_the_candidate_canvasses_again(members, votes):
    driven = in_candidate_ballot(1000, members=members)
    driven.hears(*(vote(id_, TERM) for id_ in range(1, votes + 1)))

    driven.work(after=1 * SECOND - 1)
    assert driven.state is S.CANDIDATE_BALLOT
    driven.work(after=1)
    assert driven.state is S.CANVASS


@pytest.mark.conformance("C-90")
@pytest.mark.parametrize(("term", "candidate"), [(TERM - 1, 0), (TERM, 2)])
def test_a_vote_of_another_term_or_for_another_candidate_is_not_counted(term, candidate):
    driven = in_candidate_ballot(1000)
    driven.hears(vote(1, term, candidate=candidate), vote(2, TERM))

    driven.work()

    assert driven.state is S.CANDIDATE_BALLOT
    assert driven.election._members[1].vote is None


@pytest.mark.conformance("C-90")
def test_a_vote_that_comes_after_the_ballot_is_dropped():
    driven = in_candidate_ballot(1000)
    driven.work(after=1 * SECOND)
    assert driven.state is S.CANVASS

    driven.hears(vote(1, TERM), vote(2, TERM))
    driven.work()

    assert driven.state is S.CANVASS


def test_votes_of_an_earlier_ballot_do_not_count_in_the_next():
    driven = in_candidate_ballot(1000, members=3)
    driven.hears(vote(1, TERM))
    driven.hears(vote(2, TERM, granted=False))
    driven.work(after=1 * SECOND)
    driven.work_for(12 * SECOND, step_ns=SECOND)
    assert driven.state is S.CANVASS

    driven.election._nominate(driven.now_ns, "by the test", are_all_heard=False)
    driven.work(after=500 * MS)
    driven.work(after=1 * SECOND)

    assert driven.path[-2:] == [S.CANDIDATE_BALLOT, S.CANVASS]


# ---- the voter


@pytest.mark.conformance("C-83")
def test_a_voter_that_no_leader_picks_up_canvasses_again_after_a_second():
    driven = in_follower_ballot(1000)

    driven.work(after=1 * SECOND - 1)
    assert driven.state is S.FOLLOWER_BALLOT
    driven.work(after=1)
    assert driven.state is S.CANVASS


@pytest.mark.conformance("C-84")
@pytest.mark.parametrize("term", [7, 6, 0])
def test_a_term_that_is_not_above_the_own_candidate_term_is_refused(term):
    driven = in_canvass(400, 1000, candidate_term=7)

    [answer] = sent(driven.hears(request_vote(1, term, BETTER_LOG)), Vote)

    assert answer.vote is False
    assert answer.candidate_term_id == 7, "the candidate learns what term it has to be above"
    assert driven.state is S.CANVASS


@pytest.mark.conformance("C-85")
@pytest.mark.parametrize("candidate", [1, 2])
def test_a_term_is_granted_once(candidate):
    driven = in_canvass(400, 1000)
    driven.hears(request_vote(1, TERM, OUR_LOG))

    [answer] = sent(driven.hears(request_vote(candidate, TERM, BETTER_LOG)), Vote)

    assert answer.vote is False


@pytest.mark.conformance("C-86")
@pytest.mark.parametrize("state", VOTING_STATES, ids=lambda s: s.name)
def test_refusing_a_stale_log_stores_the_higher_term_first(state):
    driven = an_election_in(state)

    actions = driven.hears(request_vote(2, 9, WORSE_LOG))

    [answer] = sent(actions, Vote)
    assert (answer.vote, answer.candidate_term_id) == (False, 9)
    assert actions[0] == ProposeTerm(candidate_term_id=9, log_position=1000)
    assert driven.state is state


@pytest.mark.conformance("C-87")
@pytest.mark.parametrize("state", VOTING_STATES, ids=lambda s: s.name)
def test_a_granted_term_is_stored_before_the_vote_is_spoken(state):
    driven = an_election_in(state)

    actions = driven.hears(request_vote(2, 9, BETTER_LOG))

    kinds = [type(action) for action in actions]
    assert the_one(actions, ProposeTerm) == ProposeTerm(candidate_term_id=9, log_position=1000)
    assert kinds.index(ProposeTerm) < kinds.index(Send)
    [answer] = sent(actions, Vote, to=2)
    assert answer.vote is True


@pytest.mark.conformance("C-88")
@pytest.mark.parametrize(("term", "granted"), [(TERM - 1, False), (TERM, False), (TERM + 1, True)])
def test_after_a_restart_a_member_stands_by_what_it_granted_before(term, granted):
    before = in_canvass(1000)
    stored = the_one(before.hears(request_vote(1, TERM, BETTER_LOG)), ProposeTerm).candidate_term_id

    after = an_election(1000, candidate_term=stored, is_startup=True)
    after.work()
    [answer] = sent(after.hears(request_vote(2, term, BETTER_LOG)), Vote)

    assert answer.vote is granted


def test_a_candidates_own_vote_is_given_once_too():
    driven = in_candidate_ballot(1000)

    [answer] = sent(driven.hears(request_vote(2, TERM, BETTER_LOG)), Vote)

    assert answer.vote is False


@pytest.mark.conformance("C-89")
def test_a_request_that_names_the_voter_itself_is_dropped():
    driven = in_canvass(1000)

    assert driven.hears(request_vote(0, TERM, BETTER_LOG)) == []
    assert driven.state is S.CANVASS


@pytest.mark.conformance("C-91")
def test_a_candidate_that_votes_for_a_higher_term_follows_that_ballot():
    driven = in_candidate_ballot(1000)

    [answer] = sent(driven.hears(request_vote(2, TERM + 1, BETTER_LOG)), Vote)

    assert answer.vote is True
    assert driven.path[-2:] == [S.CANDIDATE_BALLOT, S.FOLLOWER_BALLOT]


def test_a_further_higher_vote_does_not_prolong_the_ballot():
    driven = in_follower_ballot(1000)
    driven.work(after=900 * MS)

    [answer] = sent(driven.hears(request_vote(2, TERM + 1, BETTER_LOG)), Vote)
    assert answer.vote is True

    driven.work(after=100 * MS)
    assert driven.state is S.CANVASS


@pytest.mark.conformance("C-92")
@pytest.mark.parametrize("state", LEADER_STATES + FOLLOWING_STATES, ids=lambda s: s.name)
def test_once_a_leader_is_there_an_acceptable_request_gets_no_answer(state):
    driven = an_election_in(state)

    assert driven.hears(request_vote(2, 9, (8, 10_000))) == []
    assert driven.state is state


@pytest.mark.conformance("C-93")
@pytest.mark.parametrize("state", LEADER_STATES, ids=lambda s: s.name)
def test_a_leader_refuses_a_stale_candidate_and_tells_it_who_leads(state):
    driven = an_election_in(state)

    actions = driven.hears(request_vote(OTHER_ID, 9, WORSE_LOG))

    [answer] = sent(actions, Vote, to=OTHER_ID)
    [told] = sent(actions, NewLeadershipTerm, to=OTHER_ID)
    assert answer.vote is False
    assert (told.log_leadership_term_id, told.leadership_term_id) == (0, TERM)
    assert driven.state is state


@pytest.mark.parametrize("state", LEADER_STATES + FOLLOWING_STATES, ids=lambda s: s.name)
def test_a_stale_candidate_does_not_end_a_leadership_that_works(state):
    """Stricter than C-86, which would have the leader's own term refused from now on."""
    driven = an_election_in(state)

    actions = driven.hears(request_vote(2, 9, WORSE_LOG))

    assert not of_kind(actions, ProposeTerm)
    assert driven.election.candidate_term_id == TERM


def test_in_init_nothing_is_answered():
    driven = an_election(1000)

    assert driven.hears(request_vote(1, 9, BETTER_LOG), vote(1, 9)) == []
    assert driven.state is S.INIT


def test_who_is_asked_to_stand_by_its_leader_says_so_to_all_and_asks_for_votes_at_once():
    """Raft, Ongaro's thesis, 3.10: the others still hear their leader, and must know that it is its wish."""
    driven = an_election(1000, successor=0)
    driven.work()
    driven.prepared()
    said = [(s.member_id, s.message) for s in driven.work() if isinstance(s, Send)]
    assert said == [(id_, TransferLeadership(0, 1000, 0)) for id_ in (1, 2)]
    asked = [s.message for s in driven.work() if isinstance(s, Send)]
    assert [type(message) for message in asked] == [RequestVote, RequestVote]
    driven.hears(vote(1, 1), vote(2, 1))
    driven.work()
    assert driven.state is S.LEADER_LOG_REPLICATION


def test_who_may_not_stand_does_not_whatever_its_leader_asks():
    driven = an_election(1000, successor=0, acknowledged_end=(0, 2000))
    driven.work()
    driven.prepared()
    driven.work()
    assert driven.state is S.CANVASS


def test_it_stands_once_and_then_waits_like_all_others():
    driven = an_election(1000, successor=0)
    driven.work()
    driven.prepared()
    driven.work()
    driven.work()
    driven.hears(vote(1, 1, granted=False))
    driven.work()
    assert driven.state is S.CANVASS
    driven.work()
    assert driven.state is S.CANVASS
