"""A supervisor of processes that are forked off this one, and do what a test says in the place of members."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.node import supervisor
from cluster.node.supervisor import RESTART_STATUS, Supervisor, say
from tests.node.processes import await_that

Entry = Callable[[Any, socket.socket], int]
Supervise = Callable[..., Supervisor]
HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


@pytest.fixture
def supervise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Supervise]:
    """A function: the supervisor of so many processes, each of which runs ``entry``."""
    before = {number: signal.getsignal(number) for number in HANDLED}
    monkeypatch.setattr(supervisor, "ignore_signals_at_exit", lambda: None)
    made: list[Supervisor] = []

    def start(count: int, entry: Entry, entry_again: Entry = lambda config, link: 0) -> Supervisor:
        configs: Any = [
            SimpleNamespace(member_id=member_id, path=tmp_path / str(member_id), node_log_bytes=100)
            for member_id in range(count)
        ]
        made.append(Supervisor(configs, entry, entry_again))
        return made[0]

    yield start
    signal.set_wakeup_fd(-1)
    for number, handler in before.items():
        signal.signal(number, handler)
    for member in made[0].running:
        os.kill(member.pid, signal.SIGKILL)
        os.waitpid(member.pid, 0)


def poll_until(supervised: Supervisor, condition: Callable[[], object], what: str) -> None:
    await_that(lambda: supervised.poll(0.05) is None or condition(), what)


def told(link: socket.socket) -> str:
    """The next command; the member waits for it."""
    select.select([link], [], [])
    return str(json.loads(link.recv(4096).splitlines()[0])["command"])


def ends_when_told(config: Any, link: socket.socket) -> int:
    return {"stop": 0, "terminate": 7}[told(link)]


def leads_when_it_is_the_first(config: Any, link: socket.socket) -> int:
    """The leader of a cluster that comes to its end with it: the others see that by themselves."""
    say(link, event="leader", isLeader=config.member_id == 0)
    return 0 if config.member_id or told(link) == "terminate" else 7


def test_a_member_that_asks_for_it_is_started_again_and_any_other_is_not(supervise):
    supervised = supervise(2, lambda config, link: RESTART_STATUS if config.member_id else 3)
    poll_until(supervised, lambda: not supervised.running, "the end of both, and of the one again")
    assert [member.status for member in supervised.members] == [3, 0]


def test_no_member_is_started_again_while_all_are_to_stop(supervise):
    supervised = supervise(1, lambda config, link: told(link) and RESTART_STATUS)
    signal.raise_signal(signal.SIGTERM)
    supervised.stop()
    assert [member.status for member in supervised.members] == [RESTART_STATUS]


def test_what_a_member_says_in_its_last_moment_is_heard(supervise, monkeypatch):
    """It says it after all were heard, and before they are looked after."""
    waitpid = os.waitpid

    def fails(config: Any, link: socket.socket) -> int:
        raise ValueError(told(link))

    def that_fails_now(pid: int, options: int) -> tuple[int, int]:
        supervised.members[0].send("no luck")
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        return waitpid(pid, options)

    supervised = supervise(1, fails)
    monkeypatch.setattr(os, "waitpid", that_fails_now)
    (ended,) = supervised.poll(0)
    assert (ended.status, ended.error) == (1, "ValueError: no luck")


def test_what_a_member_said_is_heard_although_it_ended_with_a_command_unread():
    """The kernel resets such a socket, after what was sent over it."""
    ours, theirs = socket.socketpair()
    with ours:
        ours.setblocking(False)
        with theirs:
            say(theirs, event="failed", error="no luck")
            say(ours, command="stop")
        heard = list(supervisor.Member(SimpleNamespace(), 1, ours).receive())  # type: ignore[arg-type]
    assert heard == [{"event": "failed", "error": "no luck"}]


def test_a_line_may_come_in_pieces(supervise):
    def halting(config: Any, link: socket.socket) -> int:
        link.send(b'{"event": "listening"}\n{"event": "lea')
        told(link)
        link.send(b'der", "isLeader": true}\n')
        told(link)
        return 0

    supervised = supervise(1, halting)
    member = supervised.members[0]
    poll_until(supervised, lambda: member.is_listening, "its first line")
    assert supervised.leader is None
    member.send("go on")
    poll_until(supervised, lambda: supervised.leader is member, "the rest of its second")


def test_who_said_last_that_it_leads_is_the_leader(supervise):
    def leads(config: Any, link: socket.socket) -> int:
        while told(link) == "lead":
            say(link, event="leader", isLeader=True)
        return 0

    supervised = supervise(2, leads)
    for member in (*supervised.members, supervised.members[0]):
        member.send("lead")
        poll_until(supervised, lambda member=member: supervised.leader is member, "who leads")


def test_a_leader_without_a_majority_is_told_to_stop_where_it_is(supervise):
    supervised = supervise(3, leads_when_it_is_the_first)
    poll_until(supervised, lambda: len(supervised.running) == 1, "the end of the others")
    assert supervised.leader is supervised.members[0]
    supervised.stop()
    assert supervised.members[0].status == 7, "it was told to stop, as nothing can be committed"


def test_the_leader_of_a_majority_is_told_to_terminate_the_cluster(supervise):
    supervised = supervise(1, leads_when_it_is_the_first)
    poll_until(supervised, lambda: supervised.leader is not None, "a leader")
    assert supervised.stop()


def test_members_without_a_leader_are_told_to_stop(supervise):
    assert supervise(2, ends_when_told).stop()


def test_a_member_that_does_not_stop_in_time_is_killed(supervise, monkeypatch):
    monkeypatch.setattr(supervisor, "STOP_TIMEOUT_S", 0.1)
    supervised = supervise(1, lambda config, link: time.sleep(600) or 0)
    assert not supervised.stop()
    (member,) = supervised.members
    assert (member.status, member.error) == (-signal.SIGKILL, "did not stop in time and was killed")


def test_output_beyond_its_bound_is_kept_apart_while_its_member_goes_on(supervise):
    def prints(config: Any, link: socket.socket) -> int:
        os.write(1, bytes(120))  # print writes to pytest
        while os.fstat(1).st_size:
            time.sleep(0.01)
        os.write(1, b"more")
        return 0

    supervised = supervise(1, prints)
    poll_until(supervised, lambda: not supervised.running, "its end")
    log = supervised.members[0].config.path / "output.log"
    assert (log.read_text(), Path(f"{log}.1").read_text()) == ("more", "\0" * 120)
