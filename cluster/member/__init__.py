"""The consensus module's agent: feeds the core of ``cluster.consensus`` and carries out what it asks for.

Read ``agent.py`` first: the duty cycle in the order of the seed. The rest by what is moved:

    member_log.py          the log of this member: recording, commit position, what is processed
    log_publication.py     a leader's log: staging, file, followers, sync
    log_streams.py         the leader's recorded bytes to each follower that is behind, then the live log
    log_subscription.py    a follower's log: checked, written
    log_adapter.py         committed log into sessions, timers and counts
    consensus_adapter.py   frames of other members
    ingress_adapter.py     frames of clients
    egress_publisher.py    answers and acknowledgements to clients, one send a client
    service_adapter.py     messages of the services, and the acks that joins wait for
    election_actions.py    what an election asks for, done
    recovery.py            what a start finds on the disk
    repair.py, mending.py  what is done about a damaged log
    counters.py            what is shown to other processes

Like the core it reads no clock, sleeps nowhere, and takes its sources in a fixed order: the same calls have
the same effects, in production and in the simulator. It never spawns and knows no medium by name.
"""
