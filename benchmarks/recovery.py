"""How long a member takes from its start until it is ready, by the length of the log that it replays.

A log of so many messages of 100 bytes lies in each member's directory, written beforehand; the service is the
echo service, whose ``on_session_messages`` takes whole batches. Ready is: the election over, everything
processed by the consensus module and the service. With ``snapshot``, the members took one at the end of that
log before they stopped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.options import Options
from benchmarks.processes import CLUSTER
from benchmarks.real_members import RealMembers, await_that
from benchmarks.synthetic_log import write_messages
from cluster.archive.files import OsFiles
from cluster.archive.node_state_file import NodeStateFile

MESSAGES = (1_000_000, 10_000_000)
PAYLOAD_LENGTH = 100
READY_WITHIN_S = 600.0


class Start(NamedTuple):
    """Until all are ready, and how much of it passed before the last process ran its duty cycle."""

    seconds: float
    listening: float


def run(options: Options) -> Iterator[dict[str, Any]]:
    """A figure for each length of the log, number of members and kind of start."""
    figures = []
    for messages in MESSAGES if options.rounds > 1 else MESSAGES[:1]:
        for members in (1, 3):
            for figure in _measure(messages, members, options.rounds):
                figures.append(figure)
                yield figure
    if options.plots is not None:
        _plot(figures, options.plots / "recovery.png")


def _measure(messages: int, count: int, rounds: int) -> Iterator[dict[str, Any]]:
    with (
        tempfile.TemporaryDirectory(prefix="cluster-bench-", ignore_cleanup_errors=True) as name,
        RealMembers(Path(name), count) as members,
    ):
        _say(f"writing {messages:,} messages for {count} members")
        end = write_log(members, messages)
        context = {"figure": "start to ready", "messages": messages, "members": count, "log_mb": end // 10**6}
        starts = [start_all(members, end) for _ in range(rounds)]
        yield context | {"snapshot": False} | _figures(starts, messages)
        _take_snapshot(members)
        starts = [start_all(members, end) for _ in range(rounds)]
        yield context | {"snapshot": True} | _figures(starts, messages)


def write_log(members: RealMembers, messages: int, *, checksum: str = "crc32c") -> int:
    """Give every member the same log, as if all had stopped in order; return its end."""
    first = members.member_dir(0)
    end = write_messages(first, messages, payload_length=PAYLOAD_LENGTH, checksum=checksum)
    state = NodeStateFile.open(str(first / "cluster"), files=OsFiles(), file_sync_level=1)
    state.propose(0, end, time.time_ns() // 1_000_000)  # one that has voted is no empty disk
    state.close()
    for path in (first / "cluster").glob("*mark*"):
        path.unlink()  # it names the member
    for path in (first / "archive").glob("*mark*"):
        path.unlink()
    last = max((first / "archive").glob("*.rec"), key=lambda path: int(path.stem.split("-")[1]))
    for member_id in members.ids[1:]:
        other = members.member_dir(member_id)
        shutil.copytree(first / "cluster", other / "cluster")
        (other / "archive").mkdir()
        for path in (first / "archive").iterdir():
            if path.suffix == ".rec" and path != last:
                os.link(path, other / "archive" / path.name)  # nobody writes to a full segment
            else:
                shutil.copyfile(path, other / "archive" / path.name)
    return end


def start_all(members: RealMembers, end: int) -> Start:
    """Start all members, wait until they have processed all up to ``end``, and stop them."""
    began = time.monotonic()
    for member_id in members.ids:
        members.spawn(member_id)
    told = began
    listening = 0.0

    def is_ready() -> bool:
        nonlocal told, listening
        if not listening:
            standings = [members.standing(i) for i in members.ids]
            if all(standing is not None and standing.is_live for standing in standings):
                listening = time.monotonic() - began
        established = members.established()
        if time.monotonic() - told > 2:
            told = time.monotonic()
            standings = [members.standing(i) for i in members.ids]
            done = min((s.commit_position for s in standings if s is not None), default=0)
            _say(f"{told - began:.0f} s: {100 * max(done, 0) // end} % of the log is processed")
        return len(established) == len(members.ids) and all(
            standing.commit_position >= end for standing in established.values()
        )

    await_that(is_ready, "all members are ready", within_s=READY_WITHIN_S, tell=members.tell)
    seconds = time.monotonic() - began
    members.stop()
    return Start(seconds, listening)


def _take_snapshot(members: RealMembers) -> None:
    members.start()
    leader = members.await_leader(within_s=READY_WITHIN_S)
    members.await_level(within_s=READY_WITHIN_S)
    command = [*CLUSTER, "tool", "snapshot", "--dir", str(members.member_dir(leader))]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    members.await_level()
    members.stop()


def _figures(starts: list[Start], messages: int) -> dict[str, Any]:
    best = min(start.seconds for start in starts)
    return {
        "seconds": [round(start.seconds, 2) for start in starts],
        "seconds_of_processes": [round(start.listening, 2) for start in starts],
        "messages_per_s": round(messages / best),
    }


def _say(text: str) -> None:
    print(f"recovery: {text}", file=sys.stderr, flush=True)


def _plot(figures: list[dict[str, Any]], path: Path) -> None:
    """Seconds until ready against the log's length, a line for each kind of start."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 3.5), layout="constrained")
    for members in (1, 3):
        for snapshot in (False, True):
            chosen = [f for f in figures if (f["members"], f["snapshot"]) == (members, snapshot)]
            if chosen:
                axes.plot(
                    [f["messages"] / 1e6 for f in chosen],
                    [min(f["seconds"]) for f in chosen],
                    marker="o",
                    label=f"{members} member{'s' if members > 1 else ''}"
                    + (", with a snapshot" if snapshot else ""),
                )
    axes.set(
        xlabel="messages of 100 bytes in the log, millions",
        ylabel="s from start to ready",
        title="Recovery time",
        xlim=(0, None),
        ylim=(0, None),
    )
    axes.legend()
    figure.savefig(path, dpi=120)
