"""How far a stream lags the log, for the progress of its query."""

import time
from typing import Any

from spark_connector.log import SourceLog

COUNTED_BYTES = 4 << 20  # entries are counted by reading them: at most so much of the log for one report


def lag(log: SourceLog, end: int, tip: int) -> dict[str, Any]:
    """What is left up to the commit position; ``entriesBehindLatest`` None beyond ``COUNTED_BYTES``."""
    missing = max(tip - end, 0)
    return {
        "position": tip,
        "bytesBehindLatest": missing,
        "entriesBehindLatest": _entries(log, end, tip) if missing <= COUNTED_BYTES else None,
        "msBehindLatest": _age_ms(log, end, tip),
    }


def _entries(log: SourceLog, end: int, tip: int) -> int:
    return sum(len(ends) for ends in log.entry_ends(end, tip)) if end < tip else 0


def _age_ms(log: SourceLog, end: int, tip: int) -> int:
    time_us = log.first_time_us(end, tip) if end < tip else None
    return 0 if time_us is None else max(time.time_ns() // 1000 - time_us, 0) // 1000
