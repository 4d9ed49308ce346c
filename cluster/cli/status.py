"""``cluster status``: one verdict on a cluster and its reasons, running or stopped."""

from __future__ import annotations

import json
import os
import shutil
import time
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cluster.cli.connecting import connects
from cluster.cli.members import DIRECTORY_VARIABLE, OptionalEndpoints, ask_members, default_directory
from cluster.cli.verdict import DEGRADED, HEALTHY, UNAVAILABLE, Member, judge_backups, judge_members
from cluster.errors import ClusterError, NotAClusterDirectory, printable
from cluster.transport.endpoint import ENDPOINTS_VARIABLE

if TYPE_CHECKING:
    from cluster.protocol.link import LogStatus
    from cluster.transport.endpoint import Endpoint

app = typer.Typer(rich_markup_mode=None, add_completion=False)

STATUS_VERSION = 1
SECOND_LOOK_S = 0.25
POLL_S = 0.25

EPILOG = """\b
Examples:
  cluster status
  cluster status --dir cluster-data --json
  cluster status --endpoints 127.0.0.1:9000
  cluster status --wait healthy --timeout 30
  cluster status --dir backup

Without --dir and --endpoints CLUSTER_ENDPOINTS is asked, else the directory in CLUSTER_DIR, else
./cluster-data. The directory may be a whole cluster's, a member's, a backup's or a copy of one; its members
may have stopped. Of a member that runs, the others of its cluster are asked too.
Exit status: 0 healthy (or what --wait names has come), 1 not, 2 wrong usage.
docs/status.md has every key of --json and every message.
"""


class Awaited(StrEnum):
    """What ``--wait`` waits for."""

    LEADER = "leader"
    LEVEL = "level"
    HEALTHY = "healthy"


@app.command(epilog=EPILOG)
@connects
def status(
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir",
            help=f"A whole cluster's directory, a member's, or a copy of one; or set {DIRECTORY_VARIABLE}.",
        ),
    ] = None,
    endpoints: OptionalEndpoints = None,
    wait: Annotated[
        Awaited | None,
        typer.Option(help="Wait until a member leads, all members are level, or the cluster is healthy."),
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds to wait at most.", min=0)] = 60.0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Say whether the cluster is healthy, how much it can lose, and what to do."""
    if directory is not None and endpoints is not None:
        raise typer.BadParameter("give one of --dir and --endpoints", param_hint="--dir")
    if directory is None and endpoints is None:
        endpoints = os.environ.get(ENDPOINTS_VARIABLE) or None
    deadline = time.monotonic() + timeout
    while True:
        is_last = wait is None or time.monotonic() >= deadline
        try:
            document = _document(default_directory(directory), endpoints)
        except ClusterError:
            if is_last:
                raise
        else:
            if is_last or _is_there(wait, document):
                break
        time.sleep(POLL_S)
    print(json.dumps(document, indent=1) if as_json else _text(document))
    is_good = document["verdict"] == HEALTHY if wait is None else _is_there(wait, document)
    raise typer.Exit(0 if is_good else 1)


def _is_there(awaited: Awaited | None, document: dict[str, Any]) -> bool:
    if awaited is Awaited.HEALTHY:
        return bool(document["verdict"] == HEALTHY)
    if awaited is Awaited.LEADER or document["verdict"] == UNAVAILABLE:
        return bool(document["verdict"] != UNAVAILABLE)
    count = document["cluster"]["memberCount"]
    return bool(document["mayFail"]["withoutStopping"] == count - (count // 2 + 1))


# ---- the document


def _document(directory: Path, endpoints: str | None) -> dict[str, Any]:
    """Look twice where somebody lags: who has by then what was committed before does not."""
    seen = _seen(directory, endpoints)
    committed = _newest(seen.members or seen.backups, "commitPosition") or 0
    if any(member["isAlive"] and _is_short_of(member, committed) for member in seen.members):
        time.sleep(SECOND_LOOK_S)
        seen = _seen(directory, endpoints)
    now = datetime.now(UTC)
    judged = judge_members(seen.members, seen.member_count, now, committed)
    of_backups = judge_backups(seen.backups)
    if seen.backups and not seen.members:  # a backup's directory: it is asked whether that is well
        word = UNAVAILABLE if of_backups else HEALTHY
        judged = judged._replace(verdict=word, messages=of_backups)
    elif of_backups:
        word = DEGRADED if judged.verdict == HEALTHY else judged.verdict
        judged = judged._replace(verdict=word, messages=[*judged.messages, *of_backups])
    leader = judged.leader
    return {
        "v": STATUS_VERSION,
        "time": now.isoformat(timespec="milliseconds"),
        "verdict": judged.verdict,
        "mayFail": {"withoutStopping": judged.may_stop, "withoutLoss": judged.may_be_lost},
        "messages": [message._asdict() for message in judged.messages],
        "cluster": {
            "id": seen.cluster_id,
            "identity": seen.identity,
            "memberCount": seen.member_count,
            "leader": None if leader is None else leader["memberId"],
            "leadershipTermId": _newest(seen.members, "leadershipTermId"),
            "commitPosition": committed,
        },
        "members": seen.members,
        "clients": {"sessions": 0 if leader is None else leader.get("sessions")},
        "groups": max(seen.members, key=lambda m: m.get("commitPosition") or -1).get("consumers", [])
        if seen.members
        else [],
        "backups": seen.backups,
    }


def _newest(members: list[Member], key: str) -> int | None:
    """The greatest that any member has; None where none is known."""
    return max((value for member in members if (value := member.get(key)) is not None), default=None)


def _is_short_of(member: Member, committed: int) -> bool:
    position = member.get("commitPosition")
    return position is not None and (position < committed or bool(member.get("serviceLag")))


class _Seen:
    """One look at all members that can be found."""

    def __init__(self) -> None:
        self.members: list[Member] = []
        self.backups: list[Member] = []
        self.member_count = 0
        self.cluster_id: int | None = None
        self.identity: str | None = None

    def take(self, member: Member) -> None:
        is_backup = member.pop("isBackup", False)
        kept = {key: value for key, value in member.items() if key not in ("counters", "bytesPerSecond")}
        (self.backups if is_backup else self.members).append(kept)

    def take_status(self, status: LogStatus) -> None:
        """What any member says of all."""
        from cluster.protocol.token import identity_of, identity_text

        identity = identity_of(status)
        self.cluster_id = status.cluster_id
        self.identity = None if identity is None else identity_text(*identity)


def _seen(directory: Path, endpoints: str | None) -> _Seen:
    from cluster.transport.endpoint import parse_endpoints

    seen = _Seen()
    known: dict[int, Endpoint] = {}
    if endpoints is not None:  # without their ids: each of them says who the others are
        known = {-1 - i: endpoint for i, endpoint in enumerate(parse_endpoints(endpoints).values())}
    else:
        known = _look_in(directory, seen)
    here = {member["memberId"] for member in seen.members}
    _ask({id_: endpoint for id_, endpoint in known.items() if id_ not in here}, here, seen)
    ids = {member["memberId"] for member in seen.members}
    seen.member_count = max(seen.member_count, len(ids), len(seen.members))
    seen.members.sort(key=lambda member: -1 if member["memberId"] is None else member["memberId"])
    return seen


def _ask(endpoints: dict[int, Endpoint], here: set[int], seen: _Seen) -> None:
    """Ask members over their endpoints, but those that were looked at ``here``."""
    from cluster.cli.top import shown_status

    for member_id, answer in ask_members(endpoints).items():
        if member_id in here:
            continue
        if not isinstance(answer, ClusterError):
            seen.take_status(answer)
        seen.take(shown_status(member_id, answer))


def _look_in(directory: Path, seen: _Seen) -> dict[int, Endpoint]:
    """Look at the members in a directory; returns where they say that all members are."""
    from cluster.archive.files import OsFiles
    from cluster.cli.running_member import mark_of, status_over_ipc
    from cluster.reader.member_directory import find_cluster_directory, members_in
    from cluster.transport.endpoint import parse_endpoints

    files = OsFiles()
    if not directory.is_dir():
        raise NotAClusterDirectory(
            f"{directory}: no such directory; expected a cluster's, a member's or a backup's, by --dir or "
            f"{DIRECTORY_VARIABLE}, or running members, by --endpoints or {ENDPOINTS_VARIABLE}"
        )
    folders = members_in(files, str(directory)) or [str(directory)]
    known: dict[int, Endpoint] = {}
    for folder in folders:
        find_cluster_directory(files, folder)  # says what is missing
        member = _look_at(folder)
        seen.take(member)
        if member["isAlive"] and not known:
            try:
                said = status_over_ipc(folder, mark_of(folder))
            except ClusterError:
                continue
            if said is not None:
                known = parse_endpoints(said.tcp_endpoints or said.ingress_endpoints)
                seen.member_count = len(known)
                seen.take_status(said)
    return known


def _look_at(folder: str) -> Member:
    from cluster.cli.running_member import mark_of
    from cluster.cli.top import Directories
    from cluster.protocol.enums import ClusterComponentType

    try:
        mark = mark_of(folder)
    except ClusterError:
        mark = None
    try:
        source = Directories(Path(folder))
    except NotAClusterDirectory:  # a copy without its counters
        member: Member = {
            "memberId": None if mark is None else mark.member_id, "isAlive": False, "dir": folder
        }  # fmt: skip
    else:
        try:
            [member] = source.look()
        finally:
            source.close()
    member["isBackup"] = mark is not None and mark.component_type in (
        ClusterComponentType.BACKUP,
        ClusterComponentType.STANDBY,
    )
    usage = shutil.disk_usage(folder)
    member |= {"diskFree": usage.free, "diskTotal": usage.total}
    return member | _of_log(folder, is_alive=member["isAlive"])


def _of_log(folder: str, *, is_alive: bool) -> Member:
    """What the log's files say; of a member that does not run, how far its log goes, too."""
    from cluster.protocol.recording_log import SNAPSHOT, TERM
    from cluster.reader.directory import DirectoryLog

    try:
        log = DirectoryLog(folder)
    except ClusterError as error:
        return {} if is_alive else {"damage": str(error)}
    try:
        extent = log.extent()
        entries = log.state.log_entries
        snapshots = [entry for entry in entries if entry.entry_type is SNAPSHOT]
        last = max(snapshots, key=lambda entry: entry.log_position, default=None)
        found: Member = {
            "logBytes": extent.written - log.start_position,
            "snapshotPosition": None if last is None else last.log_position,
            "snapshotTimestamp": None if last is None else last.timestamp,
            "replayBytes": extent.end - (log.start_position if last is None else last.log_position),
        }
        if not is_alive:
            terms = [entry.leadership_term_id for entry in entries if entry.entry_type is TERM]
            found |= {
                "commitPosition": extent.committed,
                "appendPosition": extent.written,
                "leadershipTermId": max(terms, default=None),
            }
        return found
    except ClusterError as error:
        return {} if is_alive else {"damage": str(error)}
    finally:
        log.close()


# ---- for people


def _text(document: dict[str, Any]) -> str:
    cluster, may_fail = document["cluster"], document["mayFail"]
    leader = cluster["leader"]
    leads = "nobody leads" if leader is None else f"member {leader} leads"
    count = cluster["memberCount"]
    term = "" if cluster["leadershipTermId"] is None else f"term {cluster['leadershipTermId']}, "
    lines = [
        f"{document['verdict']}: {count} member{'s' * (count != 1)}, {leads}, {term}"
        f"{cluster['commitPosition']:,} bytes committed",
        f"  {may_fail['withoutStopping']} may stop without stopping the cluster, "
        f"{may_fail['withoutLoss']} may lose their disks without losing what was acknowledged",
    ]
    if not document["members"]:
        lines = [f"{document['verdict']}: a backup, {cluster['commitPosition']:,} bytes of committed log"]
    lines += [f"  {line}" for line in _rows([*document["members"], *document["backups"]])]
    for message in document["messages"]:
        lines += [f"{message['severity']}: {printable(message['text'])}", f"  {message['fix']}"]
    return "\n".join(lines)


def _rows(members: list[Member]) -> list[str]:
    headings = ("member", "role", "term", "committed", "log bytes", "disk free", "sessions")
    rows = [
        (
            "-" if member["memberId"] is None else str(member["memberId"]),
            _role(member),
            _number(member.get("leadershipTermId")),
            _number(member.get("commitPosition")),
            _number(member.get("logBytes")),
            "" if member.get("diskFree") is None else f"{member['diskFree'] / (1 << 30):,.1f} GiB",
            _number(member.get("sessions")) if member["isAlive"] else "",
        )
        for member in members
    ]
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if index < 2 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (headings, *rows)
    ]


def _role(member: Member) -> str:
    if not member["isAlive"]:
        return "no answer" if "error" in member else "not running"
    if member.get("electionState") not in (None, "CLOSED"):
        return str(member["electionState"])
    return str(member.get("role"))


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"
