"""A member follows only a leader whose log is known to contain its own (safety rules 1.1 to 1.5)."""

import random

import pytest

from cluster.consensus import actions
from cluster.consensus.cluster_member import LogEnd
from cluster.consensus.leadership_terms import LeadershipTerm, LeadershipTerms
from cluster.errors import DataLoss
from cluster.protocol.consensus import AppendPosition
from tests.consensus.elections import (
    LeaderLog,
    Member,
    State,
    append_position,
    canvass_position,
    of_kind,
)


def a_member(terms, append_position, **settings):
    settings.setdefault("log_position", 0)
    return Member(terms=terms, append_position=append_position, **settings).canvasses()


def settled(member, leader):
    """Let it talk with the leader, start over and talk again, until it follows."""
    for _ in range(50):
        if member.state is State.CANVASS:
            leader.answer(member)
        elif member.state is State.INIT:
            member.work()
        else:
            return member
    raise AssertionError("the member never follows")


def test_the_same_term_at_the_same_base_with_bytes_in_both_is_the_same_log():
    member = a_member([(0, 0, 96), (1, 96, -1)], 160)
    leader = LeaderLog(1, [(0, 0), (1, 96), (2, 256)], 256)
    settled(member, leader)

    assert not of_kind(member.done, actions.TruncateLog)
    assert member.state is State.FOLLOWER_LOG_REPLICATION


def test_bytes_of_a_term_that_the_leader_knows_as_an_empty_one_are_cut_off():
    """The reference keeps 100 to 132 here: safety rule 1.3."""
    member = a_member([(0, 0, 96), (1, 96, 96), (2, 96, 96), (3, 96, -1)], 160)
    leader = LeaderLog(1, [(0, 0), (1, 96), (2, 96), (3, 128), (4, 128)], 192)
    settled(member, leader)

    assert of_kind(member.done, actions.TruncateLog)[0] == actions.TruncateLog(96, 3)
    assert member.state is State.FOLLOWER_LOG_REPLICATION
    assert of_kind(member.done, actions.StartReplication)[-1].log_position == 96


def test_a_smaller_base_of_the_leader_is_where_the_logs_part():
    member = a_member([(0, 0, 160), (1, 160, -1)], 224)
    leader = LeaderLog(1, [(0, 0), (1, 96), (2, 256)], 256)
    settled(member, leader)

    assert of_kind(member.done, actions.TruncateLog)[0] == actions.TruncateLog(96, 1)


def test_empty_terms_that_agree_prove_nothing_of_what_lies_below():
    """Both have term 2 at 96, but the member's bytes before it are of term 0, the leader's of term 1."""
    member = a_member([(0, 0, 96), (1, 96, 96), (2, 96, 96), (3, 96, -1)], 160)
    leader = LeaderLog(1, [(0, 0), (1, 64), (2, 96), (3, 96), (4, 96), (5, 128)], 128)
    settled(member, leader)

    assert min(action.log_position for action in of_kind(member.done, actions.TruncateLog)) == 64


def test_a_term_without_bytes_is_kept_when_the_leader_has_it_too():
    """It may be what makes the leader's log committed: dropping it would lower this member's standing."""
    member = a_member([(0, 0, 96), (1, 96, -1)], 96)
    leader = LeaderLog(1, [(0, 0), (1, 96), (2, 256)], 256)
    leader.answer(member)

    assert not of_kind(member.done, actions.TruncateLog)
    assert member.election.terms.find(1) is not None


def test_a_term_without_bytes_is_dropped_when_the_leader_has_it_elsewhere():
    member = a_member([(0, 0, 96), (1, 96, -1)], 96)
    leader = LeaderLog(1, [(0, 0), (1, 128), (2, 256)], 256)
    settled(member, leader)

    assert of_kind(member.done, actions.TruncateLog) == [actions.TruncateLog(96, 1)]
    assert member.election.terms.find(1) is None


def test_a_cut_below_the_own_commit_position_stops_the_member():
    member = a_member([(0, 0, 96), (1, 96, -1)], 160, log_position=128)
    leader = LeaderLog(1, [(0, 0), (1, 64), (2, 256)], 256)

    with pytest.raises(DataLoss, match="128 is committed here"):
        leader.answer(member)


@pytest.mark.conformance("C-143")
def test_the_seven_steps_of_a_lost_commit():
    """A-2147: a member with an old term's tail must not make a quorum for another leader's entry."""
    # Steps 1 to 3: member 2 wrote at 96 in term 1, alone, and went down; member 1 leads term 2 from 96 on.
    leader = Member(1, terms=[(0, 0, 96), (1, 96, -1)], append_position=96, log_position=96).wins()
    leader.work()
    # Steps 4 and 5: member 2 is back with its tail [96, 128) and says where its log ends.
    leader.hears(canvass_position(2, 1, 128))
    leader.hears(append_position(2, 1, 128))
    leader.work()
    # The reference takes that for a quorum.
    assert leader.state is State.LEADER_LOG_REPLICATION
    assert leader.election._last_quorum_position == 0

    # What makes member 2 count: its tail is gone, and it has recorded the term.
    member = a_member([(0, 0, 96), (1, 96, -1)], 128, log_position=96)
    settled(member, LeaderLog(1, [(0, 0), (1, 96), (2, 96)], 96, commit_position=0))
    member.work()
    assert of_kind(member.done, actions.TruncateLog) == [actions.TruncateLog(96, 2)]
    assert member.election.terms.last_term_id == 2
    reports = member.sent(AppendPosition)
    assert [(r.leadership_term_id, r.log_position) for r in reports] == [(2, 96)]
    leader.hears(append_position(2, 2, 96))
    leader.work()
    assert leader.state is State.LEADER_REPLAY


# ---- against a slow and obvious model: logs as lists of the term of every 32 bytes


def random_logs(rng):
    """Two logs of one history: leaders of ascending terms extend whatever log they have.

    Returns (the logs as {member: [term of each unit]}, {member: terms}).
    """
    members = [0, 1, 2]
    units = {m: [] for m in members}
    terms = {m: LeadershipTerms() for m in members}
    term_id = -1
    for _ in range(rng.randint(2, 9)):
        term_id += rng.choice([1, 1, 1, 2, 3])
        leader = rng.choice(members)
        base = 32 * len(units[leader])
        terms[leader].record(term_id, base)
        reached = [m for m in members if m != leader and rng.random() < 0.4]
        for follower in reached:  # brought level with the leader, as an election would
            units[follower] = list(units[leader])
            terms[follower] = LeadershipTerms(terms[leader])
        written = rng.choice([0, 0, 1, 2, 4])
        units[leader] += [term_id] * written
        for follower in reached:
            units[follower] += [term_id] * rng.randint(0, written)
    return units, terms


@pytest.mark.parametrize("seed", range(300))
def test_what_is_kept_is_the_common_begin_of_both_logs(seed):
    rng = random.Random(seed)
    units, terms = random_logs(rng)
    leader_id, member_id = rng.sample([0, 1, 2], 2)
    # The leader's log is the better one, and it leads a new term from its end on.
    if LogEnd(terms[leader_id].last_term_id, len(units[leader_id])) < LogEnd(
        terms[member_id].last_term_id, len(units[member_id])
    ):
        leader_id, member_id = member_id, leader_id
    leader_units, member_units = units[leader_id], units[member_id]
    common = 0
    while common < min(len(leader_units), len(member_units)) and leader_units[common] == member_units[common]:
        common += 1
    if len(terms[leader_id]) == 0:
        return

    led = LeadershipTerms(terms[leader_id])
    led.record(led.last_term_id + rng.choice([1, 2]), 32 * len(leader_units))
    leader = LeaderLog(
        leader_id, [(t.leadership_term_id, t.term_base_log_position) for t in led], 32 * len(leader_units)
    )
    member = Member(
        member_id,
        terms=[LeadershipTerm(*term) for term in terms[member_id]],
        append_position=32 * len(member_units),
        log_position=0,
    ).canvasses()
    settled(member, leader)

    assert member.election.append_position == 32 * common
    for term in member.election.terms:
        in_led = led.find(term.leadership_term_id)
        assert in_led is not None
        assert in_led.term_base_log_position == term.term_base_log_position
