"""What every test folder shares: one Spark session, who runs what, and the report of conformance points."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from tests.flakes import Failures
from tests.seconds import Meter

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from pyspark.sql import SparkSession
    from xdist.scheduler import LoadFileScheduling

POINTS_FILE = Path(__file__).resolve().parent.parent / "docs" / "conformance.md"
# A JVM of the tests lives for minutes: its second compiler and its parallel collector take a quarter to
# a third of the CPU of a job that is run once, and bring nothing back. One compiler alone gets 48 MB for its
# code by default; Spark fills them, and 6 s of the 80 that some jobs take went into sweeping that cache. A
# heap that begins large is collected less often: a twelfth. Verifying its 28,000 classes is a twentieth.
os.environ.setdefault(
    "SPARK_SUBMIT_OPTS",
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC "
    "-Xms1g -Xmn640m -XX:MetaspaceSize=400m -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote",
)
# What a test asks of Spark runs once over few rows: generating code for it takes a quarter of the JVM's CPU.
# Planning each stage again after the one before, tasks without rows, and descriptions of plans that nobody
# reads are a sixth. Jobs in processes of their own, the demo and docs/spark.md run as users' do.
FOR_FEW_ROWS = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.ui.explainMode": "simple",
    "spark.ui.liveUpdate.period": "-1",
}
# Of a worker's input: the file in which it names, for the scheduler, the tests that use the session.
WITH_SPARK = "with_spark"

# How long an example takes on a machine that others use, too, says nothing.
settings.register_profile("tests", deadline=None)
settings.load_profile("tests")

_LINE = re.compile(
    r"^(?:## (?P<group>[A-Z]{1,2}\. .+)|- \*\*(?P<number>[CMPS]-\d+)\*\* (?P<statement>.+(?:\n  .+)*))$",
    re.MULTILINE,
)
NOT_HERE = "Not here:"  # begins the reason why nothing is to be tested

_tests_of_point: dict[str, set[str]] = defaultdict(set)

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

    session = spark_session("tests", master="local[2]", extra=FOR_FEW_ROWS)
    yield session
    jvm = session.sparkContext._gateway.proc
    session.stop()
    jvm.stdin.close()  # which ends it; waited for, its processor time counts as ours
    jvm.wait(60)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling:
    """One worker gets all tests that use the Spark session, first; other files go to whichever is free."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        @cached_property
        def _with_spark(self) -> set[str]:
            return set(json.loads(Path(self.nodes[0].workerinput[WITH_SPARK]).read_text()))

        def _split_scope(self, nodeid: str) -> str:
            return "spark" if nodeid in self._with_spark else str(super()._split_scope(nodeid))

    config.option.loadscopereorder = False  # in the order of pytest_collection_modifyitems
    return Scheduling(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """A worker is about to be started."""
    folder = Path(tempfile.gettempdir())
    node.workerinput[WITH_SPARK] = str(folder / f"with-spark-{node.workerinput['testrunuid']}.json")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--conformance", action="store_true", help="list every conformance point with the tests that prove it"
    )
    parser.addoption("--seconds", metavar="FILE", help="write there what each folder takes: tests/seconds.py")
    parser.addoption("--part", metavar="K/N", help="run the test files of the K-th of N parts, from 0, alone")


def pytest_configure(config: pytest.Config) -> None:
    if seconds := config.getoption("--seconds"):
        config.pluginmanager.register(Meter(Path(seconds)))
    # Taken out of it: a run that a test starts, with a planted mistake for one, would write over the file.
    if failures := os.environ.pop("TEST_FAILURES", ""):
        config.pluginmanager.register(Failures(Path(failures)))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Modules and tests stay as long as the process: the garbage collector need not look at them."""
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    keep_points(items)
    part = config.getoption("--part")
    if part and not config.getoption("lf"):  # of what failed, the parts would be others
        keep_part(items, *map(int, part.split("/")))
    items.sort(key=uses_spark, reverse=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Before the scheduler hears of it. All workers find the same."""
    if (worker := getattr(session.config, "workerinput", None)) is not None:
        written = Path(f"{worker[WITH_SPARK]}-{worker['workerid']}")
        written.write_text(json.dumps([item.nodeid for item in session.items if uses_spark(item)]))
        written.replace(worker[WITH_SPARK])


def pytest_unconfigure(config: pytest.Config) -> None:
    if (worker := getattr(config, "workerinput", None)) is not None:
        Path(worker[WITH_SPARK]).unlink(missing_ok=True)


def uses_spark(item: pytest.Item) -> bool:
    """Whether a test has the session, however many fixtures lie between."""
    return "spark" in getattr(item, "fixturenames", ())


def keep_part(items: list[pytest.Item], part: int, parts: int) -> None:
    """Leave the files of one part: tests of one file may need one another's fixtures, and order.

    Each file goes to the part whose tests may take the fewest seconds so far, the longest files first.
    """
    seconds: Counter[Path] = Counter()
    for item in items:
        seconds[item.path] += seconds_allowed(item)
    taken, part_of = [0] * parts, {}
    for path in sorted(seconds, key=lambda path: (-seconds[path], path)):
        part_of[path] = taken.index(min(taken))
        taken[part_of[path]] += seconds[path]
    items[:] = [item for item in items if part_of[item.path] == part]


def seconds_allowed(item: pytest.Item) -> int:
    """The time-out of a test; one without any counts as one with the default."""
    marker = item.get_closest_marker("timeout")
    return (marker.args[0] if marker else 0) or int(item.config.getini("timeout"))


def keep_points(items: list[pytest.Item]) -> None:
    """Note which conformance points the tests prove."""
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


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Callable[[], tuple[ReadableSpan, ...]]:
    """Those that have ended, by a tracer provider of the test's own."""
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    return exporter.get_finished_spans
