"""From a leader's word to FOLLOWER_READY, by whatever is missing (§2.4, §3.1)."""

import pytest

from cluster.consensus import actions
from cluster.protocol.consensus import AppendPosition, CanvassPosition, CatchupPosition, StopCatchup
from cluster.protocol.enums import Role
from tests.consensus.elections import (
    MS,
    SECOND,
    LeaderLog,
    Member,
    State,
    commit_position,
    of_kind,
    sent,
)

# The worked example of §3.1: the leader is in term 3, its log ends at 1216.
LEADER = LeaderLog(1, [(0, 0), (1, 416), (2, 416), (3, 896)], 1216, commit_position=1216)


def a_member(terms, append_position, **settings):
    return Member(terms=terms, append_position=append_position, **settings).canvasses()


def behind(append_position=256, **settings):
    """In term 0, short of its end."""
    member = a_member([(0, 0, -1)], append_position, **settings)
    LEADER.answer(member)
    return member


def level(log_position=896, leader=LEADER, **settings):
    """At the base of the leader's term."""
    member = a_member([(0, 0, 416), (1, 416, 416), (2, 416, -1)], 896, log_position=log_position, **settings)
    leader.answer(member)
    assert member.state is State.FOLLOWER_REPLAY
    return member


def catching_up(**settings):
    member = level(**settings)
    member.work(cycles=3)
    assert member.state is State.FOLLOWER_CATCHUP_AWAIT
    member.does(member.election.on_log_image(3, 896, member.now_ns))
    member.election.on_log_joined(member.now_ns)
    member.work()
    assert member.state is State.FOLLOWER_CATCHUP
    return member


@pytest.mark.conformance("C-136")
def test_a_follower_short_of_the_end_of_its_term_fetches_the_rest_and_canvasses():
    member = behind()
    assert member.state is State.FOLLOWER_LOG_REPLICATION
    assert of_kind(member.done, actions.StartReplication) == [actions.StartReplication(1, 3, 256, 416)]

    member.election.on_append_position(416, member.now_ns)
    member.work()
    assert member.state is State.CANVASS
    assert list(member.election.terms) == [(0, 0, 416)]


@pytest.mark.conformance("C-137")
def test_a_follower_at_the_end_of_its_term_fetches_the_whole_next_one():
    member = a_member([(0, 0, 416), (1, 416, 416)], 416)
    LEADER.answer(member)

    assert of_kind(member.done, actions.StartReplication) == [actions.StartReplication(1, 3, 416, 896)]
    assert member.done.index(actions.RecordTerm(2, 416)) < member.done.index(
        actions.StartReplication(1, 3, 416, 896)
    )
    member.election.on_append_position(896, member.now_ns)
    member.work()
    assert list(member.election.terms)[-1] == (2, 416, 896)


@pytest.mark.conformance("C-138")
def test_an_empty_term_is_recorded_without_a_byte_being_fetched():
    member = a_member([(0, 0, 416)], 416)
    LEADER.answer(member)
    member.work()

    assert not of_kind(member.done, actions.StartReplication)
    assert list(member.election.terms) == [(0, 0, 416), (1, 416, 416)]
    assert member.state is State.CANVASS


@pytest.mark.conformance("C-139")
def test_a_follower_several_terms_behind_canvasses_once_a_term():
    member = behind()
    rounds = 0
    while member.state is not State.FOLLOWER_REPLAY:
        if member.state is State.FOLLOWER_LOG_REPLICATION:
            for fetch in of_kind(member.done, actions.StartReplication)[-1:]:
                member.election.on_append_position(fetch.stop_position, member.now_ns)
            member.work()
        else:
            rounds += 1
            LEADER.answer(member)

    assert rounds == 3
    assert list(member.election.terms) == [(0, 0, 416), (1, 416, 416), (2, 416, 896), (3, 896, -1)]
    assert member.states.count(State.FOLLOWER_LOG_REPLICATION) == 3


@pytest.mark.conformance("C-140")
def test_what_was_fetched_counts_when_the_leaders_commit_covers_it():
    leader = LeaderLog(1, LEADER.terms, 1216, commit_position=0)
    member = a_member([(0, 0, -1)], 256)
    leader.answer(member)
    member.election.on_append_position(416, member.now_ns)
    member.work()
    assert member.state is State.FOLLOWER_LOG_REPLICATION

    member.hears(commit_position(1, 3, 416))
    member.work()
    assert member.state is State.CANVASS


@pytest.mark.conformance("C-140")
def test_what_the_leader_never_covers_is_given_up_10_s_after_its_last_word():
    leader = LeaderLog(1, LEADER.terms, 1216, commit_position=0)
    member = a_member([(0, 0, -1)], 256)
    leader.answer(member)
    member.election.on_append_position(416, member.now_ns)
    member.now_ns = 4 * SECOND
    member.hears(commit_position(1, 3, 384))
    member.work(at=14 * SECOND - 1)
    assert member.state is State.FOLLOWER_LOG_REPLICATION

    member.work(at=14 * SECOND)
    assert member.states[-1] is State.INIT


@pytest.mark.conformance("C-141")
def test_replication_without_progress_is_given_up_after_10_s():
    member = behind()
    member.election.on_append_position(320, 5 * SECOND)
    member.work(at=15 * SECOND - 1)
    assert member.state is State.FOLLOWER_LOG_REPLICATION

    member.work(at=15 * SECOND)
    assert member.states[-1] is State.INIT


@pytest.mark.conformance("C-142")
def test_a_replicating_follower_reports_growth_and_every_200_ms():
    member = behind()
    member.work()
    assert [m.log_position for m in member.sent(AppendPosition, to=1)] == [256]

    member.work(at=100 * MS)
    member.election.on_append_position(320, member.now_ns)
    member.work()
    member.work(at=299 * MS)
    assert [m.log_position for m in member.sent(AppendPosition)] == [256, 320]
    member.work(at=300 * MS)
    assert [(m.leadership_term_id, m.log_position, m.flags) for m in member.sent(AppendPosition)][-1] == (
        3,
        320,
        0,
    )


@pytest.mark.conformance("C-143", "C-144")
def test_a_follower_with_more_of_a_term_than_the_leader_has_cuts_it_off_and_starts_over():
    member = a_member([(0, 0, 416), (1, 416, 416), (2, 416, -1)], 960, log_position=416)
    LEADER.answer(member)

    assert of_kind(member.done, actions.TruncateLog) == [actions.TruncateLog(896, 3)]
    assert list(member.election.terms)[-1] == (2, 416, 896)
    assert member.states[-1] is State.INIT
    member.work()
    LEADER.answer(member)
    assert member.state is State.FOLLOWER_REPLAY


@pytest.mark.conformance("C-145")
def test_without_a_commit_position_a_follower_reports_every_200_ms_and_replays_nothing():
    silent = LeaderLog(1, LEADER.terms, 1216, commit_position=0)
    member = level(log_position=416, leader=silent)
    member.work()
    member.work(at=199 * MS)
    assert len(member.sent(AppendPosition, to=1)) == 1
    member.work(at=200 * MS)

    assert [(m.leadership_term_id, m.log_position) for m in member.sent(AppendPosition, to=1)] == 2 * [
        (3, 896)
    ]
    assert not of_kind(member.done, actions.StartReplay)


def test_the_term_is_recorded_before_the_first_report_within_it():
    member = level(log_position=416)
    member.work()

    recorded = member.done.index(actions.RecordTerm(3, 896))
    reported = next(
        i
        for i, a in enumerate(member.done)
        if isinstance(a, actions.Send) and isinstance(a.message, AppendPosition)
    )
    assert recorded < reported
    assert member.election.terms.last_term_id == 3


def test_a_commit_position_below_the_base_of_the_term_commits_nothing():
    """Figure 8 of the Raft paper: entries of older terms are not committed by counting them."""
    counting = LeaderLog(1, LEADER.terms, 1216, commit_position=640)
    member = level(log_position=416, leader=counting)
    member.hears(commit_position(1, 3, 864))
    member.work(cycles=3)
    assert not of_kind(member.done, actions.StartReplay)

    member.hears(commit_position(1, 3, 896))
    member.work()
    assert of_kind(member.done, actions.StartReplay) == [actions.StartReplay(416, 896)]


def test_a_follower_whose_leader_falls_silent_before_the_first_commit_looks_again():
    silent = LeaderLog(1, LEADER.terms, 1216, commit_position=0)
    member = level(log_position=416, leader=silent)
    member.work(at=10 * SECOND)

    assert member.states[-1] is State.INIT


@pytest.mark.conformance("C-146")
def test_no_more_is_replayed_than_is_recorded_and_committed():
    member = a_member([(0, 0, 416), (1, 416, 416), (2, 416, 896), (3, 896, -1)], 1088, log_position=416)
    LeaderLog(1, LEADER.terms, 1216, commit_position=992).answer(member)
    member.work()
    assert of_kind(member.done, actions.StartReplay) == [actions.StartReplay(416, 992)]

    member.election.on_log_position(992, member.now_ns)
    member.work()
    assert member.state is State.CANVASS
    assert member.reasons[-1] == "replayed what is committed"

    LeaderLog(1, LEADER.terms, 1216, commit_position=1216).answer(member)
    member.work()
    assert of_kind(member.done, actions.StartReplay)[-1] == actions.StartReplay(992, 1088)


def test_a_report_has_time_to_make_the_commit_grow_before_a_new_canvass():
    member = a_member([(0, 0, 416), (1, 416, 416), (2, 416, 896), (3, 896, -1)], 1088, log_position=992)
    LeaderLog(1, LEADER.terms, 1088, commit_position=992).answer(member)
    member.work(at=199 * MS)
    assert member.state is State.FOLLOWER_REPLAY
    assert member.sent(AppendPosition, to=1)

    member.hears(commit_position(1, 3, 1088))
    member.work()
    assert of_kind(member.done, actions.StartReplay) == [actions.StartReplay(992, 1088)]


@pytest.mark.conformance("C-147")
def test_a_follower_level_with_the_leader_joins_the_live_log():
    leader = LeaderLog(1, LEADER.terms, 896, commit_position=896)
    member = level(leader=leader)
    member.work(cycles=2)

    assert member.state is State.FOLLOWER_LOG_AWAIT
    assert of_kind(member.done, actions.SubscribeToLog) == [actions.SubscribeToLog(1, 3, 77, 896, False)]
    assert not member.sent(CatchupPosition)


@pytest.mark.conformance("C-148")
def test_a_follower_behind_in_the_term_asks_for_it_from_its_position():
    member = level()
    member.work(cycles=2)

    assert of_kind(member.done, actions.SubscribeToLog) == [actions.SubscribeToLog(1, 3, 77, 896, True)]
    assert [(m.leadership_term_id, m.log_position) for m in member.sent(CatchupPosition, to=1)] == [(3, 896)]


def test_a_request_to_catch_up_is_repeated_until_it_is_sent_or_10_s_are_over():
    member = level()
    member.unreachable = {1}
    member.work(cycles=4)
    assert member.state is State.FOLLOWER_CATCHUP_INIT
    assert len(member.sent(CatchupPosition)) >= 2

    member.work(at=10 * SECOND)
    assert member.states[-1] is State.INIT


@pytest.mark.conformance("C-151")
def test_a_follower_that_catches_up_says_so_in_its_reports():
    member = catching_up()
    member.election.on_append_position(1024, member.now_ns)
    member.work()

    assert [(m.log_position, m.flags) for m in member.sent(AppendPosition)][-1] == (1024, 1)


@pytest.mark.conformance("C-154")
def test_a_catch_up_ends_with_the_leaders_word_and_all_that_is_committed_processed():
    member = catching_up()
    member.election.on_append_position(1216, member.now_ns)
    member.election.on_log_position(1216, member.now_ns)
    member.work()
    assert member.state is State.FOLLOWER_CATCHUP

    member.hears(StopCatchup(3, 0))
    member.hears(commit_position(1, 3, 1248))
    member.work()
    assert member.state is State.FOLLOWER_CATCHUP

    member.election.on_append_position(1248, member.now_ns)
    member.election.on_log_position(1248, member.now_ns)
    member.work(cycles=2)
    assert member.states[-2:] == [State.FOLLOWER_LOG_INIT, State.FOLLOWER_READY]


@pytest.mark.parametrize("stop", [StopCatchup(2, 0), StopCatchup(3, 2)])
def test_a_word_to_stop_for_another_term_or_member_stops_nothing(stop):
    member = catching_up()
    member.election.on_append_position(1216, member.now_ns)
    member.election.on_log_position(1216, member.now_ns)
    member.hears(stop)
    member.work()

    assert member.state is State.FOLLOWER_CATCHUP


def test_a_catch_up_does_not_end_within_a_snapshot():
    member = catching_up()
    member.election.is_module_in_snapshot = True
    member.election.on_append_position(1216, member.now_ns)
    member.election.on_log_position(1216, member.now_ns)
    member.hears(StopCatchup(3, 0))
    member.work(at=60 * SECOND)

    assert member.state is State.FOLLOWER_CATCHUP


@pytest.mark.conformance("C-155")
@pytest.mark.parametrize("is_behind", [True, False])
def test_a_log_that_joins_elsewhere_starts_the_election_over(is_behind):
    leader = LEADER if is_behind else LeaderLog(1, LEADER.terms, 896, commit_position=896)
    member = level(leader=leader)
    member.work(cycles=3)
    member.does(member.election.on_log_image(3, 928, member.now_ns))

    assert member.states[-1] is State.INIT


def test_a_log_of_another_term_is_not_joined():
    member = level()
    member.work(cycles=3)

    assert member.does(member.election.on_log_image(2, 896, member.now_ns)) == []


@pytest.mark.parametrize("is_behind", [True, False])
def test_a_log_that_does_not_come_is_given_up_after_10_s(is_behind):
    leader = LEADER if is_behind else LeaderLog(1, LEADER.terms, 896, commit_position=896)
    member = level(leader=leader)
    member.work(cycles=3)
    member.work(at=10 * SECOND)

    assert member.states[-1] is State.INIT


@pytest.mark.conformance("C-156")
def test_a_catch_up_without_growth_is_given_up_after_10_s():
    member = catching_up()
    member.election.on_append_position(1024, 5 * SECOND)
    member.work(at=15 * SECOND - 1)
    assert member.state is State.FOLLOWER_CATCHUP

    member.work(at=15 * SECOND)
    assert member.states[-1] is State.INIT


@pytest.mark.conformance("C-157")
def test_the_last_step_is_one_report_in_the_new_term():
    leader = LeaderLog(1, LEADER.terms, 896, commit_position=896)
    member = level(leader=leader)
    member.work(cycles=2)
    wanted = member.does(member.election.on_log_image(3, 896, member.now_ns))
    assert [(j.log_position, j.role) for j in of_kind(wanted, actions.JoinLog)] == [(896, Role.FOLLOWER)]

    member.election.on_log_joined(member.now_ns)
    member.work()
    assert member.state is State.FOLLOWER_READY
    member.forget()
    member.work(cycles=2)
    assert [(m.leadership_term_id, m.log_position, m.flags) for m in member.sent(AppendPosition)] == [
        (3, 896, 0)
    ]
    assert member.state is State.CLOSED
    completed = of_kind(member.done, actions.CompleteElection)[0]
    assert (completed.leadership_term_id, completed.leader_member_id) == (3, 1)


def test_the_last_report_is_repeated_until_it_is_sent_or_10_s_are_over():
    leader = LeaderLog(1, LEADER.terms, 896, commit_position=896)
    member = level(leader=leader)
    member.work(cycles=2)
    member.does(member.election.on_log_image(3, 896, member.now_ns))
    member.election.on_log_joined(member.now_ns)
    member.unreachable = {1}
    member.work(cycles=4)
    assert member.state is State.FOLLOWER_READY

    member.work(at=10 * SECOND)
    assert member.states[-1] is State.INIT


@pytest.mark.conformance("C-159")
def test_the_notified_commit_position_never_falls():
    member = level(log_position=416)
    member.hears(commit_position(1, 3, 1000))
    member.hears(LEADER.reply(2))
    assert member.election.notified_commit_position == 1216


def test_a_commit_position_of_another_leader_or_term_is_ignored():
    silent = LeaderLog(1, LEADER.terms, 1216, commit_position=0)
    member = level(log_position=416, leader=silent)
    member.hears(commit_position(2, 3, 1000))
    member.hears(commit_position(1, 2, 1000))

    assert member.election.notified_commit_position == 0


@pytest.mark.parametrize("member", [behind, level, catching_up])
def test_a_leader_that_is_gone_is_followed_no_longer(member):
    follower = member()
    follower.does(follower.election.on_member_gone(1, follower.now_ns))

    assert follower.states[-1] is State.INIT


@pytest.mark.parametrize("member", [behind, level, catching_up])
def test_a_leader_of_a_later_term_takes_the_place_of_the_one_that_is_followed(member):
    follower = member()
    follower.hears(LeaderLog(2, [(0, 0), (1, 416), (2, 416), (3, 896), (4, 1216)], 1216).reply(3))

    assert follower.states[-1] is State.INIT


def test_a_wiped_member_reports_nothing_until_it_has_followed_to_the_end():
    member = Member(is_wiped=True).canvasses()
    leader = LeaderLog(1, [(0, 0)], 0, commit_position=0)
    leader.answer(member)
    member.work(cycles=3)
    assert member.state is State.FOLLOWER_LOG_AWAIT
    assert not member.sent(AppendPosition)

    member.does(member.election.on_log_image(0, 0, member.now_ns))
    member.election.on_log_joined(member.now_ns)
    member.work(cycles=3)
    assert member.state is State.CLOSED
    assert len(member.sent(AppendPosition)) == 1
    proposed = member.done.index(of_kind(member.done, actions.ProposeTerm)[0])
    reported = next(
        i
        for i, a in enumerate(member.done)
        if isinstance(a, actions.Send) and isinstance(a.message, AppendPosition)
    )
    assert proposed < reported


def test_questions_are_asked_of_the_leader_alone():
    member = a_member([(0, 0, -1)], 256)
    member.forget()
    wanted = member.hears(LEADER.reply(0))

    assert sent(wanted, CanvassPosition) == sent(wanted, CanvassPosition, to=1)
