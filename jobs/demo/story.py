"""The run in order: a cluster, airlines, Spark beside them, then the tables, the counts and the picture."""

from __future__ import annotations

import shutil
import threading
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster import ClusterError
from jobs.command import JobOptions
from jobs.demo import counts, plot, report
from jobs.demo.airlines import Airlines
from jobs.demo.cluster_process import ClusterProcess
from jobs.demo.flights import read_carriers
from jobs.demo.follower import LogFollower
from jobs.demo.queries import LiveQueries
from jobs.demo.screen import Gauges, Screen
from jobs.keeping import keep
from jobs.session import ending, spark_session
from jobs.sessions import sessions_job
from jobs.terms import terms_job
from jobs.timers import timers_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SERVICE = "jobs.demo.service:FlightService"
MARKER = ".pyspark-cluster-demo"
TURN_S = 0.25
SETTLE_S = 60

TABLE_JOBS = (sessions_job, timers_job, terms_job)


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
        with screen.step("start Spark's two queries: the Log into Delta, statistics back into the Log"):
            queries = LiveQueries(spark, cluster.endpoints, home)
        with screen.step(f"open {len(carriers)} sessions, one a carrier"):
            airlines = Airlines(carriers, cluster.ipc_endpoints, settings.seconds * 1000)
            follower = LogFollower(cluster.endpoints, airlines.timetable.start_ms)
        follow_the_year(screen, cluster, airlines, follower, queries)
        with screen.step("close the sessions, and let Spark read to the end of the Log"):
            finish(cluster, airlines, follower, queries)
        with screen.step("Delta tables of sessions, timers and leadership terms"):
            keep_tables(spark, cluster.endpoints, home / "delta")
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
    picture = home / "delays.png"
    plot.draw(found.carriers, per_second(follower), picture)
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


def follow_the_year(
    screen: Screen, cluster: ClusterProcess, airlines: Airlines, follower: LogFollower, queries: LiveQueries
) -> None:
    """Show how it goes until every flight is confirmed and every timer has fired."""
    total = airlines.total
    gauges = Gauges(
        screen,
        {
            "flights sent": total,
            "committed": total,
            "confirmed": total,
            "timers fired": total,
            "entries in the Log": None,
            "rows in Delta": None,
            "statistics back": None,
        },
    )
    pause = threading.Event()
    turns_left = None
    with gauges:
        while not (airlines.is_done and follower.counts[counts.TIMERS] >= total):
            cluster.check()
            follower.check()
            queries.check()
            if airlines.is_done:  # only timers are outstanding
                turns_left = int(SETTLE_S / TURN_S) if turns_left is None else turns_left - 1
                if turns_left == 0:
                    break  # the counts will show it
            gauges.show(str(airlines.today), gauge_values(airlines, follower, queries))
            pause.wait(TURN_S)
        gauges.show(str(airlines.today), gauge_values(airlines, follower, queries))


def gauge_values(airlines: Airlines, follower: LogFollower, queries: LiveQueries) -> dict[str, int]:
    return {
        "flights sent": airlines.sent,
        "committed": airlines.committed,
        "confirmed": airlines.confirmed,
        "timers fired": follower.counts[counts.TIMERS],
        "entries in the Log": follower.entries,
        "rows in Delta": queries.rows,
        "statistics back": queries.answers,
    }


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


def keep_tables(spark: SparkSession, endpoints: str, delta: Path) -> None:
    """Keep the other three tables over the whole Log, which is read once."""
    tables = {str(delta / job.layout.name): job for job in (make() for make in TABLE_JOBS)}
    keep(spark, "tables", tables, JobOptions.over({"endpoints": endpoints}, str(delta), say=lambda _: None))


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
