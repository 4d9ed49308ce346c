"""``cluster restart``: the members of this host one after the other, and none of their sessions with them."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Annotated

import typer

from cluster.archive.files import OsFiles
from cluster.cli.connecting import connects
from cluster.cli.members import ask_members
from cluster.cli.running_member import mark_of, status_in
from cluster.errors import ClusterError, TimedOut
from cluster.reader.member_directory import is_running, members_in
from cluster.transport.endpoint import parse_endpoints

POLL_S = 0.05

app = typer.Typer(rich_markup_mode=None, add_completion=False)

EPILOG = """\b
Examples:
  cluster restart --dir cluster-data
  cluster restart --dir /var/lib/cluster --token-file reader.token

Followers first; whoever leads hands over before its turn. Each is asked by SIGRTMIN to end in order with
status 75, which has `cluster up` start it again, or whatever else runs `cluster node` on this host (of
systemd: RestartForceExitStatus=75). The next one is asked when it has all that was committed. Sessions stay
open, but those of a cluster of one member. What does not come back in time is named, and nothing more is
restarted.

Where each host has one member, do this on one host after the other. The other members are asked first
whether they follow: where one does not, nothing is restarted.
"""


@app.command(epilog=EPILOG)
@connects
def restart(
    directory: Annotated[
        Path, typer.Option("--dir", help="A whole cluster's directory on this host, or one member's.")
    ],
    timeout: Annotated[float, typer.Option(help="Seconds for each member to be level again.", min=1)] = 60.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Restart running members one after the other, without an end to any session."""
    pending = _running_members(directory)
    is_alone = _count_following(pending[0]) == 1
    while pending:
        member = _next(pending, directory, is_alone)
        pending.remove(member)
        _restart(member, timeout)
        line = {"memberId": mark_of(member).member_id, "outcome": "restarted"}
        print(json.dumps(line) if as_json else f"member {line['memberId']} restarted", flush=True)


def _running_members(directory: Path) -> list[str]:
    """All of a whole cluster's directory, or a member's own. Raises ClusterError unless all run."""
    files = OsFiles()
    members = members_in(files, str(directory)) or [str(directory)]
    if stopped := [member for member in members if not is_running(files, member)]:
        raise ClusterError(f"{', '.join(stopped)}: does not run; first start what is down")
    return members


def _count_following(member: str) -> int:
    """How many members its cluster has. Raises ClusterError unless all of them follow a leader, or lead."""
    status = status_in(member)
    answers = ask_members(parse_endpoints(status.tcp_endpoints or status.ingress_endpoints))
    for member_id, answer in answers.items():
        if isinstance(answer, ClusterError):
            raise ClusterError(f"member {member_id} does not answer ({answer}), so nothing is restarted")
        if answer.leader_member_id < 0:
            raise ClusterError(f"member {member_id} is in an election, so nothing is restarted")
    return len(answers)


def _next(pending: list[str], directory: Path, is_alone: bool) -> str:
    """One that does not lead; the last one that is left to do hands over first."""
    from cluster.cli.control import transfer_on_host
    from cluster.cli.running_member import leads
    from cluster.member.control import transfer_toggle
    from cluster.node.control import ControlAction

    following = [member for member in pending if not leads(member)]
    if not following and not is_alone:
        transfer_on_host(ControlAction(transfer_toggle()), directory)
    return (following or pending)[0]


def _restart(member: str, timeout_s: float) -> None:
    """Raises TimedOut when it is not level again in time."""
    from cluster.node.supervisor import RESTART_SIGNAL

    before = mark_of(member).pid
    commit_position = _commit_position(member, before_pid=0)
    os.kill(before, RESTART_SIGNAL)
    deadline = time.monotonic() + timeout_s
    while (position := _commit_position(member, before_pid=before)) is None or position < (
        commit_position or 0
    ):
        if time.monotonic() > deadline:
            raise TimedOut(f"{member}: not level again within {timeout_s:g} s; its node.log says why")
        time.sleep(POLL_S)


def _commit_position(member: str, before_pid: int) -> int | None:
    """Of the member that runs, unless it is the process from before; None while no leader is known to it."""
    from cluster.cli.running_member import status_over_ipc

    try:
        mark = mark_of(member)
        if mark.pid == before_pid:
            return None
        status = status_over_ipc(member, mark)
    except ClusterError:
        return None
    return status.commit_position if status is not None and status.leader_member_id >= 0 else None
