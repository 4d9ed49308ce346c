"""How a story is played: a cluster that is watched, and steps that each name what is to be seen.

    @story("client-redirect", "A client connects to a follower", page="Clients")
    def client_redirect(stage: Stage) -> None:
        cluster = stage.cluster()                       # what happens
        ...
        stage.step("What the page says of it.", alice, "SessionConnectRequest", to=follower)

A step is found where who, what and to whom fit, after the step before it: so a story is also a test of the
order in which its page says that things happen.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cluster.service.clustered_service import ClusteredService
from cluster.testing.client import SimulatedClient
from cluster.testing.cluster import SimulatedCluster
from cluster.testing.wire import Happening

# Said all the time, or of no interest to any page.
UNTOLD = {
    *("Hello", "HelloReply", "PromiseStatement", "TermEvents", "ClockRequest", "ClockReply", "CommitAck"),
    *("LogGeometry", "LogImage", "TakenAnswers", "SnapshotDigest", "ServiceSnapshot"),
}

Script = Callable[["Stage"], None]
Who = int | str | SimulatedClient


class StoryUntrue(AssertionError):
    """What a step says was not seen where it is said."""


@dataclass(frozen=True, slots=True)
class Step:
    """A sentence, and which happening it is about."""

    sentence: str
    sender: str
    pattern: re.Pattern[str]
    receiver: str  # empty: any, or none

    def fits(self, happening: Happening) -> bool:
        return (
            happening.sender == self.sender
            and (not self.receiver or happening.receiver == self.receiver)
            and self.pattern.match(happening.text) is not None
        )


@dataclass(frozen=True, slots=True)
class StoryLine:
    """A happening; with the sentence that it proves, or none."""

    happening: Happening
    sentence: str = ""


class Stage:
    """What a story's script uses."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._cluster: SimulatedCluster | None = None
        self._begin_ns = 0

    def cluster(self, **settings: Any) -> SimulatedCluster:
        """A watched cluster of ``CountingService``; ``settings`` are those of a SimulatedCluster."""
        made = self._cluster = SimulatedCluster(CountingService, watched=True, **settings)
        return made

    def begin(self) -> None:
        """What happened before is not told."""
        assert self._cluster is not None
        self._begin_ns = self._cluster.world.now_ns

    def step(self, sentence: str, who: Who, what: str, to: Who = "") -> None:
        """Say what is to be seen next: ``what`` is a regular expression of how the line begins."""
        self.steps.append(Step(sentence, _actor(who), re.compile(what), _actor(to)))

    def lines(self) -> list[StoryLine]:
        """All that happened, from the begin to the last step. Raises StoryUntrue."""
        assert self._cluster is not None
        happenings = self._cluster.happenings
        begin = next(i for i, happening in enumerate(happenings) if happening.time_ns >= self._begin_ns)
        said: dict[int, Step] = {}
        place = begin
        for number, step in enumerate(self.steps, 1):
            found = next((i for i in range(place, len(happenings)) if step.fits(happenings[i])), None)
            if found is None:
                raise StoryUntrue(
                    f"step {number} was not seen: {step.sentence} ({step.sender}"
                    f"{' -> ' if step.receiver else ''}{step.receiver}: {step.pattern.pattern})"
                )
            said[found] = step
            place = found + 1
        seen: set[tuple[str, str, str]] = set()
        lines = []
        for i, happening in enumerate(happenings[:place]):
            key = happening[1:4]
            is_new = happening.name not in UNTOLD and not (happening.receiver and key in seen)
            if i in said or (i >= begin and is_new):
                lines.append(StoryLine(happening, said[i].sentence if i in said else ""))
            seen.add(key)
        return lines


@dataclass(frozen=True, slots=True)
class Story:
    """One by name; ``page`` is that of Aeron's description which tells it."""

    name: str
    title: str
    page: str
    script: Script = field(repr=False)

    def play(self) -> list[StoryLine]:
        """Play it. Raises StoryUntrue, TimedOut."""
        stage = Stage()
        self.script(stage)
        return stage.lines()


STORIES: dict[str, Story] = {}


def story(name: str, title: str, *, page: str) -> Callable[[Script], Script]:
    """Make a function a story."""

    def add(script: Script) -> Script:
        assert name not in STORIES
        STORIES[name] = Story(name, title, page, script)
        return script

    return add


def _actor(who: Who) -> str:
    if isinstance(who, int):
        return f"member {who}"
    return who if isinstance(who, str) else who.name


def service_of(member_id: int) -> str:
    """The name of a member's service in a story."""
    return f"service 0 of member {member_id}"


class CountingService(ClusteredService):
    """Counts messages, and answers each with the count.

    Some messages ask for more: ``timer`` for one in a second, ``close`` for the end of the session, and
    ``publish`` for a message of the service itself.
    """

    def on_start(self, cluster: Any, snapshot_image: Any) -> None:
        self._cluster = cluster
        self.count = 0 if snapshot_image is None else int(next(iter(snapshot_image)))

    def on_session_message(self, session: Any, timestamp: int, buffer: Any) -> None:
        payload = bytes(buffer)
        self.count += 1
        if session is None:
            return
        if payload == b"timer":
            self._cluster.schedule_timer(1, timestamp + 1_000)
        elif payload == b"close":
            session.close()
        elif payload == b"publish":
            self._cluster.offer(b"from the service")
        else:
            session.offer(b"%d" % self.count)

    def on_take_snapshot(self, snapshot_publication: Any) -> None:
        snapshot_publication.offer(b"%d" % self.count)
