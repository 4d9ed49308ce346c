"""A cluster in memory: members as in production over a simulated disk, network and clock.

    world.py          virtual time, chance, and processes that may be killed at any of their effects
    network.py        sockets; disk.py, counters_files.py  files
    ports.py          what a process gives to its member; member.py  the process

Nothing here waits or reads a clock: what takes an hour is over in seconds, and goes the same way each time.
"""
