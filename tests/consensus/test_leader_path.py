"""From the votes to the first entry of the term (group D)."""

import pytest

from cluster.consensus.actions import (
    AppendNewLeadershipTermEvent,
    CompleteElection,
    CreateLogPublication,
    JoinServicesToLog,
    RecordTerm,
    Send,
    SetRole,
    StartReplay,
    StopReplay,
)
from cluster.consensus.context import MS, SECOND
from cluster.protocol.consensus import CommitPosition, NewLeadershipTerm
from cluster.protocol.enums import ConsensusModuleState, ElectionState, Role
from tests.consensus.language import (
    OTHER_ID,
    TERM,
    ALeader,
    an_election,
    an_election_in,
    appended,
    canvass,
    committed,
    in_candidate_ballot,
    in_leader_init,
    in_leader_log_replication,
    in_leader_ready,
    in_leader_replay,
    of_kind,
    receivers,
    sent,
    the_one,
    vote,
)

S = ElectionState
LEADER_STATES = [S.LEADER_LOG_REPLICATION, S.LEADER_REPLAY, S.LEADER_INIT, S.LEADER_READY]


def led(*ends: int, **options: object):
    """The actions of the cycle in which a candidate finds itself elected."""
    driven = in_candidate_ballot(*ends, **options)
    driven.hears(vote(1, TERM), vote(2, TERM))
    return driven, driven.work()


# ---- LEADER_LOG_REPLICATION


@pytest.mark.conformance("C-101")
def test_the_role_is_leader_from_the_first_leader_state_on():
    driven, actions = led(1000)

    assert driven.state is S.LEADER_LOG_REPLICATION
    assert the_one(actions, SetRole) == SetRole(Role.LEADER)


def test_a_term_begins_where_the_log_ends_and_is_recorded_first_where_it_begins_the_log():
    driven, actions = led(400, 1000)

    assert the_one(actions, RecordTerm) == RecordTerm(TERM, 1000)
    publication = the_one(actions, CreateLogPublication)
    assert (publication.leadership_term_id, publication.log_position) == (TERM, 1000)
    assert not sent(actions, NewLeadershipTerm)
    [told, _] = sent(driven.work(), NewLeadershipTerm)
    assert told.log_session_id == publication.log_session_id
    assert [tuple(term) for term in driven.election.terms][2:] == [
        (2, 1000, 1000),
        (3, 1000, 1000),
        (4, 1000, 1000),
        (TERM, 1000, -1),
    ]


def test_others_hear_of_a_term_while_it_is_recorded_and_their_reports_count_when_it_is():
    driven = in_candidate_ballot(400, 1000)
    driven.election.on_log_created(7)
    driven.hears(vote(1, TERM), vote(2, TERM))

    actions = driven.work()

    first, second, recorded = [action for action in actions if isinstance(action, Send | RecordTerm)]
    assert (first.member_id, second.member_id) == (1, 2)
    assert first.message == second.message
    assert recorded == RecordTerm(TERM, 1000)
    told = first.message
    assert (told.log_leadership_term_id, told.next_leadership_term_id) == (1, TERM)
    assert (told.term_base_log_position, told.leader_recording_id, told.commit_position) == (1000, 7, 0)
    assert told.log_session_id == the_one(actions, CreateLogPublication).log_session_id
    assert driven.state is S.LEADER_LOG_REPLICATION
    assert not sent(driven.work(), NewLeadershipTerm), "it is told again with the interval"
    assert sent(driven.work(after=200 * MS), NewLeadershipTerm)


@pytest.mark.conformance("C-99", "C-100")
def test_it_waits_without_limit_until_a_majority_holds_the_whole_log():
    driven = in_leader_log_replication(1000, members=5)
    for _ in range(100):
        driven.hears(appended(1, TERM, 1000), appended(2, TERM, 968))
        driven.work(after=5 * SECOND)
        assert driven.state is S.LEADER_LOG_REPLICATION

    driven.hears(appended(1, TERM, 1000), appended(2, TERM, 1000))
    driven.work()

    assert driven.state is S.LEADER_REPLAY


def test_it_waits_for_a_majority_that_it_hears_and_no_longer():
    """One that can send and not hear would hold up everybody else's canvass by its heartbeats (I-15)."""
    driven = in_leader_log_replication(1000, members=3)

    driven.work(after=9 * SECOND)
    assert driven.state is S.LEADER_LOG_REPLICATION
    driven.work(after=2 * SECOND)

    assert driven.state is S.INIT


def test_the_only_member_is_its_own_majority():
    driven = an_election(1000, members=1, is_startup=True)

    for _ in range(4):
        driven.work()

    assert driven.path == [S.INIT, S.LEADER_LOG_REPLICATION, S.LEADER_REPLAY, S.LEADER_INIT]


# ---- LEADER_REPLAY


@pytest.mark.conformance("C-102")
def test_a_leader_that_has_processed_its_log_replays_nothing():
    driven = in_leader_replay(1000)

    actions = driven.work()

    assert driven.state is S.LEADER_INIT
    assert not of_kind(actions, StartReplay)


@pytest.mark.conformance("C-103")
def test_otherwise_it_replays_from_the_processed_position_to_the_append_position():
    driven = in_leader_replay(1000, processed=320)

    assert the_one(driven.work(), StartReplay) == StartReplay(320, 1000)
    assert not of_kind(driven.work(), StartReplay), "once"


@pytest.mark.conformance("C-113")
def test_a_replay_is_not_over_while_a_snapshot_is_taken_at_its_end():
    driven = in_leader_replay(1000, processed=320)
    driven.work()
    driven.processes(1000)
    driven.module.change(ConsensusModuleState.SNAPSHOT)
    driven.work()
    assert driven.state is S.LEADER_REPLAY

    driven.module.change(ConsensusModuleState.ACTIVE)
    driven.work()
    assert driven.state is S.LEADER_INIT


@pytest.mark.conformance("C-112", "C-115")
def test_the_replay_is_over_when_all_of_it_is_processed():
    driven = in_leader_replay(1000, processed=320)
    driven.work()
    driven.processes(968)
    driven.work()
    assert driven.state is S.LEADER_REPLAY

    driven.processes(1000)
    actions = driven.work()

    assert of_kind(actions, StopReplay)
    assert driven.state is S.LEADER_INIT
    assert driven.election.log_position == driven.election.append_position == 1000


# ---- what is told meanwhile


@pytest.mark.conformance("C-116")
@pytest.mark.parametrize("state", LEADER_STATES, ids=lambda s: s.name)
def test_every_200_ms_all_others_hear_who_leads(state):
    driven = an_election_in(state)
    assert receivers(driven.work(), NewLeadershipTerm) == [1, 2]

    assert not sent(driven.work(after=200 * MS - 1), NewLeadershipTerm)
    assert receivers(driven.work(after=1), NewLeadershipTerm) == [1, 2]
    assert driven.state is state


@pytest.mark.conformance("C-117", "C-118")
def test_commit_position_goes_out_when_the_quorum_position_rises():
    driven = in_leader_log_replication(1000)
    driven.work()

    driven.hears(appended(2, TERM, 640))
    actions = driven.work()

    assert receivers(actions, CommitPosition) == [1, 2]
    assert {m.log_position for m in sent(actions, CommitPosition)} == {640}


@pytest.mark.conformance("C-117", "C-118")
@pytest.mark.parametrize("state", [S.LEADER_LOG_REPLICATION, S.LEADER_REPLAY], ids=lambda s: s.name)
def test_and_every_200_ms(state):
    driven = an_election_in(state)
    driven.work()

    assert not sent(driven.work(after=200 * MS - 1), CommitPosition)
    assert receivers(driven.work(after=1), CommitPosition) == [1, 2]


@pytest.mark.conformance("C-117", "C-170")
def test_a_fallen_quorum_position_is_told_at_once_and_goes_on_being_told():
    driven = in_leader_replay(1000, processed=320)
    driven.work()
    driven.link_down(OTHER_ID)

    assert {m.log_position for m in sent(driven.work(), CommitPosition)} == {0}
    assert not sent(driven.work(after=200 * MS - 1), CommitPosition)
    assert {m.log_position for m in sent(driven.work(after=1), CommitPosition)} == {0}


@pytest.mark.conformance("C-118")
def test_the_leaders_append_position_is_its_own_share_of_the_quorum():
    driven = in_leader_log_replication(1000)

    driven.hears(appended(2, TERM, 5_000))  # more than the leader has
    [told, _] = sent(driven.work(), CommitPosition)

    assert told.log_position == 1000


@pytest.mark.conformance("C-119")
@pytest.mark.parametrize("state", LEADER_STATES, ids=lambda s: s.name)
def test_both_name_the_new_term(state):
    driven = an_election_in(state)

    actions = driven.work_for(400 * MS)

    assert {m.leadership_term_id for m in sent(actions, CommitPosition)} <= {TERM}
    assert {m.leadership_term_id for m in sent(actions, NewLeadershipTerm)} == {TERM}


@pytest.mark.conformance("C-120")
@pytest.mark.parametrize("is_startup", [True, False])
def test_is_startup_is_false_until_the_replay_and_then_what_the_node_is(is_startup):
    driven = in_leader_log_replication(1000, processed=320, is_startup=is_startup)
    [told, _] = sent(driven.work(), NewLeadershipTerm)
    assert told.is_startup is False

    driven.hears(appended(OTHER_ID, TERM, 1000))
    driven.work()
    assert driven.state is S.LEADER_REPLAY

    [told, _] = sent(driven.work(), NewLeadershipTerm)
    assert told.is_startup is is_startup


def test_the_broadcast_tells_of_the_term_after_the_one_that_the_leader_came_with():
    """Which is its own: those between are empty."""
    driven = in_leader_log_replication(400, 1000)

    [told, _] = sent(driven.work(), NewLeadershipTerm)

    assert told.log_leadership_term_id == 1
    assert told.next_leadership_term_id == TERM
    assert (told.next_term_base_log_position, told.next_log_position) == (1000, 1000)
    assert (told.term_base_log_position, told.log_position, told.commit_position) == (1000, 1000, 0)
    assert told.leader_member_id == 0


# ---- LEADER_INIT


def test_recording_and_services_join_the_log_as_leaders_at_its_end():
    driven = in_leader_replay(1000)

    join = the_one(driven.work(), JoinServicesToLog)

    assert (join.leadership_term_id, join.log_position, join.role) == (TERM, 1000, Role.LEADER)
    driven.work(after=SECOND)
    assert driven.state is S.LEADER_INIT, "before the services have acknowledged"


def test_a_join_tells_services_whether_the_node_has_just_started():
    for is_startup in (True, False):
        driven = in_leader_replay(1000, is_startup=is_startup)
        assert the_one(driven.work(), JoinServicesToLog).is_startup is is_startup


# ---- LEADER_READY


@pytest.mark.conformance("C-127")
def test_a_leader_is_ready_only_while_a_follower_reports():
    driven = in_leader_ready(1000)
    driven.link_down(OTHER_ID)

    driven.work(after=SECOND)
    assert not of_kind(driven.actions, AppendNewLeadershipTermEvent)

    driven.hears(appended(1, TERM, 1000))
    assert of_kind(driven.work(), AppendNewLeadershipTermEvent)


@pytest.mark.conformance("C-128")
def test_a_quorum_is_enough_and_the_silent_rest_does_not_matter():
    driven = in_leader_ready(1000)  # member 1 never reported

    assert the_one(driven.work(), AppendNewLeadershipTermEvent) == AppendNewLeadershipTermEvent(TERM, 1000)
    driven.appends_term_event()

    assert driven.state is S.CLOSED


@pytest.mark.conformance("C-128")
def test_but_a_member_silent_for_ten_seconds_is_not_part_of_it():
    driven = in_leader_ready(1000)

    assert not of_kind(driven.work(after=10 * SECOND), AppendNewLeadershipTermEvent)


@pytest.mark.conformance("C-129")
def test_reports_of_an_older_term_count_for_nothing():
    driven = in_leader_ready(1000)
    driven.hears(appended(OTHER_ID, TERM - 1, 1000), appended(1, TERM - 1, 2000))

    driven.work()

    assert not of_kind(driven.actions, AppendNewLeadershipTermEvent)


@pytest.mark.conformance("C-129")
def test_nor_do_reports_short_of_the_leaders_position():
    driven = in_leader_ready(1000)
    driven.hears(appended(OTHER_ID, TERM, 968), appended(1, TERM, 968))

    driven.work()

    assert not of_kind(driven.actions, AppendNewLeadershipTermEvent)


@pytest.mark.conformance("C-130")
def test_the_terms_first_entry_is_written_once_and_before_the_election_closes():
    driven = in_leader_ready(1000)
    driven.work()
    actions = driven.appends_term_event()

    assert len(of_kind(driven.actions, AppendNewLeadershipTermEvent)) == 1
    assert driven.path[-2:] == [S.LEADER_READY, S.CLOSED]
    done = the_one(actions, CompleteElection)
    assert (done.leadership_term_id, done.term_base_log_position) == (TERM, 1000)
    assert (done.log_position, done.leader_member_id) == (1000, 0)


@pytest.mark.conformance("C-131")
def test_a_log_that_refuses_the_first_entry_is_asked_again():
    driven = in_leader_ready(1000)

    for _ in range(3):
        assert of_kind(driven.work(), AppendNewLeadershipTermEvent)
        assert driven.state is S.LEADER_READY


# ---- a later term


@pytest.mark.conformance("C-132")
@pytest.mark.parametrize("state", LEADER_STATES, ids=lambda s: s.name)
def test_a_log_of_a_later_term_restarts_the_election(state):
    driven = an_election_in(state)

    driven.hears(canvass(2, TERM + 1, 1000))

    assert driven.path[-2:] == [state, S.INIT]


@pytest.mark.conformance("C-133")
@pytest.mark.parametrize("state", LEADER_STATES, ids=lambda s: s.name)
def test_a_commit_position_of_a_later_term_restarts_it(state):
    driven = an_election_in(state)

    driven.hears(committed(2, TERM + 1, 1000))

    assert driven.path[-2:] == [state, S.INIT]


@pytest.mark.parametrize("state", LEADER_STATES, ids=lambda s: s.name)
def test_so_does_a_leader_of_a_later_term_and_one_of_an_earlier_term_is_told_to_step_aside(state):
    driven = an_election_in(state)
    driven.hears(ALeader(1000, term=TERM - 1).broadcast(), committed(1, TERM - 1, 1000))
    assert driven.state is state

    driven.hears(ALeader(1000, term=TERM + 1).broadcast())

    assert driven.path[-2:] == [state, S.INIT]


def test_leading_begins_with_no_report_of_an_earlier_leadership():
    """A report is of one connection and one term: it counts again when it is said again."""
    driven = in_candidate_ballot(1000)
    driven.election._members[1].report(TERM, 1000, driven.now_ns)
    driven.hears(vote(1, TERM), vote(2, TERM))

    driven.work()
    driven.work()

    assert driven.state is S.LEADER_LOG_REPLICATION


def test_a_leader_that_failed_undoes_its_leadership_first():
    driven = in_leader_init(1000)
    driven.fails()

    actions = driven.work()

    assert SetRole(Role.FOLLOWER) in actions
    assert driven.state is S.INIT
    driven.prepared()
    assert driven.state is S.CANVASS
