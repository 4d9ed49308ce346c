"""The rows of a lane's batch that earlier attempts of the task have in the log already.

They are not sent again. With ``checkOrder`` they are read back and compared with the rows in whose place they
are: of a batch with other rows when it runs again, some would be lost and some doubled.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from cluster.errors import DataLoss, LocalProtocolError
from cluster.protocol.lane import Lane, LanePrincipal, LaneStanding
from cluster.protocol.token import PositionToken
from spark_connector.options.cluster_options import SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from cluster.reader import LogReader

COLUMNS = ("entryType", "clusterSessionId", "encodedPrincipal", "payload")
ENTRY_TYPES = ("SESSION_OPEN", "SESSION_MESSAGE")


class KnownRows:
    """The first ``standing.rows`` rows of a task, which are skipped."""

    def __init__(self, lane: Lane, standing: LaneStanding, in_log: Iterator[bytes] | None) -> None:
        """``in_log`` are these rows as the log has them; None: they are not compared."""
        self._lane = lane
        self._standing = standing
        self._skipped = 0
        self._in_log = in_log

    @property
    def end_position(self) -> int:
        """After the last of them in the log; -1 without any."""
        return self._standing.end if self._standing.rows else -1

    def skip(self, payloads: pa.Array) -> pa.Array:
        """What of the task's next rows is not in the log. Raises LocalProtocolError where others are."""
        count = min(len(payloads), self._standing.rows - self._skipped)
        if count and self._in_log is not None:
            self._compare(payloads.slice(0, count))
        self._skipped += count
        return payloads.slice(count)

    def check_all_came(self) -> None:
        """Raise LocalProtocolError for a task that ended before the last row that is in the log."""
        if self._skipped < self._standing.rows:
            raise self._differs(f"has {self._skipped} rows, {self._standing.rows} are in the log")

    def _compare(self, payloads: pa.Array) -> None:
        import pyarrow as pa

        assert self._in_log is not None
        try:
            in_log = list(islice(self._in_log, len(payloads)))
        except DataLoss:  # purged: then their number has to be enough
            self._in_log = None
            return
        rows = payloads.cast(pa.large_binary()).to_pylist()
        for number, (row, other) in enumerate(zip(rows, in_log, strict=True), self._skipped):
            if row != other:
                raise self._differs(f"has row {number} {row!r:.60}, in its place the log has {other!r:.60}")

    def _differs(self, how: str) -> LocalProtocolError:
        return LocalProtocolError(
            f"the task {how}; expected of batch {self._lane.batch} of lane {self._lane} the same rows in the "
            "same order when it runs again (for_ingress sorts what was shuffled)"
        )


def read_back(options: SinkOptions, lane: Lane, standing: LaneStanding) -> Iterator[bytes]:
    """The rows of the lane's batch. Raises DataLoss when the first of them is purged."""
    from cluster.reader import LogReader

    with LogReader.open(
        endpoints=options.endpoints,
        tls=options.tls,
        credentials=options.credentials,
        at_least=PositionToken(None, standing.end).to_text(),
    ) as reader:
        yield from payloads_of(reader, lane, standing)


def payloads_of(reader: LogReader, lane: Lane, standing: LaneStanding) -> Iterator[bytes]:
    """The rows of the lane's batch in a log that is committed up to their end."""
    session_ids = {standing.session_id}
    for entry in reader.entries(standing.begin, standing.end, columns=COLUMNS, entry_types=ENTRY_TYPES):
        session_id = entry["clusterSessionId"]
        if entry["entryType"] == "SESSION_MESSAGE":
            if session_id in session_ids:
                yield entry["payload"]
        elif LanePrincipal.decode(entry.get("encodedPrincipal", b"")).lane == lane:
            session_ids.add(session_id)
