"""Where the time of ``make test`` goes, folder by folder, and which folder has grown.

A whole run writes ``build/test-seconds.json``; ``tests/seconds.json`` is such a file, committed.
``make budget`` shows both and fails where a folder has grown by more than a fifth. Either it becomes cheaper
again, or the new file is committed, and the commit says what the time is spent on. With ``GROWTH=1.34``, as
``.ci/run`` has it, it fails later: the same tree may be just within the limit on one machine and beyond it on
another.

What counts is processor time, of all processes that tests have started: other work on the machine changes it
least. How fast the machine is, is taken out by what all others need there. On another kind of processor
nothing is compared, since Spark and Python do not become slower alike.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.tree import ROOT

MEASURED = ROOT / "build" / "test-seconds.json"
COMMITTED = ROOT / "tests" / "seconds.json"
GROWTH_MAX = 1.2
SMALLEST_GROWTH_S = 10.0  # less is noise: the same tree took 29 s and 36 s for a folder
_TICKS = os.sysconf("SC_CLK_TCK")


class Seconds(NamedTuple):
    """Of a folder, or at a moment."""

    tests: int
    wall: float
    processor: float


def processor_s() -> float:
    """Processor seconds of this process and of all that it has started, the JVM that still runs included."""
    times = os.times()
    total = times.user + times.system + times.children_user + times.children_system
    stat_of = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            stat_of[int(path.parent.name)] = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
    children = defaultdict(list)
    for pid, stat in stat_of.items():
        children[int(stat[1])].append(pid)
    pending = children[os.getpid()]
    while pending:
        pid = pending.pop()
        total += sum(map(int, stat_of[pid][11:15])) / _TICKS
        pending += children[pid]
    return total


class Meter:
    """A pytest plugin: the seconds of each folder of a run, of all its workers together."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._began: tuple[float, float] | None = None
        self._tests = 0
        self.folders: dict[str, Seconds] = {}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Any:
        if self._began is None:
            self._began = time.monotonic(), processor_s()
        result = yield
        self._tests += 1
        if nextitem is None or nextitem.path != item.path:
            wall, processor = self._began
            spent = Seconds(self._tests, time.monotonic() - wall, processor_s() - processor)
            self._add(folder_of(item.path), spent)
            self._began, self._tests = None, 0
        return result

    def _add(self, folder: str, spent: Seconds) -> None:
        before = self.folders.get(folder, Seconds(0, 0.0, 0.0))
        self.folders[folder] = Seconds(*(a + b for a, b in zip(before, spent, strict=True)))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """A worker has ended."""
        for folder, spent in getattr(node, "workeroutput", {}).get("seconds", {}).items():
            self._add(folder, Seconds(*spent))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["seconds"] = {folder: list(spent) for folder, spent in self.folders.items()}

    def pytest_unconfigure(self, config: pytest.Config) -> None:
        if not hasattr(config, "workeroutput") and self.folders:
            write(self._file, self.folders)


def folder_of(path: Path) -> str:
    """``tests/member`` of all that is in it, ``tests`` of what lies loose there."""
    return "/".join(path.relative_to(ROOT).parent.parts[:2])


def processor_name() -> str:
    """The machine's processor, as Linux names it."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def write(file: Path, folders: dict[str, Seconds]) -> None:
    """A line for each folder, so that a change reads well."""
    lines = [
        f'  "{folder}": {{"tests": {s.tests}, "wall": {s.wall:.1f}, "processor": {s.processor:.1f}}}'
        for folder, s in sorted(folders.items())
    ]
    head = f'"processor": {json.dumps(processor_name())}, "cores": {os.cpu_count()}'
    file.parent.mkdir(exist_ok=True)
    file.write_text("{" + head + ', "folders": {\n' + ",\n".join(lines) + "\n}}\n")


class Run(NamedTuple):
    """A file of seconds."""

    processor: str
    folders: dict[str, Seconds]

    @classmethod
    def read(cls, file: Path) -> Run:
        content = json.loads(file.read_text())
        return cls(
            content["processor"], {name: Seconds(**spent) for name, spent in content["folders"].items()}
        )


def grown(before: Run, now: Run, growth_max: float = GROWTH_MAX) -> list[str]:
    """A sentence for each folder that has grown by more than that; none on another kind of processor."""
    if before.processor != now.processor:
        return []
    return [
        f"{name} took {spent.processor:.0f} s of processor time, and {known:.0f} s when it was committed: "
        "make it cheaper, or commit build/test-seconds.json as tests/seconds.json and say why"
        for name, spent in sorted(now.folders.items())
        for known in [slowness_beside(before, now, name) * _processor(before, name)]
        if spent.processor > max(known * growth_max, known + SMALLEST_GROWTH_S)
    ]


def slowness_beside(before: Run, now: Run, folder: str) -> float:
    """How much slower the machine was, by all other folders together; never less than 1."""
    known, spent = (
        sum(run.folders[name].processor for name in before.folders.keys() & now.folders.keys() - {folder})
        for run in (before, now)
    )
    return max(1.0, spent / known) if known else 1.0


def _processor(run: Run, folder: str) -> float:
    return run.folders[folder].processor if folder in run.folders else 0.0


def table(before: Run, now: Run) -> list[str]:
    """Lines: folders, the dearest first, with what they took and what they took before."""
    lines = [f"{'folder':<20} {'tests':>6} {'wall s':>7} {'processor s':>12} {'before':>7}"]
    for name, spent in sorted(now.folders.items(), key=lambda item: -item[1].processor):
        lines.append(
            f"{name:<20} {spent.tests:>6} {spent.wall:>7.0f} {spent.processor:>12.0f} "
            f"{_processor(before, name):>7.0f}"
        )
    total = sum(spent.processor for spent in now.folders.values())
    known = sum(spent.processor for spent in before.folders.values())
    return [*lines, f"{'in all':<20} {'':>6} {'':>7} {total:>12.0f} {known:>7.0f}"]


def main(growth_max: float = GROWTH_MAX) -> int:
    """Print the table of the last whole run; 1 when a folder has grown too much, 2 when there was no run."""
    if not MEASURED.is_file():
        print("no whole run has been measured yet: make test", file=sys.stderr)
        return 2
    before, now = Run.read(COMMITTED), Run.read(MEASURED)
    print("\n".join(table(before, now)))
    if before.processor != now.processor:
        print(f"nothing is compared: tests/seconds.json is of {before.processor}, this is {now.processor}")
    faults = grown(before, now, growth_max)
    print("\n".join(faults), end="\n" if faults else "")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(*map(float, sys.argv[1:])))
