"""How long something took, into a histogram of the counters file (``member/counters.py``)."""

from cluster.log.kernel import routine
from cluster.protocol.cnc import VALUE_LENGTH
from cluster.protocol.counter_types import BUCKETS_NS

BUCKETS = len(BUCKETS_NS)
COUNTER_WORDS = VALUE_LENGTH // 8


@routine
def measure(counters, histogram, duration_ns):  # type: ignore[no-untyped-def]
    """Count a duration in the histogram whose first counter is given, and add it to the sum."""
    bucket = 0
    while bucket < BUCKETS and duration_ns > BUCKETS_NS[bucket]:
        bucket += 1
    counters[histogram + bucket * COUNTER_WORDS] += 1
    counters[histogram + (BUCKETS + 1) * COUNTER_WORDS] += duration_ns
