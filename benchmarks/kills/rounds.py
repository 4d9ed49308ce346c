"""Kills and stops at random moments, and a count after each round.

What is killed has gone; what is stopped (SIGSTOP) wakes when others have taken over, and goes on where it
was. A seed gives the kinds of a round, its victims among those that run, and the moments. What the machine
does meanwhile is its own: the same seed meets the same kinds, not the same row.
"""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pyarrow.compute as pc

from benchmarks.kills.aeron_members import AeronMembers
from benchmarks.kills.application import ANSWER
from benchmarks.kills.counting import check_delta, count, delta_rows, log_of
from benchmarks.kills.processes import RealSpark, send_signal
from benchmarks.load import Load
from benchmarks.real_members import RealMembers, await_that, free_base_port
from cluster import LogReader
from cluster.errors import ClusterError

# A driver takes half a minute of CPU to come back, a worker nothing.
KILLS = {"driver": 4, "worker": 40, "executor": 16, "leader": 25, "follower": 15}
STOPPED = "stopped "
STOPS = {f"{STOPPED}{kind}": weight // 3 for kind, weight in KILLS.items()}
STOP_MAX_S = 20.0  # beyond the time-out of a session, of a leader and of an executor
AWAKE_MAX_S = 5.0  # for so long two drivers work on one checkpoint
MESSAGES_PER_S = 50
PAUSE_MAX_S = 1.5
AT_ONCE_SHARE = 0.7  # of kills that do not wait until rows come through again
PATIENCE_S = 600.0  # a driver comes back in half a minute, on a machine that has nothing else to do
MEMBERS = {
    "leader_heartbeat_timeout": "2s",
    "leader_heartbeat_interval": "100ms",
    "startup_canvass_timeout": "4s",
    "snapshot_every_bytes": "32m",  # so that members start from snapshots, too
}

Say = Callable[[str], object]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reached:
    """How Spark, clients and readers reach the members, and which queries run."""

    options: dict[str, str]
    clients: str
    open_reader: Callable[[], LogReader]
    queries: tuple[str, ...] = ("answers", "log")
    aeron_dir: str | None = None


class Answers:
    """How many answers are committed, as members serve the log."""

    def __init__(self, open_reader: Callable[[], LogReader]) -> None:
        self._open_reader = open_reader
        self._position: int | None = None
        self.seen = 0

    def count(self) -> int:
        """Of now, or of before where no member serves the log."""
        with suppress(ClusterError), self._open_reader() as reader:
            entries = reader.batches(self._position, columns=("endPosition", "payload"))
            for batch in entries:
                is_answer = pc.starts_with(batch["payload"].cast("string"), ANSWER)
                self.seen += pc.sum(is_answer).as_py() or 0
                self._position = batch["endPosition"][-1].as_py()
        return self.seen


class Stage:
    """Members, Spark and what is asked of them: all that may be killed."""

    def __init__(
        self,
        folder: Path,
        members: RealMembers | AeronMembers,
        reached: Reached,
        spark: RealSpark,
        say: Say,
    ) -> None:
        self.folder = folder
        self.reached = reached
        self.members = members
        self.spark = spark
        self.say = say
        self.answers = Answers(reached.open_reader)

    def kill(self, kind: str, chance: random.Random) -> str:
        """Kill one of the kind, and see to it that its successor comes. Returns whom."""
        match kind:
            case "driver":
                pid = self.spark.kill_driver()
                self.spark.start_application()
                return f"driver {pid}"
            case "worker" | "executor":
                pid = self._process_of(kind, chance)
                send_signal(signal.SIGKILL, pid)
                return f"{kind} {pid}"
        victim = self._member(kind, chance)
        self.members.kill(victim)
        self.members.start(victim)
        return f"{kind} {victim}"

    def stop(self, kind: str, chance: random.Random, wait: Callable[[float], object]) -> str:
        """Stop one of the kind, and wake it after a while. Returns whom, and for how long."""
        seconds = STOP_MAX_S * chance.random()
        match kind:
            case "driver":
                return self._stop_driver(AWAKE_MAX_S * chance.random(), wait)
            case "worker" | "executor":
                victim = self._process_of(kind, chance)
                send_signal(signal.SIGSTOP, victim)
                wait(seconds)
                send_signal(signal.SIGCONT, victim)
            case _:
                victim = self._member(kind, chance)
                self.members.pause(victim)
                wait(seconds)
                self.members.wake(victim)
        return f"{kind} {victim} for {seconds:.1f} s"

    def _stop_driver(self, seconds: float, wait: Callable[[float], object]) -> str:
        """With all that runs for it, until another driver has answered in its place; then both are awake."""
        spark, old = self.spark, self.spark.driver()
        pids = [*old, *spark.executors(), *spark.workers()]
        send_signal(signal.SIGSTOP, *pids)
        spark.start_application()
        wait(1.0)  # what the stopped ones had sent is committed
        self.await_answers()
        send_signal(signal.SIGCONT, *pids)
        wait(seconds)
        send_signal(signal.SIGKILL, *old)
        return f"driver {old[-1]} until another answered, then awake for {seconds:.1f} s"

    def _process_of(self, kind: str, chance: random.Random) -> int:
        find = self.spark.workers if kind == "worker" else self.spark.executors
        return chance.choice(self._await(find, f"there is a {kind}"))

    def _member(self, kind: str, chance: random.Random) -> int:
        """The leader, or a follower, once all three are in step, so that a majority is left without it."""
        members = self.members
        self._await(lambda: len(members.established()) == 3, "all are there")
        leader = members.await_leader()
        return leader if kind == "leader" else chance.choice([i for i in members.ids if i != leader])

    def await_answers(self) -> None:
        """Return when rows came through that were not there before: all works again."""
        before = self.answers.count()
        self._await(lambda: self.answers.count() > before, "answers come")

    def _await(self, condition: Callable[[], T], what: str) -> T:
        return await_that(condition, what, within_s=PATIENCE_S, tell=self.tell)

    def tell(self) -> str:
        """How the members stand, and the last that they and Spark wrote."""
        return f"{self.members.tell()}\nSpark:\n{self.spark.last_lines()}"

    def run_round(self, seed: int, count: int, weights: Mapping[str, int] = KILLS | STOPS) -> dict[str, Any]:
        """So many kills and stops, then the count. Raises AssertionError for what is lost or doubled."""
        chance, done, began = random.Random(seed), Counter[str](), time.monotonic()
        asking = Load(
            self.reached.clients,
            messages_per_s=MESSAGES_PER_S,
            aeron_dir=self.reached.aeron_dir,
            message_timeout_s=10.0,
            name=f"ask-{seed}",
        )
        with asking as load:
            for kind in chance.choices(list(weights), list(weights.values()), k=count):
                if chance.random() > AT_ONCE_SHARE:
                    self.await_answers()
                load.await_seconds(PAUSE_MAX_S * chance.random())
                if kind.startswith(STOPPED):
                    whom = STOPPED + self.stop(kind.removeprefix(STOPPED), chance, load.await_seconds)
                else:
                    whom = "killed " + self.kill(kind, chance)
                done[kind] += 1
                self.say(f"seed {seed}: {done.total()} of {count}: {whom}, {self.answers.seen} answers")
            load.finish()
        kills = {kind: times for kind, times in done.items() if kind in KILLS}
        stops = {kind: times for kind, times in done.items() if kind in STOPS}
        figures = {"seed": seed, "kills": kills, "stops": stops, **self.check()}
        return {**figures, "seconds": round(time.monotonic() - began), "taken": time.strftime("%Y-%m-%d")}

    def check(self) -> dict[str, int]:
        """Wait until all is answered, and count in each member's files; Delta has what they have."""
        members = self.members
        self._await(self._is_at_rest, "all is answered")
        logs = [log_of(members.member_dir(i)) for i in members.ids]
        assert logs[0].equals(logs[1]) and logs[0].equals(logs[2]), "the members' logs differ"
        found = count(logs[0])
        assert (found.lost, found.doubled) == (0, 0), found
        figures = {"rows": found.rows, "lost": 0, "doubled": 0}
        if "log" in self.reached.queries:
            check_delta(logs[0], self.folder / "log")
            figures["delta_rows"] = len(logs[0])
        return figures

    def _is_at_rest(self) -> bool:
        """Delta has the whole log, and all is answered: then nobody has anything to do."""
        members = self.members
        if len(members.established()) < 3:
            return False
        log = log_of(members.member_dir(0))
        is_kept = "log" not in self.reached.queries or len(delta_rows(self.folder / "log")) == len(log)
        return is_kept and count(log).lost == 0


@contextmanager
def stage(folder: Path, say: Say, *, is_aeron: bool = False) -> Iterator[Stage]:
    """All of it running, until the block ends; ``is_aeron``: with the members of a real Aeron Cluster."""
    members = AeronMembers(folder) if is_aeron else RealMembers(folder, keys=MEMBERS)
    with ExitStack() as stack:
        stack.enter_context(members)
        members.start()
        members.await_leader()
        reached = reached_by_aeron(members) if isinstance(members, AeronMembers) else reached_by_grpc(members)
        spark = RealSpark(folder, reached.options, reached.queries)
        stack.callback(spark.close)
        spark.start(free_base_port(1))
        yield Stage(folder, members, reached, spark, say)


def reached_by_grpc(members: RealMembers) -> Reached:
    endpoints = members.endpoints
    return Reached({"endpoints": endpoints}, members.tcp, lambda: LogReader.open(endpoints=endpoints))


def reached_by_aeron(members: AeronMembers) -> Reached:
    endpoints, aeron_dir = members.consensus_endpoints, members.aeron_dir
    return Reached(
        {"consensusEndpoints": endpoints, "aeronDir": aeron_dir},
        f"aeron:{endpoints}",
        lambda: LogReader.open(dir=str(members.member_dir(min(members.established(), default=0)))),
        ("answers",),
        aeron_dir,
    )
