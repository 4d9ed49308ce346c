"""CANVASS and NOMINATE: how members find out who may stand (seed *Canvass*, §2.4)."""

import pytest

from cluster.consensus import actions
from cluster.protocol.consensus import CanvassPosition, NewLeadershipTerm, RequestVote, Vote
from cluster.protocol.enums import ElectionState, Role
from tests.consensus.elections import (
    MS,
    SECOND,
    LeaderLog,
    Member,
    State,
    append_position,
    canvass_position,
    commit_position,
    of_kind,
    request_vote,
    sent,
)

LOG = [(0, 0, 96), (1, 96, -1)]  # two terms, the second one open
END = 160


def a_member(**settings):
    return Member(terms=LOG, append_position=END, **settings)


@pytest.mark.conformance("C-46")
def test_one_of_several_members_starts_with_a_canvass():
    member = a_member()
    member.work()

    assert member.states == [State.INIT, State.CANVASS]
    assert of_kind(member.done, actions.SetRole) == [actions.SetRole(Role.FOLLOWER)]


@pytest.mark.conformance("C-47")
def test_a_single_member_leads_at_once_in_a_new_term_that_it_has_persisted():
    member = Member(members=1, terms=LOG, append_position=END, candidate_term_id=4)
    member.work()

    assert member.states == [State.INIT, State.LEADER_LOG_REPLICATION]
    assert member.election.leadership_term_id == 5
    assert of_kind(member.done, actions.ProposeTerm) == [actions.ProposeTerm(5, END)]
    member.work()
    assert member.state is State.LEADER_REPLAY


@pytest.mark.conformance("C-48", "C-49")
def test_a_canvassing_member_tells_all_others_at_once_and_then_every_100_ms():
    member = a_member().canvasses()
    member.forget()
    member.work()
    assert [action.member_id for action in of_kind(member.done, actions.Send)] == [1, 2]

    member.forget()
    member.work(at=99 * MS)
    assert member.done == []
    member.work(at=100 * MS)
    assert len(member.sent(CanvassPosition)) == 2


@pytest.mark.conformance("C-50")
def test_the_canvass_tells_the_end_of_the_log_on_disk():
    member = a_member(candidate_term_id=9).canvasses()
    member.work()

    assert member.sent(CanvassPosition, to=1) == [canvass_position(0, 1, END, 1)]


@pytest.mark.conformance("C-51", "C-52")
def test_a_peer_is_judged_by_its_log_and_not_by_its_leadership_term():
    member = a_member().canvasses()
    member.hears(canvass_position(1, 1, 64, term_id=99))

    assert member.members[1].standing == (1, 64)
    member.hears(canvass_position(2, 1, 64, term_id=-1))
    member.work()
    assert member.state is State.NOMINATE


@pytest.mark.conformance("C-53", "C-54", "C-65")
@pytest.mark.parametrize("peer", [(1, 64), (0, 999), (1, END)])
def test_the_highest_or_joint_highest_of_all_nominates_itself_at_once(peer):
    member = a_member().canvasses()
    member.hears(canvass_position(1, *peer))
    member.hears(canvass_position(2, *peer))
    member.work()

    assert member.state is State.NOMINATE
    assert member.reasons[-1] == "unanimous candidate"


@pytest.mark.conformance("C-55", "C-56")
@pytest.mark.parametrize("better", [(2, 0), (1, END + 32)])
def test_a_member_with_a_worse_log_than_a_peers_does_not_nominate_itself(better):
    member = a_member().canvasses()
    member.hears(canvass_position(1, *better))
    member.hears(canvass_position(2, 1, END))
    member.work()

    assert member.state is State.CANVASS


@pytest.mark.conformance("C-57")
def test_at_start_up_a_silent_member_is_waited_for_for_a_minute():
    member = a_member().canvasses()
    member.hears(canvass_position(1, 1, END))
    member.work(at=60 * SECOND - 1)
    assert member.state is State.CANVASS

    member.work(at=60 * SECOND)
    assert member.state is State.NOMINATE
    assert member.reasons[-1] == "quorum candidate"


@pytest.mark.conformance("C-58")
def test_later_it_is_waited_for_until_10_s_after_the_last_word_of_the_leader():
    member = a_member(is_node_startup=False, last_leader_message_ns=3 * SECOND)
    member.now_ns = 5 * SECOND
    member.canvasses()
    member.hears(canvass_position(1, 1, END))
    member.work(at=13 * SECOND - 1)
    assert member.state is State.CANVASS

    member.work(at=13 * SECOND)
    assert member.state is State.NOMINATE


@pytest.mark.conformance("C-59")
def test_with_a_minority_heard_a_member_stays_in_canvass_for_ever():
    member = Member(members=5, terms=LOG, append_position=END).canvasses()
    member.hears(canvass_position(1, 1, END))
    member.work(at=3600 * SECOND)

    assert member.state is State.CANVASS


@pytest.mark.conformance("C-60")
def test_the_long_wait_is_that_of_the_first_canvass_only():
    member = a_member().canvasses()
    member.hears(request_vote(1, 2, 1, END))
    assert member.state is State.FOLLOWER_BALLOT
    member.work(at=1 * SECOND)
    assert member.state is State.CANVASS

    member.hears(canvass_position(1, 1, END))
    member.work(at=10 * SECOND)
    assert member.state is State.NOMINATE


@pytest.mark.conformance("C-61")
def test_a_member_with_another_appointed_leader_never_stands_but_votes():
    member = a_member(appointed_leader_id=1).canvasses()
    for other in (1, 2):
        member.hears(canvass_position(other, 1, 64))
    member.work(at=3600 * SECOND)
    assert member.state is State.CANVASS

    member.hears(request_vote(1, 2, 1, END))
    assert member.state is State.FOLLOWER_BALLOT


@pytest.mark.conformance("C-62", "C-63")
def test_a_leader_that_closed_its_log_in_order_is_not_waited_for_until_it_speaks():
    member = a_member(is_node_startup=False, graceful_closed_leader_id=2).canvasses()
    member.hears(canvass_position(1, 1, END))
    member.work()
    assert member.state is State.NOMINATE

    member = a_member(is_node_startup=False, graceful_closed_leader_id=2).canvasses()
    member.hears(canvass_position(2, 1, END + 32))
    member.hears(canvass_position(1, 1, END))
    member.work()
    assert member.state is State.CANVASS


def test_a_member_whose_process_is_gone_is_not_waited_for():
    member = a_member(is_node_startup=False, gone={2}).canvasses()
    member.hears(canvass_position(1, 1, END))
    member.work()

    assert member.state is State.NOMINATE


def test_a_majority_must_still_be_heard_when_all_others_are_gone():
    member = a_member(is_node_startup=False, gone={1, 2}).canvasses()
    member.work(at=3600 * SECOND)

    assert member.state is State.CANVASS


def test_what_was_heard_before_the_canvass_counts_no_more():
    member = a_member(is_node_startup=False, gone={2})
    member.canvasses()
    member.hears(canvass_position(1, 1, END))
    member.does(member.election.on_error("test", END, member.now_ns))
    member.work(cycles=3)

    assert member.state is State.CANVASS


@pytest.mark.conformance("C-64")
def test_the_nomination_delay_is_random_and_below_half_a_second():
    delays = set()
    for seed in range(40):
        member = a_member(seed=seed).canvasses()
        for other in (1, 2):
            member.hears(canvass_position(other, 1, END))
        member.work(at=7 * MS)
        while member.state is State.NOMINATE:
            member.work(at=member.now_ns + 10 * MS)
        delays.add(member.now_ns - 7 * MS)

    assert len(delays) > 20
    assert max(delays) <= 510 * MS


@pytest.mark.conformance("C-66")
def test_a_nominee_goes_on_canvassing():
    member = a_member(seed=3).canvasses()
    for other in (1, 2):
        member.hears(canvass_position(other, 1, END))
    member.work()
    member.forget()
    member.work_until(250 * MS)

    assert len(member.sent(CanvassPosition, to=1)) >= 2


@pytest.mark.conformance("C-67")
def test_at_the_deadline_the_next_candidate_term_is_durable_before_any_vote_is_asked_for():
    member = a_member(candidate_term_id=7).stands()

    assert member.election.candidate_term_id == 8
    proposed = member.done.index(actions.ProposeTerm(8, END))
    asked = next(
        i
        for i, a in enumerate(member.done)
        if isinstance(a, actions.Send) and isinstance(a.message, RequestVote)
    )
    assert proposed < asked


@pytest.mark.conformance("C-68")
@pytest.mark.parametrize("is_nominated", [False, True])
def test_an_acceptable_request_is_voted_for(is_nominated):
    member = a_member().canvasses()
    if is_nominated:
        for other in (1, 2):
            member.hears(canvass_position(other, 1, END))
        member.work()
    wanted = member.hears(request_vote(1, 2, 1, END))

    assert member.state is State.FOLLOWER_BALLOT
    assert [vote.vote for vote in sent(wanted, Vote, to=1)] == [True]


@pytest.mark.conformance("C-69", "C-70")
@pytest.mark.parametrize("worse", [(0, 999), (1, END - 32)])
def test_a_candidate_with_a_worse_log_is_refused(worse):
    member = a_member().canvasses()
    wanted = member.hears(request_vote(1, 2, *worse))

    assert member.state is State.CANVASS
    assert [vote.vote for vote in sent(wanted, Vote, to=1)] == [False]


@pytest.mark.conformance("C-73")
def test_a_leaders_word_of_another_log_term_leaves_the_member_canvassing():
    member = a_member().canvasses()
    leader = LeaderLog(1, [(0, 0), (1, 96), (2, 256), (3, 320)], 352, commit_position=320)
    member.hears(leader.reply(2))

    assert member.state is State.CANVASS
    assert not of_kind(member.done, actions.RecordTerm)


@pytest.mark.conformance("C-74")
@pytest.mark.parametrize(
    ("base", "state"), [(256, State.FOLLOWER_LOG_REPLICATION), (END, State.FOLLOWER_REPLAY)]
)
def test_a_leaders_word_of_the_own_log_term_leads_to_its_log(base, state):
    member = a_member().canvasses()
    leader = LeaderLog(1, [(0, 0), (1, 96), (2, base)], base + 64, commit_position=base)
    leader.answer(member)

    assert member.state is state


@pytest.mark.conformance("C-75")
def test_a_voter_that_hears_of_another_log_term_canvasses_again():
    member = a_member().canvasses()
    member.hears(request_vote(1, 3, 1, END))
    leader = LeaderLog(1, [(0, 0), (1, 96), (2, 256), (3, 320)], 352)
    member.hears(leader.reply(2))

    assert member.state is State.CANVASS


@pytest.mark.conformance("C-76")
def test_a_nominee_does_not_act_on_a_leader_but_does_not_stand_against_it_either():
    member = a_member().canvasses()
    for other in (1, 2):
        member.hears(canvass_position(other, 1, END))
    member.work()
    leader = LeaderLog(1, [(0, 0), (1, 96), (2, END)], END)
    assert member.hears(leader.reply(1)) == []
    assert member.state is State.NOMINATE

    member.work(at=500 * MS)
    assert member.state is State.CANVASS
    assert member.election.candidate_term_id == 1


def test_a_leaders_heartbeat_is_of_no_use_to_a_member_that_does_not_follow_it():
    member = a_member().canvasses()
    member.hears(commit_position(1, 5, 999))
    member.hears(append_position(1, 1, END))

    assert member.state is State.CANVASS
    assert member.election.notified_commit_position == 0


def test_a_canvass_goes_to_a_member_as_soon_as_it_can_hear():
    member = a_member().canvasses()
    member.work()
    wanted = member.does(member.election.on_link_up(2, member.now_ns))

    assert len(sent(wanted, CanvassPosition, to=2)) == 1


# ---- an empty disk (safety rule 1.5)


def a_wiped_member(**settings):
    return Member(is_wiped=True, **settings).canvasses()


def test_a_member_with_an_empty_disk_neither_stands_nor_votes():
    member = a_wiped_member()
    member.hears(canvass_position(1, -1, 0))
    member.hears(canvass_position(2, 0, 64))
    member.work(at=3600 * SECOND)
    assert member.state is State.CANVASS

    assert sent(member.hears(request_vote(2, 1, 0, 64)), Vote) == []
    assert member.state is State.CANVASS


def test_when_all_members_say_that_their_disks_are_empty_it_is_a_new_cluster():
    member = a_wiped_member()
    member.hears(canvass_position(1, -1, 0))
    member.work()
    assert member.state is State.CANVASS

    member.hears(canvass_position(2, -1, 0))
    member.work()
    assert member.state is State.NOMINATE


def test_the_request_of_the_last_empty_member_tells_its_disk_too():
    member = a_wiped_member()
    member.hears(canvass_position(1, -1, 0))
    wanted = member.hears(request_vote(2, 0, -1, 0))

    assert [vote.vote for vote in sent(wanted, Vote, to=2)] == [True]


def test_a_leader_is_told_to_step_aside_by_a_member_that_voted_in_a_later_term():
    member = a_member(candidate_term_id=5).canvasses()
    leader = LeaderLog(1, [(0, 0), (1, 96), (4, END)], END)
    wanted = member.hears(
        NewLeadershipTerm(1, 2, END, END, 4, END, END, 0, 0, leader.member_id, 7, 1, False, 0)
    )

    assert [(v.candidate_term_id, v.vote) for v in sent(wanted, Vote, to=1)] == [(5, False)]
    assert member.state is State.CANVASS


@pytest.mark.conformance("C-96")
def test_the_codes_of_the_states_are_those_of_the_counter():
    assert [state.value for state in ElectionState] == list(range(18))
    assert [state.name for state in ElectionState][:4] == ["INIT", "CANVASS", "NOMINATE", "CANDIDATE_BALLOT"]
