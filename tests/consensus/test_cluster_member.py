"""The predicates over members: who may lead, and what a majority has proven (group F)."""

import random

import numpy as np
import pytest

from cluster.consensus import quorum
from cluster.consensus.cluster_member import (
    ClusterMember,
    LogEnd,
    MemberTable,
    has_active_quorum,
    is_quorum_candidate,
    is_quorum_leader,
    is_unanimous_candidate,
    is_unanimous_leader,
)
from cluster.log.kernel import as_python
from tests.consensus.language import TERM, a_context

NOW, TIMEOUT = 1_000, 100
commit, has_waited = as_python(quorum.commit), as_python(quorum.has_waited)


def members_at(*positions: int | None, term: int = TERM, heard: int = NOW) -> MemberTable:
    """Members from 0 on, each with its report; None: it has never reported."""
    members = MemberTable(range(len(positions)))
    for member, position in zip(members.values(), positions):
        if position is not None:
            member.report(term, position, heard)
    return members


def a_leadership(member_count: int) -> np.ndarray:
    words = np.zeros(quorum.LEADERSHIP_WORDS, np.int64)
    words[quorum.LEADERSHIP_TERM_ID], words[quorum.TIMEOUT_NS] = TERM, TIMEOUT
    words[quorum.QUORUM] = member_count // 2 + 1
    return words


def position_of(members: MemberTable, now: int = NOW) -> int:
    return quorum.quorum_position(a_leadership(len(members)), members.words, 1 << 40, now)


def has_quorum_at(members: MemberTable, position: int) -> bool:
    return bool(quorum.has_quorum_at(a_leadership(len(members)), members.words, position, NOW))


def test_who_was_never_heard_is_silent_at_the_begin_of_time_too():
    members = members_at(0, None)
    assert members.words[quorum.ROW_WORDS + quorum.LAST_ACTIVITY_NS] == quorum.NEVER_HEARD
    assert not members[1].is_active(5, TIMEOUT)


def test_a_report_of_a_term_to_come_leaves_what_is_known():
    members, leadership = members_at(0, 640), a_leadership(2)
    quorum.on_report(leadership, members.words, 1, TERM + 1, 960, NOW + 1)
    assert members.words.tolist() == members_at(0, 640).words.tolist()
    quorum.on_report(leadership, members.words, 1, TERM, 320, NOW + 1)
    assert (members[1].report_position, members[1].time_of_last_activity_ns) == (320, NOW + 1)


def test_others_are_to_hear_of_a_commit_that_rises_and_it_waits_for_log_since_the_first():
    leadership = a_leadership(3)
    commit(leadership, 320, NOW)
    commit(leadership, 640, NOW + 2_000)
    commit(leadership, 480, NOW + 3_000)
    assert leadership[[quorum.COMMIT_POSITION, quorum.QUORUM_POSITION]].tolist() == [640, 480]
    assert leadership[quorum.COMMIT_RISEN_NS] == NOW
    assert not has_waited(leadership, NOW + quorum.COMMIT_WAIT_NS - 1)
    assert has_waited(leadership, NOW + quorum.COMMIT_WAIT_NS)

    alone = a_leadership(1)
    commit(alone, 320, NOW)
    assert alone[quorum.COMMIT_POSITION] == 320 and not alone[quorum.IS_COMMIT_UNSENT]


@pytest.mark.parametrize(
    ("position", "is_one"),
    [(0, True), (-32, False), (16, False), (quorum.POSITION_MAX, True), (quorum.POSITION_MAX + 32, False)],
)
def test_a_log_ends_at_a_frame_within_what_the_longest_terms_have_room_for(position, is_one):
    assert as_python(quorum.is_position)(position) == is_one


@pytest.mark.conformance("C-164")
@pytest.mark.parametrize(("members", "quorum"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (6, 4), (7, 4)])
def test_a_quorum_is_more_than_half(members, quorum):
    assert a_context(members=members).quorum_threshold == quorum


@pytest.mark.conformance("C-165")
@pytest.mark.parametrize(
    ("positions", "quorum"),
    [
        ((5, 3, 1), 3),
        ((1, 3, 5), 3),
        ((123, 123, 0), 123),
        ((123, 0, 0), 0),
        ((0, 123, 200), 123),
        ((7,), 7),
        ((7, 9), 7),
        ((1, 2, 3, 4, 5), 3),
        ((64, 64, 64, 0, 0), 64),
    ],
)
def test_the_quorum_position_is_what_a_majority_holds(positions, quorum):
    assert position_of(members_at(*positions)) == quorum


@pytest.mark.conformance("C-166")
def test_a_member_silent_past_the_timeout_counts_as_at_zero():
    members = members_at(500, 300, 100)

    members[1].time_of_last_activity_ns = NOW - TIMEOUT + 1
    assert position_of(members) == 300
    members[1].time_of_last_activity_ns = NOW - TIMEOUT
    assert position_of(members) == 100


@pytest.mark.conformance("C-167")
def test_two_active_of_five_commit_nothing():
    members = members_at(500, 500, 500, 500, 500)
    for member_id in (2, 3, 4):
        members[member_id].time_of_last_activity_ns = NOW - TIMEOUT

    assert position_of(members) == 0


def test_a_member_that_never_reported_counts_as_at_zero():
    assert position_of(members_at(500, 500, None, None, None)) == 0


def test_reports_of_another_term_prove_nothing():
    """Against the reference, which ranks every position it ever heard (aeron-io/aeron PR 2147)."""
    members = members_at(500, 500, 500)
    for member_id in (1, 2):
        members[member_id].report_term_id = TERM - 1
    assert position_of(members) == 0


def test_standing_is_not_a_report():
    members = members_at(500, None, None)
    for member_id in (1, 2):
        members[member_id].standing = LogEnd(TERM, 500)
        members[member_id].time_of_last_activity_ns = NOW

    assert position_of(members) == 0


@pytest.mark.parametrize("member_count", [1, 2, 3, 4, 5, 7])
def test_every_quorum_position_is_held_by_a_majority_and_nothing_above_it_is(member_count):
    chance = random.Random(member_count)
    for _ in range(300):
        members = members_at(*(chance.randrange(8) for _ in range(member_count)))
        for member in members.values():
            member.report_term_id -= chance.random() < 0.2
            member.time_of_last_activity_ns = NOW - chance.choice([0, 99, 100, 500])
        position = position_of(members)

        held = [
            m.report_position
            for m in members.values()
            if m.report_term_id == TERM and NOW - m.time_of_last_activity_ns < 100
        ]
        assert position == 0 or 2 * sum(at >= position for at in held) > member_count
        assert 2 * sum(at > position for at in held) <= member_count


@pytest.mark.parametrize(
    ("term", "position", "heard", "holds"),
    [
        (TERM, 100, NOW, True),
        (TERM, 99, NOW, False),
        (TERM - 1, 100, NOW, False),
        (TERM, 100, NOW - TIMEOUT, False),
    ],
)
def test_a_quorum_at_a_position_needs_term_position_and_a_recent_word(term, position, heard, holds):
    members = members_at(100, None, None)
    members[1].report(term, position, heard)

    assert has_quorum_at(members, 100) is holds


def test_position_zero_has_to_be_reported_too():
    """At the very begin of a log, nothing would be something that every silent member holds."""
    assert not has_quorum_at(members_at(0, None, None), 0)
    assert has_quorum_at(members_at(0, 0, None), 0)


def test_an_active_quorum_counts_whoever_was_heard():
    members = members_at(0, 0, 0, term=TERM - 3).values()
    assert has_active_quorum(members, NOW + TIMEOUT - 1, TIMEOUT, 2)
    assert not has_active_quorum(members, NOW + TIMEOUT, TIMEOUT, 2)


def test_a_longer_log_of_an_older_term_is_worse():
    assert LogEnd(2, 64) > LogEnd(1, 1_000_000)
    assert LogEnd(2, 96) > LogEnd(2, 64)
    member = MemberTable([1])[1]
    assert not member.would_vote_for(LogEnd(9, 9)), "not heard yet"
    member.standing = LogEnd(2, 64)
    assert member.would_vote_for(LogEnd(2, 64))
    assert not member.would_vote_for(LogEnd(1, 1_000_000))


# ---- who may stand, and who is elected


def standing(*ends: tuple[int, int] | None) -> list[ClusterMember]:
    members = list(MemberTable(range(len(ends))).values())
    for member, end in zip(members, ends):
        member.standing = None if end is None else LogEnd(*end)
    return members


def voting(*votes: bool | None) -> list[ClusterMember]:
    members = list(MemberTable(range(len(votes))).values())
    for member, granted in zip(members, votes):
        if granted is not None:
            member.vote, member.candidate_term_id = granted, TERM
    return members


@pytest.mark.conformance("C-53", "C-55", "C-56")
@pytest.mark.parametrize(
    ("others", "is_unanimous", "is_quorum"),
    [
        (((3, 100), (3, 64)), True, True),
        (((4, 0), (3, 64)), False, True),
        (((3, 132), (3, 64)), False, True),
        (((3, 100), None), False, True),
        (((3, 132), None), False, False),
    ],
)
def test_a_candidate_has_a_log_as_good_as_everyones_or_as_a_majoritys(others, is_unanimous, is_quorum):
    ours = LogEnd(3, 100)
    members = standing(ours, *others)

    assert is_unanimous_candidate(members, ours, (), 2) is is_unanimous
    assert is_quorum_candidate(members, ours, 2) is is_quorum


@pytest.mark.conformance("C-62")
def test_nobody_waits_for_an_exempt_member_but_a_majority_is_needed():
    ours = LogEnd(3, 100)

    assert is_unanimous_candidate(standing(ours, (3, 100), None), ours, {2}, 2)
    assert not is_unanimous_candidate(standing(ours, None, None), ours, {1, 2}, 2)
    assert is_unanimous_leader(voting(True, True, None), TERM, {2}, 2)
    assert not is_unanimous_leader(voting(True, None, None), TERM, {1, 2}, 2)


@pytest.mark.conformance("C-79", "C-80", "C-81")
@pytest.mark.parametrize(
    ("votes", "is_unanimous", "is_quorum"),
    [
        ((True, True, True), True, True),
        ((True, True, None), False, True),
        ((True, True, False), False, False),
        ((True, None, None), False, False),
    ],
)
def test_one_explicit_refusal_defeats_a_majority_of_votes(votes, is_unanimous, is_quorum):
    assert is_unanimous_leader(voting(*votes), TERM, (), 2) is is_unanimous
    assert is_quorum_leader(voting(*votes), TERM, 2) is is_quorum
    assert not is_quorum_leader(voting(*votes), TERM + 1, 2), "votes are of one term"


@pytest.mark.conformance("C-81")
def test_a_refusal_of_an_exempt_member_defeats_it_too():
    assert not is_unanimous_leader(voting(True, True, False), TERM, {2}, 2)
