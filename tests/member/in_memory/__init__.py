"""The production classes of a cluster under virtual time: one thread, one seed, one history.

    world.py     virtual time, and what happens next
    disk.py      a disk in memory that forgets what was not synced
    network.py   links and clients' connections with delays, resets and partitions
    client.py    clients that send, count what is acknowledged, and move on when the leader does
    member.py    one member: agent and service over that disk and network; dies and comes back
    liar.py      a peer that says anything at all
    cluster.py   ``SimulatedCluster``: members, faults, and the invariants over all of them

Read ``cluster.py`` first. ``python -m tests.member.in_memory --help`` runs seeds.
"""
