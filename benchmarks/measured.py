"""The tables of ``docs/performance.md`` that stand beside Aeron's figures, from ``results/cluster.jsonl``.

    python -m benchmarks.measured

prints them; a test compares. A cell is the median of the rounds; a run that stalled counts as one without a
figure, and a cell of which half the runs or more stalled says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

RESULTS = Path(__file__).parent / "results" / "cluster.jsonl"
SIDES = {
    "ipc": "ours, ipc",
    "tcp": "ours, tcp",
    "grpc": "ours, gRPC",
    "backoff": "Aeron Cluster 1.51, `backoff`",
    "yielding": "Aeron Cluster 1.51, `yielding`",
    "floor": "the bare steps, compiled",
}


def tables(figures: Iterable[dict[str, Any]]) -> str:
    """Two tables in Markdown, for file sync levels 1 and 0: round trips, messages per second by window."""
    runs: dict[tuple[int, str, int, int], list[dict[str, Any]]] = {}
    for figure in figures:
        side = figure["settings"]["idle"] if figure["side"] == "aeron" else figure["transport"]
        key = figure["file_sync_level"], side, figure["window"], figure["batch"]
        runs.setdefault(key, []).append(figure)
    return "\n".join(_table(runs, sync_level) for sync_level in (1, 0))


def _table(runs: dict[tuple[int, str, int, int], list[dict[str, Any]]], sync_level: int) -> str:
    windows = sorted({window for level, _, window, batch in runs if level == sync_level and batch == 1})
    batches = sorted({batch for level, _, _, batch in runs if level == sync_level and batch > 1})
    columns = [(window, 1) for window in windows if window > 1]
    columns += [(max(w for _, _, w, b in runs if b == batch), batch) for batch in batches]
    heads = [f"{window:,}" + (f", {batch:,} an offer" if batch > 1 else "") for window, batch in columns]
    lines = [
        f"| sync level {sync_level} | p50 / p99 of one alone | " + " | ".join(heads) + " |",
        "|---" * (len(columns) + 2) + "|",
    ]
    for side, name in SIDES.items():
        if not any(key[:2] == (sync_level, side) for key in runs):
            continue
        cells = [_round_trip(runs.get((sync_level, side, 1, 1), []))]
        cells += [_rate(runs.get((sync_level, side, *column), [])) for column in columns]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _median(runs: list[dict[str, Any]], key: str) -> float | None:
    """None where most runs stalled."""
    values = [run[key] for run in runs if not run.get("stalled")]
    return median(values) if 2 * len(values) > len(runs) else None


def _round_trip(runs: list[dict[str, Any]]) -> str:
    p50, p99 = _median(runs, "p50_us"), _median(runs, "p99_us")
    return _stalled(runs) if p50 is None or p99 is None else f"{p50:,.0f} / {p99:,.0f} µs"


def _rate(runs: list[dict[str, Any]]) -> str:
    rate = _median(runs, "messages_per_s")
    return _stalled(runs) if rate is None else f"{rate / 1000:,.0f} k/s"


def _stalled(runs: list[dict[str, Any]]) -> str:
    return f"{sum(bool(run.get('stalled')) for run in runs)} of {len(runs)} stalled" if runs else ""


def read(path: Path) -> list[dict[str, Any]]:
    """The figures of a file of results, without the machine's."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [line for line in lines if "side" in line]


def main() -> None:
    print(tables(read(RESULTS)))


if __name__ == "__main__":
    main()
