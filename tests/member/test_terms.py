"""No term that is told, or read from a disk, takes a cluster down."""

import pytest

from cluster.archive.files import replace
from cluster.consensus.promises import TERM_JUMP_MAX
from cluster.member.frames import consensus_frame
from cluster.protocol.consensus import CanvassPosition, CommitPosition, NewLeadershipTerm, RequestVote, Vote
from cluster.protocol.node_state import CandidateTerm, seal_node_state
from tests.member.cluster_steps import wiped
from tests.member.in_memory.cluster import SECOND, SimulatedCluster
from tests.member.in_memory.member import DIRECTORY

NODE_STATE = f"{DIRECTORY}/cluster/node-state.dat"
BOUND_NS = 60 * SECOND


def a_cluster():
    cluster = SimulatedCluster(
        3, 1, leader_heartbeat_timeout_ns=2 * SECOND, startup_canvass_timeout_ns=5 * SECOND
    )
    cluster.await_leader()
    client = cluster.add_client()
    send(cluster, client)
    return cluster, client


def send(cluster, client):
    client.send(b"0:%d" % len(client.sent))
    cluster.await_settled(BOUND_NS)


def start_with_term(member, candidate_term_id):
    member.kill()
    candidate_term = CandidateTerm(candidate_term_id, 0, 0)
    replace(member.files, NODE_STATE, seal_node_state(candidate_term))
    member.start()


def has_levelled(cluster, client):
    cluster.await_leader(BOUND_NS)
    send(cluster, client)
    cluster.await_level(BOUND_NS)
    cluster.check()
    cluster.check_promises()


@pytest.mark.slow
def test_a_bit_that_is_flipped_in_one_members_candidate_term_costs_it_its_promises_at_most():
    cluster, client = a_cluster()
    for bit in range(17, 63):
        victim = cluster.followers[bit % 2]
        start_with_term(victim, victim.node_state.candidate_term_id ^ 1 << bit)

        has_levelled(cluster, client)

        assert victim.node_state.candidate_term_id < 1 << 17
        assert victim.has_say
    assert cluster.leader.leadership_term_id < 1_000, "nobody has filled in terms for it"


@pytest.mark.parametrize("bit", [0, 8, pytest.param(16, marks=pytest.mark.slow)])
def test_a_term_that_can_be_is_followed_within_the_time_of_an_election(bit):
    cluster, client = a_cluster()
    [victim, _] = cluster.followers
    term_id = victim.node_state.candidate_term_id | 1 << bit
    start_with_term(victim, term_id)

    has_levelled(cluster, client)

    assert cluster.leader.leadership_term_id <= TERM_JUMP_MAX + 10


@pytest.mark.slow
@pytest.mark.parametrize("is_third_there", [False, True])
def test_members_whose_terms_have_gone_apart_beyond_all_that_was_led_meet_again(is_third_there):
    """One frame may have brought them near the bound, ballots beyond it; nobody else can say who is right."""
    cluster, client = a_cluster()
    leader, (ahead, third) = cluster.leader, cluster.followers
    for member in cluster.members:
        member.kill()
    start_with_term(leader, TERM_JUMP_MAX + 10)
    start_with_term(ahead, TERM_JUMP_MAX + 20)
    if is_third_there:
        third.start()

    has_levelled(cluster, client)

    third.kill()
    third.start()
    has_levelled(cluster, client)


def test_terms_that_nobody_led_do_not_keep_a_wiped_member_away():
    """They are filled in as empty ones, and it takes all of them with the term behind them."""
    cluster, client = a_cluster()
    start_with_term(cluster.followers[0], 1 << 13)
    has_levelled(cluster, client)
    leader = cluster.leader
    leader.kill()  # of another term, which begins behind the bytes of the last one
    leader.start()
    has_levelled(cluster, client)
    began_ns = cluster.world.now_ns

    wiped(cluster.followers[0])
    has_levelled(cluster, client)

    assert cluster.world.now_ns - began_ns < 1 * SECOND


@pytest.mark.parametrize("term_id", [1 << 17, 1 << 33, 1 << 62, (1 << 63) - 1])
@pytest.mark.parametrize("phase", ["leads", "follows", "canvasses"])
def test_one_frame_with_a_term_that_cannot_be_changes_nothing(phase, term_id):
    cluster, client = a_cluster()
    victim = cluster.leader if phase == "leads" else cluster.followers[0]
    [liar, *_] = [member for member in cluster.members if member is not victim]
    if phase == "canvasses":
        victim.kill()
        victim.start()
        cluster.run_until(lambda: victim.is_electing and victim.links.is_up(liar.member_id))
    position = 1 << 20
    for message in (
        Vote(term_id, term_id, position, victim.member_id, liar.member_id, False),
        RequestVote(term_id, position, term_id, liar.member_id),
        NewLeadershipTerm(
            *[term_id - 1, term_id, 0, position, term_id, 0, position], 0, 0, liar.member_id, 1, 1, 0, 0
        ),
        CanvassPosition(term_id, position, term_id, liar.member_id),
        CommitPosition(term_id, position, liar.member_id),
    ):
        liar.links.send(victim.member_id, consensus_frame(message))
        cluster.run(SECOND // 100)
        assert victim.node_state.candidate_term_id < 1_000

    has_levelled(cluster, client)
    assert cluster.leader.leadership_term_id < 1_000
