"""SIGKILL of the leader under load, again and again: how long nothing is committed, what is lost or doubled.

Default settings, three members, one client that re-sends what is not acknowledged. Each killed member is
started again and brought level before the next kill. The gap is the client's: from one growth of its
acknowledged messages to the next, so it holds the noticing, the election, the client's way to the new leader
and the first commit there.

Goals: p50 at most 0.15 s, p99 at most 0.35 s; lost 0, doubled 0.
"""

from __future__ import annotations

import math
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.load import Load, check_logs
from benchmarks.options import Options
from benchmarks.real_members import RealMembers

KILLS = 50
GOAL_P99_S = 0.35
MESSAGES_PER_S = 5_000


def run(options: Options) -> Iterator[dict[str, Any]]:
    """A figure a kill, and one over all of them."""
    kills = KILLS if options.rounds >= 3 else 10 * options.rounds
    gaps: list[float] = []
    with (
        tempfile.TemporaryDirectory(prefix="cluster-bench-", ignore_cleanup_errors=True) as name,
        RealMembers(Path(name)) as members,
    ):
        members.start()
        members.await_level()
        with Load(members.tcp, messages_per_s=MESSAGES_PER_S) as load:
            load.await_progress(members.tell)
            for number in range(kills):
                time.sleep(1)  # of undisturbed load
                leader = members.await_leader()
                killed_at = time.monotonic()
                members.kill(leader)
                elected = members.await_leader(other_than=leader)
                elected_after = time.monotonic() - killed_at
                load.await_progress(members.tell)
                gaps.append(load.longest_gap(killed_at, time.monotonic()))
                members.start(leader)
                members.await_level()
                yield {
                    "figure": "kill of the leader",
                    "kill": number,
                    "leader": leader,
                    "next_leader": elected,
                    "elected_after_s": round(elected_after, 3),
                    "gap_s": round(gaps[-1], 3),
                }
                print(f"failover: {number + 1} of {kills} kills", file=sys.stderr)
            load.finish()
            end = members.await_level()
            # Raises where messages are lost or doubled; then there is no figure.
            found = check_logs([members.member_dir(i) for i in members.ids], [], load.sessions, end)
        members.stop()
    if options.plots is not None:
        _plot(gaps, options.plots / "failover.png")
    yield {
        "figure": "gap without a commit",
        "kills": kills,
        "messages_per_s": MESSAGES_PER_S,
        "p50_s": round(quantile(gaps, 0.5), 3),
        "p99_s": round(quantile(gaps, 0.99), 3),
        "max_s": round(max(gaps), 3),
        "mean_s": round(statistics.mean(gaps), 3),
        "messages_acknowledged": found.acknowledged,
        "messages_lost": found.lost,
        "messages_doubled": found.doubled,
        "sessions_lost": len(load.sessions) - 1,
    }


def quantile(values: list[float], share: float) -> float:
    """The smallest value that at least ``share`` of all do not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def _plot(gaps: list[float], path: Path) -> None:
    """How many of the kills cost at most so long."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 3.5), layout="constrained")
    shares = [100 * (i + 1) / len(gaps) for i in range(len(gaps))]
    axes.step(sorted(gaps), shares, where="post")
    axes.axvline(GOAL_P99_S, linestyle=":", color="grey")
    axes.set(
        xlabel=f"gap without a commit at the client, s (goal: p99 ≤ {GOAL_P99_S})",
        ylabel="% of kills",
        title=f"SIGKILL of the leader under load, {len(gaps)} times",
        xlim=(0, None),
        ylim=(0, 101),
    )
    figure.savefig(path, dpi=120)
