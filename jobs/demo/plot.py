"""One picture of the run: how late each carrier was, and what went through the Log meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def draw(carriers: list[dict[str, Any]], seconds: list[dict[str, Any]], path: Path) -> None:
    """Write a PNG to ``path``.

    ``carriers``: name, meanDelay in minutes, lateShare; ``seconds``: second of the run, and how many flights,
    timers and answers the Log took in it.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, (delays, rates) = plt.subplots(
        1, 2, figsize=(13, 5.6), width_ratios=[1.15, 1], layout="constrained", facecolor="white"
    )
    carriers = sorted(carriers, key=lambda row: row["meanDelay"])
    colors = ["#2a788e" if row["meanDelay"] <= 0 else "#d95f02" for row in carriers]
    names = [row["name"] for row in carriers]
    bars = delays.barh(names, [row["meanDelay"] for row in carriers], color=colors)
    delays.bar_label(
        bars, [f" {row['meanDelay']:+.1f} min, {row['lateShare']:.0%} late " for row in carriers], fontsize=8
    )
    delays.axvline(0, color="black", linewidth=0.8)
    delays.margins(x=0.32)
    delays.set_xlabel("mean arrival delay, minutes")
    delays.set_title("New York departures 2013, by carrier", loc="left", fontsize=11)

    at = [row["second"] for row in seconds]
    for kind, label, color in (
        ("flights", "flights", "#2a788e"),
        ("timers", "timers fired", "#d95f02"),
        ("answers", "statistics written back", "#7570b3"),
    ):
        rates.plot(at, [row[kind] for row in seconds], label=label, color=color, linewidth=1.3)
    rates.set_ylim(bottom=0)
    rates.set_xlabel("second of the run")
    rates.set_ylabel("entries per second")
    rates.set_title("What the Log took", loc="left", fontsize=11)
    rates.legend(  # beside the title
        frameon=False, fontsize=8, loc="lower right", bbox_to_anchor=(1, 0.99), ncols=3,
        handlelength=1.1, columnspacing=1.0,
    )  # fmt: skip
    for axes in (delays, rates):
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
    figure.savefig(path, dpi=130)
    plt.close(figure)
