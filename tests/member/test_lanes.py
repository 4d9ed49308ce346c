"""Lanes of whole clusters in memory: each row once, whoever dies, none of a displaced session."""

import pytest

from cluster import ClusteredService, Lane
from cluster.protocol.enums import ClusterControlToggle
from cluster.testing import SimulatedCluster
from cluster.testing.member import host_of


class Collecting(ClusteredService):
    """Keeps what it is sent."""

    def on_start(self, cluster, snapshot_image):
        self.rows = []

    def on_session_message(self, session, timestamp, buffer):
        self.rows.append(bytes(buffer))

    def on_take_snapshot(self, snapshot_publication):
        pass


def rows_of(cluster: SimulatedCluster) -> list[bytes]:
    return cluster.service(cluster.await_leader()).rows


def lane(batch: int = 1, partition: int = 0, partitions: int = 0, rows: int = 0) -> Lane:
    return Lane("orders", partition, batch, partitions, rows)


def write(cluster: SimulatedCluster, client, rows: list[bytes]) -> None:
    for row in rows:
        client.offer(row)
    cluster.settle()


ROWS = [b"row %d" % number for number in range(20)]


@pytest.fixture
def cluster() -> SimulatedCluster:
    return SimulatedCluster(Collecting, session_timeout=60)


@pytest.mark.conformance("S-189")
def test_who_comes_after_a_session_of_the_lane_hears_how_many_rows_are_in(cluster):
    first = cluster.connect(lane=lane())
    write(cluster, first, ROWS[:7])
    second = cluster.connect(lane=lane())

    assert (first.lane_rows, second.lane_rows) == (0, 7)
    write(cluster, second, ROWS[second.lane_rows :])
    assert rows_of(cluster) == ROWS
    cluster.check()


@pytest.mark.conformance("S-189")
def test_rows_are_counted_from_nought_for_the_next_batch_and_for_another_partition(cluster):
    write(cluster, cluster.connect(lane=lane()), ROWS[:7])

    assert cluster.connect(lane=lane(batch=2)).lane_rows == 0
    assert cluster.connect(lane=lane(partition=1)).lane_rows == 0


@pytest.mark.conformance("S-190")
def test_the_session_that_held_the_lane_is_told_that_it_is_displaced(cluster):
    first = cluster.connect(lane=lane())
    second = cluster.connect(lane=lane())
    cluster.run_until(lambda: first.is_closed, "the first one is told")

    assert first.why_closed == f"displaced by session {second.session_id}, batch 1 of lane orders/0"
    assert not second.is_closed


@pytest.mark.conformance("S-190")
def test_nothing_of_a_displaced_session_that_sleeps_gets_into_the_log(cluster):
    """It has sent rows that are on their way, and sends more when it wakes."""
    zombie = cluster.connect(lane=lane())
    write(cluster, zombie, ROWS[:3])
    cluster._network.path(zombie.host, host_of(cluster.leader)).is_blocked = True
    for row in ROWS[3:9]:
        zombie.offer(row)
    cluster.run(0.1)
    zombie.pause()
    heir = cluster.connect(lane=lane())
    cluster.heal()
    cluster.run(0.1)
    zombie.resume()
    write(cluster, heir, ROWS[heir.lane_rows :])

    assert rows_of(cluster) == ROWS
    assert zombie.is_closed


@pytest.mark.conformance("S-189")
@pytest.mark.parametrize("seed", range(6))
def test_each_row_is_in_once_when_tasks_and_leaders_die(seed):
    cluster = SimulatedCluster(Collecting, seed=seed, session_timeout=60)
    random = cluster.world.random("kills")
    client = cluster.connect(lane=lane())
    for _ in range(8):
        for row in ROWS[client.lane_rows :]:
            client.offer(row)
        cluster.run(random.choice([0.001, 0.02, 0.04, 0.06]))
        if random.random() < 0.5 and (leader := cluster.leader) is not None:
            cluster.kill(leader)
            cluster.run(random.choice([0.05, 0.5]))
            cluster.start(leader)
        client.pause()
        client = cluster.connect(lane=lane())
    write(cluster, client, ROWS[client.lane_rows :])

    assert rows_of(cluster) == ROWS
    cluster.check()


@pytest.mark.conformance("S-191")
def test_what_a_lane_has_outlives_its_session_a_snapshot_and_the_restart_of_every_member(cluster):
    client = cluster.connect(lane=lane())
    write(cluster, client, ROWS[:5])
    client.close()
    cluster.run(1)
    holder = cluster.connect(lane=lane(partition=1))
    write(cluster, holder, ROWS[5:7])
    cluster._leader().life.counters.control_toggle.set(ClusterControlToggle.SNAPSHOT)
    counts = [member.life.counters.snapshot_count for member in cluster._members.values()]
    cluster.run_until(lambda: all(count.get() == 1 for count in counts), "all have taken a snapshot")
    write(cluster, holder, ROWS[7:8])
    for member_id in range(3):
        cluster.kill(member_id)
    for member_id in range(3):
        cluster.start(member_id)
    cluster.await_leader()

    assert cluster.connect(lane=lane()).lane_rows == 5
    assert cluster.connect(lane=lane(partition=1)).lane_rows == 3


@pytest.mark.conformance("S-192")
def test_a_batch_that_is_registered_is_not_opened_again(cluster):
    client = cluster.connect(lane=lane())
    write(cluster, client, ROWS)
    cluster.connect(lane=lane(partition=-1, partitions=2, rows=len(ROWS))).close()
    cluster.run(1)

    again = cluster.connect(lane=lane())
    assert (
        again.why_closed == "BatchRegistered: registered: batch 1 of orders is in the log, 1 is the last one"
    )
    assert cluster.connect(lane=lane(partition=-1, partitions=2)).why_closed == again.why_closed
    assert client.is_closed, "the registration ends the sessions of the batch"
    other = cluster.connect(lane=lane(partition=-1, partitions=3))
    assert other.why_closed == (
        "ClusterError: the cluster refused the session: "
        "batch 1 of orders was registered with 2 partitions, not with 3"
    )
    assert cluster.connect(lane=lane(batch=2)).is_open


@pytest.mark.conformance("S-192")
def test_a_batch_with_rows_in_a_partition_that_it_has_not_is_not_registered(cluster):
    write(cluster, cluster.connect(lane=lane(partition=3)), ROWS[:4])

    refused = cluster.connect(lane=lane(partition=-1, partitions=3))

    assert refused.why_closed.endswith(
        "batch 1 of orders has 4 rows in partition 3, which one of 3 partitions has not"
    )
    assert cluster.connect(lane=lane(partition=-1, partitions=4, rows=4)).is_open


@pytest.mark.conformance("S-192")
@pytest.mark.parametrize("rows", [0, 3, 5])
def test_a_batch_is_not_registered_with_another_number_of_rows(cluster, rows):
    write(cluster, cluster.connect(lane=lane()), ROWS[:4])

    refused = cluster.connect(lane=lane(partition=-1, partitions=1, rows=rows))

    assert refused.why_closed.endswith(
        f"batch 1 of orders has 4 rows in the log, and is to be registered with {rows}"
    )
    assert cluster.connect(lane=lane()).lane_rows == 4
