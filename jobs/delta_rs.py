"""The tables without Spark: delta-rs writes what LogReader reads, in one process, without a JVM.

The rows are those of the tables that Spark writes. Each commit has a transaction identifier (``txn``) of the
Delta protocol whose version is the position that the table goes to. It is in the log of the table with the
rows or not at all, so a job that is started again goes on exactly there, without a checkpoint. Of two jobs
that take in the same entries, the protocol lets one commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cluster import ConfigurationError, PositionToken
from jobs.command import INTERVAL
from jobs.delta_table import ATTEMPTS, Missing, is_name
from jobs.schemas import DELTA_RS, WRITER, TableLayout
from jobs.streaming import interrupts
from spark_connector.columns import arrow_schema
from spark_connector.log import BEHIND_TIMEOUT_S, SourceLog, forget_reader, open_reader
from spark_connector.options import SourceOptions
from spark_connector.places import EARLIEST
from spark_connector.resolving import resolve_start

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import CommitProperties, DeltaTable

    from cluster import LogReader
    from jobs.command import JobOptions

APPLICATION = "cluster.{}"  # of the transactions on a table, whose version is a position
IDENTITY = "cluster.identity"  # property of a table: the log that it is of
OPTIONS = (
    "endpoints", "clusterDir", "archiveDir", "startingOffsets", "startingTimestamp", "maxBytesPerTrigger",
    "readPreference", "requestTimeoutMs", "failOnDataLoss", "tlsCaFile", "tlsCertificateFile", "tlsKeyFile",
    "authTokenFile", "user", "passwordFile",
)  # fmt: skip
_SECONDS = {"ms": 0.001, "millisecond": 0.001, "s": 1, "second": 1, "m": 60, "min": 60, "minute": 60}
_SECONDS |= {"h": 3600, "hour": 3600}


Found = list[dict[str, Any]]  # entries that stand for what only snapshots say
FromSnapshots = Callable[[bool, int], Found]  # jobs/keeping.py says what it is given
Entries = Iterator["pa.RecordBatch"]
Known = Callable[[], "pa.Table"]  # the rows that the table has


def _no_match(found: Found) -> tuple[dict[str, str], Missing | None]:
    return {}, None


@dataclass(frozen=True, slots=True)
class ArrowJob:
    """One table: what it looks like, what it needs of the Log, and how entries go in.

    ``reduced`` makes rows of the entries, with those that the table has where it is to know them; without it
    entries are appended as they are. ``on_match`` says what the rows become that the table has, and those
    whose key has no row, as for ``jobs.delta_table.merge``.
    """

    name: str
    layout: TableLayout
    columns: tuple[str, ...] = ()  # of the Log that it needs; () for all of them
    entry_types: tuple[str, ...] = ()  # that it needs; () for all of them
    reduced: Callable[[Entries, Known], pa.Table] | None = None
    on_match: Callable[[Found], tuple[dict[str, str], Missing | None]] = _no_match
    from_snapshots: Callable[[dict[str, str]], FromSnapshots] | None = None


def keep(name: str, tables: Mapping[str, ArrowJob], options: JobOptions) -> None:
    """Bring the tables, by path, up to what the Log has; on and on with a trigger interval.

    Each reads the log by itself, as far as it needs it. Raises ConfigurationError for what only Spark can do
    and for a table of another writer or another log, TimedOut when the log stays behind a table, and
    KeyboardInterrupt once an interrupted job has stopped.
    """
    _check(options)
    interval = options.trigger.get("processingTime")
    source = SourceOptions.parse(options.source)
    keepers = [_Keeper(job, table, options, source) for table, job in tables.items()]
    try:
        with interrupts() as interrupted:
            for keeper in keepers:
                keeper.begin(and_on=interval is not None)
            for keeper in keepers:
                keeper.take(interrupted.is_set)
            while interval is not None and not interrupted.wait(_seconds(interval)):
                for keeper in keepers:
                    keeper.take(interrupted.is_set)
            rows = sum(keeper.rows for keeper in keepers)
            options.say(f"{name}: {'stopped' if interrupted.is_set() else 'done'}, {rows:,} rows")
            if interrupted.is_set():
                raise KeyboardInterrupt
    finally:
        forget_reader(source)


class _Keeper:
    """A table that is kept."""

    def __init__(self, job: ArrowJob, table: str, options: JobOptions, source: SourceOptions) -> None:
        self.rows = 0  # in the commits of this run
        self._job = job
        self._place = table
        self._application = APPLICATION.format(job.layout.name)
        self._options = options
        self._source = source
        self._log = SourceLog(source)
        self._reader: LogReader = open_reader(source)
        self._from_snapshots = self._made_from_snapshots()

    def _made_from_snapshots(self) -> FromSnapshots:
        made = self._job.from_snapshots
        return _no_snapshots if made is None else made(self._options.source)

    def begin(self, and_on: bool) -> None:
        """Say what there is to read, and see that the table is of this log."""
        end = self._log.committed_end()
        begin = self._position(self._table(), end)
        self._options.say(f"{self._job.name}: reading from {begin:,} to {end:,}{' and on' * and_on}")

    def take(self, is_to_stop: Callable[[], bool]) -> None:
        """Take in what the log has by now, a commit for each ``maxBytesPerTrigger`` of it."""
        from deltalake.exceptions import CommitFailedError

        end = self._log.committed_end()
        table = self._table()
        begin = self._position(table, end)
        attempts_left = ATTEMPTS
        while begin < end and not is_to_stop():
            if table is None:
                table = self._made()
            stop = begin + self._source.max_bytes_per_trigger
            stop = min(self._reader.boundary_at_or_after(stop, known=begin), end) if stop < end else end
            try:
                self._commit(table, begin, stop)
                attempts_left = ATTEMPTS
            except CommitFailedError:  # another writer has been there
                attempts_left -= 1
                if not attempts_left:
                    raise
                table = self._table()
                self._from_snapshots = self._made_from_snapshots()
            begin = self._position(table, end)

    def _commit(self, table: DeltaTable, begin: int, stop: int) -> None:
        from deltalake import CommitProperties, Transaction

        said = CommitProperties(
            custom_metadata={"userMetadata": PositionToken(self._log.cluster, stop).to_text()},
            app_transactions=[Transaction(self._application, stop)],
        )
        job = self._job
        entries = self._reader.to_arrow_reader(
            begin, stop, columns=job.columns or None, entry_types=job.entry_types or None
        )
        if job.reduced is None:
            rows = _append(table, entries, said)
        else:
            is_first = table.transaction_version(self._application) is None
            found = self._from_snapshots(is_first, stop)
            updates = job.reduced(_with(entries, found), table.to_pyarrow_table)
            rows = _merge(table, job, updates, found, said)
        self.rows += rows
        self._options.say(f"{job.name}: version {table.version()}, {rows:,} rows, log position {stop:,}")

    def _position(self, table: DeltaTable | None, end: int) -> int:
        """Where the table goes to in the log, which has as much; else where the first commit begins."""
        known = None if table is None else table.transaction_version(self._application)
        if known is None:
            return resolve_start(self._log, self._source, EARLIEST, end)
        assert table is not None
        identity = table.metadata().configuration[IDENTITY]
        self._reader.await_token(PositionToken(identity, known).to_text(), BEHIND_TIMEOUT_S)
        return self._log.retained(known)

    def _table(self) -> DeltaTable | None:
        """The table if it is there. Raises ConfigurationError for one that this writer has not made."""
        from deltalake import DeltaTable

        if not DeltaTable.is_deltatable(self._place):
            return None
        table = DeltaTable(self._place)
        metadata = table.metadata()
        properties = metadata.configuration
        if properties.get(WRITER) != DELTA_RS or IDENTITY not in properties:
            writer = properties.get(WRITER, "another writer, such as Spark")
            raise ConfigurationError(
                f"table {self._place} is kept by {writer}; expected one that --writer {DELTA_RS} has made"
            )
        if metadata.name != self._job.layout.name:
            raise ConfigurationError(
                f"table {self._place} is the table {metadata.name} of a log; expected {self._job.layout.name}"
            )
        return table

    def _made(self) -> DeltaTable:
        from deltalake import DeltaTable

        layout = self._job.layout
        properties = {WRITER: DELTA_RS, IDENTITY: self._log.cluster}
        if self._job.reduced is None:
            properties |= layout.properties
        return DeltaTable.create(
            self._place,
            arrow_schema(layout.columns),
            mode="ignore",
            name=layout.name,
            description=layout.comment,
            configuration=properties,
            raise_if_key_not_exists=False,  # WRITER and IDENTITY are ours
        )


def _no_snapshots(is_first: bool, end: int) -> Found:
    return []


def _with(entries: pa.RecordBatchReader, found: Found) -> Entries:
    """``entries``, and those that were ``found`` in snapshots."""
    import pyarrow as pa

    yield from entries
    yield pa.RecordBatch.from_pylist(found, entries.schema)


def _append(table: DeltaTable, entries: pa.RecordBatchReader, said: CommitProperties) -> int:
    """Append ``entries`` in one commit; returns how many."""
    import pyarrow as pa
    from deltalake import write_deltalake

    rows = 0

    def counted() -> Entries:
        nonlocal rows
        for batch in entries:
            rows += batch.num_rows
            yield batch

    stream = pa.RecordBatchReader.from_batches(entries.schema, counted())
    write_deltalake(table, stream, mode="append", commit_properties=said)
    return rows


def _merge(table: DeltaTable, job: ArrowJob, updates: pa.Table, found: Found, said: CommitProperties) -> int:
    """Merge ``updates``, one row a key, in one commit; returns how many."""
    from deltalake import write_deltalake

    on_match, missing = job.on_match(found)
    key, before = job.layout.key, table.version()
    if updates.num_rows or missing is not None:
        merging = table.merge(updates, f"t.{key} = s.{key}", "s", "t", commit_properties=said)
        merging = merging.when_matched_update(on_match)
        merging = merging.when_not_matched_insert({name: f"s.{name}" for name in updates.column_names})
        if missing is not None:
            merging = merging.when_not_matched_by_source_update(missing.values, missing.condition)
        merging.execute()
    if table.version() == before:  # a merge that changes no row is no commit
        write_deltalake(table, updates.slice(0, 0), mode="append", commit_properties=said)
    return int(updates.num_rows)


def _check(options: JobOptions) -> None:
    """Raise ConfigurationError for what this writer does not have."""
    try:
        import deltalake  # noqa: F401
    except ImportError:
        raise ConfigurationError(
            f"--writer {DELTA_RS} needs the package deltalake: pip install 'pyspark-cluster[{DELTA_RS}]'"
        ) from None
    if is_name(options.table):
        raise ConfigurationError(
            f"--table is {options.table}, a name of Spark's catalog; --writer {DELTA_RS} takes a path, "
            f"such as ./{options.table}"
        )
    given = options.arguments
    for option, value in {"--checkpoint": given.checkpoint, "--conf": given.conf}.items():
        if value:
            raise ConfigurationError(f"{option} is given; --writer {DELTA_RS} has none, it needs no Spark")
    allowed = {option.lower() for option in OPTIONS}
    for option in options.source:
        if option.lower() not in allowed:
            raise ConfigurationError(
                f"option {option} is not one of --writer {DELTA_RS}; expected {', '.join(OPTIONS)}"
            )


def _seconds(interval: str) -> float:
    """An interval of ``--trigger``, which the command line has checked."""
    found = INTERVAL.fullmatch(interval.strip().lower())
    assert found is not None
    return float(found["number"]) * _SECONDS[found["unit"]]
