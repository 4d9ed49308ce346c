"""``cluster demo``: three members under load, whose leader is killed every few seconds, and what that costs.

    cluster demo --fork--> member 0, 1, 2       as by ``cluster up``, and killed
                 --fork--> demo_sender.py       a supervised client; counts answers, and gaps between commits
                 --fork--> demo_query.py        counts the log while it grows

At the end the logs of all members are read: every message that the client knows to be committed is in each of
them, once.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import socket
import statistics
import sys
import tempfile
import time
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cluster.cli.compile import compile_first
from cluster.cli.durations import duration_option
from cluster.cli.members import own_directory
from cluster.cli.verbs import json_option
from cluster.errors import ClusterError, StorageErrors, TimedOut

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from rich.console import Console
    from rich.text import Text

    from cluster.cli.demo_query import Counted
    from cluster.cli.demo_sender import DemoStanding
    from cluster.cli.top import Directories
    from cluster.node.supervisor import Supervisor

MEMBERS = 3
MESSAGES_PER_S = 50_000
BYTES_PER_MESSAGE = 96  # of the log
FILE_BYTES = 1 << 28  # of a member beside its log: files are made whole
KILL_EVERY_S = 5.0
SETTLING_S = 2.5  # after the last kill, so that its gap is seen
SHOW_AFTER_S = 1.0  # a kill, when its gap is over
GAP_BEGINS_S = 0.25  # at most after its kill: answers to what was committed are still on their way
LOOK_S = 0.25
LEVEL_TIMEOUT_S = 60.0
DRAW_S = 0.1
LINE_EVERY_S = 5.0  # without a terminal

app = typer.Typer(rich_markup_mode=None, add_completion=False)

EPILOG = f"""\b
Examples:
  cluster demo
  cluster demo --seconds 60s --dir demo-data
  cluster demo --json

It needs no Spark. A supervised client sends {MESSAGES_PER_S:,} messages a second, each of which a majority
commits and the service answers. `cluster bench` shows how many this machine can take. A killed member is
started again, and the next one is killed when all members have caught up. About 15 MB a second are written
to the directory for temporary files, and removed at the end unless --dir is given. On a desktop the page of
`cluster live` opens in the browser.

--json prints one object: seconds, members, messages, messagesPerSecond, lost, doubled, kills (atS, memberId,
leadershipTermId, gapMs, nextLeaderMemberId, levelAtS), terms (atS, leaderMemberId, leadershipTermId), sql
(engine, messages, ageMs). Exit status: 1 if a message was lost or doubled.
"""


@app.command(epilog=EPILOG)
def demo(
    seconds: Annotated[float, duration_option(help="How long to send.", default="30s", least="1s")] = 30.0,
    directory: Annotated[
        Path | None, own_directory("Make the members' directories in this folder, and keep them.")
    ] = None,
    base_port: Annotated[int, typer.Option(help="The first port; ten are set aside for each member.")] = 9000,
    as_json: Annotated[bool, json_option("Print only one JSON object, at the end.")] = False,
) -> None:
    """Run three members under load, kill their leader every few seconds, and count what is lost: nothing."""
    from rich.console import Console

    from cluster.cli import demo_report

    console = Console(highlight=False, soft_wrap=True, file=sys.stderr if as_json else None, quiet=as_json)
    with _directory(directory) as path:
        _check_room(path, seconds)
        report = _run(path, base_port, seconds, console)
    if as_json:
        print(json.dumps(report, indent=1))
    for line in (*demo_report.summary(report), *demo_report.next_steps()):
        console.print(line)
    raise typer.Exit(1 if report["lost"] or report["doubled"] else 0)


@contextmanager
def _directory(given: Path | None) -> Iterator[Path]:
    if given is not None:
        yield given.absolute()
        return
    with StorageErrors(os.environ.get("TMPDIR", "/tmp"), "no temporary folder can be made"):
        made = tempfile.TemporaryDirectory(prefix="cluster-demo-", ignore_cleanup_errors=True)
    with made as name:
        yield Path(name)


def _check_room(path: Path, seconds: float) -> None:
    there = next(folder for folder in (path, *path.parents) if folder.exists())
    needed = MEMBERS * (seconds * MESSAGES_PER_S * BYTES_PER_MESSAGE + FILE_BYTES)
    if (free := shutil.disk_usage(there).free) < needed:
        raise ClusterError(
            f"{there}: {free / 1e9:.1f} GB are free, and {needed / 1e9:.1f} GB are needed; "
            "give another place with --dir, or fewer --seconds"
        )


def _run(path: Path, base_port: int, seconds: float, console: Console) -> dict[str, Any]:
    """The report. Raises ClusterError when a member ends that was not killed here."""
    compile_first()
    from cluster.cli import demo_report
    from cluster.cli.demo_query import check_log, query_log
    from cluster.cli.demo_sender import DemoStanding, send_numbers
    from cluster.cli.top import Directories
    from cluster.cli.up import members_fields, plan_members, start_members
    from cluster.node.service_errors import ServiceErrorText

    console.print(demo_report.headline(MEMBERS, MESSAGES_PER_S, KILL_EVERY_S))
    console.print(demo_report.scale())
    supervisor = start_members(plan_members(MEMBERS, path, ["echo"], base_port), ServiceErrorText())
    try:
        endpoints = str(members_fields(supervisor)["tcpEndpoints"])
        with (
            _page(path, console),
            _child(query_log, endpoints) as query,
            _child(send_numbers, endpoints, MESSAGES_PER_S) as sender,
            _Line(console) as line,
        ):
            standing = DemoStanding(0, 0, 0, 0, 0, ())
            run = _Demo(supervisor, Directories(path), sender, query, line, standing)
            run.go_on(seconds)
        committed, is_orderly = run.standing.committed, supervisor.stop()
        if not is_orderly:
            raise ClusterError("the members did not stop in order")
    finally:
        supervisor.stop()
    found = [check_log(str(path / f"member-{i}"), committed) for i in range(MEMBERS)]
    return run.report([lost for lost, _ in found], [doubled for _, doubled in found])


@contextmanager
def _child(entry: Callable[..., None], *arguments: Any) -> Iterator[Connection]:
    """A process that is forked off, and ended at the end; what it sends comes by the connection."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()

    def run() -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the demo, which ends this process
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        entry(theirs, *arguments)

    process = context.Process(target=run, daemon=True)
    process.start()
    theirs.close()
    try:
        yield ours
    finally:
        process.terminate()
        process.join()
        ours.close()


@contextmanager
def _page(path: Path, console: Console) -> Iterator[None]:
    """The page of `cluster live`, opened in the user's browser if there is a display to show it on."""
    from cluster.cli.live import serve_demo

    if not (console.is_terminal and any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))):
        yield
        return
    with socket.create_server(("127.0.0.1", 0)) as sock, _child(serve_demo, path, sock):
        webbrowser.open(f"http://127.0.0.1:{sock.getsockname()[1]}/")
        yield


@dataclass
class _Demo:
    """Keeps members under load, kills, and notes what happens; times are seconds since its beginning."""

    _supervisor: Supervisor
    _directories: Directories
    _sender: Connection
    _query: Connection
    _line: _Line
    standing: DemoStanding
    _began: float = field(default_factory=time.monotonic)
    _counted: list[Counted] = field(default_factory=list)
    _kills: list[dict[str, Any]] = field(default_factory=list)
    _terms: list[dict[str, Any]] = field(default_factory=list)
    _gaps: list[tuple[float, float]] = field(default_factory=list)
    _shown: int = 0  # of the kills
    _looked_at: float = 0.0
    _seen_committed: int | None = None  # bytes, at the last look
    _is_level: bool = False
    _sent_s: float = 0.0

    @property
    def _now_s(self) -> float:
        return time.monotonic() - self._began

    def go_on(self, seconds: float) -> None:
        """Kill for so many seconds; return when all that was sent is answered and all members are level."""
        while (now_s := self._now_s) < seconds or self._shown < len(self._kills):
            self._turn()
            since_s = now_s - (self._kills[-1]["atS"] if self._kills else 0.0)
            if self._is_level and since_s >= KILL_EVERY_S and now_s < seconds - SETTLING_S:
                self._kill()
        self._sender.send("finish")
        self._sent_s = self._now_s
        deadline = time.monotonic() + LEVEL_TIMEOUT_S
        while self.standing.answered < self.standing.offered or not self._is_level:
            self._turn()
            if time.monotonic() > deadline:
                raise TimedOut(f"the members are not level after {LEVEL_TIMEOUT_S:g} s; see their node.log")

    def report(self, lost: list[int], doubled: list[int]) -> dict[str, Any]:
        """With what each member's log lacks, and has twice; what the client missed counts as well."""
        from cluster.cli.demo_query import engine

        standing, ages = self.standing, [counted.age_ms for counted in self._counted]
        return {
            "seconds": round(self._sent_s, 1),
            "members": MEMBERS,
            "messages": standing.committed,
            "messagesPerSecond": round(standing.committed / self._sent_s),
            "lost": max(standing.lost, *lost),
            "doubled": max(standing.doubled, *doubled),
            "kills": self._kills,
            "terms": self._terms,
            "sql": {
                "engine": engine(),
                "messages": self._counted[-1].messages if self._counted else 0,
                "ageMs": round(statistics.median(ages)) if ages else None,
            },
        }

    # -- a turn --

    def _turn(self) -> None:
        for ended in self._supervisor.poll(LOOK_S / 5):
            if not self._kills or self._kills[-1]["memberId"] != ended.member_id:
                raise ClusterError(f"member {ended.member_id} ended: {ended.error or ended.status}")
            self._supervisor.start_again(ended)
        if self._supervisor.is_asked_to_stop:
            raise KeyboardInterrupt
        while self._sender.poll():
            self._on_standing(self._received())
        while self._query.poll():
            self._counted.append(self._query.recv())
        if self._now_s - self._looked_at >= LOOK_S:
            self._look()
        self._show_kills()
        self._line.draw(self._now_s, self.standing, self._counted, self._terms)

    def _received(self) -> DemoStanding:
        try:
            received = self._sender.recv()
        except (EOFError, ConnectionResetError):
            received = "the client has ended"
        if isinstance(received, str):
            raise ClusterError(received)
        return received

    def _on_standing(self, standing: DemoStanding) -> None:
        self.standing = standing
        self._gaps += [(began - self._began, ended - self._began) for began, ended in standing.gaps]

    def _look(self) -> None:
        """See who leads, and whether all members have processed what was committed at the last look."""
        from cluster.cli.verdict import judge_members

        self._looked_at = self._now_s
        members = self._directories.look()
        judged = judge_members(members, MEMBERS, datetime.now(UTC), self._seen_committed)
        self._seen_committed = max((member["commitPosition"] or 0 for member in members), default=None)
        self._is_level = judged.may_stop == MEMBERS - (MEMBERS // 2 + 1)
        for kill in self._kills:
            if self._is_level and kill["levelAtS"] is None:
                kill["levelAtS"] = round(self._now_s, 2)
        leader = judged.leader
        if leader is not None and (
            not self._terms or leader["leadershipTermId"] > self._terms[-1]["leadershipTermId"]
        ):
            self._terms.append(
                {
                    "atS": round(self._now_s, 2),
                    "leaderMemberId": leader["memberId"],
                    "leadershipTermId": leader["leadershipTermId"],
                }
            )

    def _kill(self) -> None:
        leader = self._supervisor.leader
        if leader is None or leader.member_id != self._terms[-1]["leaderMemberId"]:
            return
        self._kills.append(
            {
                "atS": round(self._now_s, 2),
                "memberId": leader.member_id,
                "leadershipTermId": self._terms[-1]["leadershipTermId"],
                "gapMs": None,
                "nextLeaderMemberId": None,
                "levelAtS": None,
            }
        )
        os.kill(leader.pid, signal.SIGKILL)
        self._is_level, self._seen_committed = False, None

    def _show_kills(self) -> None:
        """Print the last kill, once its gap is over and another member leads."""
        from cluster.cli.demo_report import kill_line

        if self._shown == len(self._kills):
            return
        kill = self._kills[-1]
        after = [
            ended - began
            for began, ended in self._gaps
            if began <= kill["atS"] + GAP_BEGINS_S and ended >= kill["atS"]
        ]
        is_followed = self._terms[-1]["leadershipTermId"] > kill["leadershipTermId"]
        if after and is_followed and self._now_s >= kill["atS"] + SHOW_AFTER_S:
            kill["gapMs"] = round(1_000 * max(after))
            kill["nextLeaderMemberId"] = self._terms[-1]["leaderMemberId"]
            self._shown += 1
            self._line.say(kill_line(kill))


class _Line:
    """Lines that stay, and one below them that is drawn again; without a terminal that one comes seldom."""

    def __init__(self, console: Console) -> None:
        from rich.live import Live

        self._console = console
        # Refreshed by hand: the members are forked off this process, which therefore has no thread.
        self._live = (
            Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
        )
        self._drawn_at_s = 0.0
        self._committed = 0

    def __enter__(self) -> _Line:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, line: Text) -> None:
        self._console.print(line)

    def draw(
        self, now_s: float, standing: DemoStanding, counted: list[Counted], terms: list[dict[str, Any]]
    ) -> None:
        from cluster.cli.demo_report import progress_line

        passed_s = now_s - self._drawn_at_s
        if passed_s < (LINE_EVERY_S if self._live is None else DRAW_S):
            return
        rate = (standing.committed - self._committed) / passed_s
        self._drawn_at_s, self._committed = now_s, standing.committed
        sql = f"SQL {counted[-1].age_ms:,.0f} ms old" if counted else ""
        leader = f"member {terms[-1]['leaderMemberId']} leads" if terms else "nobody leads"
        line = progress_line(now_s, rate, standing.committed, standing.lost, standing.doubled, sql, leader)
        if self._live is None:
            self._console.print(line)
        else:
            line.no_wrap, line.overflow = True, "ellipsis"
            self._live.update(line, refresh=True)
