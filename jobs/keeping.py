"""How tables are kept up to what the Log has: one query, and in each of its batches each table once.

A table is one :class:`TableJob`. Several in one query read the Log once. A crash between two of them repeats
the batch, and the first of them passes over what it has (``jobs.delta_table``).
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from cluster import ConfigurationError
from jobs import delta_rs
from jobs.command import (
    JobOptions,
    add_table,
    add_writer,
    check_is_no_folder,
    check_reads_all,
    options_of,
    parser,
    start,
)
from jobs.delta_table import Commit, exists, latest_version, open_table
from jobs.history import check_log, check_rows_are_its_own, token_text, tokens_of_batch
from jobs.schemas import DELTA_RS, of_all
from jobs.streaming import BatchGate, read_log, run, starting_at
from jobs.table_job import Found, TableJob
from spark_connector.log import SourceLog
from spark_connector.options.cluster_options import SourceOptions
from spark_connector.schema import ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter


Tables = Mapping[str, TableJob]  # by path or name


def keep(spark: SparkSession, name: str, tables: Tables, options: JobOptions) -> None:
    """Update ``tables`` to what the Log has, in one query of that ``name``."""
    gate = BatchGate()
    run(spark, keeping(spark, tables, options.source, options.checkpoint, gate), name, options, gate)


def keeping(
    spark: SparkSession,
    tables: Tables,
    source: dict[str, str],
    checkpoint: str,
    gate: BatchGate | None = None,
) -> DataStreamWriter:
    """The query that keeps ``tables`` after what they hold; name and trigger are the caller's.

    Its batches pass the ``gate``, for whoever wants to stop it between two of them. Raises ConfigurationError
    for a table of something else, or of another log, for one that lacks what the checkpoint says it has, and
    what opening the log raises.
    """
    gate = gate or BatchGate()
    _check_none_is_short(spark, tables, checkpoint)
    known = {table: open_table(spark, table, job.layout) for table, job in tables.items()}
    opened_at = {table: latest_version(spark, table) for table in tables}
    least = dict(opened_at)
    log = SourceLog(SourceOptions.parse(source))
    # Commits go on where a table lacks nothing: after its newest row there may be entries that make none.
    goes_on = {table: _farther(known[table], check_log(spark, table, log)) for table in tables}
    wanted = of_all([job.entry_types for job in tables.values()])
    source = ({"entryTypes": ",".join(wanted)} if wanted else {}) | source
    source = starting_at(source, _least(goes_on.values()))
    entries = read_log(spark, source, of_all([job.columns for job in tables.values()]))
    snapshots = {table: job.from_snapshots(source) for table, job in tables.items() if job.from_snapshots}

    def on_batch(batch: DataFrame, batch_id: int) -> None:
        with gate.passing():
            take(batch, batch_id)

    def take(batch: DataFrame, batch_id: int) -> None:
        begin, token = tokens_of_batch(batch.sparkSession, checkpoint, batch_id)
        query = query_id(batch)
        if len(tables) > 1:
            batch = batch.persist()  # the Log is read once, whatever is made of it
        try:
            for table, job in tables.items():
                version, goes_to = check_rows_are_its_own(
                    batch.sparkSession, table, opened_at[table], begin, _expected(checkpoint), least[table]
                )
                if goes_to >= token.position:
                    continue  # it has the batch: from before a crash, or of another job
                commit = Commit(f"{job.name}-{query}", batch_id, token_text(token, version))
                entries = _beyond(batch, known[table], job.progress)
                entries = entries.where(entries["position"] >= goes_to)
                found: Found = []
                if table in snapshots:
                    is_first = batch_id == 0 and known[table] is None
                    found = snapshots[table](is_first, token.position)
                try:
                    job.update(with_entries(entries, found, job), table, commit, found)
                except BaseException:
                    if job.from_snapshots:
                        snapshots[table] = job.from_snapshots(source)  # the batch finds them again
                    raise
                if goes_to or known[table] is None:  # else Delta may have passed over an old release's batch
                    least[table] = version + 1
        finally:
            batch.unpersist()

    return entries.writeStream.foreachBatch(on_batch).option("checkpointLocation", checkpoint)


def _check_none_is_short(spark: SparkSession, tables: Collection[str], checkpoint: str) -> None:
    """Raise ConfigurationError where a table lacks batches after which the checkpoint would go on."""
    goes_on = _has_batches(spark, checkpoint)
    for table in tables:
        if exists(spark, table):
            since = -1 if goes_on else latest_version(spark, table)
            check_rows_are_its_own(spark, table, since, 0, _expected(checkpoint))
        elif goes_on:
            raise ConfigurationError(f"table {table} is not there; expected {_expected(checkpoint)}")


def _expected(checkpoint: str) -> str:
    return (
        f"no checkpoint {checkpoint}, which goes on after batches that the table lacks: delete it, and "
        "the job goes on after what each table has"
    )


def _has_batches(spark: SparkSession, checkpoint: str) -> bool:
    """Whether a batch is planned in ``checkpoint``, done or not, on whichever file system it is."""
    from pyspark.errors import AnalysisException

    try:
        return not spark.read.text(f"{checkpoint}/offsets").isEmpty()
    except AnalysisException:  # there is no such folder
        return False


def _farther(*positions: int | None) -> int | None:
    """The greatest of those that are known."""
    return max((position for position in positions if position is not None), default=None)


def _least(positions: Collection[int | None]) -> int | None:
    """How far all tables go; None when one is empty."""
    known = [position for position in positions if position is not None]
    return min(known) if len(known) == len(positions) else None


def _beyond(entries: DataFrame, position: int | None, column: str) -> DataFrame:
    """The entries whose ``column`` is greater than ``position``; all of them when the table is empty."""
    return entries if position is None else entries.where(entries[column] > position)


def with_entries(entries: DataFrame, found: Found, job: TableJob) -> DataFrame:
    """``entries``, and those that were ``found`` in snapshots."""
    if not found:
        return entries
    values = [tuple(row.get(column) for column in job.columns) for row in found]
    others = entries.sparkSession.createDataFrame(values, ddl(job.columns))
    return entries.unionByName(others, allowMissingColumns=True)


def query_id(batch: DataFrame) -> str:
    """The id of the batch's streaming query, which lives as long as the checkpoint."""
    found = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    assert found, "only a streaming query's batch has one"
    return str(found)


def run_table(name: str, summary: str, example: str, make_job: Callable[[], TableJob]) -> None:
    """The ``main`` of a job that keeps one table."""
    made = parser(name, summary, example)
    add_table(made)
    options = writing_options(made)
    check_is_no_folder(options.table)
    keep_by_its_writer(name, {options.table: make_job()}, options)


def writing_options(made: ArgumentParser) -> JobOptions:
    """Of a job whose tables either writer keeps, of all that the log says. Raises ConfigurationError."""
    add_writer(made)
    options = options_of(made)
    check_reads_all(options.source)
    return options


def keep_by_its_writer(name: str, tables: Tables, options: JobOptions) -> None:
    """Keep ``tables`` by the writer that the command line names."""
    if options.arguments.writer == DELTA_RS:
        delta_rs.keep(name, tables, options)
    else:
        keep(start(name, options), name, tables, options)
