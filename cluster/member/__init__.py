"""One member of the cluster: the agent around the core, and the parts that it is made of.

    agent.py       the order of a turn, and the one place where the phase changes; read it first
    busy/          what is frequent in a turn, as one compiled function
    phase.py       the phases of a member, and the table of how it passes from one to another
    phases/        what it does in each: repair its log, start, elect, fetch a snapshot, lead, follow
    parts.py       what a member is made of: which part reaches which

    clients/       requests of clients, ingress, answers and acknowledgements
    services/      messages to and from services, snapshots, the end
    disk/          files, damage and repair, promises, the start, snapshots fetched from others
    log/           the recorded log: written, sent, taken, processed, purged

    consensus_adapter.py, admission.py    what other members send, and whether it is taken
    control.py     the toggles of an operator
    lease.py, liveness.py                 after a pause of its own; whose processes run

Imports point down: agent, parts, phases, then clients, services and disk, then log; tests hold it. No part
reaches the agent: each gets what it needs, and a handler of a phase returns what is to happen next.

Never: read a clock, sleep, open a socket or a file, start a thread. All of these are given to it.
"""
