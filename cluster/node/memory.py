"""Memory of processes that run for long: how much they may have, what the collector of cycles looks at."""

import gc
import resource

from cluster.errors import ConfigurationError

# Of a member by default, with stacks and arenas of threads: it peaks at 1.2 GiB, most of it never touched.
ADDRESS_SPACE_MIN = 1536 * 1024 * 1024
# Allocations between two looks for reference cycles: the duty cycle makes next to none.
GC_THRESHOLDS = (100_000, 50, 100)


def short_of_addresses() -> str:
    """Why libraries, threads and buffers may fail in any place; empty where RLIMIT_AS leaves them enough."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY or limit >= ADDRESS_SPACE_MIN:
        return ""
    return (
        f"{limit >> 20} MiB of address space are allowed to this process (RLIMIT_AS), expected "
        f"{ADDRESS_SPACE_MIN >> 20} at least: raise the limit (ulimit -v); a cgroup bounds what is in use"
    )


def check_address_space() -> None:
    """Raise ConfigurationError where a member has less than it takes: it would begin again without end."""
    if why := short_of_addresses():
        raise ConfigurationError(why)


def settle_memory() -> None:
    """What is there now stays: the collector need not look at it again, nor often at the rest."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
