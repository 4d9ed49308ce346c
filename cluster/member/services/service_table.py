"""The services of a member as kernels see them: a row of words for each, by its id.

How far one in a process of its own is let into the log, for Python and compiled turns alike:

 it has come to       limits that it was sent and has not reached        the last of them
──── SERVED ──────────────┼──────────────────┼───────────────────────────── LIMIT ──── commit position
"""

from cluster.log.compiler import types
from cluster.log.kernel import kernel
from cluster.log.memory import I64, WORDS_OUT
from cluster.protocol.arrays import np

SERVED, ANSWERED, LIMIT, UNREACHED = range(4)  # ANSWERED: taken since SERVED
LINK = 4  # descriptor of its process where compiled turns stand for it, else below 0
POSITION_COUNTER, MAX_CYCLE_COUNTER, CYCLES_EXCEEDED_COUNTER = range(5, 8)
FIRST_LIMIT, FIRST_SENT_NS = 8, 9
LIMITS_MAX = 16  # UNREACHED at most, a pair of words each: a service that does not read costs no memory
SERVICE_WORDS = FIRST_LIMIT + 2 * LIMITS_MAX


@kernel(types.boolean(WORDS_OUT, I64, I64))
def next_limit(service, commit_position, now_ns):  # type: ignore[no-untyped-def]
    """Whether the commit position is to be sent as a limit now: it has risen, and the service comes along."""
    reached = 0
    while reached < service[UNREACHED] and service[FIRST_LIMIT + 2 * reached] <= service[SERVED]:
        reached += 1
    if reached > 0:
        service[UNREACHED] -= reached
        for i in range(FIRST_LIMIT, FIRST_LIMIT + 2 * service[UNREACHED]):
            service[i] = service[i + 2 * reached]
    if commit_position <= service[LIMIT] or service[UNREACHED] == LIMITS_MAX:
        return False
    end = FIRST_LIMIT + 2 * service[UNREACHED]
    service[LIMIT] = service[end] = commit_position
    service[end + 1] = now_ns
    service[UNREACHED] += 1
    return True


class ServiceTable:
    """Who stands for a service has its row; ``words`` goes to kernels."""

    def __init__(self, service_count: int) -> None:
        self.words = np.zeros(service_count * SERVICE_WORDS, np.int64)
        self.words[LINK::SERVICE_WORDS] = -1

    def row(self, service_id: int) -> np.ndarray:
        return self.words[service_id * SERVICE_WORDS : (service_id + 1) * SERVICE_WORDS]
