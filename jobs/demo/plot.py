"""One picture of the run: what the Log took, how fast it answered, how far Delta was, and the kill."""

import math
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL of a leader: when, in seconds of the run, and how long nothing was committed."""

    at_s: float
    member_id: int
    next_leader: int
    gap_s: float


def lags(samples: list[tuple[float, int, int]]) -> list[float]:
    """Of each sample (second, in the Log, in Delta) the age in seconds of the oldest entry not in Delta."""
    entries = np.array([entries for _, entries, _ in samples])
    found = []
    for at_s, _, rows in samples:
        first = int(np.searchsorted(entries, rows, side="right"))
        found.append(max(0.0, at_s - samples[first][0]) if first < len(samples) else 0.0)
    return found


def percentiles(latencies: list[tuple[float, float]]) -> list[tuple[int, float, float]]:
    """For each second of the run p50 and p99 in ms, of (second, seconds) of each offer."""
    of: dict[int, list[float]] = defaultdict(list)
    for at_s, latency_s in latencies:
        of[math.floor(at_s)].append(1000 * latency_s)
    return [(second, *(float(np.percentile(of[second], p)) for p in (50, 99))) for second in sorted(of)]  # type: ignore[misc]


def draw(
    seconds: list[dict[str, Any]],
    latencies: list[tuple[float, float]],
    samples: list[tuple[float, int, int]],
    kill: Kill | None,
    path: Path,
) -> None:
    """Write a PNG to ``path``; ``seconds``: second of the run, flights, timers and answers in it."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import LogLocator, NullLocator

    figure, (rates, answers, delta) = plt.subplots(
        3, 1, figsize=(10, 8), sharex=True, layout="constrained", facecolor="white"
    )
    at = [row["second"] for row in seconds]
    for kind, label, color in (
        ("flights", "flights", "#2a788e"),
        ("timers", "timers fired", "#d95f02"),
        ("answers", "statistics written back", "#7570b3"),
    ):
        rates.plot(at, [row[kind] for row in seconds], label=label, color=color, linewidth=1.3)
    rates.set_ylabel("entries per second")
    rates.set_title("What the Log took", loc="left", fontsize=11)

    found = percentiles(latencies)
    for column, label, color in ((1, "p50", "#2a788e"), (2, "p99", "#d95f02")):
        answers.plot(
            [row[0] for row in found], [row[column] for row in found], label=label, color=color, linewidth=1.3
        )
    answers.set_yscale("log")
    answers.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))  # more labels would overlap
    answers.yaxis.set_minor_locator(NullLocator())
    answers.yaxis.set_major_formatter("{x:g}")
    answers.set_ylabel("ms")
    answers.set_title("From an airline's offer to the service's answer", loc="left", fontsize=11)

    delta.plot([at_s for at_s, _, _ in samples], lags(samples), color="#2a788e", linewidth=1.3)
    delta.set_ylabel("seconds")
    delta.set_xlabel("second of the run")
    delta.set_title("Age of the oldest entry that is not in Delta yet", loc="left", fontsize=11)
    for axes in (rates, delta):
        axes.set_ylim(bottom=0)
    for axes in (rates, answers):
        axes.legend(frameon=False, fontsize=8, loc="upper right", ncols=3)
    for axes in (rates, answers, delta):
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
        if kill is not None:
            axes.axvline(kill.at_s, color="black", linewidth=0.8, linestyle=":")
    if kill is not None:
        rates.annotate(
            f" kill -9 of member {kill.member_id}, which led;\n no commit for {1000 * kill.gap_s:.0f} ms",
            (kill.at_s, 0.8), xycoords=("data", "axes fraction"), fontsize=8,
        )  # fmt: skip
    figure.align_ylabels()
    figure.savefig(path, dpi=130)
    plt.close(figure)
