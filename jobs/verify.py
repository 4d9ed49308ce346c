"""Whether tables are what the Log says: counts, sums and hashes of both sides.

The Log's side is read without Spark, at once and from where it begins: no plan, batch or commit of the jobs
has a part in it, and what entries are reduced to is said once (``jobs.reductions``). A table is compared as
far as its commits say that it goes. Where the Log's beginning was purged, the figures are of what happened
since, and leave out sums that the purged part belongs to.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from cluster import ClusterError, DataLoss, PositionToken
from jobs.command import add_log, check_reads_all, run_main, say, source_of
from jobs.delta_table import latest_version, read
from jobs.history import check_log, newest_version
from jobs.table_job import TableJob
from jobs.upkeep import parser, session_of, tables_meant
from spark_connector.log import SourceLog, open_reader
from spark_connector.options.cluster_options import SourceOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from cluster import Entry, LogReader

Figures = Mapping[str, int]

# What the rows of each table add up to from position ``since`` on, in Spark's words. A hash is the sum of a
# CRC-32 a row.
OF_TABLE = {
    "log": {
        "rows": "count(*) FILTER (WHERE position >= {since})",
        "log bytes": "sum(endPosition - position) FILTER (WHERE position >= {since})",
        "hash": "sum(crc32(concat(encode(concat_ws('|', position, endPosition, leadershipTermId, entryType, "
        "clusterTime, ifnull(string(clusterSessionId), ''), ifnull(string(correlationId), '')), 'UTF-8'), "
        "ifnull(payload, X'')))) FILTER (WHERE position >= {since})",
    },
    "sessions": {
        "opened": "count(*) FILTER (WHERE openPosition >= {since})",
        "closed": "count(*) FILTER (WHERE closePosition >= {since})",
        "messages": "sum(messages) FILTER (WHERE {since} = 0 OR openPosition >= {since})",
        "payload bytes": "sum(bytes) FILTER (WHERE {since} = 0 OR openPosition >= {since})",
        "hash": "ifnull(sum(crc32(encode(clusterSessionId || '|' || openPosition, 'UTF-8'))) "
        "FILTER (WHERE openPosition >= {since}), 0) + "
        "ifnull(sum(crc32(encode(clusterSessionId || '|' || closePosition, 'UTF-8'))) "
        "FILTER (WHERE closePosition >= {since}), 0)",
    },
    "timers": {
        "timers that fired": "count(*) FILTER (WHERE firedPosition >= {since})",
        "firings": "sum(firings) FILTER (WHERE {since} = 0)",
        "hash": "sum(crc32(encode(concat_ws('|', correlationId, firedPosition, "
        "if({since} = 0, string(firings), '')), 'UTF-8'))) FILTER (WHERE firedPosition >= {since})",
    },
    "leadership_terms": {
        "rows": "count(*) FILTER (WHERE startPosition >= {since})",
        "entries": "sum(entries) FILTER (WHERE startPosition >= {since})",
        "hash": "sum(crc32(encode(concat_ws('|', leadershipTermId, leaderMemberId, startPosition, "
        "endPosition, entries), 'UTF-8'))) FILTER (WHERE startPosition >= {since})",
    },
}


def _crc(*values: object, payload: bytes = b"") -> int:
    return zlib.crc32("|".join(map(str, values)).encode() + payload)


def _of_entries(entries: Iterable[Entry]) -> Figures:
    found: Counter[str] = Counter()
    for entry in entries:
        place = (entry["position"], entry["endPosition"], entry["leadershipTermId"])
        what = (entry["entryType"], entry["clusterTime"])
        ids = (entry.get("clusterSessionId", ""), entry.get("correlationId", ""))
        found["rows"] += 1
        found["log bytes"] += entry["endPosition"] - entry["position"]
        found["hash"] += _crc(*place, *what, *ids, payload=entry.get("payload", b""))
    return found


def of_log(spark: SparkSession, job: TableJob, reader: LogReader, since: int, end: int) -> Figures:
    """The figures of the table of ``job`` by the entries of the Log from ``since`` up to position ``end``."""
    if job.reduction is None:
        return _of_entries(reader.entries(since, end))
    entries = reader.to_arrow_reader(since, end, columns=job.columns, entry_types=job.entry_types or None)
    rows = job.reduction.rows_of(job.reduction.parts_of(entries))
    return of_table(job.layout.name, spark.createDataFrame(rows), since)


def of_table(name: str, rows: DataFrame, since: int) -> Figures:
    """The figures of a table's rows; 0 for a sum of nothing."""
    figures = {figure: expression.format(since=since) for figure, expression in OF_TABLE[name].items()}
    expressions = [f"{expression} AS `{figure}`" for figure, expression in figures.items()]
    found = rows.selectExpr(*expressions).first()
    assert found is not None
    return {figure: value or 0 for figure, value in found.asDict().items()}


def differences(spark: SparkSession, table: str, job: TableJob, reader: LogReader) -> list[str]:
    """What of ``table`` is not as the Log says, a line each. Raises DataLoss where that cannot be known."""
    latest = latest_version(spark, table)
    newest = newest_version(spark, table, latest)
    reader.await_token(PositionToken(newest.cluster, newest.position).to_text())
    since = reader.earliest_position()
    if 0 < newest.position <= since:
        raise DataLoss(f"table {table} goes to {newest.position:,}, and the Log begins at {since:,} now")
    wanted = of_log(spark, job, reader, since, newest.position)
    found = of_table(job.layout.name, read(spark, table, latest), since)
    part = f"from {since:,} up" if since else "up"
    return [
        f"{table}: {figure} is {found[figure]:,}, in the Log {part} to {newest.position:,} {wanted[figure]:,}"
        for figure in wanted
        if found[figure] != wanted[figure]
    ]


def main() -> None:
    made = parser(
        "verify",
        "Compare Delta tables with the Log by counts, sums and hashes, as far as the tables have come.",
        "python -m jobs.verify --dir c1/member-0 --tables delta/all",
    )
    add_log(made)
    given = made.parse_args()
    source = source_of(given)
    check_reads_all(source, from_begin=True)
    spark = session_of("verify", given)
    wrong = []
    log = SourceLog(SourceOptions.parse(source))
    with open_reader(SourceOptions.parse(source)) as reader:
        since = reader.earliest_position()
        for table, job in tables_meant(spark, given).items():
            check_log(spark, table, log)
            found = differences(spark, table, job, reader)
            wrong += found
            for line in found or [f"{table}: as the Log says" + (f" from {since:,} on" if since else "")]:
                say(line)
    if wrong:
        raise ClusterError(f"{len(wrong)} figures of the tables are not as the Log says")


if __name__ == "__main__":
    run_main(main)
