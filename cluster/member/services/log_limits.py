"""How far a service in a process of its own is let into the log, for Python and compiled turns alike.

 it has come to       limits that it was sent and has not reached        the last of them
──── SERVED ──────────────┼──────────────────┼───────────────────────────── LIMIT ──── commit position
"""

from cluster.log.compiler import types
from cluster.log.kernel import kernel
from cluster.log.memory import I64, WORDS_OUT

SERVED, ANSWERED, LIMIT, UNREACHED, FIRST_LIMIT, FIRST_SENT_NS = range(6)  # ANSWERED: taken since SERVED
LIMITS_MAX = 16  # UNREACHED at most, a pair of words each: a service that does not read costs no memory
LIMITS_WORDS = FIRST_LIMIT + 2 * LIMITS_MAX


@kernel(types.boolean(WORDS_OUT, I64, I64))
def next_limit(limits, commit_position, now_ns):  # type: ignore[no-untyped-def]
    """Whether the commit position is to be sent as a limit now: it has risen, and the service comes along."""
    reached = 0
    while reached < limits[UNREACHED] and limits[FIRST_LIMIT + 2 * reached] <= limits[SERVED]:
        reached += 1
    if reached > 0:
        limits[UNREACHED] -= reached
        for i in range(FIRST_LIMIT, FIRST_LIMIT + 2 * limits[UNREACHED]):
            limits[i] = limits[i + 2 * reached]
    if commit_position <= limits[LIMIT] or limits[UNREACHED] == LIMITS_MAX:
        return False
    end = FIRST_LIMIT + 2 * limits[UNREACHED]
    limits[LIMIT] = limits[end] = commit_position
    limits[end + 1] = now_ns
    limits[UNREACHED] += 1
    return True
