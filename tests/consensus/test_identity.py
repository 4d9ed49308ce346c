"""Which members are of one cluster, and what those without an identity take from the others."""

import pytest

from cluster.consensus.identity import agreement, cluster_difference
from cluster.consensus.promises import Promises, StoredPromises
from cluster.protocol.identity import ClusterIdentity
from cluster.protocol.link import KnownPromises, PromiseState, PromiseStatement

OURS = ClusterIdentity(0, 1_000, 7).with_members(3, (0, 1, 2, 3, 4))
YOUNG = ClusterIdentity(0).with_members(3, (0, 1, 2, 3, 4))
OF_THREE = ClusterIdentity(0, 1_000, 7).with_members(3, (0, 1, 2))
RESTORED = OURS.replace(generation=5)
OTHER_LOG = OURS.replace(first_log_session_id=8)
LATER_LOG = OURS.replace(first_term_timestamp=1_001)


@pytest.mark.parametrize(
    ("told", "what"),
    [
        (OF_THREE, "its cluster has members 0, 1, 2, expected 0, 1, 2, 3, 4"),
        (RESTORED, "it is of generation 5, expected 0"),
        (OTHER_LOG, "its log began with session 8 at 1000, expected session 7 at 1000"),
        (LATER_LOG, "its log began with session 7 at 1001, expected session 7 at 1000"),
    ],
)
def test_a_cluster_differs_by_members_generation_or_log_whoever_asks(told, what):
    assert cluster_difference(told, OURS) == what
    assert cluster_difference(OURS, told) is not None


@pytest.mark.parametrize("told", [OURS, YOUNG, ClusterIdentity(0)])
def test_what_one_does_not_know_fits_everything(told):
    assert cluster_difference(told, OURS) is None
    assert cluster_difference(OURS, told) is None


@pytest.mark.parametrize(
    ("told", "agreed"),
    [
        ({1: OURS, 2: OURS, 3: OURS}, ([1, 2, 3], OURS)),
        ({1: YOUNG, 2: YOUNG, 3: OURS}, ([1, 2, 3], OURS)),
        ({1: None, 2: None, 3: None}, ([1, 2, 3], None)),
        ({1: None, 2: OURS, 3: None}, ([1, 2, 3], OURS)),
        ({1: OURS, 2: OURS, 3: OURS, 4: RESTORED}, ([1, 2, 3], OURS)),
        ({1: OURS, 2: OURS, 3: RESTORED}, ([], None)),
        ({1: OURS, 2: RESTORED, 3: None, 4: None}, ([], None)),
        ({1: OURS, 2: OTHER_LOG, 3: YOUNG, 4: YOUNG}, ([], None)),
    ],
)
def test_enough_that_agree_are_believed_and_nobody_where_they_do_not(told, agreed):
    assert agreement(told, 3) == agreed


def test_a_member_without_its_promises_counts_the_answers_of_one_cluster_alone():
    lost = StoredPromises(99, PromiseState.LOST, -1)
    promises = Promises(0, (0, 1, 2, 3, 4), 3, lost)

    def answers(member_id, term_id, identity):
        told = PromiseStatement(
            member_id, term_id, term_id, PromiseState.KEPT, False, (KnownPromises(99, 0),), (identity,)
        )
        promises.on_statement(member_id, told)

    answers(1, 4, OURS)
    answers(2, 9, RESTORED)
    answers(3, 4, OURS)
    assert not promises.may_follow
    assert promises.waits_for == [4]
    answers(4, 9, RESTORED)
    assert not promises.may_follow
    assert promises.waits_for == [1, 2, 3, 4]
    answers(4, 5, OURS)
    assert promises.may_follow
    assert promises.confirmed_term_id == 5
    assert promises.confirmed_cluster == OURS
