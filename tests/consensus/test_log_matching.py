"""A member follows only a leader whose log is known to contain its own: what is asked, kept and cut off.

The reference compares ends of terms alone; here the log is followed down, term by term, to one whose
bytes both have from the same base. From there up a term's one leader wrote both logs.
"""

import random

import pytest

from cluster.consensus.actions import ChangeState, FetchSnapshot, SetApart, TruncateLog
from cluster.consensus.cluster_member import LogEnd
from cluster.consensus.leadership_terms import LeadershipTerm, LeadershipTerms
from cluster.protocol.consensus import CanvassPosition
from cluster.protocol.enums import ElectionState
from tests.consensus.language import (
    LEADER_ID,
    TERM,
    ALeader,
    Driven,
    in_canvass,
    in_follower_log_replication,
    in_follower_replay,
    of_kind,
    receivers,
    sent,
    the_one,
)

S = ElectionState


def settles(driven: Driven, leader: ALeader) -> list[tuple[int, int]]:
    """Let it talk with the leader, begin anew and talk again, until it follows; what it cut off."""
    driven.meets(leader)
    while driven.state is S.INIT:
        driven.work()
        driven.prepared()
        driven.meets(leader)
    assert driven.state in (S.FOLLOWER_REPLAY, S.FOLLOWER_LOG_REPLICATION)
    return [(cut.log_position, cut.first_removed_term_id) for cut in of_kind(driven.actions, TruncateLog)]


def terms_of(*entries: tuple[int, int, int]) -> LeadershipTerms:
    return LeadershipTerms(LeadershipTerm(*entry) for entry in entries)


def test_the_leader_is_asked_about_the_begin_of_the_own_last_term_before_it_is_followed():
    driven = in_canvass(400, 1000)

    actions = driven.hears(ALeader(400, 1000).answer(1))

    assert driven.state is S.CANVASS
    assert receivers(actions, CanvassPosition) == [LEADER_ID], "nobody else is asked"
    assert [m.log_leadership_term_id for m in sent(actions, CanvassPosition)] == [0]


def test_bytes_of_one_term_from_one_base_are_one_log_to_the_end_of_the_shorter():
    driven = in_canvass(400, 700)

    actions = driven.meets(ALeader(400, 1000))

    assert driven.state is S.FOLLOWER_LOG_REPLICATION
    assert [m.log_leadership_term_id for m in sent(actions, CanvassPosition)] == [0], "one question"


@pytest.mark.parametrize("end", [400, 700, 1000])
def test_nothing_is_cut_that_the_leader_holds(end):
    driven = in_canvass(400, end, processed=0)

    assert settles(driven, ALeader(400, 1000, 1600)) == []


def test_bytes_of_the_leaders_own_term_are_kept_though_its_word_is_older_than_they():
    """An answer that was on its way while more of the term came: the leader only appends."""
    driven = in_canvass(400, 1000, 1600, processed=0)

    assert settles(driven, ALeader(400, 1000, term=2, position=1300)) == []


def test_wrong_bytes_of_the_last_term_are_cut_off_from_where_they_begin():
    """Ours: term 3 at 100-164. The leader's: term 2 to 132, nobody's term 3, term 4 from 132 on.

    To cut at 132, where the leader's next term begins, would keep 100-132 of the wrong term.
    """
    ours = terms_of((0, 0, 0), (1, 0, 0), (2, 0, 100), (3, 100, -1))
    driven = in_canvass(terms=ours, append=164, processed=96)

    cut = the_one(driven.meets(ALeader(0, 0, 132, 132, term=4)), TruncateLog)

    assert (cut.log_position, cut.first_removed_term_id) == (100, 3)
    assert driven.election.terms == terms_of((0, 0, 0), (1, 0, 0), (2, 0, 100))


def test_bytes_of_a_term_that_the_leader_knows_as_an_empty_one_are_cut_off():
    ours = terms_of((0, 0, 96), (1, 96, 96), (2, 96, -1))
    driven = in_canvass(terms=ours, append=160, processed=0)

    assert settles(driven, ALeader(96, 96, 96, 192)) == [(96, 3)]


def test_a_term_with_another_base_is_cut_at_the_own_one_and_then_the_term_below_at_the_leaders():
    """Ours: term 1 from 400 on. The leader's: from 200 on, so it holds nothing of our term 0 above 200."""
    driven = in_canvass(400, 1000, processed=160)

    assert settles(driven, ALeader(200, 1000)) == [(400, 1), (200, 1)]


def test_a_cut_is_never_where_only_the_leader_is_known_to_have_a_frame():
    """Ours: term 1 at 96-416, maybe one frame. The leader's: term 2 at 96-224; term 3 is empty in both."""
    ours = terms_of((0, 0, 96), (1, 96, 416), (2, 416, 416), (3, 416, -1))
    driven = in_canvass(terms=ours, append=416, processed=0)

    assert settles(driven, ALeader(96, 96, 224, 224, term=4)) == [(416, 2), (96, 2)]


def test_after_a_cut_the_question_is_asked_again_one_term_below():
    """Ours: term 2 from 100 on, which takes its empty term 1 along; then term 0 turns out to be too long."""
    driven = in_canvass(100, 100, 1000, processed=0)

    assert settles(driven, ALeader(50, 80, 1000)) == [(100, 1), (50, 1)]


def test_empty_terms_prove_nothing_so_the_question_goes_on_below():
    """Both know term 2 as an empty one at 400; either may have filled it in. Term 1 begins there, too."""
    driven = in_canvass(400, 400, 400, processed=0)

    driven.meets(ALeader(200, 400, 400))

    assert [m.log_leadership_term_id for m in sent(driven.actions, CanvassPosition)] == [1, -1]
    assert the_one(driven.actions, TruncateLog) == TruncateLog(200, 1), "their term 1 is another one"


MANY = 5_000


def questions(driven: Driven) -> int:
    return len(sent(driven.actions, CanvassPosition))


@pytest.mark.parametrize(
    ("theirs", "cuts"),
    [
        ([400, *[1000] * MANY], []),  # the same
        ([400, 1000, 1600, *[1600] * (MANY - 2)], [(1000, 3)]),  # bytes where ours are empty, at once
        ([400, 1000, *[1000] * 9, 1600, *[1600] * (MANY - 11)], [(1000, 12)]),  # and in their midst
        ([400, 1600, *[1600] * (MANY - 1)], [(1000, 2)]),  # more in the term before
        ([400, 700, *[700] * (MANY - 1)], [(1000, 2), (700, 2)]),  # less
    ],
)
def test_empty_terms_are_no_questions_each(theirs, cuts):
    """As they are filled in when a term is far above the one before it."""
    driven = in_canvass(400, *[1000] * MANY, processed=0)

    assert settles(driven, ALeader(*theirs, term=2 * MANY)) == cuts
    assert questions(driven) < 10


def test_empty_terms_are_not_fetched_one_by_one():
    """Only their bytes are: what comes between is recorded with the term behind it."""
    driven = in_canvass(400)
    leader = ALeader(400, *[400] * MANY, 1000, term=MANY + 9)

    driven.meets(leader)

    assert driven.state is S.FOLLOWER_LOG_REPLICATION
    assert f"fetches term {MANY + 1} from 400 to 1000" in of_kind(driven.actions, ChangeState)[-1].reason


def test_a_term_without_bytes_is_kept_when_the_leader_has_it_too():
    """It may be what makes the leader's log committed: to drop it would lower this member's standing."""
    driven = in_canvass(96, 96, processed=0)

    assert settles(driven, ALeader(96, 256)) == []
    assert driven.election.terms.find(1) is not None


def test_a_term_without_bytes_is_dropped_when_the_leader_has_it_elsewhere():
    driven = in_canvass(96, 96, processed=0)

    assert settles(driven, ALeader(128, 256)) == [(96, 1)]


@pytest.mark.parametrize(("processed", "is_lost"), [(800, True), (736, True), (700, False), (160, False)])
def test_a_leader_that_would_need_a_cut_below_the_own_commit_position_is_not_followed(processed, is_lost):
    driven = in_canvass(400, 1000, processed=processed)
    leader = ALeader(400, 700)

    if is_lost:
        [apart] = of_kind(driven.meets(leader), SetApart)
        assert apart == SetApart(leader.member_id, 700, processed)
        assert driven.state is S.CANVASS
        assert driven.election.append_position == 1000
    else:
        assert settles(driven, leader) == [(700, 2)]


@pytest.mark.parametrize("own", [(), (100,)])
def test_a_leader_whose_log_begins_later_cannot_be_followed_without_a_snapshot(own):
    later = ALeader(400, 1000)
    later.terms = terms_of((1, 400, 1000))
    later.terms.record(later.term, 1000)

    driven = in_canvass(*own)
    actions = driven.meets(later)
    assert FetchSnapshot(later.member_id) in actions
    assert driven.state is S.CANVASS


def test_what_one_leader_tells_of_its_log_is_no_answer_to_a_question_about_anothers():
    driven = in_canvass(400, 1000)
    driven.hears(ALeader(400, 1000).answer(1))  # asks for the begin of term 1

    actions = driven.hears(ALeader(400, 1000, member_id=2, term=6).answer(1))

    assert driven.state is S.CANVASS
    assert receivers(actions, CanvassPosition) == [2], "the proof begins anew"


# ---- against a slow and obvious model: logs as lists of the term of every 32 bytes


def logs_of_one_history(chance: random.Random) -> list[tuple[list[int], LeadershipTerms]]:
    """Three logs: leaders of ascending terms extend whatever log they have, and reach some of the others."""
    units: list[list[int]] = [[], [], []]
    terms = [LeadershipTerms() for _ in range(3)]
    term_id = -1
    for _ in range(chance.randint(2, 9)):
        term_id += chance.choice([1, 1, 1, 2, 3])
        leader = chance.randrange(3)
        terms[leader].record(term_id, 32 * len(units[leader]))
        reached = [id_ for id_ in range(3) if id_ != leader and chance.random() < 0.4]
        written = chance.choice([0, 0, 1, 2, 4])
        for id_ in reached:  # level with the leader, as an election makes them
            units[id_] = units[leader] + [term_id] * chance.randint(0, written)
            terms[id_] = LeadershipTerms(terms[leader])
        units[leader] = units[leader] + [term_id] * written
    return list(zip(units, terms))


def ends_of(terms: LeadershipTerms, end: int) -> list[int]:
    return [end if term.log_position == -1 else term.log_position for term in terms]


@pytest.mark.parametrize("seeds", range(10))
def test_what_is_kept_is_the_common_begin_of_both_logs(seeds):
    for seed in range(30 * seeds, 30 * seeds + 30):
        chance = random.Random(seed)
        logs = logs_of_one_history(chance)
        one, other = sorted(chance.sample(logs, 2), key=lambda log: LogEnd(log[1].last_term_id, len(log[0])))
        (units, terms), (led_units, led_terms) = one, other  # the better one leads
        if led_terms.last_term_id == -1:
            continue
        common = next(
            (i for i, (ours, theirs) in enumerate(zip(units, led_units)) if ours != theirs),
            min(len(units), len(led_units)),
        )

        end = 32 * len(led_units)
        leader = ALeader(*ends_of(led_terms, end), term=led_terms.last_term_id + chance.choice([1, 2]))
        driven = in_canvass(terms=LeadershipTerms(terms), append=32 * len(units), processed=0)
        settles(driven, leader)

        assert driven.election.append_position == 32 * common, f"seed {seed}"
        for term in driven.election.terms:
            in_led = leader.terms.find(term.leadership_term_id)
            assert in_led is not None
            assert in_led.term_base_log_position == term.term_base_log_position, f"seed {seed}"


# ---- a leader that contradicts itself


def test_a_leader_that_reports_another_base_of_its_term_is_not_followed():
    leader = ALeader(1000)
    driven = in_follower_replay(1000, leader=leader)
    driven.hears(leader.commits(1000))
    driven.grows(1600)
    driven.work()
    driven.processes(1000)
    driven.work()
    assert driven.state is S.CANVASS

    driven.hears(leader.answer(TERM).replace(term_base_log_position=992))

    assert driven.path[-2:] == [S.CANVASS, S.INIT]


def test_a_leader_that_reports_a_term_within_one_that_is_over_is_not_followed():
    leader = ALeader(400, 1000, 1600)
    driven = in_follower_log_replication(400, 700, leader=leader)
    driven.grows(1000)
    driven.hears(leader.commits(1000))
    driven.work()
    assert driven.state is S.CANVASS

    driven.hears(leader.answer(1).replace(next_term_base_log_position=960))

    assert driven.path[-2:] == [S.CANVASS, S.INIT]
