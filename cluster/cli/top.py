"""``cluster top``: how the members stand, from their counters files or over their endpoints."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cluster.cli.connecting import connects
from cluster.cli.durations import duration_option
from cluster.cli.events import LastEvents, last_logs
from cluster.cli.members import OptionalEndpoints, ask_members, each_once, optional_directory, place
from cluster.cli.top_screen import History, draw, watch_screen
from cluster.cli.verbs import json_option
from cluster.cli.verdict import Member
from cluster.errors import ClusterError, NotAClusterDirectory, TimedOut
from cluster.protocol.cnc import CounterRecord
from cluster.protocol.counter_types import CounterTypeId as Id
from cluster.protocol.counter_types import consumer_group_of, members_of
from cluster.protocol.enums import ClusterBackupState, ConsensusModuleState, ElectionState, Role
from cluster.protocol.link import LogStatus
from cluster.transport.endpoint import Endpoint, parse_endpoints

if TYPE_CHECKING:
    from cluster.counters import CountersReader

app = typer.Typer(rich_markup_mode=None, add_completion=False)
LAST_EVENTS = 5  # below the tables

EPILOG = """\b
Examples:
  cluster top --dir cluster-data
  cluster top --dir cluster-data/member-1 --counters
  cluster top --dir backup
  cluster top --endpoints 127.0.0.1:9000 --once --json

With --dir it shows all that the members' counters files have, with --endpoints what each member reports;
below that come the last lines of their logs.

On a terminal, q quits, p or space pauses, c shows the counters, and arrow and page keys scroll. The header
draws the leader's rates of the last 60 refreshes. It also has the times within which 50 % and 99 % of the
leader's commits and syncs were done since the last refresh.

A member whose process has ended is "not running" at once; one whose process was stopped by a signal, or makes
no progress for 10 s, gives "no answer". If no member answers at the first refresh with --endpoints, the
command prints why and ends with status 1.

With --json each refresh is one object on one line: {"time", "members": [{"memberId", "isAlive", "role",
"electionState", "moduleState", "leadershipTermId", "commitPosition", "appendPosition", "lag",
"bytesPerSecond", "messagesPerSecond", "sessions", ...}]}. "lag" is how many bytes the member's commit
position is below the highest one. "bytesPerSecond" is how fast it grew since the last refresh; it is
null while the member replays its log. "messagesPerSecond" is what the leader received from clients.
"serviceLag" is how many bytes the slowest service is below the commit position. "consumers" are the consumer
groups, at most 64: [{"group", "position", "bytesBehind"}]. "clockOffsetMs" compares the member's clock with
those of a majority; it is positive if the member's clock is ahead. "waitsFor" lists the members that a
member which has lost its promises must hear from before it takes part (docs/operations.md). "certificateEnds"
is when the member's TLS certificate expires.

For a backup's directory the role is BACKUP, or STANDBY if it runs services. "backupState" is its state, "lag"
is how many bytes it is below the last commit position that the members reported, and "nextQuery" is when it
asks the members for a new snapshot.
"""


@app.command(epilog=EPILOG)
@connects
def top(
    directory: Annotated[
        Path | None, optional_directory("A member's directory, or that of a whole cluster.")
    ] = None,
    endpoints: OptionalEndpoints = None,
    interval: Annotated[
        float,
        duration_option("--interval", "-i", help="Time between two refreshes.", default="1s", least="50ms"),
    ] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print the state once and end.")] = False,
    counters: Annotated[
        bool, typer.Option("--counters", help="Also show every counter (--dir only).")
    ] = False,
    as_json: Annotated[bool, json_option("Print one JSON object per refresh.")] = False,
) -> None:
    """Watch roles, election states, positions, lag, sessions and counters of the members."""
    directory, endpoints = place(directory, endpoints)
    look: Callable[[], list[Member]]
    with ExitStack() as opened:
        if directory is not None:
            look = opened.enter_context(closing(Directories(directory))).look
        else:
            look = partial(_ask, parse_endpoints(endpoints or ""))
        history, last = History(), LastEvents(last_logs(directory, endpoints), LAST_EVENTS)
        if endpoints and not as_json:
            _check_somebody(look())
        if as_json or once or not sys.stdout.isatty():
            while True:
                members = history.added_to(look())
                _print(members, history, as_json, counters, last)
                if once:
                    raise typer.Exit(0 if any(member["isAlive"] for member in members) else 1)
                time.sleep(interval)
        watch_screen(look, history, interval, counters, last)


class Directories:
    """Counters files of members on this host, opened again when a member has made a new one."""

    def __init__(self, directory: Path, member_id: int | None = None) -> None:
        """``member_id``: whose directory it is, where that is known. Raises NotAClusterDirectory."""
        from cluster.archive.files import OsFiles
        from cluster.reader.member_directory import members_in

        self._folders = [Path(path) for path in members_in(OsFiles(), str(directory))] or [directory]
        self._ids: dict[Path, int | None] = {} if member_id is None else {directory: member_id}
        self._readers: dict[Path, CountersReader] = {}
        self._gone: set[Path] = set()  # whose process has ended, until there is a new counters file
        if not directory.exists():
            raise NotAClusterDirectory(f"{directory}: no such directory")
        if not any(self._file(folder).exists() for folder in self._folders):
            raise NotAClusterDirectory(
                f"{directory}: no counters file, neither driver/cnc.dat nor where a mark file says, "
                "and none in a member's directory here"
            )

    @staticmethod
    def _file(folder: Path) -> Path:
        inside = folder / "driver" / "cnc.dat"
        for path in (inside, folder / "cnc.dat"):
            if path.exists():
                return path
        return _elsewhere(folder) or inside

    def look(self) -> list[dict[str, Any]]:
        members = [self._look_at(folder) for folder in self._folders]
        return with_lag(members)

    def _look_at(self, folder: Path) -> dict[str, Any]:
        from cluster.counters import CountersReader
        from cluster.reader.standing import LINK_COUNTERS, by_counters, by_label, by_links

        reader = self._readers.get(folder)
        if reader is not None and reader.is_replaced():
            self._readers.pop(folder).close()
            self._gone.discard(folder)
            reader = None
        if folder not in self._ids:
            from cluster.cli.running_member import member_id_of

            found = member_id_of(folder)
            self._ids[folder] = None if found < 0 else found
        member_id = self._ids[folder]
        if reader is None:
            try:
                reader = self._readers[folder] = CountersReader(str(self._file(folder)))
            except ClusterError as error:
                return {"memberId": member_id, "isAlive": False, "dir": str(folder), "error": str(error)}
        records = [record for record in reader.counters() if record.is_allocated]
        types, values = [record.type_id for record in records], [record.value for record in records]
        value_of = dict(zip(types, values, strict=True))
        now_ms = time.time_ns() // 1_000_000
        takes_turns = Id.ELECTION_STATE in value_of or Id.BACKUP_STATE in value_of  # not between two lives
        is_alive = takes_turns and reader.is_live(now_ms) and not self._is_stuck(folder, reader)
        standing = by_counters(types, values, now_ms if is_alive else None)

        def of_type(kind: Id) -> dict[str, int]:
            return {record.label: record.value for record in records if record.type_id == kind}

        sessions = sum(record.type_id == Id.CLIENT_SESSION for record in records)
        commit_position = value_of.get(Id.COMMIT_POSITION)
        uptime_ms = now_ms - reader.header.start_timestamp
        states = (Id.NODE_ROLE, Id.ELECTION_STATE, Id.CONSENSUS_MODULE_STATE)
        return {
            "memberId": member_id,
            "isAlive": is_alive,
            "dir": str(folder),
            **({} if is_alive else self._why_delayed(folder)),
            **_states(*(value_of.get(state) if is_alive else None for state in states)),
            **(_of_backup(value_of) if is_alive and Id.BACKUP_STATE in value_of else {}),
            "leadershipTermId": value_of.get(Id.LEADERSHIP_TERM_ID),
            "commitPosition": commit_position,
            "appendPosition": value_of.get(Id.RECORDING_POSITION),
            "sessions": sessions if is_alive else 0,
            "consumers": _consumers(_positions(records), commit_position) if is_alive else [],
            "waitsFor": members_of(value_of.get(Id.AWAITED_MEMBERS, 0)) if is_alive else [],
            "certificateEnds": _minute(value_of.get(Id.CERTIFICATE_END)),
            "leaderMemberId": value_of.get(Id.LEADER_MEMBER_ID) if is_alive else None,
            **standing,
            **({} if is_alive else {"serviceLag": None, "clockOffsetMs": None}),
            "uptimeMs": uptime_ms if is_alive else None,
            "heartbeatAgeMs": max(0, now_ms - reader.heartbeat_ms) if is_alive else None,
            **by_label(next(iter(of_type(Id.CONSENSUS_MODULE_ERRORS)), "")),
            **(by_links(*map(of_type, LINK_COUNTERS), uptime_ms=uptime_ms) if is_alive else {}),
            "counters": [
                {
                    "id": record.counter_id,
                    "typeId": record.type_id,
                    "label": record.label,
                    "value": record.value,
                }
                for record in records
            ],
        }

    def _is_stuck(self, folder: Path, reader: CountersReader) -> bool:
        """Whether the process was stopped, or has ended (its lock is free), before its counters are stale."""
        from cluster.cli.running_member import is_locked, was_stopped

        if folder not in self._gone and is_locked(str(folder)) is False:
            self._gone.add(folder)
        return folder in self._gone or was_stopped(reader.header.pid)

    @staticmethod
    def _why_delayed(folder: Path) -> dict[str, str]:
        """Of a member whose process lives and turns nothing: it waits for its disk, or was stopped."""
        from cluster.cli.running_member import is_locked, mark_or_none, why_delayed

        mark = mark_or_none(str(folder)) if is_locked(str(folder)) else None
        return {} if mark is None else {"error": why_delayed(mark.pid)}

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()


def _elsewhere(folder: Path) -> Path | None:
    """The counters file that the member's mark file names: a real Aeron's lies with its media driver."""
    from cluster.archive.files import OsFiles
    from cluster.reader.member_directory import counters_paths, find_member, read_cluster_mark

    files = OsFiles()
    try:
        member = find_member(files, str(folder))
        mark = read_cluster_mark(files, member.cluster) if member.cluster else None
    except ClusterError:
        return None
    return next(map(Path, counters_paths(files, member, mark, None)), None)


def _ask(endpoints: dict[int, Endpoint]) -> list[dict[str, Any]]:
    """How members stand by their own word; ``endpoints`` as ``ask_members`` has it."""
    answers = each_once(ask_members(endpoints))
    return with_lag([shown_status(member_id, answer) for member_id, answer in answers.items()])


def shown_status(member_id: int, answer: LogStatus | ClusterError) -> dict[str, Any]:
    """What a member's answer says of it, as a look at its counters would."""
    from cluster.protocol.consumer import positions_in
    from cluster.reader.standing import said_of_itself

    if isinstance(answer, ClusterError):
        known_id = member_id if member_id >= 0 else None  # it reports its id, unless that is given
        return {"memberId": known_id, "isAlive": False, "error": str(answer), "errorFix": answer.fix}
    return {
        "memberId": answer.member_id,
        "isAlive": True,
        **_states(answer.role, answer.election_state, answer.module_state),
        "leadershipTermId": answer.leadership_term_id,
        "commitPosition": answer.commit_position,
        "appendPosition": answer.append_position,
        "sessions": answer.session_count,
        "consumers": _consumers(positions_in(answer.consumers), answer.commit_position),
        "leaderMemberId": answer.leader_member_id,
        "waitsFor": members_of(answer.awaited_members),
        "certificateEnds": _minute(answer.certificate_end_ms),
        **said_of_itself(answer.standing),
    }


def _states(role: int | None, election: int | None, module: int | None) -> dict[str, str | None]:
    """The names of counters 201, 207 and 200."""

    def name(enum: Any, value: int | None) -> str | None:
        if value is None:
            return None
        try:
            return str(enum(value).name)
        except ValueError:
            return str(value)

    return {
        "role": name(Role, role),
        "electionState": name(ElectionState, election),
        "moduleState": name(ConsensusModuleState, module),
    }


def _of_backup(value_of: dict[int, int]) -> dict[str, Any]:
    """Who is no member, and counters 208, 210 and 1114."""
    return {
        "memberId": None,
        "role": "STANDBY" if Id.SERVICE_POSITION in value_of else "BACKUP",
        "backupState": ClusterBackupState(value_of[Id.BACKUP_STATE]).name,
        "membersCommitPosition": value_of.get(Id.BACKUP_MEMBERS_COMMIT_POSITION),
        "nextQuery": _minute(value_of.get(Id.BACKUP_NEXT_QUERY_DEADLINE)),
    }


def _minute(epoch_ms: int | None) -> str | None:
    """In ISO 8601, None for 0: no certificate ends where a member speaks no TLS."""
    if not epoch_ms:
        return None
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).isoformat(timespec="minutes")


def _positions(records: list[CounterRecord]) -> dict[str, int]:
    """Of each consumer group by its name."""
    return {
        consumer_group_of(record.label): record.value
        for record in records
        if record.type_id == Id.CONSUMER_POSITION
    }


def _consumers(positions: dict[str, int], commit_position: int | None) -> list[dict[str, Any]]:
    """The consumer groups by name."""
    return [
        {"group": group, "position": position, "bytesBehind": max(0, (commit_position or 0) - position)}
        for group, position in sorted(positions.items())
    ]


def with_lag(members: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The members with ``lag``: how far each is below the greatest commit position, in bytes."""
    kinds = ("commitPosition", "membersCommitPosition")
    positions = [member[kind] for member in members for kind in kinds if member.get(kind) is not None]
    for member in members:
        position = member.get("commitPosition") if member["isAlive"] else None
        member["lag"] = None if position is None else max(positions) - position
    return members


def _check_somebody(members: list[dict[str, Any]]) -> None:
    """Raise TimedOut where a watch would show nothing but that nobody answers."""
    if not any(member["isAlive"] for member in members):
        raise TimedOut(f"no member answers: {'; '.join(member['error'] for member in members)}")


def _print(members: list[Member], history: History, as_json: bool, counters: bool, last: LastEvents) -> None:
    if as_json:
        shown = [
            member if counters else {k: v for k, v in member.items() if k != "counters"} for member in members
        ]
        print(json.dumps({"time": time.time(), "members": shown}), flush=True)
    else:
        draw(members, history, counters, last)
