"""Where this core is stricter than the reference: what counts, what is promised, who has a say.

That the last term is verified too has a file of its own: test_log_matching.py.
"""

import pytest

from cluster.consensus.actions import (
    ProposeTerm,
    RecordTerm,
    StartReplay,
    StartReplication,
)
from cluster.consensus.context import SECOND
from cluster.protocol.consensus import (
    AppendPosition,
    CanvassPosition,
    RequestVote,
    Vote,
)
from cluster.protocol.enums import ElectionState
from cluster.protocol.link import PromiseState
from tests.consensus.language import (
    LEADER_ID,
    TERM,
    ALeader,
    a_log,
    an_election,
    an_election_in,
    appended,
    canvass,
    in_candidate_ballot,
    in_canvass,
    in_follower_log_await,
    in_follower_log_replication,
    in_follower_replay,
    in_leader_log_replication,
    in_leader_replay,
    of_kind,
    request_vote,
    sent,
    stated,
    the_one,
    vote,
)

S = ElectionState
LEADER_STATES = [S.LEADER_LOG_REPLICATION, S.LEADER_REPLAY, S.LEADER_INIT, S.LEADER_READY]
VOTING_STATES = [S.CANVASS, S.NOMINATE, S.CANDIDATE_BALLOT, S.FOLLOWER_BALLOT]


# ---- only proven positions count


def test_positions_in_canvasses_and_votes_never_count():
    driven = in_leader_log_replication(1000)
    driven.hears(canvass(1, 0, 1000), canvass(2, TERM, 1000))
    driven.hears(
        Vote(TERM, 0, 1000, 0, 1, True),
        Vote(TERM, TERM, 1000, 0, 2, True),
    )

    driven.work_for(5 * SECOND)

    assert driven.state is S.LEADER_LOG_REPLICATION


@pytest.mark.parametrize("term", [0, TERM - 1])
def test_a_report_of_another_term_proves_nothing(term):
    driven = in_leader_log_replication(1000)

    driven.hears(appended(1, term, 1000), appended(2, term, 5000))
    driven.work()

    assert driven.state is S.LEADER_LOG_REPLICATION


def test_a_report_of_a_term_that_is_not_there_yet_is_not_even_kept():
    driven = in_leader_log_replication(1000)
    driven.hears(appended(1, TERM, 1000), appended(1, TERM + 1, 5000))

    driven.work()

    assert driven.state is S.LEADER_REPLAY, "the report of this term was lost"


@pytest.mark.parametrize("what", ["the link breaks", "it canvasses"])
def test_a_report_holds_until_its_sender_is_lost_or_looks_for_a_leader(what):
    driven = in_leader_log_replication(1000)
    driven.hears(appended(1, TERM, 1000))
    if what == "it canvasses":
        driven.hears(canvass(1, TERM, 1000))
    else:
        driven.link_down(1)

    driven.work()

    assert driven.state is S.LEADER_LOG_REPLICATION


def test_entering_canvass_forgets_all_reports():
    driven = in_leader_replay(1000)
    driven.fails()
    driven.work()
    driven.prepared()

    assert [member.report_position for member in driven.election._members.values()] == [-1, -1, -1]


# ---- a follower records (term, base) before it says that it holds it


@pytest.mark.parametrize("follow", [in_follower_replay, in_follower_log_await])
def test_the_term_is_recorded_before_the_first_report_at_its_base(follow):
    driven = follow(400, 1000)
    driven.work()

    first_report = next(i for i, action in enumerate(driven.actions) if sent([action], AppendPosition))

    assert driven.actions.index(RecordTerm(TERM, 1000)) < first_report


def test_a_log_replicated_to_the_leaders_base_says_nothing_before_the_term_is_recorded():
    """Else the leader counts a member that would still vote against it: figure 8 of the Raft paper."""
    leader = ALeader(400, 1000)
    driven = in_follower_log_replication(400, 700, leader=leader)
    driven.grows(1000)

    actions = driven.work_for(1 * SECOND)
    driven.meets(leader)
    driven.work()

    assert all(message.log_position < 1000 for message in sent(actions, AppendPosition))
    assert driven.state is S.FOLLOWER_REPLAY
    assert driven.election.terms.last_term_id == TERM


def test_from_then_on_it_stands_with_that_term():
    driven = in_follower_replay(400, 1000)
    driven.link_down(LEADER_ID)
    driven.work()
    driven.prepared()

    [message, _] = sent(driven.work(), CanvassPosition)
    assert (message.log_leadership_term_id, message.log_position) == (TERM, 1000)
    [refusal] = sent(driven.hears(request_vote(2, TERM + 1, log=(TERM - 1, 100_000))), Vote)
    assert refusal.vote is False


def test_a_leader_processes_nothing_until_a_majority_holds_its_term():
    driven = in_leader_log_replication(1000, processed=320)

    driven.hears(appended(1, TERM, 968))
    assert not of_kind(driven.work_for(5 * SECOND), StartReplay)

    driven.hears(appended(1, TERM, 1000))
    driven.work()
    assert the_one(driven.work(), StartReplay) == StartReplay(320, 1000)


@pytest.mark.parametrize("commit", [0, 500, 968])
def test_a_commit_position_below_the_terms_base_commits_nothing(commit):
    """It tells how far others have come with older terms: counted, and not enough (Raft §5.4.2)."""
    leader = ALeader(400, 1000, commit=commit)
    driven = in_follower_replay(400, 1000, leader=leader, processed=320)

    driven.work()
    driven.hears(leader.commits(commit))
    driven.work()

    assert driven.election.effective_commit_position == 0
    assert not of_kind(driven.actions, StartReplay)

    driven.hears(leader.commits(1000))
    assert the_one(driven.work(), StartReplay) == StartReplay(320, 1000)


# ---- a promise to a later term stands


@pytest.mark.parametrize("state", VOTING_STATES, ids=lambda s: s.name)
def test_a_leader_of_a_term_below_the_own_promise_is_told_to_step_aside(state):
    driven = an_election_in(state)
    driven.hears(request_vote(2, 9, log=(-1, 0)))  # refused, and promised

    actions = driven.hears(ALeader(400, 1000).broadcast())

    [answer] = sent(actions, Vote, to=LEADER_ID)
    assert (answer.vote, answer.candidate_term_id) == (False, 9)
    assert driven.state is state
    assert len(actions) == 1


@pytest.mark.parametrize("state", LEADER_STATES, ids=lambda s: s.name)
def test_a_leader_that_hears_of_such_a_promise_makes_it_its_own_and_begins_anew(state):
    driven = an_election_in(state)

    actions = driven.hears(vote(2, 9, granted=False))

    assert actions[0] == ProposeTerm(candidate_term_id=9, log_position=1000)
    assert driven.path[-2:] == [state, S.INIT]


def test_so_does_a_candidate_and_it_stands_higher_the_next_time():
    driven = in_candidate_ballot(1000)

    driven.hears(vote(2, 9, granted=False))
    assert driven.path[-2:] == [S.CANDIDATE_BALLOT, S.CANVASS]
    driven.hears(canvass(1, -1, 0), canvass(2, -1, 0))
    driven.work()
    driven.work(after=1 * SECOND)

    assert {m.candidate_term_id for m in sent(driven.work(), RequestVote)} == {10}


def test_a_promise_survives_a_restart():
    driven = an_election(400, 1000, candidate_term=9, is_startup=True)
    driven.work()

    [answer] = sent(driven.hears(ALeader(400, 1000).broadcast()), Vote)

    assert (answer.vote, answer.candidate_term_id) == (False, 9)


# ---- a wiped member has no say


def test_a_wiped_member_neither_votes_nor_stands():
    driven = in_canvass(is_wiped=True)
    driven.hears(canvass(1, -1, 0), canvass(2, 0, 400))
    driven.work_for(120 * SECOND, step_ns=SECOND)
    assert driven.state is S.CANVASS

    assert not sent(driven.hears(request_vote(2, TERM, log=(0, 400))), Vote)
    assert driven.state is S.CANVASS


@pytest.mark.parametrize("way", [in_canvass, in_follower_log_replication, in_follower_replay])
def test_a_wiped_member_does_not_even_refuse_whoever_lacks_what_it_fetched(way):
    """It would defeat whom a majority wants; and the term stored with it would pass for a vote later."""
    driven = way(400, 700, is_wiped=True)

    actions = driven.hears(request_vote(2, 9, log=(0, 400)))

    assert not sent(actions, Vote)
    assert not of_kind(actions, ProposeTerm)
    assert driven.path[-1] is driven.state


def test_where_everybody_is_empty_the_cluster_is_new_and_all_have_a_say():
    empty = [stated(0, id_, state=PromiseState.EMPTY) for id_ in (1, 2)]
    driven = in_canvass(is_wiped=True, told=empty[:1])
    driven.hears(canvass(1, -1, 0), canvass(2, -1, 0))
    driven.work()
    assert driven.state is S.CANVASS

    driven.promises.on_statement(2, empty[1])
    driven.work()

    assert driven.state is S.NOMINATE


def test_in_a_new_cluster_the_last_one_to_come_votes():
    driven = in_canvass(is_wiped=True, told=[stated(0, id_, state=PromiseState.EMPTY) for id_ in (1, 2)])
    driven.hears(canvass(1, -1, 0))

    [answer] = sent(driven.hears(request_vote(2, 0, log=(-1, 0))), Vote)

    assert answer.vote is True


def test_a_cluster_of_one_cannot_be_asked():
    driven = an_election(members=1, is_wiped=True, is_startup=True)

    driven.work()

    assert driven.state is S.LEADER_LOG_REPLICATION


@pytest.mark.parametrize("leader", [ALeader(400, 1000), ALeader()], ids=["a log", "none"])
def test_a_wiped_member_does_not_report_before_it_is_level(leader):
    driven = in_canvass(is_wiped=True)
    reports = []
    for _ in range(60):
        if driven.state is S.CANVASS:
            driven.meets(leader)
        elif driven.state is S.FOLLOWER_LOG_REPLICATION:
            driven.grows(of_kind(driven.actions, StartReplication)[-1].stop_position)
            driven.hears(leader.commits(driven.election.append_position))
        elif driven.state is S.FOLLOWER_REPLAY:
            driven.hears(leader.commits(leader.base))
            if of_kind(driven.actions, StartReplay):
                driven.processes(leader.base)
        elif driven.state is S.FOLLOWER_LOG_AWAIT:
            driven.takes_image()
            driven.joined()
        elif driven.state is S.FOLLOWER_READY:
            break
        reports += sent(driven.work(after=50_000_000), AppendPosition)

    assert driven.state is S.FOLLOWER_READY
    assert not reports
    assert sent(driven.work(), AppendPosition), "it is level: from now on it counts"


def test_following_to_the_end_makes_the_term_durable_so_that_a_restart_has_a_say():
    driven = in_follower_log_await(400, 1000)
    driven.takes_image()
    driven.joined()

    actions = driven.work()

    assert driven.state is S.FOLLOWER_READY
    assert the_one(actions, ProposeTerm).candidate_term_id == TERM


# ---- members that are gone


def test_a_gone_member_is_not_waited_for_in_the_canvass():
    driven = in_canvass(1000, gone=[1])
    driven.hears(canvass(2, 0, 1000))

    driven.work()

    assert driven.state is S.NOMINATE


def test_nor_in_the_ballot():
    driven = in_candidate_ballot(1000, gone=[1])
    driven.hears(vote(2, TERM))

    driven.work()

    assert driven.state is S.LEADER_LOG_REPLICATION


def test_but_a_quorum_of_all_members_is_needed():
    driven = in_canvass(1000, gone=[1, 2])
    driven.work_for(120 * SECOND, step_ns=SECOND)
    assert driven.state is S.CANVASS

    five = in_candidate_ballot(1000, members=5, gone=[1, 2, 3])
    five.hears(vote(4, TERM))
    five.work()
    assert five.state is S.CANDIDATE_BALLOT


def test_a_gone_member_that_refuses_was_not_gone():
    driven = in_candidate_ballot(1000, gone=[1])
    driven.hears(vote(1, TERM, granted=False), vote(2, TERM))

    driven.work(after=1 * SECOND)

    assert driven.state is S.CANVASS


def test_a_better_log_of_a_member_that_is_not_gone_still_counts():
    driven = in_canvass(400, 1000, gone=[1])
    driven.hears(canvass(2, 2, 64))

    driven.work()

    assert driven.state is S.CANVASS


def test_positions_from_before_the_election_make_no_candidate():
    driven = an_election(1000)
    driven.election._members[1].standing = driven.election._members[2].standing = (0, 400)

    driven.work()
    driven.prepared()
    driven.work()

    assert driven.state is S.CANVASS


# ---- what goes wrong


@pytest.mark.conformance("C-44")
def test_an_error_takes_the_election_back_to_the_commit_position():
    driven = in_follower_replay(400, 1000, processed=320)
    driven.hears(ALeader(400, 1000).commits(1000))
    driven.work()

    driven.election.on_error("the replay broke", 640, driven.now_ns)

    assert driven.state is S.INIT
    assert driven.election.log_position == 640


def test_an_error_while_the_last_leadership_is_undone_undoes_it_again():
    driven = an_election(1000)
    driven.work()
    assert not driven.work()

    driven.fails()

    assert driven.work(), "it waits for an answer that never comes"
    driven.prepared()
    assert driven.state is S.CANVASS


def test_a_log_of_an_election_is_told_by_actions_alone():
    """The terms that the election knows are those that it asked to have recorded."""
    terms = a_log(400, 1000)
    driven = in_follower_replay(400, 1000)
    for record in of_kind(driven.actions, RecordTerm):
        terms.record(record.leadership_term_id, record.term_base_log_position, record.log_position)

    assert terms == driven.election.terms
