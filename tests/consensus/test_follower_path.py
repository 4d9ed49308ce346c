"""From a leader's word to following it: fetch what is missing, process, join the live log (group E)."""

import pytest

from cluster.consensus.actions import (
    CompleteElection,
    PrepareForNewLeadership,
    RecordTerm,
    SetRole,
    StartReplay,
    StartReplication,
    StopReplay,
    StopReplication,
    SubscribeToLog,
    TruncateLog,
)
from cluster.consensus.context import MS, SECOND
from cluster.consensus.leadership_terms import LeadershipTerm, LeadershipTerms
from cluster.protocol.consensus import AppendPosition, CanvassPosition, StopCatchup
from cluster.protocol.enums import ElectionState, Role
from tests.consensus.language import (
    LEADER_ID,
    OTHER_ID,
    TERM,
    ALeader,
    a_log,
    committed,
    in_canvass,
    in_catchup,
    in_catchup_await,
    in_catchup_init,
    in_follower_log_await,
    in_follower_log_init,
    in_follower_log_replication,
    in_follower_ready,
    in_follower_replay,
    of_kind,
    sent,
    the_one,
)

S = ElectionState


def last_term(driven) -> tuple[int, int, int]:
    return tuple(list(driven.election.terms)[-1])


# ---- FOLLOWER_LOG_REPLICATION: terms that the leader has closed


@pytest.mark.conformance("C-136")
def test_the_missing_end_of_the_own_last_term_is_fetched_up_to_the_next_terms_base():
    leader = ALeader(400, 1000, 1600)  # term 1 is [400, 1000)
    driven = in_canvass(400, 700)

    actions = driven.meets(leader)

    assert driven.state is S.FOLLOWER_LOG_REPLICATION
    assert the_one(actions, StartReplication) == StartReplication(LEADER_ID, TERM, 700, 1000)


@pytest.mark.conformance("C-136")
def test_then_it_canvasses_again():
    leader = ALeader(400, 1000, 1600)
    driven = in_follower_log_replication(400, 700, leader=leader)
    driven.grows(1000)
    driven.hears(leader.commits(1000))

    actions = driven.work()

    assert of_kind(actions, StopReplication)
    assert RecordTerm(1, 400, 1000) in actions
    assert driven.state is S.CANVASS
    [message, _] = sent(driven.work(), CanvassPosition)
    assert (message.log_leadership_term_id, message.log_position) == (1, 1000)


@pytest.mark.conformance("C-137")
def test_at_the_end_of_its_last_term_it_fetches_the_next_one_whole_and_canvasses_with_that():
    leader = ALeader(400, 1000, 1600)
    driven = in_canvass(400)

    actions = driven.meets(leader)
    assert the_one(actions, StartReplication) == StartReplication(LEADER_ID, TERM, 400, 1000)
    driven.grows(1000)
    driven.hears(leader.commits(1000))
    driven.work()

    [message, _] = sent(driven.work(), CanvassPosition)
    assert (message.log_leadership_term_id, message.log_position) == (1, 1000)
    assert last_term(driven) == (1, 400, 1000)


def test_a_term_is_recorded_before_any_byte_of_it_is_fetched():
    """A crash in between would leave bytes of which nobody knows who wrote them."""
    driven = in_canvass(400)

    actions = driven.meets(ALeader(400, 1000, 1600))

    assert actions.index(RecordTerm(1, 400)) < actions.index(the_one(actions, StartReplication))


@pytest.mark.conformance("C-138")
def test_an_empty_term_is_recorded_without_moving_data():
    """Nobody wrote in term 1. Leaders of ours pass over it; Aeron's tell of it."""
    driven = in_canvass(400)
    leader = ALeader(400, 400, 1000)
    driven.hears(leader.answer(0).replace(next_leadership_term_id=1, next_log_position=400))
    actions = driven.hears(leader.answer(-1))

    actions += driven.work()

    assert RecordTerm(1, 400, 400) in actions
    assert not of_kind(actions, StartReplication)
    assert driven.path[-2:] == [S.FOLLOWER_LOG_REPLICATION, S.CANVASS]


@pytest.mark.conformance("C-139", "C-137", "C-138")
def test_each_missing_term_with_bytes_costs_one_visit_to_canvass():
    """Bases 0, 400, 400, 900, the leader at 1200 in term 3; term 1 is recorded with term 2."""
    leader = ALeader(400, 400, 900, term=3, position=1200)
    driven = in_canvass(250)
    rounds = []
    while driven.state is S.CANVASS:
        rounds.append((driven.election.terms.last_term_id, driven.election.append_position))
        driven.meets(leader)
        if driven.state is S.FOLLOWER_LOG_REPLICATION:
            fetched = of_kind(driven.actions, StartReplication)[-1]
            driven.grows(max(fetched.stop_position, driven.election.append_position))
            driven.hears(leader.commits(driven.election.append_position))
            driven.work()

    assert rounds == [(0, 250), (0, 400), (2, 900)]
    assert driven.state is S.FOLLOWER_REPLAY
    assert driven.election._followed.join_position == 1200
    assert [tuple(term) for term in driven.election.terms] == [
        (0, 0, 400),
        (1, 400, 400),
        (2, 400, 900),
        (3, 900, -1),
    ]


def test_a_member_without_a_log_fetches_all_of_it():
    leader = ALeader(400, 1000)
    driven = in_canvass()

    actions = driven.meets(leader)

    assert the_one(actions, StartReplication) == StartReplication(LEADER_ID, TERM, 0, 400)
    assert RecordTerm(0, 0) in actions


@pytest.mark.conformance("C-140")
def test_replicated_bytes_count_once_a_commit_notice_covers_them():
    leader = ALeader(400, 1000, 1600)
    driven = in_follower_log_replication(400, 700, leader=leader)
    driven.grows(1000)

    driven.hears(leader.commits(968))
    driven.work()
    assert driven.state is S.FOLLOWER_LOG_REPLICATION

    driven.hears(leader.commits(1000))
    driven.work()
    assert driven.state is S.CANVASS


@pytest.mark.conformance("C-140")
@pytest.mark.parametrize("word", ["CommitPosition", "NewLeadershipTerm"])
def test_without_one_the_election_restarts_10_s_after_the_last_word_of_that_leader(word):
    leader = ALeader(400, 1000, 1600)
    driven = in_follower_log_replication(400, 700, leader=leader)
    driven.grows(1000)
    driven.work(after=7 * SECOND)
    driven.hears(leader.commits(700) if word == "CommitPosition" else leader.answer(1))

    driven.work(after=10 * SECOND - 1)
    assert driven.state is S.FOLLOWER_LOG_REPLICATION
    driven.work(after=1)
    assert driven.path[-2:] == [S.FOLLOWER_LOG_REPLICATION, S.INIT]


@pytest.mark.conformance("C-140")
def test_the_word_of_another_member_prolongs_nothing():
    leader = ALeader(400, 1000, 1600)
    driven = in_follower_log_replication(400, 700, leader=leader)
    driven.grows(1000)
    driven.work(after=7 * SECOND)
    driven.hears(committed(OTHER_ID, TERM, 1000))

    driven.work(after=3 * SECOND)

    assert driven.state is S.INIT


@pytest.mark.conformance("C-141")
def test_replication_without_progress_for_10_s_restarts_the_election():
    leader = ALeader(400, 1000, 1600)
    driven = in_follower_log_replication(400, 700, leader=leader)
    driven.work(after=7 * SECOND)
    driven.grows(800)
    driven.work(after=10 * SECOND - 1)
    assert driven.state is S.FOLLOWER_LOG_REPLICATION

    driven.hears(leader.commits(800))  # the leader lives, but nothing comes
    driven.work(after=1)

    assert driven.path[-2:] == [S.FOLLOWER_LOG_REPLICATION, S.INIT]


@pytest.mark.conformance("C-142")
def test_while_it_replicates_it_reports_growth_at_once_and_else_every_200_ms():
    driven = in_follower_log_replication(400, 700, leader=ALeader(400, 1000, 1600))
    assert [m.log_position for m in sent(driven.work(), AppendPosition)] == [700]
    assert not sent(driven.work(after=50 * MS), AppendPosition)

    driven.grows(800)
    [report] = sent(driven.work(after=50 * MS), AppendPosition, to=LEADER_ID)
    assert (report.leadership_term_id, report.log_position, report.flags) == (TERM, 800, 0)

    assert not sent(driven.work(after=200 * MS - 1), AppendPosition)
    assert sent(driven.work(after=1), AppendPosition)


# ---- a tail that the leader does not have


@pytest.mark.conformance("C-143", "C-144")
def test_a_last_term_that_reaches_past_the_leaders_next_base_is_cut_back_to_it():
    driven = in_canvass(400, 1000, processed=400)

    actions = driven.meets(ALeader(400, 700))  # its term 1 ends at 700

    cut = the_one(actions, TruncateLog)
    assert (cut.log_position, cut.first_removed_term_id) == (700, 2)
    assert driven.path[-2:] == [S.CANVASS, S.INIT]
    assert driven.election.append_position == 700
    assert last_term(driven) == (1, 400, 700)


@pytest.mark.conformance("C-143")
def test_after_the_cut_the_election_begins_anew_and_follows():
    leader = ALeader(400, 700)
    driven = in_canvass(400, 1000, processed=400)
    driven.meets(leader)

    assert the_one(driven.work(), PrepareForNewLeadership) == PrepareForNewLeadership(400)
    driven.prepared()
    [message, _] = sent(driven.work(), CanvassPosition)
    assert (message.log_leadership_term_id, message.log_position) == (1, 700)
    driven.meets(leader)

    assert driven.state is S.FOLLOWER_REPLAY
    assert last_term(driven) == (TERM, 700, -1)


# ---- FOLLOWER_REPLAY: what is recorded and committed


def test_following_is_recorded_before_anything_of_it_is_said():
    driven = in_canvass(400, 1000)

    actions = driven.meets(ALeader(400, 1000))

    assert actions.index(RecordTerm(TERM, 1000)) > max(
        i for i, action in enumerate(actions) if sent([action], CanvassPosition)
    )
    assert not sent(actions, AppendPosition)
    assert sent(driven.work(), AppendPosition)


@pytest.mark.conformance("C-145")
def test_told_of_no_commit_it_replays_nothing_and_reports_every_200_ms():
    driven = in_follower_replay(400, 1000)
    assert [m.log_position for m in sent(driven.work(), AppendPosition, to=LEADER_ID)] == [1000]

    assert not driven.work(after=200 * MS - 1)
    [report] = sent(driven.work(after=1), AppendPosition, to=LEADER_ID)

    assert (report.leadership_term_id, report.log_position) == (TERM, 1000)
    assert driven.state is S.FOLLOWER_REPLAY
    assert not of_kind(driven.actions, StartReplay)


def test_a_leader_that_falls_silent_then_is_not_waited_for_forever():
    """The reference has no time-out here."""
    leader = ALeader(400, 1000)
    driven = in_follower_replay(400, 1000, leader=leader)
    driven.work(after=7 * SECOND)
    driven.hears(leader.broadcast())

    driven.work(after=10 * SECOND - 1)
    assert driven.state is S.FOLLOWER_REPLAY
    driven.work(after=1)
    assert driven.state is S.INIT


@pytest.mark.conformance("C-146")
@pytest.mark.parametrize(
    ("append", "commit", "stop"), [(1600, 1200, 1200), (1600, 2000, 1600), (1000, 1000, 1000)]
)
def test_it_replays_no_further_than_both_append_and_commit_position(append, commit, stop):
    leader = ALeader(400, 1000, position=2000, commit=commit)
    terms = a_log(400, 1000)
    terms.record(TERM, 1000)
    driven = in_canvass(terms=terms, append=append, processed=400)
    driven.meets(leader)

    assert the_one(driven.work(), StartReplay) == StartReplay(400, stop)


def test_replayed_short_of_its_end_it_canvasses_so_as_to_hear_of_later_commits():
    leader = ALeader(400, 1000, position=1600, commit=1200)
    terms = a_log(400, 1000)
    terms.record(TERM, 1000)
    driven = in_canvass(terms=terms, append=1600, processed=400)
    driven.meets(leader)
    driven.work()
    driven.processes(1200)

    actions = driven.work()

    assert of_kind(actions, StopReplay)
    assert driven.path[-2:] == [S.FOLLOWER_REPLAY, S.CANVASS]


def test_all_committed_is_processed_so_it_reports_for_one_interval_and_canvasses():
    leader = ALeader(400, 1000, position=1600, commit=1200)
    terms = a_log(400, 1000)
    terms.record(TERM, 1000)
    driven = in_canvass(terms=terms, append=1600, processed=1200)
    driven.meets(leader)

    assert sent(driven.work(), AppendPosition)
    driven.work(after=200 * MS - 1)
    assert driven.state is S.FOLLOWER_REPLAY
    driven.work(after=1)
    assert driven.state is S.CANVASS


@pytest.mark.conformance("C-147")
def test_level_with_the_leader_it_joins_the_live_log_without_catching_up():
    driven = in_follower_replay(400, 1000, processed=1000)

    driven.work()
    actions = driven.work()

    assert driven.path[-3:] == [S.FOLLOWER_REPLAY, S.FOLLOWER_LOG_INIT, S.FOLLOWER_LOG_AWAIT]
    wanted = the_one(actions, SubscribeToLog)
    assert (wanted.leader_member_id, wanted.leadership_term_id, wanted.log_position) == (
        LEADER_ID,
        TERM,
        1000,
    )
    assert not wanted.is_catchup


# ---- joining the live log


def test_the_live_log_is_waited_for_10_s():
    driven = in_follower_log_await()

    driven.work(after=10 * SECOND - 1)
    assert driven.state is S.FOLLOWER_LOG_AWAIT
    driven.work(after=1)
    assert driven.state is S.INIT


def test_meanwhile_it_reports_so_that_a_leader_that_waits_can_go_on():
    driven = in_follower_log_await(400, 1000)

    reports = sent(driven.work(), AppendPosition) + sent(driven.work(after=200 * MS), AppendPosition)

    assert [(r.leadership_term_id, r.log_position) for r in reports] == [(TERM, 1000)] * 2


def test_an_image_of_another_term_is_not_taken():
    driven = in_follower_log_await()

    assert driven.election.on_log_image(TERM - 1, 1000, driven.now_ns) == []


@pytest.mark.conformance("C-157")
def test_the_last_step_is_one_append_position_of_the_new_term():
    driven = in_follower_ready(400, 1000)

    [report] = sent(driven.work(), AppendPosition, to=LEADER_ID)
    assert (report.leadership_term_id, report.log_position, report.flags) == (TERM, 1000, 0)
    actions = driven.work()

    done = the_one(actions, CompleteElection)
    assert driven.state is S.CLOSED
    assert (done.leadership_term_id, done.term_base_log_position) == (TERM, 1000)
    assert (done.log_position, done.leader_member_id) == (1000, LEADER_ID)
    assert not sent(actions, AppendPosition)


def test_a_report_that_cannot_be_sent_within_10_s_restarts_the_election():
    driven = in_follower_ready()
    driven.blocked = {LEADER_ID}
    assert sent(driven.work(), AppendPosition)

    driven.work(after=10 * SECOND)

    assert driven.path[-2:] == [S.FOLLOWER_READY, S.INIT]


def test_following_begins_with_what_the_election_heard_of_the_commit():
    leader = ALeader(400, 1000, position=1600)
    driven = in_catchup(400, 1000, leader=leader)
    driven.grows(1600)
    driven.hears(leader.commits(1568), StopCatchup(TERM, 0))
    driven.processes(1600)
    for _ in range(4):
        driven.work()

    done = the_one(driven.actions, CompleteElection)
    assert (done.log_position, done.notified_commit_position) == (1600, 1600)


# ---- what the leader tells meanwhile


FOLLOWING = [
    in_follower_log_replication,
    in_follower_replay,
    in_catchup_init,
    in_catchup_await,
    in_catchup,
    in_follower_log_init,
    in_follower_log_await,
    in_follower_ready,
]


@pytest.mark.conformance("C-159")
@pytest.mark.parametrize("following", FOLLOWING)
def test_the_notified_commit_position_never_falls(following):
    driven = following()
    driven.hears(committed(LEADER_ID, TERM, 1600))
    lower = ALeader(1000, commit=900)

    driven.hears(committed(LEADER_ID, TERM, 1500), lower.broadcast())

    assert driven.election.effective_commit_position == 1600


@pytest.mark.parametrize("following", FOLLOWING)
def test_only_the_leader_that_is_followed_is_listened_to(following):
    driven = following()
    before, state = driven.election.effective_commit_position, driven.state

    driven.hears(committed(OTHER_ID, TERM, 5000), committed(LEADER_ID, TERM - 1, 5000))

    assert driven.election.effective_commit_position == before
    assert driven.state is state


@pytest.mark.parametrize("following", FOLLOWING)
@pytest.mark.parametrize("word", ["CommitPosition", "NewLeadershipTerm"])
def test_a_later_term_restarts_the_election(following, word):
    driven = following()
    later = ALeader(1000, term=TERM + 1, member_id=OTHER_ID)

    driven.hears(later.commits(0) if word == "CommitPosition" else later.broadcast())

    assert driven.state is S.INIT


@pytest.mark.parametrize("following", FOLLOWING)
@pytest.mark.parametrize("how", ["link_down", "member_gone"])
def test_a_leader_that_cannot_be_reached_is_not_followed(following, how):
    driven = following()
    getattr(driven, how)(OTHER_ID)
    assert driven.state is not S.INIT

    getattr(driven, how)(LEADER_ID)

    assert driven.state is S.INIT


def test_following_is_a_followers_role():
    driven = in_canvass(400, 1000)

    assert the_one(driven.meets(ALeader(400, 1000)), SetRole) == SetRole(Role.FOLLOWER)


def test_a_term_known_already_is_opened_again_for_its_missing_bytes():
    terms = LeadershipTerms([LeadershipTerm(0, 0, 400), LeadershipTerm(1, 400, 700)])
    driven = in_canvass(terms=terms, append=700)

    actions = driven.meets(ALeader(400, 1000, 1600))

    assert RecordTerm(1, 400) in actions
    assert the_one(actions, StartReplication).log_position == 700
