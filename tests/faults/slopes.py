"""What processes take, sampled again and again, and whether it grows.

    python -m tests.faults.slopes soak.json soak.png

draws the samples of a soak, a panel for each of memory, descriptors, threads and files.
"""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path
from statistics import median

MIB = 1 << 20
# How much more a process may have at the end of the samples than at their begin, by the line through them: so
# much, or a share of its median. Connections of those that have just gone come and go with the samples.
GROWTH_MAX = {"memory": (24 * MIB, 0.1), "descriptors": (8, 0.0), "threads": (8, 0.0), "files": (3, 0.0)}
WARM_UP = 0.34  # of the samples: caches, pools and the first snapshots fill


def taken_by(pid: int) -> dict[str, int]:
    """Bytes that no file could give back, descriptors and threads. Raises OSError when it is gone."""
    proc = Path(f"/proc/{pid}")
    fields = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines())
    if "RssAnon" not in fields:
        raise ProcessLookupError(f"process {pid} has ended")
    threads, descriptors = (len(os.listdir(proc / folder)) for folder in ("task", "fd"))
    memory = int(fields["RssAnon"].split()[0]) * 1024
    return {"memory": memory, "descriptors": descriptors, "threads": threads}


def children_of(pid: int) -> list[int]:
    """Processes that its threads have started."""
    found = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for path in found for child in path.read_text().split()]


class Samples:
    """Values by who has them and what they are of, in the order in which they were taken."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, str], list[int]] = defaultdict(list)
        self.rounds_of: dict[int, int] = defaultdict(int)  # in which a process was there

    def take(self, who: str, taken: dict[str, int]) -> None:
        for what, value in taken.items():
            self.values[who, what].append(value)

    def write(self, path: Path) -> None:
        """As JSON, by the names of who has them and what they are of."""
        path.write_text(json.dumps([[*key, values] for key, values in self.values.items()]))

    def growing(self) -> list[str]:
        """Those whose line rises beyond GROWTH_MAX, with their values."""
        return [
            f"{who}: {what} grows by {growth(values):,.0f}: {values}"
            for (who, what), values in self.values.items()
            if growth(values) > max(GROWTH_MAX[what][0], GROWTH_MAX[what][1] * median(values))
        ]


def growth(values: Iterable[int]) -> float:
    """Along the line through the samples after the warm-up: that of the half in which it rises less.

    What leaks rises in both. What is taken once, as by a member that leads at last, is a step in one.
    """
    all_values = list(values)
    kept = all_values[int(len(all_values) * WARM_UP) :]
    middle = len(kept) // 2
    return min(_slope(kept[: middle + 1]), _slope(kept[middle:])) * (len(kept) - 1)


def _slope(values: list[int]) -> float:
    """The median of the slopes of all pairs."""
    slopes = [(b - a) / (j - i) for (i, a), (j, b) in combinations(enumerate(values), 2)]
    return median(slopes) if slopes else 0.0


def draw(samples: Path, picture: Path) -> None:
    """A panel for each of what is taken, a line for whom; medians of so many samples that 200 are drawn."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(2, 2, figsize=(11, 7), layout="constrained", sharex=True)
    by_what = dict(zip(GROWTH_MAX, panels.flat, strict=True))
    for who, what, values in json.loads(samples.read_text()):
        unit = MIB if what == "memory" else 1
        step = max(1, len(values) // 200)
        middles = [median(values[at : at + step]) / unit for at in range(0, len(values), step)]
        by_what[what].plot(range(0, len(values), step), middles, label=who, linewidth=1)
    for what, axes in by_what.items():
        axes.set(title="memory, MiB" if what == "memory" else what)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    for axes in panels[-1]:
        axes.set(xlabel="samples of the process")
    panels[0][0].legend(fontsize="small")
    figure.savefig(picture, dpi=100)


if __name__ == "__main__":
    draw(*(Path(name) for name in sys.argv[1:]))
