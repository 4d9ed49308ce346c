"""What a member that has lost its promises asks, whom it believes, and whose votes count no more."""

import pytest

from cluster.consensus.actions import KeepPromises, ProposeTerm
from cluster.consensus.cluster_member import MemberTable
from cluster.consensus.context import NULL_VALUE, SECOND
from cluster.consensus.promises import STATED_JUMP_MAX, TERM_JUMP_MAX, Promises, StoredPromises, recall
from cluster.protocol.consensus import AppendPosition, StopCatchup, Vote
from cluster.protocol.enums import ElectionState
from cluster.protocol.link import CatchupProgress, KnownPromises, PromiseState, PromiseStatement
from tests.consensus.language import (
    LEADER_ID,
    OTHER_ID,
    OWN_PROMISES,
    TERM,
    ALeader,
    in_candidate_ballot,
    in_canvass,
    in_catchup,
    of_kind,
    sent,
    stated,
    vote,
)

S = ElectionState
KEPT, LOST, EMPTY = PromiseState.KEPT, PromiseState.LOST, PromiseState.EMPTY


def the_promises(members: int = 3, state: PromiseState = LOST, **options) -> Promises:
    held = StoredPromises(OWN_PROMISES, state, NULL_VALUE)
    return Promises(0, tuple(range(members)), members // 2 + 1, held, **options)


def say(promises: Promises, member_id: int, *terms: int, **options) -> bool:
    return promises.on_statement(member_id, stated(0, member_id, terms or (-1, -1), **options))


# ---- how many must answer


@pytest.mark.parametrize(("members", "needed"), [(2, 1), (3, 2), (4, 2), (5, 3), (7, 4)])
def test_so_many_must_answer_that_one_took_part_in_whatever_was_elected_or_committed(members, needed):
    promises = the_promises(members)
    for member_id in range(1, needed):
        say(promises, member_id, 3, 2)
        assert not promises.may_follow

    say(promises, needed, 4, 2)

    assert promises.confirmed_term_id == 4
    assert promises.may_follow and not promises.has_say


def test_a_single_member_has_nobody_to_ask():
    assert the_promises(1).has_say


@pytest.mark.parametrize(
    "answer", [{"state": LOST}, {"state": EMPTY}, {"asked_as": 8}], ids=["lost", "empty", "to another life"]
)
def test_who_has_lost_its_own_or_has_not_stored_the_id_gives_no_answer(answer):
    promises = the_promises()
    say(promises, 1, 3, 2)

    say(promises, 2, 3, 2, **answer)

    assert not promises.may_follow
    assert promises.waits_for == [2]


def test_an_answer_counts_no_more_when_its_link_has_broken():
    promises = the_promises()
    say(promises, 1, 3, 2)
    promises.on_link_down(1)

    say(promises, 2, 3, 2)

    assert promises.waits_for == [1]


def test_the_highest_term_that_was_heard_stays_whatever_the_next_life_of_a_member_tells():
    promises = the_promises()
    say(promises, 1, 9, 2)
    say(promises, 2, 4, 2)
    promises.on_link_down(1)

    say(promises, 1, 3, 2)

    assert promises.confirmed_term_id == 9


@pytest.mark.parametrize("jump", [TERM_JUMP_MAX, TERM_JUMP_MAX + 1])
def test_a_term_is_believed_up_to_so_far_beyond_that_of_another(jump):
    promises = the_promises()

    say(promises, 1, 3, 2)
    say(promises, 2, 3 + jump, 2)

    assert promises.may_follow is (jump == TERM_JUMP_MAX)


def test_a_term_that_one_alone_tells_of_is_not_believed():
    promises = the_promises(5)
    for member_id, term in ((1, 5), (2, 5), (3, 1 << 37)):
        say(promises, member_id, term, 4)
    assert not promises.may_follow

    say(promises, 4, 6, 4)

    assert promises.confirmed_term_id == 6


# ---- following


def test_it_follows_nobody_before_enough_have_answered():
    driven = in_canvass(is_wiped=True, told=[])
    driven.promises.on_statement(OTHER_ID, stated(0, OTHER_ID, (TERM, TERM)))

    assert not driven.hears(ALeader(400, 1000).broadcast())
    assert driven.state is S.CANVASS

    driven.promises.on_statement(LEADER_ID, stated(0, LEADER_ID, (TERM, TERM)))
    driven.meets(ALeader(400, 1000))
    assert driven.state is S.FOLLOWER_LOG_REPLICATION


def test_it_stores_the_highest_term_that_was_told_and_follows_no_leader_below():
    driven = in_canvass(is_wiped=True, told=[stated(0, 1, (TERM, TERM)), stated(0, 2, (TERM + 1, TERM))])

    actions = driven.hears(ALeader(400, 1000, term=TERM).broadcast())

    assert [action.candidate_term_id for action in of_kind(actions, ProposeTerm)] == [TERM + 1]
    [answer] = sent(actions, Vote)
    assert (answer.vote, answer.candidate_term_id) == (False, TERM + 1)
    assert driven.state is S.CANVASS


def test_the_reports_of_its_catch_up_count_for_nothing():
    driven = in_catchup(is_wiped=True)

    actions = driven.work(after=SECOND)

    assert not sent(actions, AppendPosition)
    assert sent(actions, CatchupProgress, to=LEADER_ID) == [CatchupProgress(TERM, 1000)]


def test_it_has_a_say_again_once_it_holds_what_the_leader_holds():
    driven = in_catchup(is_wiped=True)
    driven.grows(1600)
    driven.hears(StopCatchup(TERM, 0))
    driven.work()
    assert not driven.promises.has_say

    actions = driven.work()

    assert driven.state is S.FOLLOWER_READY
    assert driven.promises.has_say
    stored = [action for action in actions if isinstance(action, ProposeTerm | KeepPromises)]
    assert [type(action) for action in stored] == [ProposeTerm, KeepPromises]


# ---- a new cluster


def test_a_cluster_is_new_when_all_have_answered_that_they_are_empty():
    promises = the_promises()
    say(promises, 1, state=EMPTY)
    assert not promises.is_new_cluster(-1, -1)
    say(promises, 2, state=EMPTY, asked_as=8)  # of what it said to an earlier life
    assert not promises.is_new_cluster(-1, -1)

    say(promises, 2, state=EMPTY)

    assert promises.is_new_cluster(-1, -1)
    assert not promises.is_new_cluster(0, -1)


def test_who_had_a_log_takes_no_cluster_for_a_new_one():
    promises = the_promises(had_log=True)

    say(promises, 1, state=EMPTY)
    say(promises, 2, state=EMPTY)

    assert not promises.is_new_cluster(-1, -1)
    assert promises.statement(-1, -1).state is LOST


def test_a_member_of_a_new_cluster_is_empty_until_its_first_vote():
    promises = the_promises()
    promises.keep_nothing()

    assert promises.has_say
    assert promises.statement(-1, -1).state is EMPTY
    assert promises.statement(0, -1).state is KEPT


# ---- votes of a life that is forgotten


def a_ballot(*known: tuple[int, int]):
    """Member 0 of 5 stands; 1 votes, and then 2, which knows ``known`` to have lost their promises."""
    driven = in_candidate_ballot(1000, members=5)
    driven.promises.on_statement(1, PromiseStatement(11, TERM, 0, KEPT, False))
    driven.hears(vote(1, TERM))
    statement = PromiseStatement(12, TERM, 0, KEPT, False, tuple(KnownPromises(id_, m) for m, id_ in known))
    driven.promises.on_statement(2, statement)
    driven.hears(vote(2, TERM))
    return driven


def test_a_vote_counts_no_more_when_another_voter_knows_that_it_is_forgotten():
    """Else it helps to elect a leader that lacks what its giver has since helped another one to commit."""
    driven = a_ballot((1, 99))

    driven.work(after=2 * SECOND)

    assert driven.state is S.CANVASS


@pytest.mark.parametrize("known", [[], [(1, 11)], [(3, 99)]], ids=["nobody", "as it voted", "another"])
def test_a_vote_counts_that_nobody_knows_to_be_forgotten(known):
    driven = a_ballot(*known)

    driven.work(after=2 * SECOND)

    assert driven.state is S.LEADER_LOG_REPLICATION


def test_a_candidate_that_sees_the_new_life_itself_drops_the_vote():
    driven = a_ballot()
    driven.promises.on_statement(1, PromiseStatement(99, -1, -1, EMPTY, True))

    driven.work(after=2 * SECOND)

    assert driven.state is S.CANVASS


def test_who_asks_is_named_from_then_on_until_it_says_otherwise():
    promises = the_promises(state=KEPT)
    assert say(promises, 1, state=LOST)
    assert not say(promises, 1, state=LOST)
    assert promises.statement(3, 2).known == (KnownPromises(1_001, 1),)

    assert promises.on_statement(1, PromiseStatement(99, 3, 3, KEPT, False))
    assert promises.statement(3, 2).known == (KnownPromises(99, 1),)


def test_what_others_know_of_third_ones_is_not_forgotten_with_the_own_disk():
    promises = the_promises(5)

    known = KnownPromises(99, 2), KnownPromises(10, 1)  # of itself it tells the present ones
    promises.on_statement(1, PromiseStatement(11, 3, 3, KEPT, False, known))

    assert promises.stored.known == {(1, 11), (2, 99)}


def test_the_own_vote_is_never_void():
    promises, own = the_promises(state=KEPT), MemberTable([0])[0]
    own.vote = True
    promises.on_statement(1, PromiseStatement(11, 3, 3, KEPT, False, (KnownPromises(99, 0),)))

    assert not promises.void_votes([own])


# ---- terms


@pytest.mark.parametrize(
    ("own", "others", "limit"),
    [
        ((5, 4), [], 4 + TERM_JUMP_MAX),
        ((5, 4), [(9, 7)], 7 + TERM_JUMP_MAX),
        ((5, 4), [(90_000, 7)], 90_001),
        ((90_000, 7), [(5, 4)], 90_001),
        ((-1, -1), [(200_000, 200_000)], 200_000 + TERM_JUMP_MAX),
    ],
)
def test_a_term_is_believed_near_what_was_led_and_next_to_what_others_stand_for(own, others, limit):
    promises = the_promises(state=KEPT)
    for member_id, terms in enumerate(others, 2):
        say(promises, member_id, *terms)

    assert promises.term_limit(1, *own) == limit


@pytest.mark.parametrize(
    ("stated", "limit"),
    [
        (5, 4 + TERM_JUMP_MAX),
        (10 + TERM_JUMP_MAX, 11 + TERM_JUMP_MAX),
        (4 + STATED_JUMP_MAX, 4 + STATED_JUMP_MAX),
        (1 << 62, 4 + STATED_JUMP_MAX),
    ],
)
def test_what_a_member_states_itself_is_believed_in_a_message_up_to_a_bound_of_its_own(stated, limit):
    promises = the_promises(state=KEPT)
    say(promises, 1, stated, stated)

    assert promises.term_limit(1, 5, 4) == limit


def test_an_own_term_far_above_those_of_enough_others_cannot_be_true():
    promises = the_promises(state=KEPT)
    say(promises, 1, 5, 5)
    assert not promises.is_beyond_others(1 << 37)

    say(promises, 2, 6, 5)

    assert promises.is_beyond_others(1 << 37)
    assert not promises.is_beyond_others(5 + STATED_JUMP_MAX)
    assert promises.is_beyond_others(5 + STATED_JUMP_MAX + 1)


# ---- what a start finds


def recalled(held, candidate_term_id, **options):
    return recall(held, candidate_term_id, **{"is_lost": False, "draw_id": lambda: 42, **options})


def test_a_directory_without_the_file_is_believed_by_its_votes():
    assert recalled(None, -1) == StoredPromises(42, LOST, -1)
    assert recalled(None, 3) == StoredPromises(42, KEPT, 3)
    assert recalled(None, 3, is_lost=True) == StoredPromises(42, LOST, 3)


@pytest.mark.parametrize(("term", "options"), [(2, {}), (-1, {}), (3, {"is_lost": True})])
def test_promises_are_lost_with_the_votes_and_with_what_nobody_can_tell(term, options):
    held = StoredPromises(7, KEPT, 3, frozenset({(1, 11)}))

    assert recalled(held, term, **options) == held._replace(promises_id=42, state=LOST)


@pytest.mark.parametrize("state", [KEPT, LOST, EMPTY])
def test_else_they_are_what_they_were(state):
    held = StoredPromises(7, state, -1)

    assert recalled(held, 5) == held
