"""``cluster restart``: members one after the other, here or over the network, and no session ends by it."""

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from cluster.archive.files import OsFiles
from cluster.cli.connecting import connects
from cluster.cli.control import restart_over_network, transfer_on_host, transfer_over_network
from cluster.cli.durations import duration_option
from cluster.cli.host_audit import note_on_host
from cluster.cli.members import OptionalEndpoints, ask_members, members_at, optional_directory, place
from cluster.cli.running_member import home_of, mark_of, status_in
from cluster.cli.verbs import AsJson, print_result
from cluster.errors import AuthenticationRejected, ClusterError, TimedOut
from cluster.protocol.link import LogStatus
from cluster.reader.member_directory import is_running, members_in
from cluster.transport.endpoint import Endpoint, parse_endpoints

POLL_S = 0.05
HAND_OVER_PAUSE_S = 1.0
HAND_OVERS = 3  # asked for: a follower may lag just then, or the old leader may win the election again

app = typer.Typer(rich_markup_mode=None, add_completion=False)

EPILOG = """\b
Examples:
  cluster restart --dir cluster-data
  cluster restart --dir /var/lib/cluster --token-file reader.token
  cluster restart --endpoints db0:9000 --token-file operator.token

Followers restart first; the leader hands over before its turn. Each member ends with status 75, and `cluster
up`, or whatever else runs `cluster node`, starts it again (systemd: RestartForceExitStatus=75). The next
member restarts when this one has everything that is committed. Sessions stay open, except in a cluster of
one member. A hand-over that fails is tried three times. If a member follows no leader, or does not catch up
in time, the command names it and restarts no more members.

With --endpoints all members are restarted, on all hosts: any member that answers names the others. This
needs the rights admin and read. With --dir only the members in that directory are restarted, by SIGRTMIN;
the others are only asked for their state.
"""


class _Member(NamedTuple):
    """One that is to be restarted, and where it is. Its functions raise ClusterError."""

    name: str
    status: Callable[[], LogStatus]
    ask: Callable[[], None]


class _Members(NamedTuple):
    """Those to restart, by id; where all of their cluster are reached; what has their leader hand over."""

    to_restart: dict[int, _Member]
    endpoints: dict[int, Endpoint]
    hand_over: Callable[[], object]


@app.command(epilog=EPILOG)
@connects
def restart(
    directory: Annotated[
        Path | None, optional_directory("A whole cluster's directory on this host, or one member's.")
    ] = None,
    endpoints: OptionalEndpoints = None,
    timeout: Annotated[
        float, duration_option(help="How long each member may take to catch up.", default="60s", least="1s")
    ] = 60.0,
    as_json: AsJson = False,
) -> None:
    """Restart running members one after another; sessions stay open."""
    directory, endpoints = place(directory, endpoints)
    members = _over_network(endpoints or "") if directory is None else _on_host(directory)
    pending, patience_s, hand_overs_left = dict(members.to_restart), 0.0, HAND_OVERS
    while pending:
        statuses = _await_following(members.endpoints, patience_s)
        patience_s = timeout
        leader_id = max(statuses, key=lambda status: status.leadership_term_id).leader_member_id
        following = [member_id for member_id in pending if member_id != leader_id]
        if not following and len(statuses) > 1:
            hand_overs_left -= 1
            if not _has_handed_over(members.hand_over, hand_overs_left):
                continue  # whoever leads now: the hand-over may have come late
        member_id = following[0] if following else leader_id
        _restart(pending.pop(member_id), max(status.commit_position for status in statuses), timeout)
        done = {"memberId": member_id, "outcome": "restarted"}
        print_result(as_json, done, f"member {member_id} restarted")


def _on_host(directory: Path) -> _Members:
    """All of a whole cluster's directory, or a member's own. Raises ClusterError unless all run."""
    files = OsFiles()
    folders = members_in(files, str(directory)) or [str(directory)]
    if stopped := [folder for folder in folders if not is_running(files, folder)]:
        raise ClusterError(f"{', '.join(stopped)}: not running; start what is down first")
    status = status_in(folders[0])
    return _Members(
        {
            mark_of(folder).member_id: _Member(folder, partial(status_in, folder), partial(_signal, folder))
            for folder in folders
        },
        parse_endpoints(status.tcp_endpoints or status.ingress_endpoints),
        partial(transfer_on_host, directory),
    )


def _signal(folder: str) -> None:
    from cluster.node.supervisor import RESTART_SIGNAL

    os.kill(mark_of(folder).pid, RESTART_SIGNAL)
    note_on_host(home_of(folder), "RESTART")


def _over_network(endpoints: str) -> _Members:
    from cluster.transport.member_status import member_status

    known = members_at(endpoints)
    ask_members(known)
    return _Members(
        {
            member_id: _Member(
                str(endpoint), partial(member_status, endpoint), partial(restart_over_network, endpoint)
            )
            for member_id, endpoint in sorted(known.items())
        },
        known,
        partial(transfer_over_network, known),
    )


def _await_following(endpoints: dict[int, Endpoint], timeout_s: float) -> list[LogStatus]:
    """Of all members, each of which follows a leader or leads. Raises ClusterError for one that does not."""
    deadline = time.monotonic() + timeout_s
    while True:
        why, statuses = "", []
        for member_id, answer in ask_members(dict(endpoints)).items():
            who = f"member {member_id}" if member_id >= 0 else str(endpoints[member_id])
            if isinstance(answer, ClusterError):
                why = why or f"{who} does not answer ({answer})"
            elif answer.leader_member_id < 0:
                why = why or f"{who} is in an election"
            else:
                statuses.append(answer)
        if not why:
            return statuses
        if time.monotonic() >= deadline:
            raise ClusterError(f"{why}, so nothing {'more ' if timeout_s else ''}is restarted")
        time.sleep(POLL_S)


def _has_handed_over(ask: Callable[[], object], attempts_left: int) -> bool:
    """Have another member lead, and pause where that fails. Raises ClusterError for the last attempt."""
    try:
        ask()
    except ClusterError as error:
        if isinstance(error, AuthenticationRejected) or not attempts_left:
            raise
        time.sleep(HAND_OVER_PAUSE_S)
        return False
    return True


def _restart(member: _Member, committed: int, timeout_s: float) -> None:
    """Until its new process has all that was committed before. Raises TimedOut when that takes too long."""
    asked_s = time.monotonic()
    member.ask()
    while why := _why_not_level(member, asked_s, committed):
        if time.monotonic() > asked_s + timeout_s:
            raise TimedOut(f"{member.name}: not level again within {timeout_s:g} s: {why}; see its node.log")
        time.sleep(POLL_S)


def _why_not_level(member: _Member, asked_s: float, committed: int) -> str:
    """Empty once it is another process than the one that was asked, and has what was committed."""
    from cluster.reader.standing import said_of_itself

    since_ms = (time.monotonic() - asked_s) * 1000
    try:
        status = member.status()
    except ClusterError as error:
        return f"its supervisor has to start it again ({error})"
    if said_of_itself(status.standing).get("uptimeMs", since_ms) >= since_ms:
        return "it has not ended"
    if status.leader_member_id < 0:
        return "it follows no leader"
    if status.commit_position < committed:
        return f"it has {status.commit_position:,} of {committed:,} bytes of committed log"
    return ""
