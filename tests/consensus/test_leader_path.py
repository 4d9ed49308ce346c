"""From LEADER_LOG_REPLICATION to CLOSED (seed *Leader Replay*, §2.4)."""

import pytest

from cluster.consensus import actions
from cluster.protocol.consensus import CommitPosition, NewLeadershipTerm
from cluster.protocol.enums import Role
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
    sent,
)

LOG = [(0, 0, 96), (1, 96, -1)]
END = 160
TERM = 2  # that the member wins


def a_winner(log_position=END, **settings):
    return Member(terms=LOG, append_position=END, log_position=log_position, **settings).wins()


def with_a_quorum(**settings):
    """One follower holds the term and the whole log."""
    member = a_winner(**settings)
    member.work()
    member.hears(append_position(1, TERM, END))
    member.work()
    return member


def replayed(member):
    member.work()
    member.election.on_log_position(END, member.now_ns)
    member.work()
    return member


def ready(**settings):
    member = with_a_quorum(**settings)
    member.work()
    member.election.on_log_joined(member.now_ns)
    member.work()
    assert member.state is State.LEADER_READY
    return member


@pytest.mark.conformance("C-101")
def test_the_role_of_leader_comes_with_log_replication():
    member = a_winner()

    assert of_kind(member.done, actions.SetRole)[-1] == actions.SetRole(Role.LEADER)


def test_the_term_and_its_base_are_recorded_before_anyone_is_told():
    member = a_winner()
    member.work()

    assert list(member.election.terms) == [(0, 0, 96), (1, 96, END), (TERM, END, -1)]
    recorded = member.done.index(actions.RecordTerm(TERM, END))
    told = next(
        i
        for i, a in enumerate(member.done)
        if isinstance(a, actions.Send) and isinstance(a.message, NewLeadershipTerm)
    )
    assert recorded < told


@pytest.mark.conformance("C-98", "C-99", "C-100")
def test_log_replication_lasts_until_a_majority_holds_the_whole_log():
    member = a_winner()
    member.work_until(3600 * SECOND, interval_ns=60 * SECOND)
    assert member.state is State.LEADER_LOG_REPLICATION

    member.hears(append_position(1, TERM, END - 32))
    member.work()
    assert member.state is State.LEADER_LOG_REPLICATION

    member.hears(append_position(1, TERM, END))
    member.work()
    assert member.state is State.LEADER_REPLAY


def test_what_a_canvass_or_a_vote_told_holds_no_log():
    member = a_winner()
    member.hears(canvass_position(1, 1, END))
    member.hears(canvass_position(2, 1, END))
    member.work(cycles=3)

    assert member.state is State.LEADER_LOG_REPLICATION


@pytest.mark.conformance("C-129")
def test_a_report_of_an_older_term_holds_no_log():
    member = a_winner()
    member.hears(append_position(1, 1, END))
    member.hears(append_position(2, 1, END))
    member.work(cycles=2)

    assert member.state is State.LEADER_LOG_REPLICATION


def test_a_report_over_a_broken_link_holds_no_log():
    member = a_winner()
    member.hears(append_position(1, TERM, END))
    member.does(member.election.on_link_down(1, member.now_ns))
    member.work()

    assert member.state is State.LEADER_LOG_REPLICATION


def test_a_follower_that_looks_for_a_leader_again_holds_no_log():
    member = a_winner()
    member.hears(append_position(1, TERM, END))
    member.hears(canvass_position(1, TERM, END))
    member.work()

    assert member.state is State.LEADER_LOG_REPLICATION


@pytest.mark.conformance("C-102")
def test_a_log_that_is_processed_already_is_not_replayed():
    member = with_a_quorum()
    member.work()

    assert member.states[-2:] == [State.LEADER_REPLAY, State.LEADER_INIT]
    assert not of_kind(member.done, actions.StartReplay)


@pytest.mark.conformance("C-103")
def test_what_is_not_processed_is_replayed_up_to_the_end_of_the_recording():
    member = with_a_quorum(log_position=64)
    member.work()

    assert of_kind(member.done, actions.StartReplay) == [actions.StartReplay(64, END)]


@pytest.mark.conformance("C-112", "C-115")
def test_the_replay_is_over_when_the_log_is_processed_to_its_end():
    member = with_a_quorum(log_position=64)
    member.work()
    member.election.on_log_position(END - 32, member.now_ns)
    member.work()
    assert member.state is State.LEADER_REPLAY

    replayed(member)
    assert member.state is State.LEADER_INIT
    assert actions.StopReplay() in member.done
    assert member.election.log_position == END


def test_nothing_beyond_the_commit_position_is_replayed_before_a_majority_holds_the_term():
    member = a_winner(log_position=64)
    member.hears(append_position(1, 1, END))
    member.work(cycles=5)

    assert not of_kind(member.done, actions.StartReplay)


@pytest.mark.conformance("C-116")
def test_the_term_is_told_at_once_and_every_200_ms():
    member = with_a_quorum(log_position=64)
    begin = member.now_ns
    member.forget()
    member.work()
    assert len(member.sent(NewLeadershipTerm, to=1)) == 1

    member.work(at=begin + 199 * MS)
    assert len(member.sent(NewLeadershipTerm, to=1)) == 1
    member.work(at=begin + 200 * MS)
    assert len(member.sent(NewLeadershipTerm, to=2)) == 2


@pytest.mark.conformance("C-117", "C-118", "C-119")
def test_the_quorum_position_is_told_when_it_rises_and_every_200_ms():
    member = a_winner()
    begin = member.now_ns
    member.work()
    assert member.sent(CommitPosition, to=2) == [commit_position(0, TERM, 0)]

    member.forget()
    member.work(at=begin + 50 * MS)
    assert member.sent(CommitPosition) == []
    member.hears(append_position(1, TERM, END - 32))
    member.work(at=begin + 60 * MS)
    assert member.sent(CommitPosition, to=2) == [commit_position(0, TERM, END - 32)]

    member.forget()
    member.work(at=begin + 260 * MS)
    assert member.sent(CommitPosition, to=2) == [commit_position(0, TERM, END - 32)]


def test_a_quorum_position_that_falls_is_not_told():
    member = a_winner()
    member.hears(append_position(1, TERM, END - 32))
    member.work()
    member.does(member.election.on_link_down(1, member.now_ns))
    member.forget()
    member.work(at=member.now_ns + 300 * MS)

    assert member.sent(CommitPosition) == []


@pytest.mark.conformance("C-120")
def test_start_up_is_told_only_once_the_replay_begins():
    member = a_winner(log_position=64)
    member.work()
    assert not any(message.is_startup for message in member.sent(NewLeadershipTerm))

    member.hears(append_position(1, TERM, END))
    member.work()
    member.forget()
    member.work()
    assert [message.is_startup for message in member.sent(NewLeadershipTerm, to=1)] == [True]


def test_a_later_election_is_no_start_up():
    member = Member(terms=LOG, append_position=END, is_node_startup=False).wins()
    member.hears(append_position(1, TERM, END))
    member.work(cycles=2)

    assert member.election.is_leader_startup is False


def test_the_log_is_joined_as_leader_in_leader_init():
    member = with_a_quorum()
    member.work()

    join = of_kind(member.done, actions.JoinLog)
    assert [(j.log_position, j.role, j.is_startup) for j in join] == [(END, Role.LEADER, True)]
    member.work(cycles=3)
    assert member.state is State.LEADER_INIT
    member.election.on_log_joined(member.now_ns)
    member.work()
    assert member.state is State.LEADER_READY


@pytest.mark.conformance("C-127", "C-128")
def test_leader_ready_needs_a_majority_of_active_members_in_the_term():
    member = ready()
    member.does(member.election.on_link_down(1, member.now_ns))
    member.work()
    assert not of_kind(member.done, actions.AppendNewLeadershipTermEvent)

    member.hears(append_position(2, TERM, END))
    member.work()
    assert of_kind(member.done, actions.AppendNewLeadershipTermEvent)


@pytest.mark.conformance("C-130", "C-131")
def test_the_term_event_is_asked_for_until_the_log_takes_it_and_then_the_election_closes():
    member = ready()
    member.work(cycles=2)
    wanted = of_kind(member.done, actions.AppendNewLeadershipTermEvent)
    assert wanted == 2 * [actions.AppendNewLeadershipTermEvent(TERM, END)]
    assert member.state is State.LEADER_READY

    wanted = member.does(member.election.on_term_event_appended(END + 96, member.now_ns))
    assert member.state is State.CLOSED
    completed = of_kind(wanted, actions.CompleteElection)
    assert [(c.leadership_term_id, c.log_position, c.leader_member_id) for c in completed] == [(TERM, END, 0)]


@pytest.mark.conformance("C-132")
@pytest.mark.parametrize("state", [State.LEADER_LOG_REPLICATION, State.LEADER_READY])
def test_a_leader_that_hears_of_a_later_term_starts_over(state):
    member = a_winner() if state is State.LEADER_LOG_REPLICATION else ready()
    member.hears(canvass_position(1, TERM + 1, END))

    assert member.state is State.INIT


@pytest.mark.conformance("C-133")
def test_a_leader_that_hears_the_commit_position_of_a_later_term_starts_over():
    member = ready()
    member.hears(commit_position(1, TERM + 1, END))

    assert member.state is State.INIT


def test_a_leader_that_hears_of_a_leader_of_a_later_term_starts_over():
    member = ready()
    member.hears(LeaderLog(1, [(0, 0), (1, 96), (2, 96), (3, END)], END).reply(1))

    assert member.state is State.INIT


@pytest.mark.conformance("C-71", "C-72")
def test_a_canvassing_member_is_told_alone_of_the_term_after_its_own():
    member = a_winner()
    member.work()
    wanted = member.hears(canvass_position(2, 0, 96))

    told = sent(wanted, NewLeadershipTerm)
    assert told == sent(wanted, NewLeadershipTerm, to=2)
    assert [
        (
            m.log_leadership_term_id,
            m.next_leadership_term_id,
            m.next_term_base_log_position,
            m.next_log_position,
        )
        for m in told
    ] == [(0, 1, 96, END)]
    assert [(m.leadership_term_id, m.term_base_log_position, m.log_position) for m in told] == [
        (TERM, END, END)
    ]


def test_others_are_told_of_the_term_after_the_one_that_the_log_ended_in():
    member = Member(terms=LOG, append_position=END, candidate_term_id=6).wins()
    member.work()

    told = member.sent(NewLeadershipTerm, to=1)[0]
    assert (told.log_leadership_term_id, told.next_leadership_term_id) == (1, 2)
    assert (told.next_term_base_log_position, told.next_log_position) == (END, END)
    assert told.leadership_term_id == 7


@pytest.mark.conformance("C-44")
def test_an_error_takes_the_election_back_to_init_and_the_commit_position():
    member = with_a_quorum(log_position=64)
    member.does(member.election.on_error("test", 64, member.now_ns))
    assert member.state is State.INIT

    member.forget()
    member.work()
    assert actions.PrepareForNewLeadership(64) in member.done
    assert member.state is State.CANVASS


def test_the_first_election_of_a_node_has_nothing_to_undo():
    member = Member(terms=LOG, append_position=END).canvasses()

    assert not of_kind(member.done, actions.PrepareForNewLeadership)
