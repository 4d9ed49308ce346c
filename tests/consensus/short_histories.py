"""How a history begins: members that have processed one entry together, and short time-outs."""

from cluster.consensus.context import SECOND
from tests.consensus.connected import Cluster, Disk

SHORT = {"startup_canvass_timeout_ns": 4 * SECOND, "leader_heartbeat_timeout_ns": 2 * SECOND}


def a_cluster(*, seed: int, members: int = 3) -> Cluster:
    """Members that have processed one entry together, under some leader of term 0."""
    cluster = Cluster(*(Disk() for _ in range(members)), seed=seed)
    cluster.write(cluster.await_leader(), "a")
    cluster.await_processed("a")
    return cluster
