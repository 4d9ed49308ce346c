"""What the page of ``cluster live`` is fed with: frames, each a status document with what happened since.

a running cluster     a frame a look
a stopped directory   a frame an event, as its logs say of roles, elections, terms; how far the log went
                      by then say the times of its entries
a story               all frames within the page: one file, which needs nothing else
"""

import json
import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import datetime
from importlib import resources
from pathlib import Path
from typing import Any

from cluster.cli.events import Event, Lines, by_time, event_text, logs_in
from cluster.cli.live_clients import ClientRates
from cluster.cli.live_messages import moved_messages
from cluster.cli.status_document import SECOND_LOOK_S
from cluster.errors import ClusterError, ConfigurationError, StorageErrors
from cluster.reader.log_reader import LogReader
from cluster.reader.search import first_entry, first_value

# "status"; and since the frame before: "events", lines for people, "messages", "clients" that have sent.
Frame = dict[str, Any]

EVENTS_MAX = 200  # of one frame; the last ones
MESSAGES_MAX = 300
FRAMES_MAX = 20_000  # of a stopped directory; the last ones
MOMENT_S = 2.0
STORY_AT = "/*STORY*/null"
_STORY = re.compile(r"^const STORY = [\[{]", re.MULTILINE)  # of any release
_ROLE = re.compile(r"role \w+ -> (\w+)")
_ELECTION = re.compile(r"election \w+ -> (\w+)")
_TERM = re.compile(r"\bterm (\d+)")
_GONE = re.compile(r"member (\d+) is gone")  # whose process has ended
_OWN_LOG = re.compile(r"(?:; has a log to|^snapshot at) (\d+)")  # before "which has" is another's


@dataclass
class Looks:
    """Looks at a cluster, one frame each; ``_logs`` are its events.

    ``_look`` gives the status document, and is given what was committed a moment before, if that is known.
    """

    _look: Callable[[int | None], dict[str, Any]]
    _logs: list[Lines]
    _clients: ClientRates
    _seen: tuple[float, int | None] = float("-inf"), None  # when, and how far it was committed then

    def frame(self) -> Frame:
        """Raises ClusterError."""
        with ThreadPoolExecutor(2) as beside:  # who does not answer is waited for once
            happened = beside.submit(lambda: [*by_time(self._logs)])
            clients = beside.submit(self._clients.look)
            now, (since, committed) = time.monotonic(), self._seen
            status = self._look(committed if SECOND_LOOK_S <= now - since < MOMENT_S else None)
            self._seen = now, status["cluster"]["commitPosition"]
            return _frame(status, happened.result(), clients.result())


def _frame(
    status: dict[str, Any], happened: Sequence[Event] = (), clients: Sequence[dict[str, Any]] = ()
) -> Frame:
    """Messages are no events: those are too many to be read."""
    events = [event_text(event) for event in happened if event.level != "debug"]
    return {
        "status": status,
        "events": events[-EVENTS_MAX:],
        "messages": moved_messages(happened)[-MESSAGES_MAX:],
        "clients": clients,
    }


def frames_of_events(
    directory: Path, last: dict[str, Any], open_log: Callable[[], LogReader] | None = None
) -> list[Frame]:
    """What a directory's logs say, a frame an event, then ``last``. Raises NotAClusterDirectory.

    How far members had the log by then is known from what ``open_log`` opens.
    """
    members = {
        member["memberId"]: {"memberId": member["memberId"], "isAlive": False} for member in last["members"]
    }
    ends = {member["memberId"]: member.get("appendPosition") for member in last["members"]}
    frames: deque[Frame] = deque(maxlen=FRAMES_MAX)
    happened: deque[Event] = deque(maxlen=MESSAGES_MAX)
    with ExitStack() as opened:
        log = None
        if open_log is not None:
            with suppress(ClusterError):  # which the last frame says
                log = _LogInTime(opened.enter_context(open_log()))
        for event in by_time(logs_in(directory)):
            if event.member not in members and event.member >= 0:
                continue
            happened.append(event)
            if event.level == "debug":
                continue
            if event.member in members:  # else it is a backup's
                members[event.member] = _after(members[event.member], event)
            if (match := _GONE.match(event.text)) and (gone := int(match[1])) in members:
                members[gone] = {**members[gone], "isAlive": False}
            position = None if log is None else log.position_at(event.time)
            if position is not None:
                members = {id_: _up_to(member, position, ends[id_]) for id_, member in members.items()}
            frames.append(_frame(_document(last, list(members.values()), event, position), happened))
            happened.clear()
    return [*frames, _frame(last, happened)]


class _LogInTime:
    """How far a log went at a time, by the times of its entries; to be asked for times that do not fall."""

    def __init__(self, reader: LogReader) -> None:
        self._reader = reader
        self._start, self._end = reader.start_position, reader.end_position()
        self._position = self._start
        self._next_us: float = -1.0  # the time of the entry at the position

    def position_at(self, time: datetime) -> int | None:
        """None where the log cannot be read, as before what was purged."""
        time_us = int(time.timestamp() * 1_000_000)
        try:
            while self._next_us < time_us:
                reader, end = self._reader, self._end
                found = first_entry(reader, "timestamp", time_us, self._position, end)
                self._position = end if found is None else found
                next_us = first_value(reader, "timestamp", self._position, end)
                self._next_us = float("inf") if next_us is None else next_us
        except ClusterError:
            return None
        return None if self._position == self._start > 0 else self._position


def _up_to(member: dict[str, Any], position: int, end: int | None) -> dict[str, Any]:
    """The member when the log went as far; one in an election, or that does not run, gets no further."""
    if not member["isAlive"] or member.get("electionState") != "CLOSED" or end is None:
        return member
    position = min(position, end)
    return {**member, "appendPosition": position, "commitPosition": position}


def _after(member: dict[str, Any], event: Event) -> dict[str, Any]:
    """How the member stands after the event, as far as its text says."""
    text = str(event.fields.get("event"))
    if text == "starts":
        return {**member, "isAlive": True, "role": "FOLLOWER", "electionState": "INIT"}
    if text == "ends":
        return {**member, "isAlive": False}
    for key, pattern in (("role", _ROLE), ("electionState", _ELECTION)):
        if match := pattern.match(text):
            member = {**member, key: match[1]}
    if match := _OWN_LOG.search(text):
        member = {**member, "appendPosition": int(match[1]), "commitPosition": int(match[1])}
    if match := _TERM.search(text):
        member = {**member, "leadershipTermId": int(match[1])}
    return member


def _document(
    last: dict[str, Any], members: list[dict[str, Any]], event: Event, position: int | None
) -> dict[str, Any]:
    leaders = [member for member in members if member["isAlive"] and member.get("role") == "LEADER"]
    leader = max(leaders, key=lambda member: member.get("leadershipTermId", -1), default=None)
    return {
        "v": last["v"],
        "time": event.time.isoformat(timespec="milliseconds"),
        "verdict": None,
        "messages": [],
        "cluster": {
            **last["cluster"],
            "leader": None if leader is None else leader["memberId"],
            "leadershipTermId": max((m.get("leadershipTermId", -1) for m in members), default=-1),
            "commitPosition": last["cluster"]["commitPosition"] if position is None else position,
        },
        "members": members,
    }


def write_text(path: Path, text: str) -> None:
    """Raises StorageError."""
    with StorageErrors(path, "cannot be written"):
        path.write_text(text)


def story_page(path: Path) -> str:
    """The page that is in a file. Raises StorageError, ConfigurationError."""
    with StorageErrors(path, "cannot be read"):
        text = path.read_text(errors="replace")
    if _STORY.search(text) is None:
        raise ConfigurationError(
            f"{path}: no story; `cluster live --out` and `cluster story --html` write one"
        )
    return text


def page(played: list[Frame] | dict[str, Any] | None = None) -> str:
    """The page; with frames, or a story's document, it plays them, without it asks where it came from."""
    text = resources.files("cluster.cli").joinpath("live.html").read_text()
    assert text.count(STORY_AT) == 1
    story = "null" if played is None else json.dumps(played).replace("<", "\\u003c")
    return text.replace(STORY_AT, story)
