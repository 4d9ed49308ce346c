"""Finds an entry of the log by what never falls from one entry to the next: its time, its leadership term."""

from bisect import bisect_left

from cluster.reader.log_reader import LogReader

PROBE_BYTES = 64 * 1024  # of a block of which one entry is wanted


def first_entry(reader: LogReader, column: str, least: int, begin: int, end: int) -> int | None:
    """Where the first entry of ``[begin, end)`` starts whose ``column`` is ``least`` or more, or None.

    ``begin`` is where an entry starts, and the range is committed. ``column`` is ``timestamp``, in
    microseconds since 1970, or ``leadershipTermId``. Frames are found from where one begins, and one begins
    with each term buffer: a binary search over those, of which each step reads one entry, then a scan of one.
    """
    term_length = reader.term_length
    term_buffers = range(begin // term_length + 1, -(-end // term_length))

    def value_at(index: int) -> int:
        value = first_value(reader, column, index * term_length, end)
        return least if value is None else value

    reached = bisect_left(term_buffers, least, key=value_at)
    from_position = begin if reached == 0 else term_buffers[reached - 1] * term_length
    return _scan(reader, column, least, from_position, end)


def first_value(reader: LogReader, column: str, begin: int, end: int) -> int | None:
    """``column`` of the first entry of a committed range, as a number; None without an entry."""
    for batch in reader.batches(
        begin, end, columns=(column,), rows_per_batch=1, max_bytes=PROBE_BYTES, is_committed=True
    ):
        value = batch.column(0).cast("int64")[0].as_py()
        if value is not None:
            return int(value)
    return None


def _scan(reader: LogReader, column: str, least: int, begin: int, end: int) -> int | None:
    import pyarrow.compute as pc

    for batch in reader.batches(begin, end, columns=("position", column), is_committed=True):
        row = pc.index(pc.greater_equal(batch.column(1).cast("int64"), least), True).as_py()
        if row >= 0:
            return int(batch.column(0)[row].as_py())
    return None
