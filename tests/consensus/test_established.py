"""Leading and following once the election is over (§1.3, §2.10, §3.6)."""

import pytest

from cluster.consensus.cluster_member import ClusterMember
from cluster.consensus.context import ConsensusModuleContext
from cluster.consensus.established import Follower, Leader
from cluster.consensus.leadership_terms import LeadershipTerm, LeadershipTerms
from tests.consensus.elections import (
    MS,
    SECOND,
    LeaderLog,
    canvass_position,
    commit_position,
    request_vote,
    vote,
)

TERM = 3
BASE = 320


class Led:
    """A leader of term 3 whose log, from 320 on, is the test's."""

    def __init__(self, members=3, commit=BASE, now_ns=0):
        self.context = ConsensusModuleContext(member_ids=tuple(range(members)))
        self.members = {i: ClusterMember(i) for i in range(members)}
        self.leader = Leader(
            self.context,
            self.members,
            LeadershipTerms(
                LeadershipTerm(*term) for term in [(0, 0, 96), (1, 96, 96), (2, 96, BASE), (TERM, BASE, -1)]
            ),
            leadership_term_id=TERM,
            term_base=BASE,
            commit_position=commit,
            log_session_id=7,
            log_recording_id=0,
            candidate_term_id=TERM,
            now_ns=now_ns,
        )

    def reports(self, *positions, at=0, term=TERM):
        for member_id, position in enumerate(positions, start=1):
            if position is not None:
                self.leader.on_append_position(member_id, term, position, at)


def a_follower(now_ns=0, leader=1, notified=BASE):
    return Follower(
        ConsensusModuleContext(member_ids=(0, 1, 2)),
        leadership_term_id=TERM,
        leader_member_id=leader,
        notified_commit_position=notified,
        candidate_term_id=TERM,
        now_ns=now_ns,
    )


# ---- the leader


@pytest.mark.conformance("C-30")
def test_a_commit_that_rises_is_told_in_the_same_cycle():
    led = Led()
    led.reports(BASE, BASE)
    assert led.leader.update(BASE + 96, 1)
    led.reports(BASE + 96)

    assert led.leader.update(BASE + 96, 2)
    assert (led.leader.commit_position, led.leader.quorum_position) == (BASE + 96, BASE + 96)


@pytest.mark.conformance("C-31")
def test_an_idle_leader_tells_its_commit_position_every_200_ms():
    led = Led()
    assert led.leader.update(BASE, 0)
    assert not led.leader.update(BASE, 199 * MS)
    assert led.leader.update(BASE, 200 * MS)
    assert led.leader.next_update_ns == 400 * MS


@pytest.mark.conformance("C-29", "C-168")
def test_nothing_is_committed_that_the_leader_has_not_synced_itself():
    led = Led()
    led.reports(BASE + 960, BASE + 960)
    led.leader.update(BASE + 96, 1)

    assert led.leader.commit_position == BASE + 96
    assert led.members[0].report_position == BASE + 96


@pytest.mark.conformance("C-169", "C-170")
def test_a_quorum_position_that_falls_is_told_once_and_takes_no_commit_back():
    led = Led()
    led.reports(BASE + 96, BASE + 96)
    led.leader.update(BASE + 96, 1)
    assert led.leader.commit_position == BASE + 96
    led.leader.on_link_down(1)
    led.leader.on_link_down(2)

    assert led.leader.update(BASE + 96, 300 * MS)
    assert led.leader.commit_position == BASE + 96
    assert led.leader.quorum_position == 0
    assert led.leader.regression is not None
    led.leader.regression = None
    assert led.leader.update(BASE + 96, 600 * MS)
    assert led.leader.regression is None


def test_a_report_of_an_older_term_commits_nothing():
    led = Led()
    led.reports(BASE + 96, BASE + 96, term=TERM - 1)
    led.leader.update(BASE + 96, 1)

    assert led.leader.commit_position == BASE


def test_a_single_member_commits_what_it_has_synced():
    led = Led(members=1)
    led.leader.update(BASE + 96, 1)

    assert led.leader.commit_position == BASE + 96


@pytest.mark.conformance("C-17", "C-18")
def test_a_leader_without_reports_for_10_s_has_no_quorum():
    led = Led()
    led.reports(BASE, BASE, at=5 * SECOND)
    led.leader.update(BASE, 15 * SECOND - 1)
    assert led.leader.has_active_quorum(15 * SECOND - 1)

    led.leader.update(BASE, 15 * SECOND)
    assert not led.leader.has_active_quorum(15 * SECOND)


@pytest.mark.conformance("C-19")
def test_a_canvassing_member_is_active():
    led = Led()
    led.leader.on_canvass_position(canvass_position(1, 2, 128), BASE, 0, 5 * SECOND)
    led.leader.update(BASE, 14 * SECOND)

    assert led.leader.has_active_quorum(14 * SECOND)


@pytest.mark.conformance("C-20")
def test_a_single_member_never_lacks_a_quorum():
    assert Led(members=1).leader.has_active_quorum(3600 * SECOND)


@pytest.mark.conformance("C-71", "C-72")
@pytest.mark.parametrize(
    ("log_term", "told"),
    [(-1, (0, 0, 96)), (0, (1, 96, 96)), (1, (2, 96, BASE)), (2, (3, BASE, -1)), (3, (-1, -1, -1))],
)
def test_a_canvassing_member_is_told_of_the_term_after_its_own(log_term, told):
    reply = Led().leader.on_canvass_position(canvass_position(1, log_term, 64), BASE + 960, 0, 0)

    assert (
        reply.next_leadership_term_id,
        reply.next_term_base_log_position,
        reply.next_log_position,
    ) == told
    assert reply.log_leadership_term_id == log_term
    assert (reply.leadership_term_id, reply.term_base_log_position, reply.log_position) == (
        TERM,
        BASE,
        BASE + 960,
    )
    assert (reply.commit_position, reply.is_startup) == (BASE, False)


def test_a_canvassing_member_proves_nothing_any_more():
    led = Led()
    led.reports(BASE + 96, BASE + 96)
    led.leader.on_canvass_position(canvass_position(1, 2, 128), BASE, 0, 0)
    led.leader.on_canvass_position(canvass_position(2, 2, 128), BASE, 0, 0)
    led.leader.update(BASE + 96, 1)

    assert led.leader.commit_position == BASE


@pytest.mark.parametrize("stranger", [canvass_position(9, 0, 0), canvass_position(1, TERM + 1, 0)])
def test_strangers_and_members_of_later_terms_get_no_answer(stranger):
    assert Led().leader.on_canvass_position(stranger, BASE, 0, 0) is None


@pytest.mark.conformance("C-94", "C-95")
def test_a_request_to_vote_ends_a_leadership_that_nobody_follows_any_more():
    led = Led()
    led.reports(BASE, BASE, at=0)
    led.leader.update(BASE, 5 * SECOND)

    assert led.leader.on_request_vote(request_vote(1, TERM, 2, 999), 5 * SECOND) is None
    assert led.leader.on_request_vote(request_vote(1, TERM + 1, 2, 999), 5 * SECOND)


def test_a_leader_that_a_majority_follows_ignores_requests_to_vote():
    led = Led()
    led.reports(BASE, None, at=4 * SECOND + 1)
    led.leader.update(BASE, 5 * SECOND)

    assert led.leader.on_request_vote(request_vote(2, TERM + 9, 2, 999), 5 * SECOND) is None


def test_a_leader_obeys_a_member_that_has_voted_in_a_later_term_once():
    leader = Led().leader

    assert leader.on_vote(vote(1, TERM, False)) is None
    assert leader.on_vote(vote(1, TERM + 2, True)) is None
    assert leader.on_vote(vote(1, TERM + 2, False))
    assert leader.on_vote(vote(2, TERM + 2, False)) is None


def test_a_leader_ends_for_a_leader_of_a_later_term():
    leader = Led().leader
    later = LeaderLog(1, [(0, 0), (1, 96), (2, 96), (3, BASE), (4, 640)], 640)

    assert leader.on_new_leadership_term(later.reply(2))
    assert leader.on_commit_position(commit_position(1, TERM + 1, 640))
    assert leader.on_commit_position(commit_position(1, TERM, 640)) is None


# ---- a follower


@pytest.mark.conformance("C-22", "C-23")
def test_a_leader_without_a_word_for_10_s_is_silent():
    follower = a_follower()
    follower.on_commit_position(TERM, BASE, 1, 3 * SECOND)

    assert not follower.is_leader_silent(13 * SECOND - 1)
    assert follower.is_leader_silent(13 * SECOND)


@pytest.mark.conformance("C-38", "C-39")
def test_a_follower_reports_when_its_log_grew_and_every_200_ms():
    follower = a_follower()
    assert follower.is_append_position_due(BASE, 0)
    follower.on_append_position_sent(BASE, 0)
    assert not follower.is_append_position_due(BASE, 199 * MS)
    assert follower.is_append_position_due(BASE + 96, 1)
    assert follower.is_append_position_due(BASE, 200 * MS)


@pytest.mark.conformance("C-159", "C-161")
def test_only_the_own_leader_moves_the_commit_and_never_back():
    follower = a_follower()
    assert follower.on_commit_position(TERM, BASE + 96, 1, 5) is None
    assert follower.on_commit_position(TERM, BASE, 1, 6) is None
    assert follower.on_commit_position(TERM, BASE + 960, 2, 7) is None
    assert follower.on_commit_position(TERM - 1, BASE + 960, 1, 8) is None

    assert follower.notified_commit_position == BASE + 96
    assert follower.time_of_last_leader_message_ns == 6


@pytest.mark.conformance("C-160")
def test_a_later_term_ends_the_following():
    follower = a_follower()
    later = LeaderLog(2, [(0, 0), (1, 96), (2, 96), (3, BASE), (4, 640)], 640)

    assert follower.on_commit_position(TERM + 1, 640, 2, 0)
    assert follower.on_new_leadership_term(later.reply(3), 0)


def test_the_leaders_term_told_again_is_a_sign_of_life():
    follower = a_follower()
    same = LeaderLog(1, [(0, 0), (1, 96), (2, 96), (3, BASE)], 640, commit_position=640)

    assert follower.on_new_leadership_term(same.reply(2), 9) is None
    assert (follower.notified_commit_position, follower.time_of_last_leader_message_ns) == (640, 9)


@pytest.mark.conformance("C-94", "C-95")
def test_a_request_to_vote_is_listened_to_once_the_leader_is_not_heard():
    follower = a_follower()
    follower.on_commit_position(TERM, BASE, 1, 0)

    assert follower.on_request_vote(request_vote(2, TERM + 1, 9, 999), SECOND - 1) is None
    assert follower.on_request_vote(request_vote(2, TERM, 9, 999), SECOND) is None
    assert follower.on_request_vote(request_vote(2, TERM + 1, 9, 999), SECOND)
