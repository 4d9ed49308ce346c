"""Histories that cost others their data, or their leader, played on connected elections.

Numbers are those of the reports: aeron-io/aeron pull requests, bakwc/PySyncObj, the Raft paper. Every step of
every history is checked against all that any member has processed before (``Cluster``).
"""

import pytest

from cluster.consensus.context import NULL_VALUE, SECOND
from cluster.consensus.election import LEADER_STATES
from tests.consensus.connected import Cluster, Disk
from tests.consensus.short_histories import SHORT, a_cluster

# ---- aeron-io/aeron PR 2147: a member with the tail of an older term makes up a majority


@pytest.mark.conformance("C-143")
@pytest.mark.parametrize("turns", range(30))
def test_a_2147_an_acknowledged_entry_survives_whenever_its_leader_dies(turns):
    # Steps 0 and 1: m3 leads, and writes what reaches nobody; its log is the longest from now on.
    cluster = a_cluster(seed=2147)
    m3 = cluster.leader
    cluster.write(m3, "1", "1, too", "1, again")
    # Step 2: it goes down.
    cluster.kill(m3.id)
    # Step 3: m2 is elected; m1 follows it.
    m2 = cluster.await_leader(m3.id)
    [m1] = [member for member in cluster.running.values() if member is not m2]
    cluster.run(1 * SECOND)
    # Step 4: an entry is written to m2, and does not reach m1.
    m1.is_slow = True
    cluster.write(m2, "2")
    # Step 5: m3 comes up, still with its tail of the older term; m2 must not count that.
    cluster.start(m3.id)
    for _ in range(turns):
        cluster.step()
    assert not cluster.has_processed("2") or "2" in cluster.disks[m3.id].entries
    # Step 6: m2 goes down. Step 7: the others elect one of them.
    cluster.kill(m2.id)
    was_acknowledged = cluster.has_processed("2")
    m1.is_slow = False
    cluster.write(cluster.await_leader(m2.id), "3")
    cluster.await_processed("3")

    assert "1" not in cluster.processed, "nobody ever acknowledged it"
    assert cluster.has_processed("2") >= was_acknowledged
    cluster.start(m2.id)
    cluster.await_processed("3")


def test_a_2147_the_entry_is_acknowledged_once_the_tail_is_gone():
    """The steps above would prove nothing if no leader ever came to acknowledge with that member's help."""
    cluster = a_cluster(seed=2147)
    m3 = cluster.leader
    cluster.write(m3, "1", "1, too", "1, again")
    cluster.kill(m3.id)
    m2 = cluster.await_leader(m3.id)
    [m1] = [member for member in cluster.running.values() if member is not m2]
    cluster.run(1 * SECOND)
    m1.is_slow = True
    cluster.write(m2, "2")
    cluster.start(m3.id)

    cluster.await_processed("2", m2.id, m3.id)

    assert "1" not in cluster.disks[m3.id].entries
    assert "2" not in cluster.disks[m1.id].entries


# ---- figure 8 of the Raft paper: entries of older terms are not committed by counting them


def figure_8(seed: int) -> Cluster:
    """State (b): S1 wrote ``b`` in term 2 and reached S2; S5, alone, wrote ``c`` there in term 3."""
    of_term_2 = [(0, ["a0"]), (1, ["a1"]), (2, ["b"])]
    s1, s2 = Disk.of(*of_term_2), Disk.of(*of_term_2)
    s3 = Disk.of((0, ["a0"]), (1, ["a1"]), candidate_term=3)
    s4 = Disk.of((0, ["a0"]), (1, ["a1"]), candidate_term=3)
    s5 = Disk.of((0, ["a0"]), (1, ["a1"]), (2, []), (3, ["c"]))
    return Cluster(s1, s2, s3, s4, s5, seed=seed, running=[0, 1, 2], **SHORT)


@pytest.mark.parametrize("seed", range(4))
def test_figure_8_what_is_acknowledged_is_never_overwritten(seed):
    ends = set()
    for turns in range(30):
        # (c): S1 or S2 leads a term above 3; the entry of term 2 comes to be on S1, S2 and S3.
        cluster = figure_8(seed)
        cluster.run_until(lambda c=cluster: any(m.led_term is not None for m in c.running.values()))
        for _ in range(turns):
            cluster.step()
        was_acknowledged = cluster.has_processed("b")
        # (d): S1 and S2 crash, whoever led; S5 and S4 are back, and S3 decides whether S5 may win.
        cluster.kill(0)
        cluster.kill(1)
        cluster.start(3)
        cluster.start(4)
        # (e): what was processed by then stands.
        cluster.write(cluster.await_leader(0, 1), "d")
        cluster.start(0)
        cluster.start(1)
        cluster.await_processed("d")
        assert cluster.has_processed("b") != cluster.has_processed("c")
        assert cluster.has_processed("b") >= was_acknowledged
        ends.add("b" if was_acknowledged else "c" if cluster.has_processed("c") else "b, later")

    assert {"b", "c"} <= ends, "the paper's two ends of the history"


# ---- aeron-io/aeron PR 1898: a fast follower runs ahead of what a majority holds


@pytest.mark.parametrize("seed", range(3))
def test_a_1898_a_follower_ahead_of_the_majority_processes_only_what_is_committed(seed):
    cluster = a_cluster(seed=seed, members=5)
    leader = cluster.leader
    fast, *slow = [member for member in cluster.running.values() if member is not leader]
    for member in slow:
        member.is_slow = True
    cluster.write(leader, *(f"x{i}" for i in range(10)))
    cluster.run(1 * SECOND)
    assert cluster.disks[fast.id].entries[-1] == "x9"

    # It restarts, and meets the same leader, with ten entries that nobody else has.
    cluster.kill(fast.id)
    fast = cluster.start(fast.id)
    cluster.run(5 * SECOND)
    assert "x0" not in cluster.processed
    assert fast.processed <= leader.leader.commit_position

    for member in slow:
        member.is_slow = False
    cluster.await_processed("x9")


# ---- bakwc/PySyncObj PR 202: votes and terms that a restart forgets


@pytest.mark.parametrize("seed", range(6))
def test_p_202_voters_that_restart_at_once_make_no_second_leader_of_a_term(seed):
    """Every voter restarts in the very turn in which it has voted; the checks see each vote."""
    cluster = Cluster(*(Disk.of((0, ["a"])) for _ in range(3)), seed=seed, **SHORT)
    seen = 0
    for _ in range(1_000):
        cluster.step()
        for voter, _ in list(cluster.vote_of)[seen:]:
            if voter in cluster.running and cluster.random.random() < 0.5:
                cluster.kill(voter)
                cluster.start(voter)
        seen = len(cluster.vote_of)
    assert seen > 2, "nobody ever voted"
    cluster.await_leader()


# ---- a disk that was wiped, and a crash while it is filled again


@pytest.mark.parametrize("turns", range(0, 50, 5))
def test_a_wiped_member_that_crashes_while_it_is_refilled_elects_nobody(turns):
    """Else its vote, and what is left of its log, would stand for entries that it has forgotten."""
    cluster = a_cluster(seed=turns)
    leader = cluster.leader
    wiped, behind = [member for member in cluster.running.values() if member is not leader]
    behind.is_slow = True
    cluster.write(leader, *(f"x{i}" for i in range(20)))
    cluster.await_processed("x19", leader.id, wiped.id)
    cluster.kill(wiped.id)
    cluster.disks[wiped.id] = Disk()
    cluster.forget_votes_of(wiped.id)
    cluster.start(wiped.id)
    for _ in range(turns):
        cluster.step()

    cluster.kill(wiped.id)
    cluster.kill(leader.id)
    cluster.start(wiped.id)
    cluster.run(30 * SECOND)
    if cluster.leader is not None:
        assert cluster.disks[wiped.id].candidate_term_id != NULL_VALUE, "it had not followed to the end"
        assert "x19" in cluster.leader.disk.entries
    behind.is_slow = False
    cluster.start(leader.id)
    cluster.write(cluster.await_leader(), "y")
    cluster.await_processed("y", leader.id, wiped.id)


@pytest.mark.parametrize("seed", range(3))
def test_what_a_wiped_member_has_fetched_and_nobody_else_has_keeps_nobody_from_leading(seed):
    """The leader died while it refilled that member, before others had its last entries."""
    behind = [Disk.of((0, ["a"]), (1, ["b"])) for _ in range(3)]
    wiped = Disk.of((0, ["a"]), (1, ["b", "c", "d"]), candidate_term=NULL_VALUE)
    cluster = Cluster(Disk(), *behind, wiped, seed=seed, running=[1, 2, 3, 4], **SHORT)

    cluster.await_leader()
    cluster.await_processed("b")

    assert "c" not in cluster.disks[4].entries


# ---- a member with the best log that too few of the others can reach


@pytest.mark.parametrize("seed", range(5))
def test_a_member_that_reaches_one_other_only_keeps_the_others_from_nothing(seed):
    """It refuses the only one that all others would vote for, and can never get a majority itself."""
    best = Disk.of((0, ["a"]), (1, ["b", "c", "d"]))
    second = Disk.of((0, ["a"]), (1, ["b", "c"]))
    others = [Disk.of((0, ["a"]), (1, ["b"])) for _ in range(3)]
    cluster = Cluster(best, second, *others, seed=seed, running=[], **SHORT)
    for other in (2, 3, 4):
        cluster.cut(0, other)
    for member_id in cluster.ids:
        cluster.start(member_id)

    leader = cluster.await_leader()
    cluster.write(leader, "e")
    cluster.await_processed("e", 1, 2, 3, 4)
    cluster.heal()
    cluster.await_processed("e")

    assert cluster.now_ns < (1_000 + 60) * SECOND


# ---- links that carry one way only (TigerBeetle's view-change livelock)


@pytest.mark.parametrize("seed", range(3))
def test_a_member_that_cannot_hear_the_leader_does_not_unseat_it(seed):
    cluster = a_cluster(seed=seed)
    leader = cluster.leader
    deaf = next(id_ for id_ in cluster.ids if id_ != leader.id)
    cluster.drop(leader.id, deaf)
    led = dict(cluster.leader_of_term)

    for i in range(20):
        cluster.write(leader, f"x{i}")
        cluster.run(2 * SECOND)
        assert cluster.leader is leader
    assert cluster.leader_of_term == led
    assert cluster.has_processed("x19")

    cluster.heal()
    cluster.await_processed("x19")


def test_a_leader_that_is_heard_but_cannot_hear_steps_down():
    cluster = a_cluster(seed=1)
    leader = cluster.leader
    for other in cluster.ids:
        if other != leader.id:
            cluster.drop(other, leader.id)

    cluster.run_until(lambda: cluster.leader is None or cluster.leader is not leader)
    cluster.await_leader(leader.id)
    cluster.heal()
    cluster.write(cluster.await_leader(), "b")
    cluster.await_processed("b")


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("is_established", [True, False])
def test_a_leader_that_some_hear_and_others_only_speak_to_makes_room(seed, is_established):
    """It hears a majority: one that follows it, and two that canvass, since they do not hear it."""
    cluster = a_cluster(seed=seed, members=5)
    leader = cluster.leader
    if not is_established:
        leader.enter_election("test")
        cluster.run_until(lambda: leader.election is None or leader.election.state in LEADER_STATES)
        leader = next(member for member in cluster.running.values() if member.led_term is not None)
    one, two, three, four = (id_ for id_ in cluster.ids if id_ != leader.id)
    cluster.kill(four)
    cluster.drop(leader.id, one)
    cluster.drop(leader.id, two)
    for unheard in (one, two):
        cluster.running[unheard].enter_election("test")

    other = cluster.await_leader(leader.id)
    cluster.write(other, "b")

    cluster.await_processed("b", one, two, three)


# ---- a leader that sleeps (cowsql/raft 99): what it finds buffered when it wakes up loses nothing


@pytest.mark.parametrize("seed", range(5))
def test_a_leader_that_wakes_up_late_acknowledges_nothing_that_the_next_one_does_not_have(seed):
    cluster = a_cluster(seed=seed)
    old = cluster.leader
    cluster.write(old, "x")
    cluster.step()
    cluster.paused.add(old.id)
    cluster.write(cluster.await_leader(old.id), "y")
    cluster.run(1 * SECOND)

    cluster.paused.clear()
    cluster.await_processed("y")

    assert cluster.leader is not old


# ---- fail-over without waiting


@pytest.mark.parametrize("seed", range(5))
def test_a_dead_leader_is_replaced_within_two_seconds(seed):
    """A member that is gone is not waited for: neither 10 s in the canvass, nor 1 s in the ballot."""
    cluster = a_cluster(seed=seed)
    dead = cluster.leader
    cluster.kill(dead.id)
    died_ns = cluster.now_ns

    cluster.await_leader(dead.id)

    assert cluster.now_ns - died_ns < 2 * SECOND


@pytest.mark.parametrize("seed", range(3))
def test_a_cluster_that_starts_with_one_member_missing_waits_a_minute_for_it(seed):
    cluster = Cluster(*(Disk.of((0, ["a"])) for _ in range(3)), seed=seed, running=[0, 1])
    began_ns = cluster.now_ns

    cluster.await_leader()

    assert 60 * SECOND <= cluster.now_ns - began_ns < 63 * SECOND


# ---- anything at all


COUNTS = {1: 3, 2: 4, 3: 12, 5: 8}  # histories of clusters of this many members


def anything(cluster: Cluster, written: list[int]) -> None:
    """One fault, one repair, or one message of a client."""
    chance = cluster.random
    down = [id_ for id_ in cluster.ids if id_ not in cluster.running]
    member = chance.choice(sorted(cluster.running)) if cluster.running else None
    match chance.randrange(12):
        case 0 if member is not None:
            cluster.kill(member)
        case 1 | 2 if down:
            cluster.start(chance.choice(down))
        case 3 if member is not None:
            cluster.isolate(member)
        case 4 if len(cluster.ids) > 1:
            cluster.cut(*chance.sample(cluster.ids, 2))
        case 5:
            cluster.heal()
        case 6 if member is not None:
            cluster.paused.add(member)
        case 7:
            cluster.paused.clear()
        case 8 if member is not None:
            cluster.running[member].is_slow = not cluster.running[member].is_slow
        case 9 if len(cluster.ids) > 1:
            cluster.drop(*chance.sample(cluster.ids, 2))
        case _ if cluster.leader is not None:
            for _ in range(chance.randint(1, 4)):
                cluster.write(cluster.leader, f"x{len(written)}")
                written.append(len(written))


@pytest.mark.parametrize(
    ("members", "seed"), [(members, seed) for members, seeds in COUNTS.items() for seed in range(seeds)]
)
def test_whatever_happens_no_acknowledged_entry_is_lost_and_a_healed_cluster_goes_on(seed, members):
    cluster = Cluster(
        *(Disk() for _ in range(members)),
        seed=seed,
        **SHORT,
    )
    written: list[int] = []
    for _ in range(120):
        for _ in range(cluster.random.choice([1, 3, 10, 60])):
            cluster.step()
        anything(cluster, written)

    cluster.heal()
    cluster.paused.clear()
    for id_ in cluster.ids:
        if id_ not in cluster.running:
            cluster.start(id_)
        cluster.running[id_].is_slow = False
    cluster.run(5 * SECOND)
    cluster.write(cluster.await_leader(), "at last")
    cluster.await_processed("at last")

    assert len({tuple(cluster.disks[id_].entries) for id_ in cluster.ids}) == 1
