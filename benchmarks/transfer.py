"""Leadership handed over under load, again and again: how long nothing is committed, what is lost or doubled.

Default settings, three members, one client that goes on with its session. The gap is the client's: from one
growth of its acknowledged messages to the next, so it holds the wait for a level follower, the election, the
client's way to the new leader and the first commit there.

Goals: p50 at most 0.5 s; lost 0, doubled 0, no session lost.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.failover import quantile
from benchmarks.load import Load, check_logs
from benchmarks.options import Options
from benchmarks.real_members import RealMembers
from cluster.cli.main import main

TRANSFERS_A_ROUND = 10
MESSAGES_PER_S = 5_000


def run(options: Options) -> Iterator[dict[str, Any]]:
    """One figure over all transfers."""
    count = TRANSFERS_A_ROUND * options.rounds
    with (
        tempfile.TemporaryDirectory(prefix="cluster-bench-", ignore_cleanup_errors=True) as name,
        RealMembers(Path(name)) as members,
    ):
        members.start()
        members.await_level()
        with Load(members.tcp, messages_per_s=MESSAGES_PER_S) as load:
            load.await_progress(members.tell)
            gaps = [_gap(members, load) for _ in range(count)]
            load.finish()
            end = members.await_level()
            # Raises where messages are lost or doubled; then there is no figure.
            found = check_logs([members.member_dir(i) for i in members.ids], [], load.sessions, end)
        members.stop()
    yield {
        "figure": "gap without a commit",
        "transfers": count,
        "messages_per_s": MESSAGES_PER_S,
        "p50_s": round(quantile(gaps, 0.5), 3),
        "p99_s": round(quantile(gaps, 0.99), 3),
        "max_s": round(max(gaps), 3),
        "messages_acknowledged": found.acknowledged,
        "messages_lost": found.lost,
        "messages_doubled": found.doubled,
        "sessions_lost": len(load.sessions) - 1,
    }


def _gap(members: RealMembers, load: Load) -> float:
    """Seconds without a commit around one transfer, to whomever the leader chooses."""
    time.sleep(1)  # of undisturbed load
    leader = members.await_leader()
    began = time.monotonic()
    with contextlib.redirect_stdout(sys.stderr):
        status = main(["tool", "transfer-leadership", "--dir", str(members.member_dir(leader))])
    assert status == 0, f"member {leader} did not hand over"
    load.await_progress(members.tell)
    return load.longest_gap(began, time.monotonic())
