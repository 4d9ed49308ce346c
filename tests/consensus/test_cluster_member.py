"""The predicates over members: who may lead, and what a majority has proven."""

import pytest

from cluster.consensus.cluster_member import (
    ClusterMember,
    LogEnd,
    has_active_quorum,
    has_quorum_at,
    is_quorum_candidate,
    is_quorum_leader,
    is_unanimous_candidate,
    is_unanimous_leader,
    quorum_position,
)
from cluster.consensus.context import ConsensusModuleContext

TIMEOUT_NS = 10
TERM = 4


def members(*positions, term=TERM, at=0):
    found = []
    for member_id, position in enumerate(positions):
        member = ClusterMember(member_id)
        if position is not None:
            member.report(term, position, at)
        found.append(member)
    return found


def standing(*ends):
    found = []
    for member_id, end in enumerate(ends):
        member = ClusterMember(member_id)
        member.standing = None if end is None else LogEnd(*end)
        found.append(member)
    return found


def voting(*votes, term=TERM):
    found = []
    for member_id, vote in enumerate(votes):
        member = ClusterMember(member_id)
        if vote is not None:
            member.vote, member.candidate_term_id = vote, term
        found.append(member)
    return found


@pytest.mark.conformance("C-164")
def test_a_majority_is_more_than_half():
    thresholds = [ConsensusModuleContext(member_ids=tuple(range(n))).quorum_threshold for n in range(1, 8)]

    assert thresholds == [1, 2, 2, 3, 3, 4, 4]


@pytest.mark.conformance("C-165")
@pytest.mark.parametrize(
    ("positions", "quorum"), [((5, 3, 1), 3), ((123, 123, 0), 123), ((123, 0, 0), 0), ((0, 123, 200), 123)]
)
def test_the_quorum_position_is_what_a_majority_has_reached(positions, quorum):
    assert quorum_position(members(*positions), TERM, 0, TIMEOUT_NS, 2) == quorum


@pytest.mark.conformance("C-166")
def test_a_member_that_is_silent_for_the_time_out_counts_as_zero():
    three = members(100, 100, 100)
    three[2].time_of_last_activity_ns = -TIMEOUT_NS
    three[1].time_of_last_activity_ns = -TIMEOUT_NS

    assert quorum_position(three, TERM, 0, TIMEOUT_NS, 2) == 0
    three[1].time_of_last_activity_ns += 1
    assert quorum_position(three, TERM, 0, TIMEOUT_NS, 2) == 100


@pytest.mark.conformance("C-167")
def test_two_of_five_prove_nothing():
    assert quorum_position(members(100, 90, None, None, None), TERM, 0, TIMEOUT_NS, 3) == 0


def test_a_report_of_another_term_proves_nothing():
    three = members(100, None, None)
    three[1].report(TERM - 1, 100, 0)

    assert quorum_position(three, TERM, 0, TIMEOUT_NS, 2) == 0
    assert not has_quorum_at(three, TERM, 100, 0, TIMEOUT_NS, 2)


def test_a_canvass_proves_nothing():
    three = members(100, None, None)
    three[1].standing = LogEnd(TERM, 100)

    assert quorum_position(three, TERM, 0, TIMEOUT_NS, 2) == 0


@pytest.mark.conformance("C-129")
def test_a_quorum_at_a_position_needs_the_term_and_the_position_of_active_members():
    assert has_quorum_at(members(64, 64, None), TERM, 64, 0, TIMEOUT_NS, 2)
    assert not has_quorum_at(members(64, 32, None), TERM, 64, 0, TIMEOUT_NS, 2)
    assert not has_quorum_at(members(64, 64, None), TERM + 1, 64, 0, TIMEOUT_NS, 2)
    assert not has_quorum_at(members(64, 64, None), TERM, 64, TIMEOUT_NS, TIMEOUT_NS, 2)
    assert has_quorum_at(members(0, 0, None), TERM, 0, 0, TIMEOUT_NS, 2)
    assert not has_quorum_at(members(0, None, None), TERM, 0, 0, TIMEOUT_NS, 2)


@pytest.mark.conformance("C-53", "C-55", "C-56")
def test_a_unanimous_candidate_has_a_log_as_good_as_everyones():
    ours = LogEnd(3, 100)

    assert is_unanimous_candidate(standing((3, 100), (3, 100), (3, 64)), ours, (), 2)
    assert not is_unanimous_candidate(standing((3, 100), (4, 0), (3, 64)), ours, (), 2)
    assert not is_unanimous_candidate(standing((3, 100), (3, 132), (3, 64)), ours, (), 2)
    assert not is_unanimous_candidate(standing((3, 100), (3, 100), None), ours, (), 2)


@pytest.mark.conformance("C-62")
def test_nobody_waits_for_a_member_that_is_gone():
    ours = LogEnd(3, 100)

    assert is_unanimous_candidate(standing((3, 100), (3, 100), None), ours, {2}, 2)
    assert not is_unanimous_candidate(standing((3, 100), None, None), ours, {1, 2}, 2)
    assert is_unanimous_leader(voting(True, True, None), TERM, {2}, 2)
    assert not is_unanimous_leader(voting(True, None, None), TERM, {1, 2}, 2)


def test_a_quorum_candidate_is_enough_for_a_majority():
    ours = LogEnd(3, 100)

    assert is_quorum_candidate(standing((3, 100), (3, 100), (4, 0)), ours, 2)
    assert not is_quorum_candidate(standing((3, 100), None, (4, 0)), ours, 2)


@pytest.mark.conformance("C-79", "C-81")
def test_one_explicit_refusal_defeats_a_majority_of_votes():
    assert is_unanimous_leader(voting(True, True, True), TERM, (), 2)
    assert not is_unanimous_leader(voting(True, True, None), TERM, (), 2)
    assert is_quorum_leader(voting(True, True, None), TERM, 2)
    assert not is_quorum_leader(voting(True, True, False), TERM, 2)
    assert not is_quorum_leader(voting(True, True, None), TERM + 1, 2)


def test_an_active_quorum_is_a_majority_that_was_heard():
    assert has_active_quorum(members(0, 0, None), 9, TIMEOUT_NS, 2)
    assert not has_active_quorum(members(0, 0, None), 10, TIMEOUT_NS, 2)
    assert not has_active_quorum(members(0, None, None), 0, TIMEOUT_NS, 2)
