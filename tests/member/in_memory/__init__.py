"""Scripts for members of the simulator: start, cut off, kill and wipe them, and see what becomes of it.

Members run as in ``tests/simulation``, in its world, on its disks and over its network, with no faults
but those of the script.

    cluster.py   ``SimulatedCluster``: members, time, and the invariants over all of them
    member.py    one member: its disk and clock, and the processes that use them one after the other
    network.py   what befalls links, and connections of clients
    client.py    clients that send, count what is acknowledged, and move on when the leader does
    stranger.py  a connection that says what it is told to
    liar.py      a peer that says anything at all

Read ``cluster.py`` first. What can be seen of a member: ``tests/simulation/member_state.py``.
"""
