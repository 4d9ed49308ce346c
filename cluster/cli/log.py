"""``cluster log``: the committed log as text, JSON lines, Arrow or Parquet."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from cluster.cli.connecting import connects
from cluster.cli.members import (
    ArchiveDirectory,
    ConsensusEndpoints,
    OptionalEndpoints,
    check_is_alone,
    endpoints_unless,
    text_or_none,
)
from cluster.cli.verbs import Verb, Verbs
from cluster.errors import LogDamaged, StorageError, printable

if TYPE_CHECKING:
    import pyarrow as pa

    from cluster.reader import LogReader

app = typer.Typer(cls=Verbs, rich_markup_mode=None, add_completion=False, no_args_is_help=True)

NAMES = """An entry has the columns position, endPosition, leadershipTermId, entryType, timestamp,
clusterTime, and by its type clusterSessionId, correlationId, payload, responseStreamId, responseChannel,
encodedPrincipal, closeReason, action, actionFlags, termBaseLogPosition, leaderMemberId, logSessionId,
timeUnit, appVersion.
"""

DUMP = f"""\b
Examples:
  cluster log dump --dir cluster-data/member-0
  cluster log dump --dir member-0 --from 139424 --json --payload sha256
  cluster log dump --cluster-dir /data/aeron-cluster --archive-dir /data/aeron-archive --payload utf8
  cluster log dump --endpoints 127.0.0.1:9000 --follow --json
  cluster log dump --dir cluster-data/member-0 --type TIMER --type SESSION_MESSAGE --session 1

{NAMES}"""

TAIL = """\b
Examples:
  cluster log tail --dir cluster-data/member-0
  cluster log tail -n 100 --follow --endpoints 127.0.0.1:9000
  cluster log tail --type SESSION_OPEN --dir cluster-data/member-0
  cluster log tail --consensus-endpoints 10.0.0.5:9003,10.0.0.6:9003 --aeron-dir /dev/shm/aeron
"""

EXPORT = """\b
Examples:
  cluster log export --dir cluster-data/member-0 --format parquet log.parquet
  cluster log export --dir member-0 --format arrow --from 139424 log.arrow
  cluster log export --dir cluster-data/member-0 --append exported

The file has the columns of `cluster log dump`, typed, and is written whole or not at all. FILE may be a URI
such as s3://bucket/log.parquet. With --append it is a folder, and what is committed goes there in Parquet
files, each named by its range of positions. Another run goes on after the last one.
"""


class Payload(StrEnum):
    """How a payload is shown; ``text`` is text where that is printable, and base64 of the rest."""

    base64 = "base64"
    utf8 = "utf8"
    hex = "hex"
    none = "none"
    sha256 = "sha256"
    text = "text"


class EntryType(StrEnum):
    """Of an entry."""

    SESSION_MESSAGE = "SESSION_MESSAGE"
    SESSION_OPEN = "SESSION_OPEN"
    SESSION_CLOSE = "SESSION_CLOSE"
    TIMER = "TIMER"
    CLUSTER_ACTION = "CLUSTER_ACTION"
    NEW_LEADERSHIP_TERM = "NEW_LEADERSHIP_TERM"


class Format(StrEnum):
    """Of an exported file."""

    arrow = "arrow"
    parquet = "parquet"


Directory = Annotated[
    Path | None, typer.Option("--dir", help="A member's directory, ours or a real Aeron's, or a cluster's.")
]
ClusterDirectory = Annotated[
    Path | None, typer.Option("--cluster-dir", help="Its cluster directory, where it lies apart.")
]
AeronDirectory = Annotated[
    Path | None, typer.Option("--aeron-dir", help="Folder of its cnc.dat, or of a media driver here.")
]
FromPosition = Annotated[
    int | None, typer.Option("--from", help="Position of the first entry (default: the log's start).", min=0)
]
ToPosition = Annotated[
    int | None, typer.Option("--to", help="Entries before this position (default: the log's end).", min=0)
]
PayloadOption = Annotated[
    Payload | None, typer.Option(help="How payloads are shown.", show_default="text; base64 with --json")
]
Types = Annotated[
    list[EntryType],
    typer.Option(
        "--type", help="Only entries of this type; may be repeated.", case_sensitive=False, metavar="TYPE"
    ),
]
Sessions = Annotated[
    list[int], typer.Option("--session", help="Only entries of this session; may be repeated.", metavar="ID")
]
AtLeast = Annotated[
    str | None, typer.Option(help="Wait until this token of a client is committed.", metavar="TOKEN")
]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Go on with what is committed from now on.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object an entry.")]


@app.callback(epilog="\b\nExample:\n  cluster log tail --follow --dir cluster-data/member-0")
def _log() -> None:
    """Dump, follow or export the committed log."""


@app.command(epilog=DUMP)
@connects
def dump(
    directory: Directory = None,
    cluster_directory: ClusterDirectory = None,
    archive_directory: ArchiveDirectory = None,
    aeron_directory: AeronDirectory = None,
    endpoints: OptionalEndpoints = None,
    consensus_endpoints: ConsensusEndpoints = None,
    at_least: AtLeast = None,
    from_position: FromPosition = None,
    to_position: ToPosition = None,
    types: Types = [],  # noqa: B006 - never changed
    sessions: Sessions = [],  # noqa: B006
    payload: PayloadOption = None,
    follow: Follow = False,
    as_json: AsJson = False,
) -> None:
    """Print the entries in order, one a line."""
    _check_range(from_position, to_position)
    places = directory, cluster_directory, archive_directory, aeron_directory
    with _open(*places, endpoints, consensus_endpoints, at_least, types, sessions) as reader:
        diagnostics = _Diagnostics(reader)
        shown = payload or (Payload.base64 if as_json else Payload.text)
        if not follow:
            diagnostics.check_begin(from_position)
        start = _first_entry(reader, from_position)
        if follow:
            batches = reader.follow(start, to_position, on_damage=diagnostics.damage)
        else:
            batches = reader.batches(start, to_position, on_damage=diagnostics.damage)
        _print(batches, shown, as_json, follow)
        diagnostics.finish()


@app.command(epilog=TAIL)
@connects
def tail(
    directory: Directory = None,
    cluster_directory: ClusterDirectory = None,
    archive_directory: ArchiveDirectory = None,
    aeron_directory: AeronDirectory = None,
    endpoints: OptionalEndpoints = None,
    consensus_endpoints: ConsensusEndpoints = None,
    at_least: AtLeast = None,
    count: Annotated[int, typer.Option("--count", "-n", help="Entries to show at first.", min=0)] = 10,
    types: Types = [],  # noqa: B006 - never changed
    sessions: Sessions = [],  # noqa: B006
    payload: PayloadOption = None,
    follow: Follow = False,
    as_json: AsJson = False,
) -> None:
    """Print the last entries, and with --follow those that come."""
    places = directory, cluster_directory, archive_directory, aeron_directory
    with _open(*places, endpoints, consensus_endpoints, at_least, types, sessions) as reader:
        diagnostics = _Diagnostics(reader)
        shown = payload or (Payload.base64 if as_json else Payload.text)
        end = reader.commit_position() if follow else reader.end_position()
        last = _last_entries(reader, end, count, diagnostics)
        _print(iter(last), shown, as_json, follow)
        if follow:
            _print(reader.follow(end, on_damage=diagnostics.damage), shown, as_json, follow)
        diagnostics.finish()


@app.command(cls=Verb, epilog=EXPORT)
@connects
def export(
    file: Annotated[str, typer.Argument(help="File to write, or folder to add to.", metavar="FILE")],
    format: Annotated[Format | None, typer.Option(help="By default what the file's name ends with.")] = None,
    directory: Directory = None,
    cluster_directory: ClusterDirectory = None,
    archive_directory: ArchiveDirectory = None,
    aeron_directory: AeronDirectory = None,
    endpoints: OptionalEndpoints = None,
    consensus_endpoints: ConsensusEndpoints = None,
    cluster_id: Annotated[
        int, typer.Option(help="With --consensus-endpoints: the cluster's id, for --append.")
    ] = 0,
    at_least: AtLeast = None,
    from_position: FromPosition = None,
    to_position: ToPosition = None,
    is_appended: Annotated[
        bool, typer.Option("--append", help="Add to a folder what it does not have yet.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was written as an object.")] = False,
) -> None:
    """Write the entries as Arrow IPC or Parquet files with typed columns."""
    if is_appended:
        for option, value in (("--format", format), ("--from", from_position), ("--to", to_position)):
            if value not in (None, Format.parquet):
                raise typer.BadParameter(f"{value} does not go with --append", param_hint=option)
    elif format is None:
        suffix = Path(urlsplit(file).path).suffix.lstrip(".")
        if suffix not in Format.__members__:
            raise typer.BadParameter(
                "give arrow or parquet, the file's name has no such ending", param_hint="--format"
            )
        format = Format(suffix)
    _check_range(from_position, to_position)
    places = directory, cluster_directory, archive_directory, aeron_directory
    with _open(*places, endpoints, consensus_endpoints, at_least, cluster_id=cluster_id) as reader:
        diagnostics = _Diagnostics(reader)
        if is_appended:
            _append(reader, file, as_json)
            diagnostics.finish()
            return
        assert format is not None
        diagnostics.check_begin(from_position)
        batches = reader.batches(
            _first_entry(reader, from_position), to_position, on_damage=diagnostics.damage
        )
        from cluster.reader.file_systems import masked

        count = _write(batches, format, file)
        if as_json:
            print(json.dumps({"file": masked(file), "format": format.value, "entries": count}))
        else:
            print(f"{count} entries in {masked(file)}")
        diagnostics.finish()


def _open(
    directory: Path | None,
    cluster_directory: Path | None,
    archive_directory: Path | None,
    aeron_directory: Path | None,
    endpoints: str | None,
    consensus_endpoints: str | None,
    at_least: str | None,
    types: Sequence[str] = (),
    sessions: Sequence[int] = (),
    cluster_id: int = 0,
) -> LogReader:
    from cluster.log.entry_filter import EntryFilter
    from cluster.reader import LogReader

    given = (directory, cluster_directory, archive_directory)
    entry_filter = EntryFilter(tuple(types) or tuple(EntryType), tuple(sessions))
    if consensus_endpoints is not None:
        check_is_alone(consensus_endpoints, endpoints, *given)
        return LogReader.open(
            consensus_endpoints=consensus_endpoints,
            aeron_dir=text_or_none(aeron_directory),
            at_least=at_least,
            cluster_id=cluster_id,
            entry_filter=entry_filter,
        )
    endpoints = endpoints_unless(any(path is not None for path in given), endpoints)
    if endpoints is not None:
        return LogReader.open(endpoints=endpoints, at_least=at_least, entry_filter=entry_filter)
    dir, cluster_dir, archive_dir, aeron_dir = map(text_or_none, (*given, aeron_directory))
    return LogReader.open(
        dir=dir,
        cluster_dir=cluster_dir,
        archive_dir=archive_dir,
        aeron_dir=aeron_dir,
        at_least=at_least,
        entry_filter=entry_filter,
    )


class _Diagnostics:
    """What goes to standard error: warnings once, damage as it is met, which makes the exit status 1."""

    def __init__(self, reader: LogReader) -> None:
        self._reader = reader
        self._is_damaged = False
        for damage in reader.damage:
            self.damage(damage)
        self._end = reader.end_position()  # warns of a log that was not stopped in order
        for warning in reader.warnings:
            print(f"warning: {warning}", file=sys.stderr)
        self._warned = len(reader.warnings)

    def damage(self, damage: LogDamaged) -> None:
        self._is_damaged = True
        sys.stdout.flush()
        print(f"damaged: {damage}", file=sys.stderr)

    def check_begin(self, position: int | None) -> None:
        """Warn of a ``--from`` after the log's end, where there is nothing to print."""
        if position is not None and position > self._end:
            print(f"warning: --from {position} is after the end of the log, {self._end}", file=sys.stderr)

    def finish(self) -> None:
        for warning in self._reader.warnings[self._warned :]:
            print(f"warning: {warning}", file=sys.stderr)
        if self._is_damaged:
            raise typer.Exit(1)


def _check_range(start: int | None, end: int | None) -> None:
    """Raise BadParameter for a range that ends before it begins."""
    if start is not None and end is not None and start > end:
        raise typer.BadParameter(f"{start}: expected a position up to --to, {end}", param_hint="--from")


def _first_entry(reader: LogReader, position: int | None) -> int | None:
    """Where ``--from position`` begins; damage before it is not reported. Raises DataLoss."""
    return None if position is None else reader.boundary_at_or_after(position, on_damage=lambda _: None)


def _last_entries(reader: LogReader, end: int, count: int, diagnostics: _Diagnostics) -> list[pa.RecordBatch]:
    """The last ``count`` entries before ``end``, looked for term by term from the end."""
    last: list[pa.RecordBatch] = []
    rows, begin = 0, end
    while rows < count and begin > reader.start_position:
        begin_of_term = max((begin - 1) // reader.term_length * reader.term_length, reader.start_position)
        found = list(reader.batches(begin_of_term, begin, on_damage=diagnostics.damage))
        rows += sum(batch.num_rows for batch in found)
        last[:0] = found
        begin = begin_of_term
    while last and rows > count:
        surplus = rows - count
        if last[0].num_rows <= surplus:
            rows -= last.pop(0).num_rows
        else:
            last[0] = last[0].slice(surplus)
            rows = count
    return last


def _write(batches: Iterator[pa.RecordBatch], format: Format, file: str) -> int:
    """Write aside and rename; return the number of entries."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from cluster.log.columns import ROW_SCHEMA
    from cluster.reader.file_systems import file_system_of, masked

    file_system, path = file_system_of(file)
    aside = f"{path}.tmp"
    count = 0
    try:
        with (
            file_system.open_output_stream(aside) as out,
            pa.ipc.new_file(out, ROW_SCHEMA)
            if format is Format.arrow
            else pq.ParquetWriter(out, ROW_SCHEMA) as writer,
        ):
            for batch in batches:
                writer.write_batch(batch)
                count += batch.num_rows
        file_system.move(aside, path)
    except BaseException as error:
        with suppress(OSError):
            file_system.delete_file(aside)
        if isinstance(error, OSError):
            what = "writing failed" if error.errno is not None else f"writing failed: {error}"
            raise StorageError(masked(file), error.errno, what) from error
        raise
    return count


def _append(reader: LogReader, folder: str, as_json: bool) -> None:
    """Export what is committed and not there yet; tell of each file, and where the files end."""
    from cluster.reader.exported_log import ExportedLog

    exported = ExportedLog(folder)
    written = []
    for file in exported.append(reader):
        written.append(file._asdict())
        if not as_json:
            print(file.path)
    if as_json:
        print(json.dumps({"folder": exported.where, "files": written, "end": exported.end_position}))
    else:
        print(f"{exported.where} has the log up to position {exported.end_position}")


def _print(batches: Iterator[pa.RecordBatch], payload: Payload, as_json: bool, is_flushed: bool) -> None:
    write = sys.stdout.write
    for batch in batches:
        for entry in _shown(batch, payload):
            write((json.dumps(entry) if as_json else _line(entry)) + "\n")
        if is_flushed:
            sys.stdout.flush()


def _shown(batch: pa.RecordBatch, payload: Payload) -> Iterator[dict[str, Any]]:
    """The rows with every value as JSON takes it, the payload as asked for."""
    import pyarrow.compute as pc

    names: list[str] = []
    columns: list[list[Any]] = []
    for name, column in zip(batch.schema.names, batch.columns):
        if column.null_count == batch.num_rows:
            continue
        if name == "timestamp":
            values = pc.strftime(column, format="%Y-%m-%dT%H:%M:%SZ").to_pylist()
        elif name == "payload":
            if payload is Payload.none:
                continue
            if payload is Payload.sha256:
                names.append("payloadLength")
                columns.append(pc.binary_length(column).to_pylist())
                name = "payloadSha256"
            show = _PAYLOADS[payload]
            values = [None if data is None else show(data) for data in column.to_pylist()]
        elif name == "encodedPrincipal":
            values = [None if data is None else _base64(data) for data in column.to_pylist()]
        else:
            values = column.to_pylist()
        names.append(name)
        columns.append(values)
    for row in zip(*columns):
        yield {name: value for name, value in zip(names, row) if value is not None}


def _base64(data: bytes) -> str:
    import base64

    return base64.b64encode(data).decode()


def _sha256(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()


def _text_or_base64(data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    if text.translate(_WHITE_SPACE).isprintable():
        return text
    return f"base64:{_base64(data)}"


_WHITE_SPACE = str.maketrans("\n\r\t", "   ")
_PAYLOADS = {
    Payload.text: _text_or_base64,
    Payload.base64: _base64,
    Payload.utf8: lambda data: data.decode("utf-8", "replace"),
    Payload.hex: lambda data: data.hex(),
    Payload.sha256: _sha256,
}
_HEAD = ("position", "endPosition", "leadershipTermId", "timestamp", "entryType", "clusterTime")


def _line(entry: dict[str, Any]) -> str:
    """An entry for people: where, which term, when, what, and the rest by name."""
    head = (
        f"{entry['position']:>12} {entry['endPosition']:>12} term {entry.get('leadershipTermId', '?')} "
        f"{entry.get('timestamp', '?')} {entry['entryType']}"
    )
    rest = (f"{name}={_text(value)}" for name, value in entry.items() if name not in _HEAD)
    return " ".join((head, *rest))


def _text(value: Any) -> str:
    """A value on one line: what would break it, or the next one, is quoted."""
    text = str(value)
    if text.isprintable() and " " not in text and text:
        return text
    return printable(json.dumps(text, ensure_ascii=False))
