"""How many descriptors the process may have, and what that leaves for strangers.

The log comes first: a member that cannot open its next segment steps down. So the limit is raised as far as
the system allows, a part of it is kept for segments, links and counters, and the bounds of connections and
readers are lowered to what is left.
"""

import resource
from dataclasses import replace

from cluster.errors import ConfigurationError
from cluster.transport.bounds import Bounds

KEPT = 96  # segments, catalog, logs, counters, epoll, links of known members, listeners, gRPC's own
CONNECTION_COST = 3  # over gRPC: the client's, and both ends of the Unix socket beside it
READER_COST = 8  # its connection, and the files that it reads
READERS_MIN = 2  # a reader over a socket has two connections: one for the log, one to ask for its state


def fit_descriptors(bounds: Bounds) -> tuple[Bounds, str]:
    """The bounds that fit the descriptors, and what to say of it. Raises ConfigurationError where none do."""
    kept = KEPT + bounds.greetings_max
    wanted = kept + CONNECTION_COST * bounds.connections_max + READER_COST * bounds.readers_max
    limit = _raise_limit(wanted)
    if limit >= wanted:
        return bounds, ""
    if limit < kept + CONNECTION_COST + READER_COST * READERS_MIN:
        raise ConfigurationError(
            f"{limit} descriptors are allowed to this process (RLIMIT_NOFILE), {wanted} are wanted: "
            "raise the limit (ulimit -n)"
        )
    share = (limit - kept) / (wanted - kept)
    readers = max(READERS_MIN, int(bounds.readers_max * share))
    connections = (limit - kept - READER_COST * readers) // CONNECTION_COST
    reduced = (
        f"{limit} descriptors are allowed to this process (RLIMIT_NOFILE), {wanted} are wanted: "
        f"connections_max is {connections}, readers_max {readers}"
    )
    return replace(bounds, connections_max=connections, readers_max=readers), reduced


def _raise_limit(wanted: int) -> int:
    """Raise the soft limit to what is wanted, or as far as the hard one; returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        return limit
    return wanted if soft == resource.RLIM_INFINITY else soft
