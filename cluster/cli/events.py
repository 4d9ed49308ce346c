"""``cluster events``: what the members of a directory wrote into their logs, as one story by time."""

from __future__ import annotations

import heapq
import json
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from os import SEEK_END
from pathlib import Path
from typing import Annotated, Any, BinaryIO, NamedTuple

import typer

from cluster.cli.durations import TIMES, time_of
from cluster.cli.members import directory_option
from cluster.errors import ConfigurationError, NotAClusterDirectory, printable

app = typer.Typer(rich_markup_mode=None, add_completion=False)

LOG_NAMES = ("node.log", "backup.log", "audit.log", "audit-metrics.log")
LEVELS = ("debug", "info", "warning", "error", "critical")
POLL_S = 0.25
TAIL_BYTES = 16 * 1024
EPOCH = datetime.fromtimestamp(0, UTC)

EPILOG = """\b
Examples:
  cluster events
  cluster events --dir cluster-data --since 10m --level warning
  cluster events --dir cluster-data --follow --member 0 --member 2
  cluster events --dir cluster-data --json

Of every member of the directory it reads node.log, backup.log, audit.log and audit-metrics.log, and those
before them (node.log.1), and orders the lines by time: elections with the reason of each change, roles,
snapshots, repairs, errors, and what was refused to whom. The clocks are the members' own. Without --dir it is
CLUSTER_DIR, else ./cluster-data. A line of --json is as the member wrote it, with the keys "member" and
"file" added; it has the traceback of an error and the stacks of threads, too.
"""


class Event(NamedTuple):
    """A line of a log. One that is no JSON object has the time of the line before it, and its text."""

    time: datetime
    member: int  # -1: a backup's, or not known
    level: str
    text: str
    fields: dict[str, Any]


@app.command(epilog=EPILOG)
def events(
    directory: Annotated[Path, directory_option("A whole cluster's directory, or a member's.")],
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help=f"From then on: {TIMES}."),
    ] = None,
    level: Annotated[
        str, typer.Option(metavar="LEVEL", help="The least severe to show: info, warning or error.")
    ] = "info",
    members: Annotated[
        list[int] | None, typer.Option("--member", metavar="ID", help="Of this member only; may be repeated.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as lines come.")] = False,
    as_json: Annotated[bool, typer.Option("--json", "-j", help="One JSON object a line.")] = False,
) -> None:
    """Show what happened to all members, in the order of time."""
    if level not in LEVELS:
        raise ConfigurationError(f"--level is {level!r}; expected one of {', '.join(LEVELS)}")
    after = EPOCH if since is None else time_of("--since", since)
    logs = logs_in(directory)
    while True:
        for event in by_time(logs):
            is_wanted = event.time >= after and LEVELS.index(event.level) >= LEVELS.index(level)
            if is_wanted and (not members or event.member in members):
                print(json.dumps(event.fields) if as_json else event_text(event), flush=follow)
        if not follow:
            return
        time.sleep(POLL_S)


def by_time(logs: list[EventLog]) -> Iterator[Event]:
    """What has come into any of the logs since the last call, by time."""
    return heapq.merge(*(log.lines() for log in logs), key=lambda event: event.time)


class LastEvents:
    """The newest lines of all logs in a directory; none where it has no logs."""

    def __init__(self, directory: Path, count: int) -> None:
        self._logs: list[EventLog] = []
        with suppress(NotAClusterDirectory):
            self._logs = logs_in(directory, tail_bytes=TAIL_BYTES)
        self._newest: deque[str] = deque(maxlen=count)

    def look(self) -> list[str]:
        """At most ``count`` of them, for people."""
        self._newest.extend(event_text(event) for event in by_time(self._logs) if event.level != "debug")
        return list(self._newest)


def logs_in(directory: Path, tail_bytes: int | None = None) -> list[EventLog]:
    """The logs of every member in a directory, each from its begin on or from so many bytes before its end.

    Raises NotAClusterDirectory.
    """
    from cluster.cli.running_member import member_id_of

    if not directory.is_dir():
        raise NotAClusterDirectory(f"{directory}: no such directory")
    folders = sorted(path for path in directory.glob("*") if path.is_dir())
    found = []
    for folder in [directory, *folders]:
        names = [name for name in LOG_NAMES if (folder / name).exists() or (folder / f"{name}.1").exists()]
        if not names:
            continue
        found += [EventLog(folder / name, member_id_of(folder), tail_bytes) for name in names]
    if not found:
        raise NotAClusterDirectory(
            f"{directory}: no {', '.join(LOG_NAMES)} is in it or in a member's directory in it"
        )
    return found


class EventLog:
    """One log and the file before it, read on from where the last call of ``lines`` ended."""

    def __init__(self, path: Path, member: int, tail_bytes: int | None = None) -> None:
        self._path = path
        self._tail_bytes = tail_bytes  # of the first look
        self._member = member
        self._time = EPOCH
        self._file: BinaryIO | None = None
        self._rest = b""

    def lines(self) -> Iterator[Event]:
        """What has come since the last call, in the order in which it was written."""
        if self._tail_bytes is not None:
            self._open_at_tail(self._tail_bytes)
            self._tail_bytes = None
        if self._file is None:
            with (
                suppress(FileNotFoundError),
                self._path.with_name(f"{self._path.name}.1").open("rb") as before,
            ):
                yield from self._events(before)
                yield from self._last()
        else:
            yield from self._events(self._file)
            if not self._is_replaced():
                return
            yield from self._last()
            self._file.close()
            self._file = None
        with suppress(FileNotFoundError):
            self._file = self._path.open("rb")
            yield from self._events(self._file)

    def _open_at_tail(self, tail_bytes: int) -> None:
        with suppress(FileNotFoundError):
            self._file = self._path.open("rb")
            end = self._file.seek(0, SEEK_END)
            if self._file.seek(max(0, end - tail_bytes)):
                self._file.readline()  # the rest of one

    def _is_replaced(self) -> bool:
        """Whether the file's name is another file's now, or nobody's."""
        assert self._file is not None
        try:
            return not self._path.samefile(f"/proc/self/fd/{self._file.fileno()}")
        except FileNotFoundError:
            return True

    def _events(self, lines: Iterable[bytes]) -> Iterator[Event]:
        """A line that is not whole is kept until its rest has come."""
        for line in lines:
            line, self._rest = self._rest + line, b""
            if not line.endswith(b"\n"):
                self._rest = line
            elif line.strip():
                yield self._event(line)

    def _last(self) -> Iterator[Event]:
        """What a file that nobody writes any more ends with."""
        rest, self._rest = self._rest, b""
        if rest:
            yield self._event(rest)

    def _event(self, line: bytes) -> Event:
        text = line.decode(errors="replace").rstrip("\n")
        try:
            fields = json.loads(text)
            at = datetime.fromisoformat(fields.get("timestamp") or fields["time"])
            self._time = max(self._time, at)  # a clock that was set back does not turn the file around
        except (ValueError, KeyError, TypeError, AttributeError):
            fields = {"event": text}
        fields = {"member": self._member, **fields, "file": str(self._path)}
        level = fields.get("level", "warning" if "why" in fields else "info")
        level = level if level in LEVELS else "info"
        return Event(self._time, self._member, level, _said(fields), fields)


def _said(fields: dict[str, Any]) -> str:
    """The event with what else its line has."""
    if "event" not in fields and "what" in fields:  # of an audit.log
        who = fields.get("principal") or "somebody"
        return f"refused {fields['what']} to {who} at {fields.get('peer')}: {fields.get('why')}"
    known = ("event", "level", "timestamp", "time", "member", "file", "trace", "stacks")
    rest = "".join(f" {key}={value}" for key, value in fields.items() if key not in known)
    return f"{fields.get('event')}{rest}"


def event_text(event: Event) -> str:
    """A line for people."""
    at = event.time.astimezone(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00")
    level = "" if event.level == "info" else f"{event.level.upper()}: "
    return f"{at}Z  {'-' if event.member < 0 else event.member:>3}  {level}{printable(event.text)}"
