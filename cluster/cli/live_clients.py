"""How fast each client sends, by the committed log: members count the messages of all clients as one."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cluster.errors import ClusterError

if TYPE_CHECKING:
    from cluster.reader.log_reader import LogReader

READ_BYTES_MAX = 256 * 1024  # of what came since the look before: its beginning stands for the rest
CLIENTS_MAX = 20


class ClientRates:
    """Reads what was committed between two looks."""

    def __init__(self, open_log: Callable[[], LogReader]) -> None:
        self._open_log = open_log
        self._log: LogReader | None = None
        self._seen: tuple[float, int] | None = None  # when, and how far the log was committed then

    def look(self) -> list[dict[str, Any]]:
        """Those that sent since the last look, the fastest first; none where no log can be read."""
        try:
            if self._log is not None and not self._log.is_live:
                self.close()
            if self._log is None:
                self._log = self._open_log()
            return self._rates(self._log)
        except ClusterError:
            self.close()
            return []

    def _rates(self, log: LogReader) -> list[dict[str, Any]]:
        import pyarrow as pa
        import pyarrow.compute as pc

        end, now = log.commit_position(), time.monotonic()
        before, self._seen = self._seen, (now, end)
        if before is None or not before[1] < end:
            return []
        since, begin = before
        read_to = min(end, begin + READ_BYTES_MAX)
        columns = ("position", "endPosition", "clusterSessionId")
        batches = [*log.batches(begin, read_to, columns=columns, entry_types=("SESSION_MESSAGE",))]
        if not batches:
            return []
        found = pa.Table.from_batches(batches)
        found = found.append_column("bytes", pc.subtract(found["endPosition"], found["position"]))
        sums = found.group_by("clusterSessionId").aggregate([("bytes", "count"), ("bytes", "sum")])
        fastest = sums.sort_by([("bytes_sum", "descending")]).slice(0, CLIENTS_MAX).to_pylist()
        per_second = (end - begin) / (read_to - begin) / (now - since)
        return [
            {
                "session": each["clusterSessionId"],
                "messagesPerSecond": round(each["bytes_count"] * per_second),
                "bytesPerSecond": round(each["bytes_sum"] * per_second),
            }
            for each in fastest
        ]

    def close(self) -> None:
        """Read no more, until the next look."""
        if self._log is not None:
            self._log.close()
        self._log = self._seen = None
