"""Who may stand: what members tell each other in CANVASS, and when one of them nominates itself (group B)."""

import pytest

from cluster.consensus.actions import PrepareForNewLeadership, ProposeTerm, Send, SetRole, StartReplication
from cluster.consensus.cluster_member import LogEnd
from cluster.consensus.context import MS, NULL_POSITION, NULL_VALUE, SECOND
from cluster.protocol.consensus import CanvassPosition, NewLeadershipTerm, Vote
from cluster.protocol.enums import ElectionState, Role
from tests.consensus.language import (
    LEADER_ID,
    TERM,
    ALeader,
    an_election,
    appended,
    canvass,
    committed,
    in_candidate_ballot,
    in_canvass,
    in_follower_ballot,
    in_leader_log_replication,
    in_leader_ready,
    of_kind,
    receivers,
    request_vote,
    sent,
    the_one,
    vote,
)

S = ElectionState
MINUTE = 60 * SECOND


# ---- INIT


@pytest.mark.conformance("C-46")
@pytest.mark.parametrize("members", [2, 3, 5])
def test_one_of_several_members_starts_into_canvass(members):
    driven = an_election(1000, members=members, is_startup=True)

    driven.work()

    assert driven.path == [S.INIT, S.CANVASS]


@pytest.mark.conformance("C-47")
def test_the_only_member_leads_without_asking_anyone():
    driven = an_election(1000, members=1, is_startup=True, candidate_term=3)

    actions = driven.work()

    assert driven.path == [S.INIT, S.LEADER_LOG_REPLICATION]
    assert the_one(actions, ProposeTerm) == ProposeTerm(candidate_term_id=4, log_position=1000)
    assert driven.election.leadership_term_id == 4
    assert not of_kind(actions, Send)


def test_the_first_election_of_a_node_has_nothing_to_undo():
    assert not of_kind(an_election(1000, is_startup=True).work(), PrepareForNewLeadership)
    assert of_kind(an_election(1000).work(), PrepareForNewLeadership)


@pytest.mark.conformance("C-96")
def test_the_states_have_the_codes_of_the_counter():
    assert [state.value for state in ElectionState] == list(range(18))
    assert " ".join(state.name for state in ElectionState) == (
        "INIT CANVASS NOMINATE CANDIDATE_BALLOT FOLLOWER_BALLOT LEADER_LOG_REPLICATION LEADER_REPLAY "
        "LEADER_INIT LEADER_READY FOLLOWER_LOG_REPLICATION FOLLOWER_REPLAY FOLLOWER_CATCHUP_INIT "
        "FOLLOWER_CATCHUP_AWAIT FOLLOWER_CATCHUP FOLLOWER_LOG_INIT FOLLOWER_LOG_AWAIT FOLLOWER_READY CLOSED"
    )


# ---- what is said, and to whom


@pytest.mark.conformance("C-49")
def test_the_first_canvass_position_goes_out_in_the_first_cycle():
    assert receivers(in_canvass(1000, members=5).work(), CanvassPosition) == [1, 2, 3, 4]


@pytest.mark.conformance("C-49")
def test_so_it_does_each_time_that_canvass_is_entered_again():
    driven = in_canvass(1000)
    assert sent(driven.work(), CanvassPosition)
    driven.hears(request_vote(1, 5, (0, 1000)), ALeader(1000, 1200, term=5).broadcast())
    assert driven.path[-2:] == [S.FOLLOWER_BALLOT, S.CANVASS]

    assert receivers(driven.work(after=1 * MS), CanvassPosition) == [1, 2]


@pytest.mark.conformance("C-48")
def test_canvass_position_goes_to_every_other_member_every_100_ms():
    driven = in_canvass(1000)
    driven.work()

    assert not sent(driven.work(after=100 * MS - 1), CanvassPosition)
    assert receivers(driven.work(after=1), CanvassPosition) == [1, 2]


@pytest.mark.conformance("C-50")
def test_it_tells_where_the_log_on_disk_ends_however_little_of_it_is_processed():
    driven = in_canvass(400, 1000, processed=320)

    [message, _] = sent(driven.work(), CanvassPosition)

    assert (message.log_leadership_term_id, message.log_position) == (1, 1000)
    assert message.leadership_term_id == 1
    assert message.follower_member_id == 0


@pytest.mark.conformance("C-50")
def test_a_member_without_a_log_says_so():
    [message, _] = sent(in_canvass().work(), CanvassPosition)

    assert (message.log_leadership_term_id, message.log_position) == (NULL_VALUE, 0)


@pytest.mark.conformance("C-52")
def test_what_peers_say_of_their_logs_is_remembered():
    driven = in_canvass(1000)

    driven.hears(canvass(1, 0, 300), canvass(2, 3, 700))

    assert driven.election._members[1].standing == LogEnd(0, 300)
    assert driven.election._members[2].standing == LogEnd(3, 700)


@pytest.mark.conformance("C-51")
@pytest.mark.parametrize("leadership_term", [-1, 0, 7, 2**62])
def test_the_leadership_term_of_a_canvass_decides_nothing(leadership_term):
    driven = in_canvass(1000)
    driven.hears(canvass(1, 0, 1000, leadership_term), canvass(2, 0, 1000, leadership_term))

    driven.work()

    assert driven.state is S.NOMINATE


def test_entering_canvass_makes_a_follower():
    driven = in_candidate_ballot(1000)

    actions = driven.work(after=1 * SECOND)

    assert driven.state is S.CANVASS
    assert SetRole(Role.FOLLOWER) in actions


def test_a_new_canvass_knows_nothing_of_the_last_one():
    driven = in_candidate_ballot(1000)  # every other member was heard before
    driven.work(after=1 * SECOND)

    driven.work()

    assert driven.state is S.CANVASS, "it stands on what was said in an earlier canvass"


# ---- unanimous candidates


@pytest.mark.conformance("C-53")
@pytest.mark.parametrize("peers", [[(0, 400), (0, 999)], [(0, 1000), (0, 1000)], [(-1, 0), (-1, 0)]])
def test_the_highest_of_all_nominates_at_once(peers):
    driven = in_canvass(1000, is_startup=True)
    driven.hears(*(canvass(id_, *standing) for id_, standing in zip((1, 2), peers)))

    driven.work()

    assert driven.state is S.NOMINATE


@pytest.mark.conformance("C-54")
def test_all_of_equal_members_may_become_candidates():
    elections = [in_canvass(1000, member_id=id_) for id_ in range(3)]
    for id_, driven in enumerate(elections):
        driven.hears(*(canvass(other, 0, 1000) for other in range(3) if other != id_))
        driven.work()

    assert [driven.state for driven in elections] == [S.NOMINATE] * 3


@pytest.mark.conformance("C-55")
def test_a_lower_log_term_than_a_peers_never_stands_against_a_majority_that_is_better():
    driven = in_canvass(400, 100_000)  # the position does not help
    driven.hears(canvass(1, 2, 64), canvass(2, 2, 64))

    driven.work_for(2 * MINUTE, step_ns=SECOND)

    assert driven.path == [S.INIT, S.CANVASS]


@pytest.mark.conformance("C-55", "C-56")
@pytest.mark.parametrize("better", [(2, 64), (1, 1032)])
def test_one_better_peer_is_enough_not_to_be_unanimous(better):
    driven = in_canvass(400, 1000, is_startup=True)
    driven.hears(canvass(1, *better), canvass(2, 0, 400))

    driven.work_for(MINUTE - SECOND, step_ns=SECOND)

    assert driven.state is S.CANVASS


def test_a_peer_that_was_not_heard_is_not_taken_to_agree():
    driven = in_canvass(1000, is_startup=True)
    driven.hears(canvass(1, 0, 400))

    driven.work()

    assert driven.state is S.CANVASS


# ---- with members missing


@pytest.mark.conformance("C-57")
def test_at_a_start_a_missing_member_is_waited_for_a_minute():
    driven = in_canvass(1000, is_startup=True)
    driven.hears(canvass(1, 0, 1000))

    driven.work(after=MINUTE - 1)
    assert driven.state is S.CANVASS
    driven.work(after=1)
    assert driven.state is S.NOMINATE


@pytest.mark.conformance("C-58")
@pytest.mark.parametrize("tell", ["NewLeadershipTerm", "CommitPosition"])
def test_later_it_is_waited_for_until_10_s_after_the_last_word_of_a_leader(tell):
    driven = in_canvass(1000)
    driven.work(after=7 * SECOND)
    if tell == "CommitPosition":
        driven.hears(committed(LEADER_ID, TERM, 1000))
    else:
        driven.hears(ALeader(400, 500, 1000).broadcast())  # of another log term: not followed
    driven.hears(canvass(2, 0, 1000))

    driven.work(after=10 * SECOND - 1)
    assert driven.state is S.CANVASS
    driven.work(after=1)
    assert driven.state is S.NOMINATE


@pytest.mark.conformance("C-58")
def test_a_leader_of_a_past_term_does_not_prolong_the_canvass():
    driven = in_canvass(1000, candidate_term=TERM)
    driven.work(after=7 * SECOND)
    driven.hears(committed(LEADER_ID, TERM - 1, 1000), canvass(2, 0, 1000))

    driven.work(after=3 * SECOND)

    assert driven.state is S.NOMINATE


@pytest.mark.conformance("C-59")
def test_a_minority_is_never_enough():
    driven = in_canvass(1000, members=5, is_startup=True)
    driven.hears(canvass(1, 0, 1000))

    driven.work_for(5 * MINUTE, step_ns=SECOND)

    assert driven.state is S.CANVASS


@pytest.mark.conformance("C-60")
def test_the_minute_ends_with_the_first_canvass():
    driven = in_canvass(1000, is_startup=True)
    driven.hears(canvass(1, 0, 1000), canvass(2, 0, 1000))
    driven.work()
    driven.work(after=500 * MS)
    driven.work(after=1 * SECOND)
    assert driven.path[-2:] == [S.CANDIDATE_BALLOT, S.CANVASS]
    driven.hears(canvass(1, 0, 1000))

    driven.work(after=10 * SECOND)

    assert driven.state is S.NOMINATE


@pytest.mark.conformance("C-61")
def test_a_member_with_another_one_appointed_never_nominates():
    driven = in_canvass(1000, appointed_leader_id=1)
    driven.hears(canvass(1, 0, 400), canvass(2, 0, 400))

    driven.work_for(2 * MINUTE, step_ns=SECOND)

    assert driven.path == [S.INIT, S.CANVASS]


@pytest.mark.conformance("C-61")
def test_but_it_votes():
    driven = in_canvass(1000, appointed_leader_id=1)

    [answer] = sent(driven.hears(request_vote(1, TERM, log=(0, 1000))), Vote)

    assert answer.vote is True


def test_a_member_that_may_not_lead_never_nominates_and_refuses_nobody_for_a_shorter_log():
    driven = in_canvass(1000, may_lead=False)
    driven.hears(canvass(1, 0, 400), canvass(2, 0, 400))
    driven.work_for(2 * MINUTE, step_ns=SECOND)

    assert driven.path == [S.INIT, S.CANVASS]
    assert sent(driven.hears(request_vote(1, TERM, log=(0, 400))), Vote) == []
    [answer] = sent(driven.hears(request_vote(2, TERM, log=(0, 1000))), Vote)
    assert answer.vote is True


def test_the_appointed_member_nominates():
    driven = in_canvass(1000, appointed_leader_id=0)
    driven.hears(canvass(1, 0, 400), canvass(2, 0, 400))

    driven.work()

    assert driven.state is S.NOMINATE


@pytest.mark.conformance("C-62")
def test_a_leader_that_closed_in_good_order_is_not_waited_for():
    driven = in_canvass(1000, closed_leader=1)
    driven.hears(canvass(2, 0, 1000))

    driven.work()

    assert driven.state is S.NOMINATE


@pytest.mark.conformance("C-63")
@pytest.mark.parametrize(
    "tell", [canvass(1, 1, 2000), ALeader(100, 1000).answer(4)], ids=["canvass", "leads"]
)
def test_until_it_is_heard_again(tell):
    driven = in_canvass(1000, closed_leader=1)
    driven.hears(canvass(2, 0, 1000), tell)

    driven.work()

    assert driven.state is S.CANVASS


# ---- votes and leaders found in CANVASS


@pytest.mark.conformance("C-68")
@pytest.mark.parametrize("log", [(0, 1000), (0, 1032), (1, 0)])
def test_an_acceptable_request_earns_a_vote(log):
    driven = in_canvass(1000)

    [answer] = sent(driven.hears(request_vote(1, TERM, log)), Vote, to=1)

    assert answer.vote is True
    assert (answer.candidate_term_id, answer.candidate_member_id, answer.follower_member_id) == (TERM, 1, 0)
    assert (answer.log_leadership_term_id, answer.log_position) == (0, 1000)
    assert driven.state is S.FOLLOWER_BALLOT


@pytest.mark.conformance("C-69", "C-70")
@pytest.mark.parametrize("log", [(0, 100_000), (1, 999), (-1, 0)])
def test_a_candidate_with_a_worse_log_gets_no_vote(log):
    driven = in_canvass(400, 1000)

    [answer] = sent(driven.hears(request_vote(1, TERM, log)), Vote, to=1)

    assert answer.vote is False
    assert driven.state is S.CANVASS


@pytest.mark.conformance("C-71", "C-72")
@pytest.mark.parametrize("lead", [in_leader_log_replication, in_leader_ready])
def test_a_leader_in_an_election_answers_the_one_that_asks_about_the_term_after_its_last(lead):
    driven = lead(400, 1000)  # leads term 5; terms 2 to 4 are empty

    actions = driven.hears(canvass(2, 0, 250))

    assert receivers(actions, NewLeadershipTerm) == [2]
    [answer] = sent(actions, NewLeadershipTerm)
    assert answer.log_leadership_term_id == 0
    assert answer.next_leadership_term_id == 1
    assert (answer.next_term_base_log_position, answer.next_log_position) == (400, 1000)
    assert (answer.leadership_term_id, answer.term_base_log_position, answer.log_position) == (
        TERM,
        1000,
        1000,
    )


@pytest.mark.conformance("C-73")
def test_a_leaders_word_about_another_log_term_leaves_a_member_canvassing():
    driven = in_canvass(1000)

    driven.hears(ALeader(400, 500, 1000).answer(2))

    assert driven.state is S.CANVASS


@pytest.mark.conformance("C-73")
def test_and_is_not_followed_even_once_the_own_log_is_known_to_be_the_begin_of_the_leaders():
    driven = in_canvass(1000)
    leader = ALeader(1000, 1200)
    driven.hears(leader.broadcast())
    driven.hears(leader.answer(-1))  # proves term 0, the own one
    assert driven.state is S.CANVASS

    driven.hears(leader.answer(0))
    assert driven.state is S.FOLLOWER_LOG_REPLICATION


@pytest.mark.conformance("C-74")
@pytest.mark.parametrize(
    ("ends", "state"), [((1000,), S.FOLLOWER_REPLAY), ((700,), S.FOLLOWER_LOG_REPLICATION)]
)
def test_a_leaders_word_about_the_own_log_term_is_followed(ends, state):
    driven = in_canvass(*ends)

    driven.meets(ALeader(1000))

    assert driven.state is state
    assert driven.election.leader_member_id == LEADER_ID
    assert driven.election.leadership_term_id == TERM


def test_a_leader_that_does_not_know_yet_where_a_term_ends_is_followed_once_it_does():
    driven = in_canvass(400)
    leader = ALeader(400, 1000, 1600)
    driven.hears(leader.answer(-1))
    for _ in range(2):
        driven.hears(leader.answer(0).replace(next_log_position=NULL_POSITION))
        assert driven.state is S.CANVASS

    driven.hears(leader.answer(0))

    assert driven.state is S.FOLLOWER_LOG_REPLICATION
    assert the_one(driven.actions, StartReplication).stop_position == 1000


@pytest.mark.conformance("C-75")
def test_a_voter_goes_back_to_canvass_when_its_leader_tells_of_another_log_term():
    driven = in_follower_ballot(400, 1000)

    driven.hears(ALeader(400, 1000, 1600, 2000).broadcast())

    assert driven.path[-2:] == [S.FOLLOWER_BALLOT, S.CANVASS]


def test_messages_of_strangers_and_of_oneself_are_dropped():
    driven = in_canvass(1000)

    for id_ in (0, 3, -1):
        assert not driven.hears(
            canvass(id_, 9, 9),
            request_vote(id_, TERM, (9, 9)),
            vote(id_, TERM),
            ALeader(1000, member_id=id_).broadcast(),
        )
    assert driven.state is S.CANVASS
    assert driven.election.candidate_term_id == 0


def test_a_leader_that_is_not_followed_commits_nothing_here():
    driven = in_canvass(1000)

    driven.hears(committed(LEADER_ID, TERM, 1000), appended(2, 0, 1000))

    assert driven.election.effective_commit_position == 0
    assert driven.state is S.CANVASS


def test_a_link_that_comes_up_is_told_at_once():
    driven = in_canvass(1000)
    driven.work()

    assert receivers(driven.link_up(2), CanvassPosition) == [2]
