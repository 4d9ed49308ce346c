"""The deterministic simulator: production classes under virtual time, with faults, judged by invariants.

Nothing here is a model of the cluster. Members run ConsensusModuleAgent, ClusteredServiceAgent, Archive,
MemberLinks and ClientPort, clients run ClusterClient, readers DirectoryLog, unchanged. What is
simulated is what lies below them.

    world.py          processes that die or err in the middle of a turn, clocks that are wrong, what was done
    disk.py           a disk that is full, slow, fails, loses and misplaces what was written
    network.py        paths that are slow, stall or clog, connections that break
    disk_log.py       a member's log, as the bytes of its disk
    member.py         a member's process, which lives the MemberLife of cluster/node/life.py
    links.py          links that are heard
    service_process.py  services of a member in processes of their own
    service.py        the service that runs on every member: its state is a hash of all that it was given
    clients.py        clients that open, send, vanish and follow leaders
    invariants.py     what must hold: after every turn, and at the end
    committed_log.py  the log that all must agree on, read entry by entry
    nemesis.py        what goes wrong, and when
    power_cuts.py     machines that lose power
    counters_files.py cnc.dat, which tells readers how far
    readers.py        programs that follow the log in members' files
    impostors.py      processes that have no place in the cluster
    history.py        one seed: set-up, storm, healing, verdict
    effects.py        what a history did, as a hash: a change of words alone does not move it
    seeds.py          one history of many that a process plays
    page.py           a history as a page, with what led to a violation
    sought.py         mistakes that seeds find, and in which seed each shows: mistakes.txt
    __main__.py       many seeds, or the story of one

Virtual time, disk, network and processes without such faults are those of ``cluster/testing/``. Read
``history.py`` first. ``make sim SEED=n`` replays a seed, ``STORY=1`` tells it, and
``python -m tests.simulation --seed n --page FILE`` shows it.
"""
