"""Tests that fail once and pass when they are run again: a ledger of them, so that none is forgotten.

With ``TEST_FAILURES=FILE`` a run of pytest writes there what failed. ``.ci/run`` runs that again and calls

    python -m tests.flakes build/failures.jsonl build/failures-again.jsonl

which prints a line for each test that passed then, and appends it to ``tests/flakes.jsonl``. Commit the line,
and find the cause: ``mended`` then says what it was.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.tree import ROOT

LEDGER = ROOT / "tests" / "flakes.jsonl"
LAST_LINES = 25  # kept of what a failure printed


class Failures:
    """A pytest plugin: writes each failure of a run to a file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        file.parent.mkdir(exist_ok=True)
        file.write_text("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            said = [*report.longreprtext.splitlines(), *report.capstderr.splitlines()[-5:]]
            failure = {
                "test": report.nodeid,
                "load": round(os.getloadavg()[0], 1),
                "cores": os.cpu_count(),
                "said": said[-LAST_LINES:],
            }
            with self._file.open("a") as lines:
                lines.write(json.dumps(failure) + "\n")


def read(file: Path) -> list[dict[str, Any]]:
    """The lines of a file of failures, or of the ledger."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []


def flakes(failures: list[dict[str, Any]], again: list[dict[str, Any]], date: str) -> list[dict[str, Any]]:
    """An entry of the ledger for each test that failed at first and did not when it was run again."""
    still = {failure["test"] for failure in again}
    first = {failure["test"]: failure for failure in reversed(failures)}
    return [
        {"date": date, **failure, "mended": ""} for failure in first.values() if failure["test"] not in still
    ]


def main() -> None:
    """Compare the two files that are named, print the entries, and add them to the ledger."""
    failures, again = (read(Path(name)) for name in sys.argv[1:3])
    for entry in flakes(failures, again, dt.date.today().isoformat()):
        line = json.dumps(entry)
        print(f"a flake, to be committed in tests/flakes.jsonl:\n{line}")
        with LEDGER.open("a") as ledger:
            ledger.write(line + "\n")


if __name__ == "__main__":
    main()
