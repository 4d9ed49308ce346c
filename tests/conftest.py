"""What every test folder shares: one Spark session, and the report of conformance points."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POINTS_FILE = Path(__file__).resolve().parent.parent / "docs" / "conformance.md"
_POINT = re.compile(r"^- \*\*([CS]-\d+)\*\* (.+)$", re.MULTILINE)

_tests_of_point: dict[str, set[str]] = defaultdict(set)


def conformance_points() -> dict[str, str]:
    """The numbered points of ``docs/conformance.md`` in its order: number to statement."""
    return dict(_POINT.findall(POINTS_FILE.read_text()))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One session for the whole run: starting one takes longer than most tests."""
    from jobs.session import spark_session

    session = spark_session("tests", master="local[2]")
    yield session
    session.stop()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--conformance", action="store_true", help="list every conformance point with the tests that prove it"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    known = conformance_points()
    for item in items:
        for marker in item.iter_markers("conformance"):
            for number in marker.args:
                if number not in known:
                    raise pytest.UsageError(
                        f"{item.nodeid}: {number!r} is not a point of docs/conformance.md"
                    )
                _tests_of_point[number].add(item.nodeid.split("[")[0])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if not config.getoption("--conformance"):
        return
    points = conformance_points()
    terminalreporter.section("conformance points")
    for number, statement in points.items():
        tests = sorted(_tests_of_point[number])
        terminalreporter.write_line(f"{number:<6} {'proven' if tests else 'OPEN  '} {statement}")
        for test in tests:
            terminalreporter.write_line(f"       - {test}")
    proven = sum(bool(_tests_of_point[number]) for number in points)
    terminalreporter.write_line(f"{proven} of {len(points)} points have a test")
