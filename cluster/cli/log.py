"""``cluster log``: the committed log as text, JSON lines, Arrow or Parquet."""

from __future__ import annotations

import base64
import functools
import hashlib
import inspect
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_args
from urllib.parse import urlsplit

import typer

from cluster.cli.connecting import connects
from cluster.cli.durations import TIMES, time_of
from cluster.cli.log_files import Format, Partition, write_columns, write_csv
from cluster.cli.members import (
    ConsensusEndpoints,
    OptionalEndpoints,
    check_is_alone,
    optional_directory,
    place,
    text_or_none,
)
from cluster.cli.printable import plain
from cluster.cli.verbs import Verb, Verbs, json_option, print_result
from cluster.errors import LogDamaged, printable

if TYPE_CHECKING:
    import pyarrow as pa

    from cluster.reader import LogReader

app = typer.Typer(cls=Verbs, rich_markup_mode=None, add_completion=False, no_args_is_help=True)

NAMES = """Every entry has the columns position, endPosition, leadershipTermId, entryType, timestamp and
clusterTime. Depending on its type it also has clusterSessionId, correlationId, payload, responseStreamId,
responseChannel, encodedPrincipal, closeReason, action, actionFlags, termBaseLogPosition, leaderMemberId,
logSessionId, timeUnit and appVersion.
"""

DUMP = f"""\b
Examples:
  cluster log dump --dir cluster-data/member-0
  cluster log dump --dir member-0 --from 139424 --json --payload sha256
  cluster log dump --cluster-dir /data/aeron-cluster --archive-dir /data/aeron-archive --payload utf8
  cluster log dump --endpoints 127.0.0.1:9000 --follow --json
  cluster log dump --dir cluster-data/member-0 --type TIMER --type SESSION_MESSAGE --session 1
  cluster log dump --dir cluster-data/member-0 --term 0 --since 2020-01-31T12:00:00Z

{NAMES}"""

TAIL = """\b
Examples:
  cluster log tail --dir cluster-data/member-0
  cluster log tail -n 100 --follow --endpoints 127.0.0.1:9000
  cluster log tail --type SESSION_OPEN --dir cluster-data/member-0
  cluster log tail --consensus-endpoints 10.0.0.5:9003,10.0.0.6:9003 --aeron-dir /dev/shm/aeron
  cluster log tail --aeron-archive 10.0.0.5:8010 --recording-id 3 --aeron-dir /dev/shm/aeron
"""

EXPORT = """\b
Examples:
  cluster log export --dir cluster-data/member-0 --format parquet log.parquet
  cluster log export --dir member-0 --format arrow --from 139424 log.arrow
  cluster log export --dir cluster-data/member-0 log.csv
  cluster log export --dir cluster-data/member-0 --partition day by-day
  cluster log export --dir cluster-data/member-0 --append exported

The file has the columns of `cluster log dump`, with types (except in CSV), and is written whole or not at
all. FILE may be a URI such as s3://bucket/log.parquet. DuckDB, polars and Spark read a folder that
--partition makes as one table: SELECT * FROM read_parquet('by-day/**/*.parquet', hive_partitioning = true).
With --append, FILE is a folder of Parquet files, each named by its range of positions; each run adds what was
committed since the last one.
"""


OpenPart = Any  # a partial of ``_open``


class Payload(StrEnum):
    """How a payload is shown; ``text`` is text where that is printable, and base64 of the rest."""

    base64 = "base64"
    utf8 = "utf8"
    hex = "hex"
    none = "none"
    sha256 = "sha256"
    text = "text"


# Of lines on a terminal; messages are as they are.
COLOURS = {
    "SESSION_OPEN": "green",
    "SESSION_CLOSE": "yellow",
    "TIMER": "blue",
    "CLUSTER_ACTION": "magenta",
    "NEW_LEADERSHIP_TERM": "cyan",
}


class EntryType(StrEnum):
    """Of an entry."""

    SESSION_MESSAGE = "SESSION_MESSAGE"
    SESSION_OPEN = "SESSION_OPEN"
    SESSION_CLOSE = "SESSION_CLOSE"
    TIMER = "TIMER"
    CLUSTER_ACTION = "CLUSTER_ACTION"
    NEW_LEADERSHIP_TERM = "NEW_LEADERSHIP_TERM"


# Which log, and which part of it: every verb has these.
OPTIONS: dict[str, tuple[Any, Any]] = {
    "directory": (
        Path | None,
        optional_directory(
            "A member's directory, of this project's or of a real Aeron Cluster, or a whole cluster's."
        ),
    ),
    "cluster_dir": (Path | None, typer.Option(help="The member's cluster directory, if it is elsewhere.")),
    "archive_dir": (Path | None, typer.Option(help="The member's archive directory, if it is elsewhere.")),
    "aeron_dir": (
        Path | None,
        typer.Option(help="Folder of the member's cnc.dat, or of the media driver on this host."),
    ),
    "endpoints": get_args(OptionalEndpoints),
    "consensus_endpoints": get_args(ConsensusEndpoints),
    "aeron_archive": (
        str | None,
        typer.Option(metavar="HOST:PORT", help="Read an Aeron Archive instead, by its control endpoint."),
    ),
    "recording_id": (
        int | None,
        typer.Option(metavar="N", help="With --aeron-archive: id of the recording.", min=0),
    ),
    "at_least": (
        str | None,
        typer.Option(
            help="First wait until the log is committed as far as this position token of a client says.",
            metavar="TOKEN",
        ),
    ),
    "from_position": (
        int | None,
        typer.Option("--from", help="Position in bytes to begin at (default: the log's start).", min=0),
    ),
    "to_position": (
        int | None,
        typer.Option("--to", help="Position in bytes to end before (default: the log's end).", min=0),
    ),
    "since": (str | None, typer.Option(metavar="TIME", help=f"Only entries from this time on: {TIMES}.")),
    "until": (str | None, typer.Option(metavar="TIME", help="Only entries before this time.")),
    "term": (int | None, typer.Option(help="Only entries of this leadership term.", min=0)),
    "types": (
        list[EntryType],
        typer.Option(
            "--type", help="Only entries of this type; may be repeated.", case_sensitive=False, metavar="TYPE"
        ),
    ),
    "sessions": (
        list[int],
        typer.Option("--session", help="Only entries of this session; may be repeated.", metavar="ID"),
    ),
}
PayloadOption = Annotated[
    Payload | None, typer.Option(help="How payloads are shown.", show_default="text; base64 with --json")
]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Keep printing entries as they are committed.")]
AsJson = Annotated[bool, json_option("Print one JSON object per entry.")]


@app.callback(epilog="\b\nExample:\n  cluster log tail --follow --dir cluster-data/member-0")
def _log() -> None:
    """Dump, follow or export the committed log."""


class Part(NamedTuple):
    """The log that a command line names, opened, and which positions of it are wanted; None: no bound."""

    reader: LogReader
    diagnostics: _Diagnostics
    begin: int | None
    end: int | None


def of_a_log(command: Callable[..., None]) -> Callable[..., None]:
    """The command with ``OPTIONS``: its first argument opens the ``Part`` of a log that they say."""

    @functools.wraps(command)
    def with_options(**arguments: Any) -> None:
        command(partial(_open, **{name: arguments.pop(name) for name in OPTIONS}), **arguments)

    _, *own = inspect.signature(command, eval_str=True).parameters.values()
    options = (
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=[] if kind in (list[int], list[EntryType]) else None,
            annotation=Annotated[kind, option],
        )
        for name, (kind, option) in OPTIONS.items()
    )
    own = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
    with_options.__signature__ = inspect.Signature([*options, *own])  # type: ignore[attr-defined]
    return connects(with_options)


@app.command(epilog=DUMP)
@of_a_log
def dump(
    open_part: OpenPart, payload: PayloadOption = None, follow: Follow = False, as_json: AsJson = False
) -> None:
    """Print the entries in order, one per line."""
    with open_part(follow) as (reader, diagnostics, begin, end):
        entries = reader.follow if follow else reader.batches
        _print(entries(begin, end, on_damage=diagnostics.damage), payload, as_json, follow)


@app.command(epilog=TAIL)
@of_a_log
def tail(
    open_part: OpenPart,
    count: Annotated[
        int, typer.Option("--count", "-n", help="How many of the last entries to print.", min=0)
    ] = 10,
    payload: PayloadOption = None,
    follow: Follow = False,
    as_json: AsJson = False,
) -> None:
    """Print the last entries; with --follow, also new ones."""
    with open_part(follow) as (reader, diagnostics, begin, end):
        now = reader.commit_position() if follow else reader.end_position()
        last = _last_entries(reader, begin or 0, now if end is None else min(now, end), count, diagnostics)
        _print(iter(last), payload, as_json, follow)
        if follow:
            _print(reader.follow(now, end, on_damage=diagnostics.damage), payload, as_json, follow)


@app.command(cls=Verb, epilog=EXPORT)
@of_a_log
def export(
    open_part: OpenPart,
    file: Annotated[str, typer.Argument(help="File or folder to write.", metavar="FILE")],
    format: Annotated[
        Format | None, typer.Option(help="Format of the file. Default: by its extension.")
    ] = None,
    partition: Annotated[
        Partition | None,
        typer.Option(help="Write a folder of Parquet files, with a subfolder for each of these."),
    ] = None,
    payload: PayloadOption = None,
    cluster_id: Annotated[
        int, typer.Option(help="With --append and --consensus-endpoints: the cluster's id.")
    ] = 0,
    is_appended: Annotated[
        bool, typer.Option("--append", help="Add to a folder the entries that it does not have yet.")
    ] = False,
    as_json: Annotated[bool, json_option("Print one JSON object about what was written.")] = False,
) -> None:
    """Write the entries as Parquet or Arrow IPC files with typed columns, or as CSV."""
    from cluster.reader.file_systems import masked

    if is_appended:
        keywords = open_part.keywords
        bounds = (keywords[name] for name in ("from_position", "to_position", "since", "until", "term"))
        chosen = (*bounds, *keywords["types"], *keywords["sessions"], partition)
        if format not in (None, Format.parquet) or any(value is not None for value in chosen):
            raise typer.BadParameter(
                "it exports the whole log, as Parquet",
                param_hint="--append",
            )
        with open_part(cluster_id=cluster_id) as (reader, *_):
            _check_entries(reader, "--append")
            _append(reader, file, as_json)
        return
    if partition is not None and format is None:
        format = Format.parquet
    elif format is None:
        suffix = Path(urlsplit(file).path).suffix.lstrip(".")
        if suffix not in Format.__members__:
            expected = ", ".join(Format)
            raise typer.BadParameter(
                f"expected one of {expected}, or FILE with such an extension", param_hint="--format"
            )
        format = Format(suffix)
    if partition is not None and format is not Format.parquet:
        raise typer.BadParameter("it takes --format parquet alone", param_hint="--partition")
    if payload is not None and format is not Format.csv:
        raise typer.BadParameter("it is for csv; other formats have the bytes", param_hint="--payload")
    with open_part(cluster_id=cluster_id) as (reader, diagnostics, begin, end):
        if partition is not None:
            _check_entries(reader, "--partition")
        batches = reader.batches(begin, end, on_damage=diagnostics.damage)
        if format is Format.csv:
            rows = (row for batch in batches for row in _shown(batch, payload or Payload.text))
            count = write_csv(rows, reader.schema, file)
        else:
            count = write_columns(batches, reader.schema, format, partition, file)
        done = {"file": masked(file), "format": format.value, "entries": count}
        print_result(as_json, done, f"{count} entries in {masked(file)}")


@contextmanager
def _open(is_followed: bool = False, *, cluster_id: int = 0, **options: Any) -> Iterator[Part]:
    """The part that ``OPTIONS`` of a command line say. At the end damage makes the exit status 1."""
    from cluster.log.entry_filter import EntryFilter
    from cluster.reader import LogReader

    given = SimpleNamespace(**options)
    begin, end = given.from_position, given.to_position
    if begin is not None and end is not None and begin > end:
        raise typer.BadParameter(f"{begin}: expected a position up to --to, {end}", param_hint="--from")
    if is_followed and (given.until is not None or given.term is not None):
        raise typer.BadParameter("leave out --until and --term with it", param_hint="--follow")
    first_us, end_us = _micros("--since", given.since), _micros("--until", given.until)
    entry_filter = EntryFilter(tuple(given.types) or tuple(EntryType), tuple(given.sessions))
    named: dict[str, Any] = {"at_least": given.at_least, "entry_filter": entry_filter}
    if given.recording_id is not None and given.aeron_archive is None:
        raise typer.BadParameter("it needs --aeron-archive", param_hint="--recording-id")
    if given.consensus_endpoints is not None or given.aeron_archive is not None:
        others = given.endpoints, given.directory, given.cluster_dir, given.archive_dir
        check_is_alone(given.consensus_endpoints, *others, given.aeron_archive)
        check_is_alone(given.aeron_archive, *others, option="--aeron-archive")
        names = ("consensus_endpoints", "aeron_archive", "recording_id")
        named |= {name: options[name] for name in names} | {"cluster_id": cluster_id}
        named["aeron_dir"] = text_or_none(given.aeron_dir)
    else:
        directory, endpoints = given.directory, given.endpoints
        if given.cluster_dir is None and given.archive_dir is None:
            directory, endpoints = place(directory, endpoints)
        elif endpoints is not None:
            raise typer.BadParameter("give either --dir or --endpoints, not both", param_hint="--dir")
        if endpoints is not None:
            named["endpoints"] = endpoints
        else:
            dirs = {name: options[name] for name in ("cluster_dir", "archive_dir", "aeron_dir")}
            named |= {name: text_or_none(path) for name, path in (dirs | {"dir": directory}).items()}
    with LogReader.open(**named) as reader:
        diagnostics = _Diagnostics(reader)
        if not is_followed:
            diagnostics.check_begin(given.from_position)
        begins, ends = [], [given.to_position]
        if given.from_position is not None:  # damage before it is not reported
            begins.append(reader.boundary_at_or_after(given.from_position, on_damage=lambda _: None))
        if given.since is not None:
            begins.append(_first(reader, "timestamp", first_us))
        if given.until is not None:
            ends.append(_first(reader, "timestamp", end_us))
        if given.term is not None:
            begins.append(_first(reader, "leadershipTermId", given.term))
            ends.append(_first(reader, "leadershipTermId", given.term + 1))
        begin = max(begins, default=None)
        end = min((position for position in ends if position is not None), default=None)
        if begin is not None and end is not None:
            end = max(begin, end)
        yield Part(reader, diagnostics, begin, end)
        diagnostics.finish()


def _micros(option: str, text: str | None) -> int:
    return 0 if text is None else int(time_of(option, text).timestamp() * 1e6)


def _first(reader: LogReader, column: str, least: int) -> int:
    """Where the first entry is whose ``column`` is ``least`` or more, else the log's end."""
    from cluster.reader.search import first_entry

    end = reader.end_position()
    found = first_entry(reader, column, least, reader.earliest_position(), end)
    return end if found is None else found


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


def _last_entries(
    reader: LogReader, least: int, end: int, count: int, diagnostics: _Diagnostics
) -> list[pa.RecordBatch]:
    """The last ``count`` entries of ``[least, end)``, looked for term buffer by term buffer from the end."""
    last: list[pa.RecordBatch] = []
    least = max(least, reader.start_position)
    rows, begin = 0, end
    while rows < count and begin > least:
        begin_of_term = max((begin - 1) // reader.term_length * reader.term_length, least)
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


def _check_entries(reader: LogReader, option: str) -> None:
    if "entryType" not in reader.schema.names:
        what = "it is for a cluster's log, and this recording has fragments of something else"
        raise typer.BadParameter(what, param_hint=option)


def _append(reader: LogReader, folder: str, as_json: bool) -> None:
    """Export what is committed and not there yet; report each file, and where the files end."""
    from cluster.reader.exported_log import ExportedLog

    exported = ExportedLog(folder)
    written = []
    for file in exported.append(reader):
        written.append(file._asdict())
        if not as_json:
            print(file.path)
    end = exported.end_position
    done = {"folder": exported.where, "files": written, "end": end}
    print_result(as_json, done, f"{exported.where} has the log up to position {end}")


def _print(
    batches: Iterator[pa.RecordBatch], payload: Payload | None, as_json: bool, is_flushed: bool
) -> None:
    payload = payload or (Payload.base64 if as_json else Payload.text)
    is_coloured = not as_json and sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    write = (plain(sys.stdout) if is_coloured else sys.stdout).write
    for batch in batches:
        for entry in _shown(batch, payload):
            line = json.dumps(entry) if as_json else _line(entry)
            if is_coloured and (colour := COLOURS.get(entry.get("entryType", ""))):
                line = typer.style(printable(line), fg=colour)
            write(line + "\n")
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
    return base64.b64encode(data).decode()


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
    Payload.sha256: lambda data: hashlib.sha256(data).hexdigest(),
}
_HASH = re.compile(r"(resume-hash=[0-9a-f]{8})[0-9a-f]{56}")
_HEAD = ("position", "endPosition", "leadershipTermId", "timestamp", "entryType", "clusterTime")


def _line(entry: dict[str, Any]) -> str:
    """An entry for people: where, which term, when, what, and the rest by name; of a fragment only where."""
    head = f"{entry['position']:>12} {entry['endPosition']:>12}"
    if "entryType" in entry:
        head += (
            f" term {entry.get('leadershipTermId', '?')} {entry.get('timestamp', '?')} {entry['entryType']}"
        )
    if channel := entry.get("responseChannel"):  # whose 64 digits only a program compares
        entry = entry | {"responseChannel": _HASH.sub(r"\1...", channel)}
    rest = (f"{name}={_text(value)}" for name, value in entry.items() if name not in _HEAD)
    return " ".join((head, *rest))


def _text(value: Any) -> str:
    """A value on one line: what would break it, or the next one, is quoted."""
    text = str(value)
    if text.isprintable() and " " not in text and text:
        return text
    if text.isprintable() and '"' in text and "'" not in text and "\\" not in text:
        return f"'{text}'"  # JSON, which escapes would make hard to read
    return printable(json.dumps(text, ensure_ascii=False))
