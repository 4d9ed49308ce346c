"""The table of the Log without Spark: delta-rs writes what LogReader reads, in one process, without a JVM.

The rows are those of the table that Spark writes. Each commit has a transaction identifier (``txn``) of the
Delta protocol whose version is the position that the table goes to. It is in the log of the table with the
rows or not at all, so a job that is started again goes on exactly there, without a checkpoint. Of two jobs
that append the same entries, the protocol lets one commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from cluster import ConfigurationError, PositionToken
from jobs.command import INTERVAL
from jobs.delta_table import ATTEMPTS, is_name
from jobs.log_table import COLUMNS, COMMENT, DELTA_RS, NAME, PROPERTIES, WRITER
from jobs.streaming import interrupts
from spark_connector.log import BEHIND_TIMEOUT_S, SourceLog, forget_reader, open_reader
from spark_connector.options import SourceOptions
from spark_connector.places import EARLIEST
from spark_connector.resolving import resolve_start

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

    from cluster import LogReader
    from jobs.command import JobOptions

APPLICATION = "cluster.log"  # of the transactions, whose version is a position
IDENTITY = "cluster.identity"  # property of a table: the log that it is of
OPTIONS = (
    "endpoints", "clusterDir", "archiveDir", "startingOffsets", "startingTimestamp", "maxBytesPerTrigger",
    "readPreference", "requestTimeoutMs", "failOnDataLoss", "tlsCaFile", "tlsCertificateFile", "tlsKeyFile",
    "authTokenFile", "user", "passwordFile",
)  # fmt: skip
_SECONDS = {"ms": 0.001, "millisecond": 0.001, "s": 1, "second": 1, "m": 60, "min": 60, "minute": 60}
_SECONDS |= {"h": 3600, "hour": 3600}


def keep_log(name: str, options: JobOptions) -> None:
    """Append to the table what the Log has, to its present end, or on and on with a trigger interval.

    Raises ConfigurationError for what only Spark can do and for a table of another writer or another log,
    TimedOut when the log stays behind the table, and KeyboardInterrupt once an interrupted job has stopped.
    """
    _check(options)
    interval = options.trigger.get("processingTime")
    source = SourceOptions.parse(options.source)
    keeper = _Keeper(name, options, source)
    try:
        with interrupts() as interrupted:
            keeper.begin(and_on=interval is not None)
            keeper.append(interrupted.is_set)
            while interval is not None and not interrupted.wait(_seconds(interval)):
                keeper.append(interrupted.is_set)
            options.say(f"{name}: {'stopped' if interrupted.is_set() else 'done'}, {keeper.rows:,} rows")
            if interrupted.is_set():
                raise KeyboardInterrupt
    finally:
        forget_reader(source)


class _Keeper:
    """A job that runs."""

    def __init__(self, name: str, options: JobOptions, source: SourceOptions) -> None:
        self.rows = 0  # appended by this job
        self._name = name
        self._options = options
        self._source = source
        self._log = SourceLog(source)
        self._reader: LogReader = open_reader(source)

    def begin(self, and_on: bool) -> None:
        """Say what there is to read, and see that the table is of this log."""
        end = self._log.committed_end()
        begin = self._position(self._table(), end)
        self._options.say(f"{self._name}: reading from {begin:,} to {end:,}{' and on' * and_on}")

    def append(self, is_to_stop: Callable[[], bool]) -> None:
        """Append what the log has by now, a commit for each ``maxBytesPerTrigger`` of it."""
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
            begin = self._position(table, end)

    def _commit(self, table: DeltaTable, begin: int, stop: int) -> None:
        import pyarrow as pa
        from deltalake import CommitProperties, Transaction, write_deltalake

        batches = self._reader.to_arrow_reader(begin, stop)
        rows = 0

        def counted() -> Iterator[pa.RecordBatch]:
            nonlocal rows
            for batch in batches:
                rows += batch.num_rows
                yield batch

        said = CommitProperties(
            custom_metadata={"userMetadata": PositionToken(self._log.cluster, stop).to_text()},
            app_transactions=[Transaction(APPLICATION, stop)],
        )
        stream = pa.RecordBatchReader.from_batches(batches.schema, counted())
        write_deltalake(table, stream, mode="append", commit_properties=said)
        self.rows += rows
        self._options.say(f"{self._name}: version {table.version()}, {rows:,} rows, log position {stop:,}")

    def _position(self, table: DeltaTable | None, end: int) -> int:
        """Where the table goes to in the log, which has as much; else where the first commit begins."""
        known = None if table is None else table.transaction_version(APPLICATION)
        if known is None:
            return resolve_start(self._log, self._source, EARLIEST, end)
        assert table is not None
        identity = table.metadata().configuration[IDENTITY]
        self._reader.await_token(PositionToken(identity, known).to_text(), BEHIND_TIMEOUT_S)
        return self._log.retained(known)

    def _table(self) -> DeltaTable | None:
        """The table if it is there. Raises ConfigurationError for one that this writer has not made."""
        from deltalake import DeltaTable

        if not DeltaTable.is_deltatable(self._options.table):
            return None
        table = DeltaTable(self._options.table)
        properties = table.metadata().configuration
        if properties.get(WRITER) != DELTA_RS or IDENTITY not in properties:
            writer = properties.get(WRITER, "another writer, such as Spark")
            raise ConfigurationError(
                f"table {self._options.table} is kept by {writer}; "
                f"expected one that --writer {DELTA_RS} has made"
            )
        return table

    def _made(self) -> DeltaTable:
        import pyarrow as pa
        from deltalake import DeltaTable

        rows = self._reader.to_arrow_reader(0, 0).schema
        fields = [field.with_metadata({"comment": COLUMNS[field.name]}) for field in rows]
        properties = {**PROPERTIES, WRITER: DELTA_RS, IDENTITY: self._log.cluster}
        return DeltaTable.create(
            self._options.table,
            pa.schema(fields),
            mode="ignore",
            name=NAME,
            description=COMMENT,
            configuration=properties,
            raise_if_key_not_exists=False,  # WRITER and IDENTITY are ours
        )


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
