"""A follower behind within the term: asking for the log so far, taking it, drawing level (group E)."""

import pytest

from cluster.consensus.actions import JoinServicesToLog, SubscribeToLog
from cluster.consensus.context import SECOND
from cluster.protocol.consensus import AppendPosition, CatchupPosition, StopCatchup
from cluster.protocol.enums import AppendPositionFlags, ConsensusModuleState, ElectionState, Role
from tests.consensus.language import (
    LEADER_ID,
    TERM,
    ALeader,
    in_catchup,
    in_catchup_await,
    in_catchup_init,
    in_follower_log_await,
    of_kind,
    sent,
    the_one,
)

S = ElectionState


@pytest.mark.conformance("C-148")
def test_behind_within_the_term_it_asks_from_its_own_position_on():
    driven = in_catchup_init(400, 1000)

    [wanted] = sent(driven.work(), CatchupPosition, to=LEADER_ID)

    assert (wanted.leadership_term_id, wanted.log_position, wanted.follower_member_id) == (TERM, 1000, 0)
    assert the_one(driven.actions, SubscribeToLog).is_catchup


def test_the_request_is_tried_until_it_is_sent_and_no_longer_than_10_s():
    driven = in_catchup_init(400, 1000)
    driven.blocked = {LEADER_ID}
    assert sent(driven.work(), CatchupPosition)
    assert sent(driven.work(after=10 * SECOND - 1), CatchupPosition)

    driven.work(after=1)

    assert driven.path[-2:] == [S.FOLLOWER_CATCHUP_INIT, S.INIT]


def test_a_log_that_does_not_come_within_10_s_restarts_the_election():
    driven = in_catchup_await()

    driven.work(after=10 * SECOND - 1)
    assert driven.state is S.FOLLOWER_CATCHUP_AWAIT
    driven.work(after=1)
    assert driven.state is S.INIT


def test_recording_and_services_join_the_log_as_followers_where_the_own_log_ends():
    driven = in_catchup_await(400, 1000)

    join = the_one(driven.takes_image(), JoinServicesToLog)

    assert (join.leadership_term_id, join.log_position, join.role) == (TERM, 1000, Role.FOLLOWER)
    driven.work()
    assert driven.state is S.FOLLOWER_CATCHUP_AWAIT, "before the services have acknowledged"


def test_a_log_that_is_quicker_than_the_next_cycle_is_joined_too():
    """Request and answer fit between two cycles of a slow member; nobody sends the answer again."""
    driven = in_catchup_init(400, 1000)
    driven.work()
    assert driven.state is S.FOLLOWER_CATCHUP_INIT

    the_one(driven.takes_image(), JoinServicesToLog)
    driven.joined()
    driven.work()
    driven.work()

    assert driven.path[-2:] == [S.FOLLOWER_CATCHUP_AWAIT, S.FOLLOWER_CATCHUP]


@pytest.mark.conformance("C-151")
def test_its_reports_are_flagged():
    driven = in_catchup()
    driven.work()
    driven.grows(1300)

    [report] = sent(driven.work(), AppendPosition, to=LEADER_ID)

    assert (report.log_position, report.flags) == (1300, AppendPositionFlags.CATCHUP)


@pytest.mark.conformance("C-154")
@pytest.mark.parametrize(
    ("is_stopped", "processed", "commit"),
    [(False, 1600, 1600), (True, 1568, 1600), (True, 1600, 1632)],
    ids=["not told to stop", "short of the target", "short of the commit"],
)
def test_it_goes_on_until_told_to_stop_and_level_with_target_and_commit(is_stopped, processed, commit):
    leader = ALeader(400, 1000, position=1600)
    driven = in_catchup(400, 1000, leader=leader)
    driven.grows(1632)
    driven.hears(leader.commits(commit))
    driven.processes(processed)
    if is_stopped:
        driven.hears(StopCatchup(TERM, 0))
    driven.work()
    assert driven.state is S.FOLLOWER_CATCHUP

    driven.hears(StopCatchup(TERM, 0))
    driven.processes(1632)
    driven.work()

    assert driven.state is S.FOLLOWER_LOG_INIT


@pytest.mark.conformance("C-154")
@pytest.mark.parametrize("stop", [StopCatchup(TERM - 1, 0), StopCatchup(TERM, 2)])
def test_a_stop_of_another_term_or_for_another_member_is_not_meant(stop):
    driven = in_catchup()
    driven.grows(1600)
    driven.processes(1600)

    driven.hears(stop)
    driven.work()

    assert driven.state is S.FOLLOWER_CATCHUP


def test_it_does_not_end_amid_a_snapshot():
    driven = in_catchup()
    driven.module.change(ConsensusModuleState.SNAPSHOT)
    driven.grows(1600)
    driven.processes(1600)
    driven.hears(StopCatchup(TERM, 0))

    driven.work(after=11 * SECOND)
    assert driven.state is S.FOLLOWER_CATCHUP
    driven.module.change(ConsensusModuleState.ACTIVE)
    driven.work()
    assert driven.state is S.FOLLOWER_LOG_INIT


@pytest.mark.conformance("C-155")
@pytest.mark.parametrize("await_log", [in_catchup_await, in_follower_log_await])
def test_a_log_that_joins_elsewhere_restarts_the_election(await_log):
    driven = await_log(400, 1000)

    assert not of_kind(driven.takes_image(join_position=968), JoinServicesToLog)
    assert driven.state is S.INIT


@pytest.mark.conformance("C-156")
def test_a_catch_up_that_does_not_grow_for_10_s_restarts_it():
    driven = in_catchup()
    driven.work(after=7 * SECOND)
    driven.grows(1300)

    driven.work(after=10 * SECOND - 1)
    assert driven.state is S.FOLLOWER_CATCHUP
    driven.work(after=1)
    assert driven.state is S.INIT
