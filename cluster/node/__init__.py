"""The process of a member: what it is put together from, its configuration, its threads and its end.

    config.py          a member's configuration; config_keys.py its keys, config_types.py their kinds
    config_text.py     how they are loaded from files and variables, written and documented
    life.py            MemberLife: the only place that puts a member together; ports.py what it is given
    machine.py         the files, sockets and clock of this machine, as such ports
    node.py            ClusterNode: one life after the other, in a thread or in the caller's
    runner.py          one thread that turns the agents
    hosted_service.py  a service beside them; service_errors.py
    disk_failures.py   when a failed disk ends a life, and when the next one begins
    child.py           a process beside a member: service_process.py, metrics_process.py
    descriptors.py     how many strangers fit into the file descriptors
    node_log.py        node.log
    signals.py         what signals do that end nobody
    process.py         a member as the whole of a process; supervisor.py several of those, for ``cluster up``
    service_manager.py what systemd is told of it

Never: decide anything that the consensus module decides.
"""

from cluster.errors import need

need("node")
