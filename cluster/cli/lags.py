"""How much log a member lacks, as people count it: in entries, and by how old the first of them is."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from cluster.cli.verdict import Member
from cluster.errors import ClusterError

if TYPE_CHECKING:
    from cluster.reader.log_reader import LogReader

COUNTED_BYTES_MAX = 4 * 1024 * 1024  # of a greater lag only the age is known


def with_missing_entries(
    members: list[Member], committed: int, now: datetime, open_log: Callable[[], LogReader]
) -> None:
    """Add ``lagEntries`` and ``lagMs`` to each member that lags; what cannot be read is left out.

    ``committed`` is how far the log goes that is opened.
    """
    lagging = [member for member in members if member.get("lag")]
    if not lagging:
        return
    with suppress(ClusterError), open_log() as log:
        for member in lagging:
            begin = committed - member["lag"]
            end = min(committed, begin + COUNTED_BYTES_MAX)
            batches = [batch for batch in log.batches(begin, end, columns=["timestamp"]) if batch.num_rows]
            if batches and member["lag"] <= COUNTED_BYTES_MAX:
                member["lagEntries"] = sum(batch.num_rows for batch in batches)
            if batches and member["isAlive"]:
                age = now - batches[0].column("timestamp")[0].as_py()
                member["lagMs"] = max(0, age // timedelta(milliseconds=1))
