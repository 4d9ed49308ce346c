"""Kills at random moments, and a count after each round.

A seed gives the kinds of a round, its victims among those that run, and the moments. What the machine does
meanwhile is its own: the same seed meets the same kinds, not the same row.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import pyarrow.compute as pc

from benchmarks.kills.application import ANSWER
from benchmarks.kills.counting import check_delta, count, delta_rows, log_of
from benchmarks.kills.processes import RealSpark
from benchmarks.load import Load
from benchmarks.real_members import RealMembers, await_that, free_base_port
from cluster import LogReader
from cluster.errors import ClusterError

# A driver takes half a minute of CPU to come back, a worker nothing.
WEIGHTS = {"driver": 12, "worker": 22, "executor": 16, "leader": 25, "follower": 25}
MESSAGES_PER_S = 50
PAUSE_MAX_S = 1.5
PATIENCE_S = 600.0  # a driver comes back in half a minute, on a machine that has nothing else to do
MEMBERS = {
    "leader_heartbeat_timeout": "2s",
    "leader_heartbeat_interval": "100ms",
    "startup_canvass_timeout": "4s",
    "snapshot_every_bytes": "32m",  # so that members start from snapshots, too
}

Say = Callable[[str], object]
T = TypeVar("T")


class Answers:
    """How many answers are committed, as members serve the log."""

    def __init__(self, endpoints: str) -> None:
        self._endpoints = endpoints
        self._position: int | None = None
        self.seen = 0

    def count(self) -> int:
        """Of now, or of before where no member serves the log."""
        with suppress(ClusterError), LogReader.open(endpoints=self._endpoints) as reader:
            entries = reader.batches(self._position, columns=("endPosition", "payload"))
            for batch in entries:
                is_answer = pc.starts_with(batch["payload"].cast("string"), ANSWER)
                self.seen += pc.sum(is_answer).as_py() or 0
                self._position = batch["endPosition"][-1].as_py()
        return self.seen


class Stage:
    """Members, Spark and what is asked of them: all that may be killed."""

    def __init__(self, folder: Path, members: RealMembers, spark: RealSpark, say: Say) -> None:
        self.folder = folder
        self.members = members
        self.spark = spark
        self.say = say
        self.answers = Answers(members.endpoints)

    def kill(self, kind: str, chance: random.Random) -> str:
        """Kill one of the kind, and see to it that its successor comes. Returns whom."""
        match kind:
            case "driver":
                pid = self.spark.kill_driver()
                self.spark.start_application()
                return f"driver {pid}"
            case "worker" | "executor":
                find = self.spark.workers if kind == "worker" else self.spark.executors
                pid = chance.choice(self._await(find, f"there is a {kind}"))
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                return f"{kind} {pid}"
        return self._kill_member(kind, chance)

    def _kill_member(self, kind: str, chance: random.Random) -> str:
        """With all three in step, so that a majority is left."""
        members = self.members
        self._await(lambda: len(members.established()) == 3, "all are there")
        leader = members.await_leader()
        victim = leader if kind == "leader" else chance.choice([i for i in members.ids if i != leader])
        members.kill(victim)
        members.start(victim)
        return f"{kind} {victim}"

    def await_answers(self) -> None:
        """Return when rows came through that were not there before: all works again."""
        before = self.answers.count()
        self._await(lambda: self.answers.count() > before, "answers come")

    def _await(self, condition: Callable[[], T], what: str) -> T:
        return await_that(condition, what, within_s=PATIENCE_S, tell=self.tell)

    def tell(self) -> str:
        """How the members stand, and the last that they and Spark wrote."""
        return f"{self.members.tell()}\nSpark:\n{self.spark.last_lines()}"

    def run_round(self, seed: int, kills: int) -> dict[str, Any]:
        """So many kills, then the count. Raises AssertionError for what is lost or doubled."""
        chance, killed, began = random.Random(seed), Counter[str](), time.monotonic()
        with Load(self.members.tcp, messages_per_s=MESSAGES_PER_S, name=f"ask-{seed}") as load:
            for kind in chance.choices(list(WEIGHTS), list(WEIGHTS.values()), k=kills):
                self.await_answers()
                load.await_seconds(PAUSE_MAX_S * chance.random())
                whom = self.kill(kind, chance)
                killed[kind] += 1
                self.say(
                    f"seed {seed}: kill {killed.total()} of {kills}: {whom}, {self.answers.seen} answers"
                )
            load.finish()
        figures = {"seed": seed, "kills": dict(killed), **self.check()}
        return {**figures, "seconds": round(time.monotonic() - began), "taken": time.strftime("%Y-%m-%d")}

    def check(self) -> dict[str, int]:
        """Wait until all is answered, and count in each member's files; Delta has what they have."""
        members = self.members
        self._await(self._is_at_rest, "all is answered")
        logs = [log_of(members.member_dir(i)) for i in members.ids]
        assert logs[0].equals(logs[1]) and logs[0].equals(logs[2]), "the members' logs differ"
        found = count(logs[0])
        assert (found.lost, found.doubled) == (0, 0), found
        check_delta(logs[0], self.folder / "log")
        return {"rows": found.rows, "lost": 0, "doubled": 0, "delta_rows": len(logs[0])}

    def _is_at_rest(self) -> bool:
        """Delta has the whole log, and the log does not grow: then nobody has anything to do."""
        members = self.members
        if len(members.established()) < 3:
            return False
        log = log_of(members.member_dir(0))
        return len(delta_rows(self.folder / "log")) == len(log) and count(log).lost == 0


@contextmanager
def stage(folder: Path, say: Say) -> Iterator[Stage]:
    """All of it running, until the block ends."""
    with ExitStack() as stack:
        members = stack.enter_context(RealMembers(folder, keys=MEMBERS))
        members.start()
        members.await_leader()
        spark = RealSpark(folder, members.endpoints)
        stack.callback(spark.close)
        spark.start(free_base_port(1))
        yield Stage(folder, members, spark, say)
