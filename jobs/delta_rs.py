"""The tables without Spark: delta-rs writes what LogReader reads, in one process, without a JVM.

The rows are those of the tables that Spark writes. Each commit says the position that the table goes to. It
is in the log of the table with the rows or not at all, so a job that is started again goes on exactly there,
without a checkpoint. After a RESTORE it goes on where the restored version ends. Each commit also has
a transaction identifier (``txn``) of the Delta protocol: of two jobs that take in the same entries, the
protocol lets one commit. The identifier outlives a RESTORE, so it is no position to go on from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cluster import ConfigurationError, PositionToken
from cluster.errors import ClusterError, StorageError
from jobs.command import JobOptions
from jobs.delta_table import ATTEMPTS, is_name
from jobs.history import RECENT, Recent, check_token, token_of
from jobs.schemas import DELTA_RS, WRITER, TableLayout, of_all
from jobs.streaming import interrupts
from jobs.table_job import Entries, Found, FromSnapshots, TableJob
from spark_connector.columns import arrow_schema
from spark_connector.log import LAG_TIMEOUT_S, SourceLog, forget_reader, open_reader
from spark_connector.options.cluster_options import SourceOptions
from spark_connector.options.places import EARLIEST
from spark_connector.planning import aligned
from spark_connector.source.resolving import resolve_start

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import CommitProperties, DeltaTable

    from cluster import LogReader

APPLICATION = "cluster.{}"  # of the transactions on a table, whose version is a position
IDENTITY = "cluster.identity"  # property of a table: the log that it is of
_MAPPING = "delta.columnMapping.mode"
OPTIONS = (
    "endpoints", "clusterDir", "archiveDir", "startingOffsets", "startingTimestamp", "maxBytesPerTrigger",
    "readPreference", "requestTimeoutMs", "failOnDataLoss", "tlsCaFile", "tlsCertificateFile", "tlsKeyFile",
    "authTokenFile", "user", "passwordFile",
)  # fmt: skip


def keep(name: str, tables: Mapping[str, TableJob], options: JobOptions) -> None:
    """Update the tables, by path, to what the Log has; on and on with a trigger interval.

    The log is read once for all of them. Raises ConfigurationError for what only Spark can do and for a table
    of another writer or another log, TimedOut when the log stays behind a table, and KeyboardInterrupt once
    an interrupted job has stopped.
    """
    _check(options)
    interval = options.trigger.get("processingTime")
    source = SourceOptions.parse(options.source)
    keepers = [_Keeper(job, table, options, source) for table, job in tables.items()]
    try:
        with interrupts() as interrupted:
            for keeper in keepers:
                keeper.begin(and_on=interval is not None)
            _take(keepers, source, interrupted.is_set)
            while interval is not None and not interrupted.wait(_seconds(interval)):
                _take(keepers, source, interrupted.is_set)
            rows = sum(keeper.rows for keeper in keepers)
            options.say(f"{name}: {'stopped' if interrupted.is_set() else 'done'}, {rows:,} rows")
            if interrupted.is_set():
                raise KeyboardInterrupt
    finally:
        forget_reader(source)


def _take(keepers: list[_Keeper], source: SourceOptions, is_to_stop: Callable[[], bool]) -> None:
    """Take in what the log has by now, a commit of each table for each ``maxBytesPerTrigger`` of it."""
    end = SourceLog(source).committed_end()
    reader = open_reader(source)
    for keeper in keepers:
        keeper.open()
    while not is_to_stop():
        begins = {keeper: keeper.position(end) for keeper in keepers}
        begin = min(begins.values())
        if begin >= end:
            return
        stop = begin + source.max_bytes_per_trigger
        stop = min(reader.boundary_at_or_after(stop, known=begin), end) if stop < end else end
        _take_part(reader, {keeper: at for keeper, at in begins.items() if at < stop}, begin, stop)


def _take_part(reader: LogReader, begins: dict[_Keeper, int], begin: int, stop: int) -> None:
    """Take ``[begin, stop)``, read once: appended as it comes, merged when all is read."""
    jobs = [keeper.job for keeper in begins]
    entries = reader.to_arrow_reader(
        begin,
        stop,
        columns=of_all([job.columns for job in jobs]) or None,
        entry_types=of_all([job.entry_types for job in jobs]) or None,
    )
    appended = [keeper for keeper in begins if keeper.job.reduction is None]
    assert len(appended) <= 1, "what is read once is appended once"
    merged: dict[_Keeper, list[pa.RecordBatch]] = {k: [] for k in begins if k not in appended}

    def read() -> Entries:
        for batch in entries:
            for keeper, parts in merged.items():
                parts += keeper.parts(batch, begins[keeper])
            yield batch

    reading = read()
    for keeper in appended:
        keeper.append((keeper.job.share(batch, begins[keeper]) for batch in reading), stop)
    for _ in reading:
        pass  # what nobody has appended
    for keeper, parts in merged.items():
        keeper.merge(parts, stop)


class _Keeper:
    """A table that is kept."""

    def __init__(self, job: TableJob, table: str, options: JobOptions, source: SourceOptions) -> None:
        self.rows = 0  # in the commits of this run
        self.job = job
        self._place = table
        self._application = APPLICATION.format(job.layout.name)
        self._options = options
        self._source = source
        self._log = SourceLog(source)
        self._reader: LogReader = open_reader(source)
        self._table: DeltaTable | None = None
        self._attempts_left = ATTEMPTS
        self._from_snapshots = self._made_from_snapshots()

    def _made_from_snapshots(self) -> FromSnapshots:
        made = self.job.from_snapshots
        return _no_snapshots if made is None else made(self._options.source)

    def begin(self, and_on: bool) -> None:
        """Say what there is to read, and see that the table is of this log."""
        self.open()
        end = self._log.committed_end()
        begin = self.position(end)
        self._options.say(f"{self.job.name}: reading from {begin:,} to {end:,}{' and on' * and_on}")

    def append(self, entries: Entries, stop: int) -> None:
        """Append the entries from its position to ``stop``, unless another job has been there."""
        self._commit(stop, lambda table, said: _append(table, self.job, entries, said))

    def parts(self, batch: pa.RecordBatch, begin: int) -> Entries:
        """What entries from ``begin`` on say, as rows that ``merge`` takes."""
        assert self.job.reduction is not None
        return self.job.reduction.parts_of([self.job.share(batch, begin)])

    def merge(self, parts: list[pa.RecordBatch], stop: int) -> None:
        """Merge ``parts`` of the entries from its position to ``stop``, unless another job has been there."""

        def merged(table: DeltaTable, said: CommitProperties) -> int:
            found = self._from_snapshots(self._goes_to() is None, stop)
            updates = _reduced(table, self.job, parts, found)
            return _merge(table, self.job, updates, found, said)

        self._commit(stop, merged)

    def _commit(self, stop: int, write: Callable[[DeltaTable, CommitProperties], int]) -> None:
        """One commit, to the version of the table whose position was asked for.

        Raises StorageError when commits of others that take in no entries, such as OPTIMIZE, exclude it again
        and again, and for what else is wrong with the table.
        """
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import CommitFailedError

        if self._table is None:
            self._table = self._made()
            if self._goes_to() is not None:
                return  # another job has made it
        token = PositionToken(self._log.cluster, stop, self._log.term_before(stop))
        said = CommitProperties(
            custom_metadata={"userMetadata": token.to_text()},
            app_transactions=[Transaction(self._application, stop)],
        )
        known = self._table.transaction_version(self._application)
        try:
            with _named(self._place, "the table cannot be written", CommitFailedError):
                rows = write(self._table, said)
        except CommitFailedError as error:
            self.open()
            self._from_snapshots = self._made_from_snapshots()
            if self._table is not None and self._table.transaction_version(self._application) != known:
                self._attempts_left = ATTEMPTS  # another job has been there, and the table goes on
                return
            self._attempts_left -= 1
            if not self._attempts_left:
                with _named(self._place, f"{ATTEMPTS} commits in a row were excluded by others'"):
                    raise error
            return
        self._attempts_left = ATTEMPTS
        self.rows += rows
        version = self._table.version()
        self._options.say(f"{self.job.name}: version {version}, {rows:,} rows, log position {stop:,}")

    def position(self, end: int) -> int:
        """Where the table goes to, or its first commit begins. Raises ConfigurationError, TimedOut."""
        if self._table is None:
            return resolve_start(self._log, self._source, EARLIEST, end)
        said = self._said()
        goes_to = self._rows_go_to() if said is None else said.position
        token = PositionToken(
            self._table.metadata().configuration[IDENTITY], goes_to or 0, None if said is None else said.term
        )
        check_token(self._place, token, self._log)
        if goes_to is None:
            return resolve_start(self._log, self._source, EARLIEST, end)
        self._reader.await_token(token.to_text(), LAG_TIMEOUT_S)
        at = self._log.retained(token.position)
        return at if at == aligned(at) else self._reader.boundary_at_or_after(at)

    def _goes_to(self) -> int | None:
        """Where the table goes to, as its commits say, or else its rows; None for one without rows.

        Commits do not say it after a RESTORE to a time, a CLONE, or once the log of the table is cleaned up.
        """
        if self._table is None:
            return None
        said = self._said()
        return self._rows_go_to() if said is None else said.position

    def _rows_go_to(self) -> int | None:
        """Where the rows of the table go to; None for one without rows.

        Rows that are merged say their newest entry, so that the byte after its first one is meant.
        """
        import pyarrow.compute as pc

        assert self._table is not None
        column = self.job.layout.progress
        found = pc.max(self._table.to_pyarrow_table(columns=[column])[column]).as_py()
        return found if found is None or self.job.reduction is None else found + 1

    def _said(self) -> PositionToken | None:
        """Where the table goes to, as its commits say."""
        assert self._table is not None
        return token_of(_recent(self._table, 1)) or token_of(_recent(self._table, RECENT))

    def open(self) -> None:
        """Look at the table as it is. Raises ConfigurationError (not this writer's), StorageError."""
        from deltalake import DeltaTable

        self._table = None
        with _named(self._place):
            if not DeltaTable.is_deltatable(self._place):
                return
            table = DeltaTable(self._place)
            metadata = table.metadata()
        properties = metadata.configuration
        if properties.get(WRITER) != DELTA_RS or IDENTITY not in properties:
            writer = properties.get(WRITER, "another writer, such as Spark")
            raise ConfigurationError(
                f"table {self._place} is kept by {writer}; expected one that --writer {DELTA_RS} has made"
            )
        if metadata.name != self.job.layout.name:
            raise ConfigurationError(
                f"table {self._place} is the table {metadata.name} of a log; expected {self.job.layout.name}"
            )
        _check_columns(self._place, table, self.job.layout)
        self._table = table

    def _made(self) -> DeltaTable:
        from deltalake import DeltaTable

        layout = self.job.layout
        properties = {WRITER: DELTA_RS, IDENTITY: self._log.cluster}
        if self.job.reduction is None:
            properties |= layout.properties
        with _named(self._place):
            return DeltaTable.create(
                self._place,
                arrow_schema(layout.columns),
                mode="ignore",
                name=layout.name,
                description=layout.comment,
                configuration=properties,
                raise_if_key_not_exists=False,  # WRITER and IDENTITY are ours
            )


@contextmanager
def _named(
    place: str, what: str = "the table cannot be opened or made", passed: type[Exception] | None = None
) -> Iterator[None]:
    """What delta-rs says, without its stack, as a StorageError of ``place``; ``passed`` errors stay."""
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (DeltaError, OSError) as error:
        if passed is not None and isinstance(error, passed):
            raise
        said = next(iter(str(error).splitlines()), type(error).__name__)
        raise StorageError(place, None, f"{what}: {said}") from None


def _check_columns(place: str, table: DeltaTable, layout: TableLayout) -> None:
    """Give a table of an earlier release what it lacks.

    Raises ConfigurationError for a table of another layout, and where columns may have other names in files
    than in the table (column mapping): delta-rs writes files by the names of the table.
    """
    from deltalake import Schema

    mapping = table.metadata().configuration.get(_MAPPING, "none")
    if mapping != "none":
        raise ConfigurationError(
            f"{_MAPPING} of table {place} is {mapping}; expected none, as --writer {DELTA_RS} writes files "
            "by the names of columns"
        )
    fields = {field.name: field for field in Schema.from_arrow(arrow_schema(layout.columns)).fields}
    there = {field.name: field.type for field in table.schema().fields}
    lacking = layout.lacking(place, there, {name: field.type for name, field in fields.items()})
    if lacking:
        with _named(place):
            table.alter.add_columns([fields[name] for name in lacking])


def _recent(table: DeltaTable, count: int) -> list[Recent]:
    return [
        Recent(of["version"], of["operation"], of.get("operationParameters", {}), of.get("userMetadata"))
        for of in table.history(count)
    ]


def _no_snapshots(is_first: bool, end: int) -> Found:
    return []


def _reduced(table: DeltaTable, job: TableJob, parts: list[pa.RecordBatch], found: Found) -> pa.Table:
    """One row a key of ``parts``, of the entries that were ``found`` in snapshots, and of rows that count."""
    import pyarrow as pa

    reduction = job.reduction
    assert reduction is not None
    others = reduction.parts_of([pa.RecordBatch.from_pylist(found, job.schema)])
    known = table.to_pyarrow_table(columns=[*reduction.parts]).to_batches() if job.is_cumulative else []
    return reduction.rows_of([*known, *parts, *others])


def _append(table: DeltaTable, job: TableJob, entries: Entries, said: CommitProperties) -> int:
    """Append ``entries`` in one commit; returns how many. Raises what reading them raises."""
    import pyarrow as pa
    from deltalake import write_deltalake

    rows = 0
    refusals: list[ClusterError] = []  # delta-rs makes its own error of one, with a stack

    def counted() -> Entries:
        nonlocal rows
        try:
            for batch in entries:
                rows += batch.num_rows
                yield batch
        except ClusterError as error:
            refusals.append(error)
            raise

    stream = pa.RecordBatchReader.from_batches(job.schema, counted())
    try:  # merging schemas leaves the user's own columns NULL
        write_deltalake(table, stream, mode="append", schema_mode="merge", commit_properties=said)
    except Exception:
        if refusals:
            raise refusals[0] from None
        raise
    return rows


def _merge(table: DeltaTable, job: TableJob, updates: pa.Table, found: Found, said: CommitProperties) -> int:
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
        write_deltalake(
            table, updates.slice(0, 0), mode="append", schema_mode="merge", commit_properties=said
        )
    return int(updates.num_rows)


def _check(options: JobOptions) -> None:
    """Raise ConfigurationError for what this writer does not have."""
    try:
        import deltalake  # noqa: F401
    except ImportError:
        raise ConfigurationError(
            f"--writer {DELTA_RS} needs the package deltalake: pip install 'pyspark-cluster[delta]'"
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
    """An interval of ``--trigger``, as the command line has made it: ``5000 milliseconds``."""
    return int(interval.partition(" ")[0]) / 1000
