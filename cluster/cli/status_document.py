"""The document of ``cluster status``: one object about all members that can be found (docs/status.md)."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.cli.members import FROM_ENVIRONMENT, AeronPlace, Shown, ask_members, each_once, members_at
from cluster.cli.verdict import (
    DEGRADED,
    HEALTHY,
    UNAVAILABLE,
    Member,
    cut_links,
    judge_backups,
    judge_members,
)
from cluster.errors import ClusterError, NotAClusterDirectory
from cluster.transport.endpoint import Endpoint, parse_endpoints

if TYPE_CHECKING:
    from cluster.protocol.link import LogStatus
    from cluster.protocol.mark_file import ClusterMarkFileHeader
    from cluster.protocol.token import LogIdentity
    from cluster.reader.log_reader import LogReader

STATUS_VERSION = 1
SECOND_LOOK_S = 0.25
COUNTED_BYTES_MAX = 4 * 1024 * 1024  # of a greater lag only the age is known


def status_document(
    directory: Path | None,
    endpoints: str | None = None,
    shown: Shown = FROM_ENVIRONMENT,
    *,
    aeron: AeronPlace | None = None,
    committed_before: int | None = None,
) -> dict[str, Any]:
    """Look at the members in a directory, at endpoints or of a real Aeron Cluster, and judge them.

    ``endpoints`` beside a directory are those of all members, for when the member in it does not say them.
    Members that are asked are ``shown`` who asks. Looks twice where somebody lags, or a link is down: who has
    by then what was committed before does not. ``committed_before`` is of a look a moment ago: this is the
    second one then. Raises ClusterError.
    """
    seen = _seen(directory, endpoints, shown, aeron)
    committed = committed_before
    if committed is None:
        committed = _newest(seen.members or seen.backups, "commitPosition") or 0
    afar = endpoints if directory is None else None
    may_pass = cut_links(seen.members) or any(
        member["isAlive"] and _is_short_of(member, committed) for member in seen.members
    )
    if committed_before is None and may_pass:
        time.sleep(SECOND_LOOK_S)
        seen = _seen(directory, endpoints, shown, aeron)
    now = datetime.now(UTC)
    for member in seen.members:
        _add_outlook(member, committed)
    with_missing_entries(seen.members, committed, now, lambda: _log_of(seen.members, committed, afar, aeron))
    judged = judge_members(seen.members, seen.member_count, now, committed)
    of_backups = judge_backups(seen.backups, now)
    if seen.backups and not seen.members:  # a backup's directory: it is asked whether that is well
        runs = all(backup["isAlive"] for backup in seen.backups)
        word = UNAVAILABLE if not runs else DEGRADED if of_backups else HEALTHY
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
            "commitPosition": _newest(seen.members or seen.backups, "commitPosition")
            or _newest(seen.backups, "appendPosition"),  # a ClusterBackup records only what is committed
            **_cluster_time(leader or {}),
        },
        "members": seen.members,
        "clients": {"sessions": 0 if leader is None else leader.get("sessions")},
        "services": _services(seen.members, leader),
        "groups": max(seen.members, key=lambda m: m.get("commitPosition") or -1).get("consumers", [])
        if seen.members
        else [],
        "backups": seen.backups,
    }


def _cluster_time(leader: Member) -> dict[str, Any]:
    """Of the log's entries to come, as the leader stamps them."""
    time_ms = leader.get("clusterTimeMs")
    at = None if time_ms is None else datetime.fromtimestamp(time_ms / 1_000, UTC)
    return {
        "time": None if at is None else at.isoformat(timespec="milliseconds"),
        "timeOffsetMs": leader.get("clusterTimeOffsetMs"),
    }


def _services(members: list[Member], leader: Member | None) -> list[dict[str, Any]]:
    """How far each service is at the leader, and how far the slowest running member's lags that log."""
    running = [member for member in members if member["isAlive"] and member.get("servicePositions")]
    positions_of_leader = [] if leader is None else leader.get("servicePositions") or []
    return [
        {
            "serviceId": service_id,
            "position": position,
            "lag": max(
                max(0, member["commitPosition"] - member["servicePositions"][service_id])
                for member in running
                if service_id < len(member["servicePositions"])
            ),
        }
        for service_id, position in enumerate(positions_of_leader)
    ]


def with_missing_entries(
    members: list[Member], committed: int, now: datetime, open_log: Callable[[], LogReader]
) -> None:
    """Add ``lagEntries`` and ``lagMs``, how old the first of them is, to each member that lags.

    What cannot be read is left out. ``committed`` is how far the log goes that is opened.
    """
    lagging = [member for member in members if member.get("lag")]
    if not lagging:
        return
    with suppress(ClusterError), open_log() as log:
        for member in lagging:
            begin = committed - member["lag"]
            end = min(committed, begin + COUNTED_BYTES_MAX)
            batches = [batch for batch in log.batches(begin, end, columns=["timestamp"]) if batch.num_rows]
            if batches and member["lag"] <= COUNTED_BYTES_MAX:
                member["lagEntries"] = sum(batch.num_rows for batch in batches)
            if batches and member["isAlive"]:
                age = now - batches[0].column("timestamp")[0].as_py()
                member["lagMs"] = max(0, age // timedelta(milliseconds=1))


def _add_outlook(member: Member, committed: int) -> None:
    """How far a member that has stopped is short of the others, and for how long one that runs has room."""
    if not member["isAlive"]:
        if member.get("commitPosition") is not None:
            member["lag"] = committed - member["commitPosition"]
        return
    room, per_day = member.get("logRoom", member.get("diskFree")), member.get("logBytesPerDay")
    member["logDays"] = round(room / per_day, 1) if per_day and room is not None else None


def _log_of(
    members: list[Member], committed: int, endpoints: str | None, aeron: AeronPlace | None
) -> LogReader:
    """The log of a member that has all of it. Raises ClusterError."""
    from cluster.reader.log_reader import LogReader

    if aeron is not None:
        return LogReader.open(consensus_endpoints=aeron.consensus_endpoints, aeron_dir=aeron.aeron_dir)
    folders = [m["dir"] for m in members if "dir" in m and (m.get("commitPosition") or 0) >= committed]
    return LogReader.open(dir=folders[0]) if folders else LogReader.open(endpoints=endpoints)


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
        identity = member.pop("logIdentity", None)
        if self.identity is None:  # else a running member has said it
            self._take_identity(identity)
        kept = {key: value for key, value in member.items() if key not in ("counters", "bytesPerSecond")}
        (self.backups if is_backup else self.members).append(kept)

    def take_status(self, status: LogStatus) -> None:
        """What any member says of all."""
        from cluster.protocol.token import identity_of

        self.cluster_id = status.cluster_id
        self._take_identity(identity_of(status))

    def _take_identity(self, identity: LogIdentity | None) -> None:
        from cluster.protocol.token import identity_text

        if identity is not None:
            self.cluster_id = identity.cluster_id
            self.identity = identity_text(*identity)


def _seen(directory: Path | None, endpoints: str | None, shown: Shown, aeron: AeronPlace | None) -> _Seen:
    from cluster.cli.top import with_lag

    seen = _Seen()
    known: dict[int, Endpoint] = {}
    if aeron is not None:
        _survey(aeron, seen)
    elif directory is None:
        known = members_at(endpoints or "")
    else:
        known = _look_in(directory, seen, shown) or ({} if endpoints is None else parse_endpoints(endpoints))
        seen.members = _without_copies(seen.members)
    here = {member["memberId"] for member in seen.members}
    _ask({id_: endpoint for id_, endpoint in known.items() if id_ not in here}, here, seen, shown)
    ids = {member["memberId"] for member in seen.members}
    seen.member_count = max(seen.member_count, len(ids), len(seen.members))
    with_lag([*seen.members, *seen.backups])
    seen.members.sort(key=lambda member: -1 if member["memberId"] is None else member["memberId"])
    return seen


def _without_copies(members: list[Member]) -> list[Member]:
    """One of each id: of two directories that of the running member, or else that with more log."""
    ranked = sorted(members, key=lambda m: (m["isAlive"], "error" in m, m.get("appendPosition") or -1))
    return list({m["memberId"] if m["memberId"] is not None else m["dir"]: m for m in ranked}.values())


def _survey(aeron: AeronPlace, seen: _Seen) -> None:
    """Ask the members of a real Aeron Cluster. Of what is committed they have what they have recorded."""
    from cluster.aeron.aeron_survey import committed_position, survey

    standings = survey(*aeron)
    seen.member_count = len(standings)
    committed = committed_position(standings, seen.member_count)
    for each in standings:
        member: Member = {"memberId": each.member_id, "isAlive": each.response is not None}
        if each.error is not None:
            member["error"] = f"{each.endpoint}: {each.error}"
        if each.response is not None:
            leads = each.member_id == each.response.leader_member_id
            member |= {
                "role": "LEADER" if leads else "FOLLOWER",
                "electionState": "CLOSED",
                "moduleState": None,
            }
            member["leaderMemberId"] = each.response.leader_member_id
            member["leadershipTermId"] = each.response.last_leadership_term_id
            snapshots = [snapshot for snapshot in each.response.snapshots if snapshot.service_id == -1]
            newest = max(snapshots, key=lambda snapshot: snapshot.log_position, default=None)
            member["snapshotPosition"] = None if newest is None else newest.log_position
            member["snapshotTimestamp"] = None if newest is None else newest.timestamp
        if each.recorded_end is not None and each.start_position is not None:
            member["appendPosition"] = each.recorded_end
            member["commitPosition"] = min(each.recorded_end, committed)
            member["logBytes"] = each.recorded_end - each.start_position
            member["replayBytes"] = each.recorded_end - (member["snapshotPosition"] or 0)
        seen.take(member)


def _ask(endpoints: dict[int, Endpoint], here: set[int], seen: _Seen, shown: Shown) -> None:
    """Ask members over their endpoints, but those that were looked at ``here``."""
    from cluster.cli.top import shown_status

    for member_id, answer in each_once(ask_members(endpoints, shown)).items():
        if member_id in here:
            continue
        if not isinstance(answer, ClusterError):
            seen.take_status(answer)
        seen.take(shown_status(member_id, answer))


def _look_in(directory: Path, seen: _Seen, shown: Shown) -> dict[int, Endpoint]:
    """Look at the members in a directory; returns where they say that all members are."""
    from cluster.archive.closed_file import CLOSED_FILE_NAME
    from cluster.archive.files import OsFiles
    from cluster.archive.identity_file import read_identity
    from cluster.cli.running_member import mark_or_none, status_over_ipc
    from cluster.reader.member_directory import find_cluster_directory, members_in

    files = OsFiles()
    folders = members_in(files, str(directory)) or [str(directory)]
    known: dict[int, Endpoint] = {}
    for folder in folders:
        cluster = find_cluster_directory(files, folder)  # says what is missing
        mark = mark_or_none(folder)
        member = look_at(folder, mark) | {"isClosed": files.exists(f"{cluster}/{CLOSED_FILE_NAME}")}
        with suppress(ClusterError):
            identity = read_identity(files, cluster, cluster).identity
            if identity is not None and not member["isBackup"]:
                seen.member_count = max(seen.member_count, len(identity.member_ids))
        seen.take(member)
        if member["isAlive"] and mark is not None and not known:
            try:
                said = status_over_ipc(folder, mark, shown)
            except ClusterError:
                continue
            if said is not None:
                known = parse_endpoints(said.tcp_endpoints or said.ingress_endpoints)
                seen.member_count = len(known)
                seen.take_status(said)
    return known


def look_at(folder: str, mark: ClusterMarkFileHeader | None = None) -> Member:
    """How the member in a directory stands; ``mark`` is what its mark file has, where already read."""
    from cluster.cli.running_member import mark_or_none
    from cluster.cli.top import Directories
    from cluster.protocol.enums import ClusterComponentType
    from cluster.reader.standing import by_disk

    mark = mark or mark_or_none(folder)
    member_id = None if mark is None or mark.member_id < 0 else mark.member_id  # of a backup it is -1
    try:
        with closing(Directories(Path(folder), member_id)) as source:
            [member] = source.look()
    except NotAClusterDirectory:  # a copy without its counters
        member = {"memberId": member_id, "isAlive": False, "dir": folder}
    member["isBackup"] = mark is not None and mark.component_type in (
        ClusterComponentType.BACKUP,
        ClusterComponentType.STANDBY,
    )
    recorded = member.get("appendPosition") if member["isAlive"] else None
    return member | by_disk(folder) | _of_log(folder, recorded, is_alive=member["isAlive"])


def _of_log(folder: str, recorded: int | None, *, is_alive: bool) -> Member:
    """What the log's files say; of a member that does not run, how far its log goes, too.

    ``recorded`` is what the counters of a running one say, if they do.
    """
    from cluster.protocol.recording_log import TERM
    from cluster.reader.directory import DirectoryLog
    from cluster.reader.standing import by_log
    from cluster.transport.clock import epoch_ms

    try:
        with closing(DirectoryLog(folder)) as log:
            if recorded is not None:
                return by_log(log, recorded, epoch_ms())
            extent = log.extent()
            found: Member = by_log(log, extent.written, epoch_ms())
            entries, damage, identity = log.state.log_entries, [*log.damage], log.identity
    except ClusterError as error:
        return {} if is_alive else {"damage": str(error)}
    if not is_alive:
        del found["logBytesPerDay"]
        terms = [entry.leadership_term_id for entry in entries if entry.entry_type is TERM]
        found |= {
            "commitPosition": extent.committed,
            "appendPosition": extent.written,
            "leadershipTermId": max(terms, default=None),
            "logIdentity": identity,
        }
        if damage:
            found["damage"] = "; ".join(map(str, damage))
    return found
