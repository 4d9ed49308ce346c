"""The run in order: a cluster, airlines, Spark beside them, then the tables, the counts and the picture."""

import shutil
import threading
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster import ClusterError
from jobs import delta_rs
from jobs.command import JobOptions
from jobs.demo import counts, plot, report
from jobs.demo.airlines import Airlines
from jobs.demo.cluster_process import ClusterProcess
from jobs.demo.flights import read_carriers
from jobs.demo.follower import LogFollower
from jobs.demo.plot import Kill
from jobs.demo.queries import LiveQueries
from jobs.demo.screen import Screen
from jobs.session import ending, spark_session
from jobs.tables import tables_in

SERVICE = "jobs.demo.service:FlightService"
MARKER = ".pyspark-cluster-demo"
TURN_S = 0.25
AWAY_S = 2.0  # for which the killed member is left dead
SETTLE_S = 60


@dataclass(frozen=True, slots=True)
class Settings:
    """What the command line says."""

    directory: Path
    seconds: int  # that the year takes
    flights: int | None  # only so many lines of the file
    base_port: int | None


def run(settings: Settings) -> bool:
    """Run the demo; true when the three sides counted the same."""
    screen = Screen()
    home = prepare(settings.directory)
    with ExitStack() as stack:
        with screen.step("read the flights of 2013"):
            carriers = read_carriers(settings.flights)
        with screen.step("start three members, and Spark"):
            cluster = stack.enter_context(ClusterProcess(home / "cluster", SERVICE, settings.base_port))
            within = {"spark.sql.warehouse.dir": str(home / "warehouse")}  # not where we were started
            spark = stack.enter_context(ending(spark_session("demo", extra=within, log=home / "spark.log")))
        with screen.step(
            "start Spark's query of the Log into Delta; one over that sends statistics into the Log"
        ):
            queries = LiveQueries(spark, cluster.endpoints, home)
        with screen.step(f"open {len(carriers)} sessions, one a carrier"):
            airlines = Airlines(carriers, cluster.ipc_endpoints, settings.seconds * 1000)
            follower = LogFollower(cluster.endpoints, airlines.timetable.start_ms)
        year = Year(screen, cluster, airlines, follower, queries)
        with screen.step(f"a year of flights in {settings.seconds} s, and kill -9 of the leader"):
            year.pass_by(settings.seconds / 2)
        with screen.step("close the sessions, and let Spark read to the end of the Log"):
            finish(cluster, airlines, follower, queries)
        with screen.step("Delta tables of sessions, timers and leadership terms, without Spark"):
            keep_tables(cluster.endpoints, home / "delta")
        follower.close()
        sent = counts.of_senders(
            airlines.committed,
            queries.answers,
            len(carriers) + queries.answering_sessions,
            airlines.leader_changes,
        )
        found = report.read(spark, home / "delta", {carrier.code: carrier.name for carrier in carriers})
        screen.say("")
        status = cluster.stop()
    picture = home / "demo.png"
    plot.draw(per_second(follower), airlines.latencies, year.samples, year.kill, picture)
    agree = report.show(screen, found, sent, follower.counts)
    report.say_where(screen, home, picture, status)
    return agree


def prepare(directory: Path) -> Path:
    """An empty folder for this run; what an earlier run left there goes, what is not ours stops us."""
    if directory.exists() and any(directory.iterdir()):
        if not (directory / MARKER).exists():
            raise ClusterError(f"{directory} is not empty and not from an earlier demo; give another --dir")
        shutil.rmtree(directory)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / MARKER).touch()
    return directory.resolve()


class Year:
    """The flights are under way; in the middle of them the leader is killed. Times are seconds of the run."""

    def __init__(
        self,
        screen: Screen,
        cluster: ClusterProcess,
        airlines: Airlines,
        follower: LogFollower,
        queries: LiveQueries,
    ) -> None:
        self.samples: list[tuple[float, int, int]] = []  # second, entries in the Log, rows in Delta
        self.kill: Kill | None = None
        self._screen = screen
        self._cluster = cluster
        self._airlines = airlines
        self._follower = follower
        self._queries = queries
        self._killed_s: float | None = None  # monotonic
        self._victim = -1
        self._is_back = False

    @property
    def _now_s(self) -> float:
        return time.time() - self._airlines.timetable.start_ms / 1000

    def pass_by(self, kill_at_s: float) -> None:
        """Show how it goes until every flight is confirmed and every timer has fired."""
        pause = threading.Event()
        settle_until_s = None
        while not self._is_over:
            for part in (self._cluster, self._follower, self._queries):
                part.check()
            if self._killed_s is None and self._now_s >= kill_at_s:
                self._kill()
            self._follow_the_kill()
            self.samples.append((self._now_s, self._follower.entries, self._queries.rows))
            self._screen.show(self._line)
            if self._airlines.is_done:  # only timers are outstanding
                settle_until_s = settle_until_s or self._now_s + SETTLE_S
                if self._now_s > settle_until_s:
                    break  # the counts will show it
            pause.wait(TURN_S)

    @property
    def _is_over(self) -> bool:
        timers = self._follower.counts[counts.TIMERS]
        return self._airlines.is_done and timers >= self._airlines.total and self._is_back

    def _kill(self) -> None:
        self._victim, self._killed_s = self._airlines.leader_member_id, time.monotonic()
        self._cluster.kill(self._victim)

    def _follow_the_kill(self) -> None:
        """Once it is over say what it cost, and start the member again."""
        if self._killed_s is None or self._is_back or time.monotonic() < self._killed_s + AWAY_S:
            return
        leader, gap_s = self._airlines.leader_member_id, self._airlines.gap_after(self._killed_s)
        if leader == self._victim or gap_s is None:
            return
        at_s = self._now_s - (time.monotonic() - self._killed_s)
        self.kill = Kill(at_s, self._victim, leader, gap_s)
        self._screen.say(
            f"  kill -9 of member {self._victim}, which led: no commit for {1000 * gap_s:,.0f} ms, "
            f"member {leader} leads; member {self._victim} is started again"
        )
        self._cluster.start_again(self._victim)
        self._is_back = True

    @property
    def _line(self) -> str:
        airlines, second = self._airlines, max(self._now_s, 0.1)
        age_s = plot.lags(self.samples)[-1]
        return (
            f"{airlines.today}  {airlines.committed:>7,} of {airlines.total:,} flights committed"
            f"  {airlines.committed / second:>6,.0f}/s  Delta {age_s:.1f} s old"
        )


def finish(cluster: ClusterProcess, airlines: Airlines, follower: LogFollower, queries: LiveQueries) -> None:
    """End what writes before what reads, so that the last reader sees everything."""
    airlines.close()
    queries.finish_answers()
    await_closed_sessions(cluster, follower, len(airlines.airlines) + queries.answering_sessions)
    queries.finish_log()


def await_closed_sessions(cluster: ClusterProcess, follower: LogFollower, sessions: int) -> None:
    """Wait until the Log has the end of every session, or for long enough; the counts will show it."""
    pause = threading.Event()
    for _ in range(int(SETTLE_S / TURN_S)):
        cluster.check()
        follower.check()
        if follower.counts[counts.SESSIONS] >= 2 * sessions:
            return
        pause.wait(TURN_S)


def keep_tables(endpoints: str, delta: Path) -> None:
    """Keep the other three tables over the whole Log, which is read once, by the writer without Spark."""
    log = str(delta / "log")  # Spark keeps that one
    tables = {table: job for table, job in tables_in(str(delta)).items() if table != log}
    options = JobOptions.over({"endpoints": endpoints}, str(delta), say=lambda _: None)
    delta_rs.keep("tables", tables, options)


def per_second(follower: LogFollower) -> list[dict[str, Any]]:
    """What the Log took in each second of the run."""
    of: dict[int, Counter[str]] = follower.per_second
    return [
        {
            "second": second,
            "flights": of[second][counts.FLIGHTS],
            "timers": of[second][counts.TIMERS],
            "answers": of[second][counts.ANSWERS],
        }
        for second in range(max(0, min(of)), max(of) + 1)
    ]
