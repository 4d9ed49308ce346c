"""How far a stream lags the log, for the progress of its query."""

import time
from typing import Any

from spark_connector.log import SourceLog
from spark_connector.source.admission import EntryCount

COUNTED_BYTES = 4 << 20  # entries are counted by reading them: at most so much of the log for one report


def lag(log: SourceLog, end: int, tip: int, waiting: EntryCount) -> dict[str, Any]:
    """What is left up to the commit position; ``entriesBehindLatest`` None beyond ``COUNTED_BYTES``.

    ``waiting`` counts it, and is the same from one report to the next.
    """
    missing = max(tip - end, 0)
    return {
        "position": tip,
        "bytesBehindLatest": missing,
        "entriesBehindLatest": waiting.of(log, end, max(tip, end)) if missing <= COUNTED_BYTES else None,
        "msBehindLatest": _age_ms(log, end, tip),
    }


def _age_ms(log: SourceLog, end: int, tip: int) -> int:
    time_us = log.first_time_us(end, tip) if end < tip else None
    return 0 if time_us is None else max(time.time_ns() // 1000 - time_us, 0) // 1000
