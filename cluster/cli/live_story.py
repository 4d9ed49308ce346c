"""What the page of ``cluster live`` is fed with: frames, each a status document and the latest events.

a running cluster     a frame a look
a stopped directory   a frame an event, as its logs tell of roles, elections and terms
a story               all frames within the page: one file, which needs nothing else
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from pathlib import Path
from typing import Any

from cluster.cli.events import Event, Lines, by_time, event_text, logs_in
from cluster.errors import StorageErrors

Frame = dict[str, Any]  # "status", and "events": lines for people

EVENTS_MAX = 200  # of one frame; the last ones
STORY_AT = "/*STORY*/null"
_ROLE = re.compile(r"role \w+ -> (\w+)")
_ELECTION = re.compile(r"election \w+ -> (\w+)")
_TERM = re.compile(r"\bterm (\d+)")


class Looks:
    """Looks at a cluster, one frame each; ``look`` gives the status document, ``logs`` the events."""

    def __init__(self, look: Callable[[], dict[str, Any]], logs: list[Lines]) -> None:
        self._look = look
        self._logs = logs

    def frame(self) -> Frame:
        """Raises ClusterError."""
        with ThreadPoolExecutor(1) as beside:  # who does not answer is waited for once
            events = beside.submit(lambda: [event_text(event) for event in by_time(self._logs)])
            return {"status": self._look(), "events": events.result()[-EVENTS_MAX:]}


def frames_of_events(directory: Path, last: dict[str, Any]) -> list[Frame]:
    """What a directory's logs say, a frame an event, then ``last``. Raises NotAClusterDirectory."""
    members = {
        member["memberId"]: {"memberId": member["memberId"], "isAlive": False} for member in last["members"]
    }
    frames: list[Frame] = []
    for event in by_time(logs_in(directory)):
        if event.member not in members or event.level == "debug":
            continue
        members[event.member] = _after(members[event.member], event)
        frames.append(
            {"status": _document(last, list(members.values()), event), "events": [event_text(event)]}
        )
    return [*frames, {"status": last, "events": []}]


def _after(member: dict[str, Any], event: Event) -> dict[str, Any]:
    """How the member stands after the event, as far as its text tells."""
    text = str(event.fields.get("event"))
    if text == "starts":
        return {**member, "isAlive": True, "role": "FOLLOWER", "electionState": "INIT"}
    if text == "ends":
        return {**member, "isAlive": False}
    for key, pattern in (("role", _ROLE), ("electionState", _ELECTION)):
        if match := pattern.match(text):
            member = {**member, key: match[1]}
    if match := _TERM.search(text):
        member = {**member, "leadershipTermId": int(match[1])}
    return member


def _document(last: dict[str, Any], members: list[dict[str, Any]], event: Event) -> dict[str, Any]:
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
        },
        "members": members,
    }


def write_text(path: Path, text: str) -> None:
    """Raises StorageError."""
    with StorageErrors(path, "cannot be written"):
        path.write_text(text)


def page(played: list[Frame] | dict[str, Any] | None = None) -> str:
    """The page; with frames, or a story's document, it plays them, without it asks where it came from."""
    text = resources.files("cluster.cli").joinpath("live.html").read_text()
    assert text.count(STORY_AT) == 1
    story = "null" if played is None else json.dumps(played).replace("<", "\\u003c")
    return text.replace(STORY_AT, story)
