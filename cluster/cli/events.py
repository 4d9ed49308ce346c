"""``cluster events``: what members wrote into their logs for people, as one story by time."""

from __future__ import annotations

import heapq
import json
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, cast

import typer

from cluster.cli.connecting import connects
from cluster.cli.durations import TIMES, time_of
from cluster.cli.members import OptionalEndpoints, ask_members, members_at, optional_directory, place
from cluster.cli.verbs import json_option
from cluster.errors import ClusterError, ConfigurationError, NotAClusterDirectory, printable
from cluster.protocol.link import EndOfStream, EventLines, EventsRequest, LinkErrorCode
from cluster.transport.endpoint import Endpoint
from cluster.transport.event_logs import LOG_NAMES, STACKS_FILE_NAME, EventLogs

if TYPE_CHECKING:
    from cluster.transport.log_client import LogClient

app = typer.Typer(rich_markup_mode=None, add_completion=False)

LEVELS = ("debug", "info", "warning", "error", "critical")
POLL_S = 0.25
TIMEOUT_S = 2.0  # of a member that is asked
TAIL_BYTES = 16 * 1024  # of a log that is fetched
TAIL_BYTES_HERE = 512 * 1024  # of one on this disk: at level debug most of its lines are messages
EPOCH = datetime.fromtimestamp(0, UTC)

EPILOG = """\b
Examples:
  cluster events
  cluster events --dir cluster-data --since 10m --level warning
  cluster events --dir cluster-data --follow --member 0 --member 2
  cluster events --dir cluster-data --json
  cluster events --endpoints 127.0.0.1:9000 --follow

It reads node.log, backup.log, audit.log and audit-metrics.log of every member in the directory, with the
older files (node.log.1), and sorts the lines by time: elections with the reason for each change, roles,
snapshots, repairs, errors, and which requests were refused. Each time is by the clock of the member that
wrote the line. With --endpoints all members are asked for their logs, which needs the right read; a member
that does not answer is named on standard error. Without --dir and --endpoints the command asks
CLUSTER_ENDPOINTS, else reads the directory in CLUSTER_DIR, else ./cluster-data. With --json a line is as the
member wrote it, with tracebacks and thread stacks, plus the keys "member" and "file".
"""


class Event(NamedTuple):
    """A line of a log. One that is no JSON object has the time of the line before it, and its text."""

    time: datetime
    member: int  # -1: a backup's, or not known
    level: str
    text: str
    fields: dict[str, Any]


@app.command(epilog=EPILOG)
@connects
def events(
    directory: Annotated[
        Path | None, optional_directory("A whole cluster's directory, or a member's.")
    ] = None,
    endpoints: OptionalEndpoints = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help=f"Show only what happened since: {TIMES}."),
    ] = None,
    level: Annotated[
        str,
        typer.Option(
            metavar="LEVEL", help="The lowest level to show: debug, info, warning, error or critical."
        ),
    ] = "info",
    members: Annotated[
        list[int] | None,
        typer.Option("--member", metavar="ID", help="Show only this member; may be repeated."),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing new lines.")] = False,
    as_json: Annotated[bool, json_option("Print one JSON object per line.")] = False,
) -> None:
    """Show what happened on all members, in order of time."""
    if level not in LEVELS:
        raise ConfigurationError(f"--level is {level!r}; expected one of {', '.join(LEVELS)}")
    after = EPOCH if since is None else time_of("--since", since)
    directory, endpoints = place(directory, endpoints)
    logs: list[Lines] = []
    if directory is None:
        logs.append(RemoteLogs(endpoints or "", _say_missing, since=after))
    else:
        logs.extend(logs_in(directory, since=after))
    while True:
        found = by_time(logs)
        _check_ids(members or [], logs)
        for event in found:
            is_wanted = event.time >= after and LEVELS.index(event.level) >= LEVELS.index(level)
            if is_wanted and (not members or event.member in members):
                print(json.dumps(event.fields) if as_json else event_text(event), flush=follow)
        if not follow:
            raise typer.Exit(int(any(isinstance(each, RemoteLogs) and each.are_silent for each in logs)))
        time.sleep(POLL_S)


def _check_ids(wanted: list[int], logs: list[Lines]) -> None:
    """Refuse who is not there, unless somebody does not answer who may be it."""
    there = {member_id for log in logs for member_id in log.member_ids}
    missing = [member_id for member_id in wanted if member_id not in there]
    if missing and min(there, default=-1) >= 0:
        raise ConfigurationError(f"no member {missing[0]} here: {', '.join(map(str, sorted(there)))}")


def _say_missing(error: ClusterError) -> None:
    print(f"{printable(str(error))}: its events are missing", file=sys.stderr)


def by_time(logs: Iterable[Lines]) -> Iterator[Event]:
    """What has come into any of the logs since the last call, by time."""
    return heapq.merge(*(log.lines() for log in logs), key=lambda event: event.time)


class LastEvents:
    """The newest lines of some logs."""

    def __init__(self, logs: list[Lines], count: int) -> None:
        self._logs = logs
        self._newest: deque[str] = deque(maxlen=count)

    def look(self) -> list[str]:
        """At most ``count`` of them, for people."""
        self._newest.extend(event_text(event) for event in by_time(self._logs) if event.level != "debug")
        return list(self._newest)


def last_logs(directory: Path | None, endpoints: str | None) -> list[Lines]:
    """The ends of all logs there are, and what comes; nothing of members that do not answer."""
    if directory is None:
        return [RemoteLogs(endpoints or "", lambda _: None, tail_bytes=TAIL_BYTES)]
    with suppress(NotAClusterDirectory):
        return [*logs_in(directory, tail_bytes=TAIL_BYTES_HERE)]
    return []


def logs_in(directory: Path, tail_bytes: int = 0, since: datetime = EPOCH) -> list[EventLog]:
    """The logs of every member in a directory, from about a time on or from so many bytes before their ends.

    Raises NotAClusterDirectory.
    """
    from cluster.cli.running_member import member_id_of

    if not directory.exists():
        raise NotAClusterDirectory(f"{directory}: no such directory")
    folders = sorted(path for path in directory.glob("*") if path.is_dir())
    found = []
    for folder in [directory, *folders]:
        if not any(os.path.exists(folder / f"{name}{end}") for name in LOG_NAMES for end in ("", ".1")):
            continue
        member_id = member_id_of(folder)
        read = EventLogs(str(folder), member_id).lines
        found += [
            EventLog(read, log, str(folder), tail_bytes, since, member_id) for log in range(len(LOG_NAMES))
        ]
    if not found:
        raise NotAClusterDirectory(
            f"{directory}: no {', '.join(LOG_NAMES)} is in it or in a member's directory in it"
        )
    return found


class EventLog:
    """One log and the file before it, read on from where the last call of ``lines`` ended."""

    def __init__(
        self,
        read: Callable[[EventsRequest], Iterable[EventLines]],
        log: int,
        place: str,
        tail_bytes: int = 0,
        since: datetime = EPOCH,
        member_id: int = -1,
    ) -> None:
        """``log`` is a number in LOG_NAMES, ``place`` and ``member_id`` whose it is."""
        self._read = read
        self._name = f"{place}/{LOG_NAMES[log]}"
        self._request = EventsRequest(0, 0, -tail_bytes, int(since.timestamp() * 1000), log)
        self._member = member_id
        self._time = EPOCH
        self._rest = b""
        self._why_not = ""  # it could not be read the last time

    @property
    def member_ids(self) -> set[int]:
        """Of members; a backup has none."""
        return {self._member} - {-1}

    def lines(self) -> Iterator[Event]:
        """What has come since the last call, in the order in which it was written; once why it cannot be."""
        return self._with_failure(self._events(self._read(self._request)))

    def _with_failure(self, events: Iterator[Event]) -> Iterator[Event]:
        why_not = ""
        try:
            yield from events
        except OSError as error:
            why_not = f"{self._name} cannot be read, its events are missing: {error.strerror or error}"
        if why_not and why_not != self._why_not:
            now = datetime.now(UTC)
            fields = {
                "member": self._member,
                "event": why_not,
                "level": "error",
                "timestamp": now.isoformat(),
            }
            yield Event(now, self._member, "error", why_not, {**fields, "file": self._name})
        self._why_not = why_not

    def _events(self, blocks: Iterable[EventLines]) -> Iterator[Event]:
        """A line that is not whole is kept until its rest has come, or its file was replaced."""
        for block in blocks:
            if block.inode != self._request.inode and self._rest:
                yield self._event(self._rest)
                self._rest = b""
            self._request = self._request.replace(inode=block.inode, offset=block.offset)
            self._member = block.member_id
            *lines, self._rest = (self._rest + block.lines).split(b"\n")
            yield from (self._event(line) for line in lines if line.strip())

    def _event(self, line: bytes) -> Event:
        text = line.decode(errors="replace")
        try:
            fields = json.loads(text)
            at = datetime.fromisoformat(fields.get("timestamp") or fields["time"])
            self._time = max(self._time, at)  # a clock that was set back does not turn the file around
        except (ValueError, KeyError, TypeError, AttributeError):
            fields = {"event": text}
        fields = {"member": self._member, **fields, "file": self._name}
        level = fields.get("level", "warning" if "why" in fields else "info")
        level = level if level in LEVELS else "info"
        return Event(self._time, self._member, level, _said(fields), fields)


@dataclass
class RemoteLogs:
    """The logs of all members of a running cluster, as one by time."""

    endpoints: str
    on_silence: Callable[[ClusterError], None]  # hears once of a member that does not answer, until it does
    since: datetime = EPOCH
    tail_bytes: int = 0
    _silent: set[str] = field(default_factory=set)
    _logs: dict[str, list[EventLog]] = field(default_factory=dict)
    member_ids: set[int] = field(default_factory=set)  # below 0 of a member that has not said its id

    def lines(self) -> Iterator[Event]:
        """What has come since the last call, by time. Raises ConfigurationError."""
        if self.are_silent:
            self._find_members()
        with ThreadPoolExecutor(len(self._logs)) as pool:
            answers = dict(zip(self._logs, pool.map(_ask, self._logs.values()), strict=True))
        for endpoint, answer in answers.items():
            if isinstance(answer, ClusterError) and endpoint not in self._silent:
                self.on_silence(answer)
        self._silent = {name for name, answer in answers.items() if isinstance(answer, ClusterError)}
        found = chain(*(answer for answer in answers.values() if isinstance(answer, list)))
        return heapq.merge(*found, key=lambda event: event.time)

    def _find_members(self) -> None:
        """Each says where the others are."""
        known = members_at(self.endpoints)
        ask_members(known)
        self.member_ids = set(known)
        for endpoint in known.values():
            if str(endpoint) not in self._logs:
                read = _reader(endpoint)
                self._logs[str(endpoint)] = [
                    EventLog(read, log, str(endpoint), self.tail_bytes, self.since)
                    for log in range(len(LOG_NAMES))
                ]

    @property
    def are_silent(self) -> bool:
        """Whether no member has answered the last time."""
        return len(self._silent) == len(self._logs)


Lines = EventLog | RemoteLogs  # one log, or some as one by time


def _ask(logs: list[EventLog]) -> list[Iterator[Event]] | ClusterError:
    """Who fails has lost nothing: the next answer goes on where the last one ended."""
    try:
        return [log.lines() for log in logs]
    except ClusterError as error:
        return error


def log_ends(endpoints: str, size: int) -> dict[int, dict[str, bytes] | ClusterError]:
    """The last bytes of each member's logs by name, or why it does not answer; by id, as of ``ask_members``.

    And its stacks, unless it is of a release before. Raises ConfigurationError.
    """
    known = members_at(endpoints)
    answers = ask_members(known)
    names = (*LOG_NAMES, STACKS_FILE_NAME)

    def ends_of(member_id: int) -> dict[str, bytes] | ClusterError:
        if isinstance(answer := answers[member_id], ClusterError):
            return answer
        read = _reader(known[member_id])
        try:
            found = [read(EventsRequest(0, 0, -size, 0, log)) for log in range(len(names))]
        except ClusterError as error:
            return error
        ends = map(_text_of, found)
        return {name: end for name, end in zip(names, ends, strict=True) if end}

    with ThreadPoolExecutor(len(answers)) as pool:
        return dict(zip(answers, pool.map(ends_of, answers), strict=True))


def _text_of(blocks: Iterable[EventLines]) -> bytes:
    """What they have; why the log cannot be read beside it."""
    found: list[bytes] = []
    try:
        found.extend(block.lines for block in blocks)
    except OSError as error:
        found.append(f"{error}\n".encode())
    return b"".join(found)


def _reader(endpoint: Endpoint) -> Callable[[EventsRequest], Iterable[EventLines]]:
    """Asks the member there for its logs."""
    from cluster.transport.member_status import log_client_opener

    return partial(_asked, log_client_opener(TIMEOUT_S)(endpoint))


def _asked(client: LogClient, request: EventsRequest) -> Iterable[EventLines]:
    """All of the answer: a member does not wait while what others have said is printed.

    Raises OSError in the end, of a log that the member cannot read.
    """
    answers = list(client.read_events(request))
    end = answers.pop()
    assert isinstance(end, EndOfStream)
    if end.code not in (LinkErrorCode.OK, LinkErrorCode.FAILED):
        raise ClusterError(end.text)
    return _whole(cast(list[EventLines], answers), end.text)


def _whole(answers: list[EventLines], why_not: str) -> Iterator[EventLines]:
    yield from answers
    if why_not:
        raise OSError(why_not)


def _said(fields: dict[str, Any]) -> str:
    """The event with what else its line has."""
    if "event" not in fields and "what" in fields:  # of an audit.log
        what, who = fields["what"], f"{fields.get('principal') or 'somebody'} at {fields.get('peer')}"
        if "outcome" in fields:
            return f"{what} for {who}: {fields['outcome']}"
        return f"refused {what} to {who}: {fields.get('why')}"
    known = ["event", "level", "timestamp", "time", "member", "file", "trace", "stacks"]
    if "more" in fields:
        known.append("kind")  # ``why`` is an example of it
    texts = (_field_text(key, value) for key, value in fields.items() if key not in known)
    return f"{fields.get('event')}{''.join(texts)}"


def _field_text(key: str, value: Any) -> str:
    if key == "in_order":
        return " in order" if value else ""
    return f" ({value} more)" if key == "more" else f" {key}={value}"


def event_text(event: Event) -> str:
    """A line for people."""
    at = event.time.astimezone(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00")
    level = "" if event.level == "info" else f"{event.level.upper()}: "
    return f"{at}Z  {'-' if event.member < 0 else event.member:>3}  {level}{printable(event.text)}"
