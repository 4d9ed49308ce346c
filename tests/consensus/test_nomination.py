"""When a candidate stands: NOMINATE and its delay (group B)."""

from itertools import pairwise

import pytest

from cluster.consensus.actions import ProposeTerm, Send
from cluster.consensus.context import MS, SECOND
from cluster.protocol.consensus import CanvassPosition, RequestVote
from cluster.protocol.enums import ElectionState
from tests.consensus.language import (
    START_NS,
    ALeader,
    canvass,
    in_candidate_ballot,
    in_canvass,
    in_follower_ballot,
    in_nominate,
    of_kind,
    receivers,
    request_vote,
    sent,
    the_one,
)

S = ElectionState


def delay_of(driven):
    """Until it stands, in nanoseconds."""
    return driven.election._voting.nomination_deadline_ns - driven.now_ns


def hears_equals(driven):
    """All others tell of a log that ends as ours does, and it nominates."""
    driven.hears(*(canvass(id_, 0, 1000) for id_ in driven.other_ids))
    driven.work()
    assert driven.state is S.NOMINATE
    return driven


def in_nominate_behind(seed=1, **options):
    """Member 2, whose log is as good as those of 0 and 1."""
    return hears_equals(in_canvass(1000, member_id=2, seed=seed, **options))


@pytest.mark.parametrize("peers", [[(0, 968), (0, 400)], [(0, 1000), (0, 1000)], [(0, 1000), None]])
def test_the_best_log_of_all_and_of_equal_ones_the_lowest_id_stands_at_once(peers):
    """Nobody is to come first but this member, and all know it: a delay would only lengthen the gap."""
    driven = in_canvass(1000, gone=[id_ for id_, peer in zip((1, 2), peers) if peer is None])
    driven.hears(*(canvass(id_, *peer) for id_, peer in zip((1, 2), peers) if peer is not None))

    driven.work()
    driven.work()

    assert driven.path[-2:] == [S.NOMINATE, S.CANDIDATE_BALLOT]
    assert driven.now_ns == START_NS


def test_the_appointed_leader_stands_at_once_whatever_its_id():
    assert delay_of(in_nominate_behind(appointed_leader_id=2)) == 0


def test_of_equal_ones_a_dead_member_does_not_come_first():
    driven = in_canvass(1000, member_id=1, gone={0})
    driven.hears(canvass(2, 0, 1000))
    driven.work()

    assert delay_of(driven) == 0


def test_who_knows_the_leaders_successor_leaves_it_the_first_ballot_even_where_it_counts_as_gone():
    """One that was just started counts as gone until its link has been up for a second."""
    driven = in_canvass(1000, gone={2}, successor=2)
    driven.hears(canvass(1, 0, 1000))
    driven.work()

    assert driven.state is S.NOMINATE
    assert 250 * MS <= delay_of(driven) < 500 * MS


@pytest.mark.conformance("C-64")
def test_others_wait_for_a_random_time_in_the_second_quarter_of_the_election_timeout():
    """Long enough for whoever comes first, and below half of the timeout."""
    delays = {delay_of(in_nominate_behind(seed)) for seed in range(300)}

    assert len(delays) == 300
    assert 250 * MS <= min(delays) < 255 * MS
    assert 495 * MS < max(delays) < 500 * MS


def after_a_vote(seed):
    driven = in_follower_ballot(1000, seed=seed)
    driven.work(after=SECOND)
    return hears_equals(driven)


def after_a_ballot(seed):
    driven = in_candidate_ballot(1000, seed=seed)
    driven.work(after=SECOND)
    return hears_equals(driven)


def without_some(seed):
    """At the deadline of the canvass, where a majority was heard."""
    driven = in_canvass(1000, seed=seed)
    driven.hears(canvass(1, 0, 400))
    driven.work(after=10 * SECOND)
    return driven


@pytest.mark.conformance("C-64")
@pytest.mark.parametrize("in_nominate_again", [after_a_vote, after_a_ballot, without_some])
def test_once_that_has_failed_or_where_a_log_is_not_known_all_delays_are_random_below_half(in_nominate_again):
    """What has kept the first one from leading would keep it again."""
    delays = set()
    for seed in range(300):
        driven = in_nominate_again(seed)
        assert driven.state is S.NOMINATE
        delays.add(delay_of(driven))

    assert len(delays) == 300
    assert 0 <= min(delays) < 10 * MS
    assert 490 * MS < max(delays) < 500 * MS


@pytest.mark.conformance("C-65")
def test_the_delay_passes_in_nominate():
    driven = in_nominate_behind()
    delay = delay_of(driven)

    driven.work(after=delay - 1)
    assert driven.state is S.NOMINATE
    driven.work(after=1)
    assert driven.state is S.CANDIDATE_BALLOT


@pytest.mark.conformance("C-66")
def test_canvass_position_goes_on_every_100_ms_in_nominate():
    driven = in_nominate_behind()
    times = []
    for _ in range(30):
        if receivers(driven.work(), CanvassPosition) == [0, 1]:
            times.append(driven.now_ns)
        if driven.state is not S.NOMINATE:
            break
        driven.now_ns += 10 * MS

    assert len(times) > 1
    assert {after - before for before, after in pairwise(times)} == {100 * MS}


@pytest.mark.conformance("C-67")
def test_the_candidate_term_is_one_above_the_highest_known_and_stored_before_it_is_spoken_of():
    driven = in_nominate(1000, candidate_term=7)
    driven.hears(request_vote(2, 9, log=(-1, 0)))  # refused, and remembered

    actions = driven.work(after=500 * MS) + driven.work()

    kinds = [type(a.message) if isinstance(a, Send) else type(a) for a in actions]
    assert the_one(actions, ProposeTerm).candidate_term_id == 10
    assert kinds.index(ProposeTerm) < kinds.index(RequestVote)
    assert {m.candidate_term_id for m in sent(actions, RequestVote)} == {10}


@pytest.mark.conformance("C-76")
def test_a_leaders_word_moves_nobody_out_of_nominate():
    driven = in_nominate(1000)

    actions = driven.hears(ALeader(1000).broadcast())

    assert driven.state is S.NOMINATE
    assert not actions


def test_a_leader_heard_in_nominate_is_not_stood_against():
    """Stricter than the reference, which would now unseat a leader that works."""
    driven = in_nominate(1000)
    driven.hears(ALeader(1000).broadcast())

    actions = driven.work(after=500 * MS)

    assert driven.state is S.CANVASS
    assert not of_kind(actions, ProposeTerm)
