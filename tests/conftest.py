"""What every test folder shares: one Spark session, and the report of conformance points."""

from __future__ import annotations

import ctypes
import gc
import os
import re
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from xdist.scheduler import LoadFileScheduling

POINTS_FILE = Path(__file__).resolve().parent.parent / "docs" / "conformance.md"
# A JVM of the tests lives for minutes: its second compiler and its parallel collector take a quarter to
# a third of the CPU of a job that is run once, and bring nothing back. One compiler alone gets 48 MB for its
# code by default; Spark fills them, and 6 s of the 80 that some jobs take went into sweeping that cache.
os.environ.setdefault(
    "SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
)
# What a test asks of Spark runs once over few rows: generating code for it takes a quarter of the JVM's CPU.
# Jobs in processes of their own, the demo and the blocks of docs/spark.md have it generated, as users do.
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
# What uses Spark, and waits for its processes: one worker has it all while another does the rest.
SPARK_TESTS = ("tests/spark/", "tests/jobs/", "tests/docs/test_spark_docs.py")

# How long an example takes on a machine that others use, too, says nothing.
settings.register_profile("tests", deadline=None)
settings.load_profile("tests")

_LINE = re.compile(
    r"^(?:## (?P<group>[A-Z]{1,2}\. .+)|- \*\*(?P<number>[CPS]-\d+)\*\* (?P<statement>.+(?:\n  .+)*))$",
    re.MULTILINE,
)
NOT_HERE = "Not here:"  # begins the reason why nothing is to be tested

_tests_of_point: dict[str, set[str]] = defaultdict(set)

BEGUN_S = time.monotonic()

RESIDENT_BYTES = 2 * 1024**3  # of a worker, from which on it gives memory back after each module
_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc


@pytest.fixture(scope="module", autouse=True)
def _give_memory_back() -> Iterator[None]:
    """Members that lived in a test leave large buffers, in cycles, between what is still in use."""
    yield
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    if resident > RESIDENT_BYTES:
        gc.collect()
        if _TRIM is not None:
            _TRIM(0)


def conformance_groups() -> dict[str, dict[str, str]]:
    """The points of ``docs/conformance.md`` in its order: group to number to statement."""
    groups: dict[str, dict[str, str]] = {}
    for match in _LINE.finditer(POINTS_FILE.read_text()):
        if match["group"]:
            groups[match["group"]] = {}
        else:
            statement = " ".join(match["statement"].split())
            groups[next(reversed(groups))][match["number"]] = statement
    return groups


def conformance_points() -> dict[str, str]:
    """All numbered points: number to statement."""
    return {
        number: statement for group in conformance_groups().values() for number, statement in group.items()
    }


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One session for the whole run: starting one takes longer than most tests."""
    from jobs.session import spark_session

    session = spark_session("tests", master="local[2]", extra=INTERPRETED)
    yield session
    session.stop()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling:
    """With ``-n 2`` one worker gets all tests that use Spark; other files go to whichever is free."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "spark" if nodeid.startswith(SPARK_TESTS) else str(super()._split_scope(nodeid))

    return Scheduling(config, log)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--conformance", action="store_true", help="list every conformance point with the tests that prove it"
    )
    parser.addoption(
        "--minutes", type=float, help="begin no test later than that; the others count as skipped"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    minutes = item.config.getoption("--minutes")
    if minutes is not None and time.monotonic() - BEGUN_S > 60 * minutes:
        pytest.skip(f"not begun within {minutes:g} minutes")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    known = {number: text for number, text in conformance_points().items() if NOT_HERE not in text}
    for item in items:
        for marker in item.iter_markers("conformance"):
            for number in marker.args:
                if number not in known:
                    raise pytest.UsageError(
                        f"{item.nodeid}: {number!r} is no point of docs/conformance.md that holds here"
                    )
                _tests_of_point[number].add(item.nodeid.split("[")[0])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if not config.getoption("--conformance"):
        return
    write = terminalreporter.write_line
    groups = conformance_groups()
    terminalreporter.section("conformance points")
    for group, points in groups.items():
        write("")
        write(group)
        for number, statement in points.items():
            tests = sorted(_tests_of_point[number])
            verdict = "none  " if NOT_HERE in statement else "proven" if tests else "OPEN  "
            write(f"{number:<6} {verdict} {statement}")
            for test in tests:
                write(f"       - {test}")
    terminalreporter.section("points with a test, by group")
    total = total_proven = 0
    for group, points in groups.items():
        here = [number for number, statement in points.items() if NOT_HERE not in statement]
        open_points = [number for number in here if not _tests_of_point[number]]
        proven = len(here) - len(open_points)
        total, total_proven = total + len(here), total_proven + proven
        missing = f"   OPEN: {' '.join(open_points)}" if open_points else ""
        write(f"{group:<44} {proven:>3} of {len(here):>3}{missing}")
    write(f"{total_proven} of {total} points that hold here have a test")
