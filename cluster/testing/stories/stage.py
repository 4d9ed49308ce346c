"""How a story is played: a cluster that is watched, and steps that each name what is to be seen.

    @story("client-redirect", "A client connects to a follower", page="Clients")
    def client_redirect(stage: Stage) -> None:
        cluster = stage.cluster()                       # what happens
        ...
        stage.step("What the page says of it.", alice, "SessionConnectRequest", to=follower)

A step is found where who, what and to whom fit, after the step before it: so a story is also a test of the
order in which its page says that things happen.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from cluster.service.clustered_service import ClusteredService
from cluster.testing.client import SimulatedClient
from cluster.testing.cluster import SimulatedCluster
from cluster.testing.wire import Happening
from cluster.testing.world import Process

# Said all the time, or of no interest to any page.
UNTOLD = {
    *("Hello", "HelloReply", "PromiseStatement", "TermEvents", "ClockRequest", "ClockReply", "CommitAck"),
    *("LogGeometry", "LogImage", "TakenAnswers", "SnapshotDigest", "ServiceSnapshot"),
}

Script = Callable[["Stage"], None]
Who = int | str | Process


class StoryUntrue(AssertionError):
    """What a step says was not seen where it is said."""


@dataclass(frozen=True, slots=True)
class Step:
    """A sentence, and which happening it is about."""

    sentence: str
    sender: str
    pattern: re.Pattern[str]
    receiver: str  # empty: any, or none
    is_seen: bool = True  # or never, between the steps beside it

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
    heard_ns: int | None = None  # when a message was read


class Stage:
    """What a story's script uses."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._cluster: SimulatedCluster | None = None
        self._begin_ns = 0
        self._watched = ExitStack()

    def cluster(self, **settings: Any) -> SimulatedCluster:
        """A watched cluster of ``CountingService``; ``settings`` are those of a SimulatedCluster."""
        made = self._cluster = SimulatedCluster(CountingService, watched=True, **settings)
        return made

    def led_cluster(
        self, *sent: bytes, **settings: Any
    ) -> tuple[SimulatedCluster, SimulatedClient, int, int]:
        """Three members, a client that has sent these messages, the leader, a follower; the story begins."""
        cluster = self.cluster(**settings)
        alice = cluster.connect("alice")
        for payload in sent:
            alice.offer(payload)
        cluster.settle()
        leader = cluster.await_leader()
        self.begin()
        return cluster, alice, leader, (leader + 1) % 3

    def idle_cluster(self, **settings: Any) -> tuple[SimulatedCluster, int, int]:
        """Three members, of whom one leads for a second now, with which the story begins; a follower."""
        cluster = self.cluster(**settings)
        leader = cluster.await_leader()
        cluster.run(1)
        self.begin()
        return cluster, leader, (leader + 1) % 3

    def watch_calls(self, member_id: int, calls: Mapping[str, str]) -> None:
        """Record a member's calls from now on: by what each is called in the page, where it is.

        A place is a path from the member's ConsensusModuleAgent, as ``parts.clients.poll``.
        """
        assert self._cluster is not None
        for name, place in calls.items():
            *path, method = place.split(".")
            target: Any = self._cluster.consensus_module(member_id)
            for part in path:
                target = target[int(part)] if part.isdigit() else getattr(target, part)
            self._watch_call(member_id, name, target, method)

    def _watch_call(self, member_id: int, name: str, target: object, method: str) -> None:
        """Classes are patched: some of what is watched has slots."""
        kind, cluster = type(target), self._cluster
        call = getattr(kind, method)

        def watched(called_on: object, *arguments: Any, **options: Any) -> Any:
            if called_on is target and cluster is not None:
                cluster.note(member_id, name)
            return call(called_on, *arguments, **options)

        self._watched.enter_context(patch.object(kind, method, watched))

    def end(self) -> None:
        """Watch no calls any more."""
        self._watched.close()

    def begin(self) -> None:
        """What happened before is left out."""
        assert self._cluster is not None
        self._begin_ns = self._cluster.world.now_ns

    def await_first(self, what: str) -> int:
        """Run until a member does or sends something that begins so; which one."""
        assert self._cluster is not None
        cluster = self._cluster

        def found() -> Iterator[int]:
            return (
                int(line.sender.rpartition(" ")[2])
                for line in cluster.happenings
                if line.time_ns >= self._begin_ns and line.text.startswith(what)
            )

        cluster.run_until(lambda: any(True for _ in found()), what)
        return next(found())

    def step(self, sentence: str, who: Who, what: str, to: Who = "") -> None:
        """Say what is to be seen next: ``what`` is a regular expression of how the line begins."""
        self.steps.append(Step(sentence, _actor(who), re.compile(what), _actor(to)))

    def never(self, sentence: str, who: Who, what: str, to: Who = "") -> None:
        """Say what is not to be seen between the step before and the one after."""
        self.steps.append(Step(sentence, _actor(who), re.compile(what), _actor(to), is_seen=False))

    def lines(self) -> list[StoryLine]:
        """All that happened, from the begin to the last step. Raises StoryUntrue."""
        assert self._cluster is not None
        cluster, happenings = self._cluster, self._cluster.happenings
        begin = next(i for i, happening in enumerate(happenings) if happening.time_ns >= self._begin_ns)
        said, end = self._places(happenings, begin)
        seen: set[tuple[str, str, str]] = set()
        lines = []
        for i, happening in enumerate(happenings[:end]):
            key = happening[1:4]
            is_new = happening.name not in UNTOLD and not (happening.receiver and key in seen)
            seen.add(key)
            for step in said.get(i, []):
                shown = happening
                if not step.is_seen:
                    text = f"no {step.pattern.pattern.removeprefix('Log: ')}"
                    shown = Happening(happening.time_ns, step.sender, "", text)
                lines.append(StoryLine(shown, step.sentence, cluster.heard_ns(shown)))
            if i not in said and i >= begin and is_new:
                lines.append(StoryLine(happening, "", cluster.heard_ns(happening)))
        return lines

    def _places(self, happenings: list[Happening], begin: int) -> tuple[dict[int, list[Step]], int]:
        """The steps that each happening is shown with, itself being the last, and where the last one ends."""
        said: dict[int, list[Step]] = {}
        unseen: list[Step] = []
        place = begin
        for step in self.steps:
            if not step.is_seen:
                unseen.append(step)
                continue
            found = next((i for i in range(place, len(happenings)) if step.fits(happenings[i])), None)
            if found is None:
                raise self._untrue(step, "was not seen")
            for other in unseen:
                if any(other.fits(happening) for happening in happenings[place:found]):
                    raise self._untrue(other, "was seen")
            said[found] = [*unseen, step]
            unseen = []
            place = found + 1
        assert not unseen, "what is never seen needs a step after it"
        return said, place

    def _untrue(self, step: Step, what: str) -> StoryUntrue:
        to = f" -> {step.receiver}" if step.receiver else ""
        number = self.steps.index(step) + 1
        return StoryUntrue(
            f"step {number} {what}: {step.sentence} ({step.sender}{to}: {step.pattern.pattern})"
        )


@dataclass(frozen=True, slots=True)
class Story:
    """One by name; ``page`` is that of Aeron's description which describes it."""

    name: str
    title: str
    page: str
    script: Script = field(repr=False)

    def play(self) -> list[StoryLine]:
        """Play it. Raises StoryUntrue, TimedOut."""
        stage = Stage()
        try:
            self.script(stage)
        finally:
            stage.end()
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
    """Answers each message with their count; ``timer``, ``close`` and ``publish`` ask for more."""

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
