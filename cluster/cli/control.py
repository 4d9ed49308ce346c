"""The verbs of ``cluster tool`` that a running member carries out: by its toggles, or over the network."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cluster.archive.files import OsFiles
from cluster.cli.connecting import connects
from cluster.cli.host_audit import note_on_host
from cluster.cli.members import OptionalEndpoints, optional_directory, place
from cluster.cli.running_member import home_of, leader_directory, live_counters, mark_of, status_over_ipc
from cluster.cli.verbs import AsJson, print_result, tool_example
from cluster.errors import ClusterError, NotLeader, RemoteProtocolError, TimedOut
from cluster.protocol.enums import ClusterControlToggle, NodeControlToggle
from cluster.protocol.link import ControlOutcome, ControlRequest, LinkErrorCode
from cluster.protocol.mark_file import ClusterMarkFileHeader
from cluster.reader.member_directory import is_running, members_in
from cluster.transport.endpoint import Endpoint, adopt_endpoints, parse_endpoints
from cluster.transport.names import connect_within

if TYPE_CHECKING:
    from cluster.node.control import ControlAction

POLL_S = 0.01
END_TIMEOUT_S = 30.0
ANSWER_TIMEOUT_S = 40.0  # of a member that carries something out
CONNECT_TIMEOUT_S = 5.0

app = typer.Typer(rich_markup_mode=None, add_completion=False)

LeaderDirectory = Annotated[
    Path | None,
    optional_directory("A whole cluster's directory, or the leader's."),
]
MemberDirectory = Annotated[Path | None, optional_directory("The member's directory.")]

ALL_MEMBERS = "db0:9000,db1:9000"
REMOTE = "\nOver the network (--endpoints) it needs a principal with the right admin."


def _epilog(verb: str, more: str = "", *, is_of_node: bool = False) -> str:
    """Of a verb for the leader, whose --dir may be a whole cluster's, or of one about one member."""
    directory, members = (
        ("cluster-data/member-0", "db0:9000") if is_of_node else ("cluster-data", ALL_MEMBERS)
    )
    over_network = f"{verb} --endpoints {members} --token-file operator.token"
    return tool_example(f"{verb} --dir {directory}", over_network, more=(more + REMOTE).strip())


def _verb(name: str, text: str, more: str = "", *, is_of_node: bool = False) -> Callable[..., None]:
    """The verb that sets the toggle of that name: the leader's, or one member's."""

    def command(
        directory: Path | None = None, endpoints: OptionalEndpoints = None, as_json: AsJson = False
    ) -> None:
        from cluster.node.control import ControlAction

        toggles = NodeControlToggle if is_of_node else ClusterControlToggle
        action = ControlAction(toggles[name.upper().replace("-", "_")], is_of_node=is_of_node)
        _ask(action, directory, endpoints, as_json)

    command.__annotations__["directory"] = MemberDirectory if is_of_node else LeaderDirectory
    command.__doc__ = text
    command = connects(command)
    app.command(name, epilog=_epilog(name, more, is_of_node=is_of_node))(command)
    return command


snapshot = _verb(
    "snapshot", "Have all members and their services take a snapshot; returns when the leader has taken it."
)
_verb("suspend", "Stop the cluster from accepting messages and firing timers, until `resume`.")
_verb("resume", "Let a suspended cluster accept messages and fire timers again.")
_verb(
    "shutdown",
    "Have all members take a snapshot and stop; returns when those in --dir or --endpoints have stopped.",
)
_verb(
    "abort",
    "Have all members stop without a snapshot; returns when those in --dir or --endpoints have stopped.",
)
_verb(
    "standby-snapshot",
    "Have all standbys take a snapshot, by an entry in the log.",
    "The members themselves take none.",
)
_verb(
    "validate-recording-log",
    "Have a running member mark those snapshots invalid whose recordings are missing from its archive.",
    is_of_node=True,
)
_verb(
    "replicate-standby-snapshot",
    "Have a running member fetch the newest snapshot of a standby, and load it at its next start.",
    "A standby with an endpoint offers its snapshots to members with accept_standby_snapshots = true.",
    is_of_node=True,
)


@app.command(
    epilog=_epilog(
        "transfer-leadership",
        "Do it before you stop a leader: sessions stay open, and nobody waits for a time-out. If the other\n"
        "member does not lead within election_timeout, the leader goes on.",
    ),
)
@connects
def transfer_leadership(
    directory: LeaderDirectory = None,
    endpoints: OptionalEndpoints = None,
    to: Annotated[
        int | None,
        typer.Option(
            "--member",
            "--to",
            help="Id of the next leader; by default the member with most of the log.",
            min=0,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Hand leadership over to another member; returns when that member leads."""
    directory, endpoints = place(directory, endpoints)
    if directory is not None:
        leader_id = transfer_on_host(directory, to)
    else:
        leader_id = transfer_over_network(parse_endpoints(endpoints or ""), to)
    if to not in (None, leader_id):
        raise ClusterError(f"member {leader_id} leads now, and not member {to}")
    print_result(as_json, {"leaderMemberId": leader_id}, f"member {leader_id} leads")


# ---- asking


def _ask(action: ControlAction, directory: Path | None, endpoints: str | None, as_json: bool) -> None:
    """Have the action carried out and say so. Raises ClusterError."""
    directory, endpoints = place(directory, endpoints)
    if directory is not None:
        member_id = _ask_on_host(action, directory)
    else:
        member_id = _ask_over_network(action, endpoints)
    done = {"memberId": member_id, "toggle": action.name, "outcome": "completed"}
    print_result(as_json, done, f"[{member_id}] {action.name} completed")


def _ask_on_host(action: ControlAction, directory: Path) -> int:
    """By the toggle in the counters file; returns the member that did it."""
    member = directory if action.is_of_node else leader_directory(directory)
    mark = _carry_out(action, member)
    if action.is_end:
        files = OsFiles()
        members = members_in(files, str(directory)) or [str(directory)]
        _await_nobody(lambda: [member for member in members if is_running(files, member)])
    return mark.member_id


def transfer_on_host(directory: Path, to: int | None = None) -> int:
    """Returns who leads then; None: whichever has most of the log."""
    from cluster.node.control import next_leader

    action = _transfer(to)
    member = leader_directory(directory)
    status = status_over_ipc(str(member), mark_of(str(member)))
    action.check_target("" if status is None else status.ingress_endpoints)
    mark = _carry_out(action, member)
    return next_leader(mark.member_id, lambda: status_over_ipc(str(member), mark))


def transfer_over_network(members: dict[int, Endpoint], to: int | None = None) -> int:
    """The same, in the cluster that these members are of."""
    return _outcome_of(_transfer(to), members).leader_member_id


def _transfer(to: int | None) -> ControlAction:
    from cluster.member.control import transfer_toggle
    from cluster.node.control import ControlAction

    return ControlAction(transfer_toggle() if to is None else transfer_toggle(to))


def restart_over_network(endpoint: Endpoint) -> None:
    """Ask one member to end, to be started again by whoever runs it. Raises ClusterError."""
    from cluster.node.control import RESTART, ControlAction

    outcome = _request(endpoint, ControlAction(RESTART, is_of_node=True))
    if outcome.code is not LinkErrorCode.OK:
        raise ClusterError(outcome.text)


def _carry_out(action: ControlAction, member: Path) -> ClusterMarkFileHeader:
    from cluster.node.control import MemberControl

    mark, home = mark_of(str(member)), home_of(member)
    with live_counters(str(member), mark, write=True) as counters:
        try:
            MemberControl(counters, mark.cluster_id, mark.member_id, home / "node.log").carry_out(action)
        except NotLeader as error:
            status = status_over_ipc(str(member), mark)
            if status is None or status.leader_member_id < 0:
                raise
            raise NotLeader(f"{error}, which is member {status.leader_member_id}") from None
        except ClusterError as error:
            note_on_host(home, action.name, str(error))
            raise
    note_on_host(home, action.name)
    return mark


def _await_nobody(running: Callable[[], list[str]]) -> None:
    """Wait until none are running. Raises TimedOut that names who is."""
    deadline = time.monotonic() + END_TIMEOUT_S
    while left := running():
        if time.monotonic() > deadline:
            raise TimedOut(f"not ended within {END_TIMEOUT_S:g} s: {', '.join(left)}")
        time.sleep(POLL_S)


def _ask_over_network(action: ControlAction, endpoints: str | None) -> int:
    """By a request to the leader, or to the one member that is named; returns the member that did it."""
    members = parse_endpoints(endpoints or "")
    if action.is_of_node and len(members) > 1:
        raise typer.BadParameter(f"expected one member, not {len(members)}", param_hint="--endpoints")
    outcome = _outcome_of(action, members)
    if action.is_end:
        _await_nobody(lambda: [f"{at} ({why})" for at in members.values() if (why := _why_not_ended(at))])
    return outcome.member_id


def _outcome_of(action: ControlAction, members: dict[int, Endpoint]) -> ControlOutcome:
    """What the first that leads says. Raises NotLeader, AuthenticationRejected."""
    from cluster.transport.log_client import Unreachable

    answers: dict[Endpoint, str] = {}
    pending = list(members.values())
    while pending:
        endpoint = pending.pop(0)
        try:
            outcome = _request(endpoint, action)
        except (Unreachable, RemoteProtocolError) as error:
            answers[endpoint] = str(error)
            continue
        if outcome.code is LinkErrorCode.OK:
            return outcome
        if outcome.code is not LinkErrorCode.NOT_LEADER:
            raise ClusterError(outcome.text)
        answers[endpoint] = outcome.text
        if outcome.leader_member_id >= 0:
            answers[endpoint] += f", which is member {outcome.leader_member_id}"
        adopt_endpoints(members, outcome.ingress_endpoints)
        pending = [other for other in members.values() if other not in answers]
    raise NotLeader("; ".join(answers.values()))


def _request(endpoint: Endpoint, action: ControlAction) -> ControlOutcome:
    from cluster.transport.member_status import log_client_opener

    with closing(log_client_opener(CONNECT_TIMEOUT_S)(endpoint)) as client:
        return client.control(ControlRequest(0, action.toggle, action.is_of_node), ANSWER_TIMEOUT_S)


def _why_not_ended(endpoint: Endpoint) -> str:
    """Empty once nobody listens there; that nothing is heard from the host does not say so."""
    try:
        connect_within(endpoint, CONNECT_TIMEOUT_S).close()
    except (ConnectionRefusedError, FileNotFoundError):
        return ""
    except OSError as error:
        return error.strerror or str(error)
    return "it listens"
