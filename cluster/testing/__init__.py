"""A cluster in memory, to test services on: members as in production over simulated machines.

    from cluster.testing import SimulatedCluster

    cluster.py        what a test uses; client.py  its clients
    storm.py          one seed of ``cluster sim``; messages.py  what is sent; worker.py  a process of it
    world.py          virtual time, chance, and processes that take turns and may be killed
    network.py        sockets; disk.py  files; wire.py  what is said over them
    stories/          what Aeron's documents describe step by step, played
    member.py         a member's process, and what it gives to its lives

Nothing here waits or reads a clock: what takes an hour is over in seconds, and goes the same way each time.
"""

from cluster.errors import need

need("node")

from cluster.testing.client import SimulatedClient  # noqa: E402
from cluster.testing.cluster import SimulatedCluster  # noqa: E402

__all__ = ["SimulatedClient", "SimulatedCluster"]
