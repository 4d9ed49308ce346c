"""``cluster top``: how the members stand, from their counters files or over their endpoints."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cluster.cli.members import OptionalEndpoints, ask_members, endpoints_unless
from cluster.errors import ClusterError, NotAClusterDirectory

if TYPE_CHECKING:
    from rich.table import Table

    from cluster.counters import CountersReader
    from cluster.protocol.link import LogStatus

app = typer.Typer(rich_markup_mode=None, add_completion=False)

EPILOG = """\b
Examples:
  cluster top --dir cluster-data
  cluster top --dir cluster-data/member-1 --counters
  cluster top --endpoints 127.0.0.1:9000 --once --json

--dir shows everything that the members' counters files have, --endpoints what a member tells of itself. With
--json each look is one object a line: {"time", "members": [{"memberId", "isAlive", "role", "electionState",
"moduleState", "leadershipTermId", "commitPosition", "appendPosition", "lag", "sessions", ...}]}; with --once
there is one. Lag is how far a commit position is behind the greatest of all, in bytes.
"""


HEADINGS = (
    "member", "role", "election", "module",
    "term", "commit", "append", "lag", "bytes/s", "sessions", "elections", "errors",
)  # fmt: skip
FIRST_NUMBER = HEADINGS.index("term")
ROWS_WIDTH = 130  # columns that a row a member takes with positions of gigabytes


@app.command(epilog=EPILOG)
def top(
    directory: Annotated[
        Path | None, typer.Option("--dir", help="A member's directory, or that of a whole cluster.")
    ] = None,
    endpoints: OptionalEndpoints = None,
    interval: Annotated[float, typer.Option(help="Seconds between two looks.", min=0.05)] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Look once and end.")] = False,
    counters: Annotated[bool, typer.Option("--counters", help="Show every counter too (--dir).")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a look.")] = False,
) -> None:
    """Watch roles, election states, positions, lag, sessions and counters of the members."""
    endpoints = endpoints_unless(directory is not None, endpoints)
    source: _Directories | _Endpoints
    source = _Directories(directory) if directory is not None else _Endpoints(endpoints or "")
    try:
        if as_json or once or not sys.stdout.isatty():
            while True:
                members = source.look()
                _print(members, as_json, counters)
                if once:
                    raise typer.Exit(0 if any(member["isAlive"] for member in members) else 1)
                time.sleep(interval)
        _watch(source, interval, counters)
    finally:
        source.close()


class _Directories:
    """Counters files of members on this host, opened again when a member has made a new one."""

    def __init__(self, directory: Path) -> None:
        folders = sorted(path for path in directory.glob("member-*") if path.is_dir())
        self._folders = folders or [directory]
        self._readers: dict[Path, CountersReader] = {}
        if not directory.is_dir():
            raise NotAClusterDirectory(f"{directory}: no such directory")
        if not any(self._file(folder).exists() for folder in self._folders):
            raise NotAClusterDirectory(
                f"{directory}: no counters file, neither driver/cnc.dat nor where a mark file says, "
                "and none in member-*"
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
        return _with_lag(members)

    def _look_at(self, folder: Path) -> dict[str, Any]:
        from cluster.counters import CountersReader
        from cluster.protocol.counter_types import CounterTypeId as Id

        reader = self._readers.get(folder)
        if reader is not None and reader.is_replaced():
            self._readers.pop(folder).close()
            reader = None
        name = folder.name
        member_id = int(name[7:]) if name.startswith("member-") and name[7:].isdigit() else -1
        if reader is None:
            try:
                reader = self._readers[folder] = CountersReader(str(self._file(folder)))
            except ClusterError as error:
                return {"memberId": member_id, "isAlive": False, "dir": str(folder), "error": str(error)}
        records = [record for record in reader.counters() if record.is_allocated]
        value_of = {record.type_id: record.value for record in records}
        sessions = sum(record.type_id == Id.CLIENT_SESSION for record in records)
        return {
            "memberId": member_id,
            "isAlive": reader.is_live(time.time_ns() // 1_000_000),
            "dir": str(folder),
            **_states(
                value_of.get(Id.NODE_ROLE),
                value_of.get(Id.ELECTION_STATE),
                value_of.get(Id.CONSENSUS_MODULE_STATE),
            ),
            "leadershipTermId": value_of.get(Id.LEADERSHIP_TERM_ID),
            "commitPosition": value_of.get(Id.COMMIT_POSITION),
            "appendPosition": value_of.get(Id.RECORDING_POSITION),
            "sessions": sessions,
            "elections": value_of.get(Id.ELECTION_COUNT),
            "errors": (value_of.get(Id.CONSENSUS_MODULE_ERRORS) or 0)
            + (value_of.get(Id.CONTAINER_ERRORS) or 0),
            "timedOutClients": value_of.get(Id.CLIENT_TIMEOUTS),
            "maxCycleNs": value_of.get(Id.MAX_CYCLE_TIME),
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


class _Endpoints:
    """Members asked over their endpoints."""

    def __init__(self, endpoints: str) -> None:
        from cluster.transport.endpoint import parse_endpoints

        self._endpoints = parse_endpoints(endpoints)

    def look(self) -> list[dict[str, Any]]:
        return _with_lag(
            [self._shown(member_id, answer) for member_id, answer in ask_members(self._endpoints).items()]
        )

    @staticmethod
    def _shown(member_id: int, answer: LogStatus | ClusterError) -> dict[str, Any]:
        if isinstance(answer, ClusterError):
            return {"memberId": member_id, "isAlive": False, "error": str(answer)}
        return {
            "memberId": answer.member_id,
            "isAlive": True,
            **_states(answer.role, answer.election_state, answer.module_state),
            "leadershipTermId": answer.leadership_term_id,
            "commitPosition": answer.commit_position,
            "appendPosition": answer.append_position,
            "sessions": answer.session_count,
            "leaderMemberId": answer.leader_member_id,
        }

    def close(self) -> None:
        """Nothing is kept open between two looks."""


def _states(role: int | None, election: int | None, module: int | None) -> dict[str, str | None]:
    """The names of counters 201, 207 and 200."""
    from cluster.protocol.enums import ConsensusModuleState, ElectionState, Role

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


def _with_lag(members: list[dict[str, Any]]) -> list[dict[str, Any]]:
    positions = [member["commitPosition"] for member in members if member.get("commitPosition") is not None]
    for member in members:
        position = member.get("commitPosition")
        member["lag"] = None if position is None else max(positions) - position
    return members


def _print(members: list[dict[str, Any]], as_json: bool, counters: bool) -> None:
    if as_json:
        shown = [
            member if counters else {k: v for k, v in member.items() if k != "counters"} for member in members
        ]
        print(json.dumps({"time": time.time(), "members": shown}), flush=True)
        return
    from rich.console import Console

    console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
    for table in _tables(members, counters, {}, console.width):
        console.print(table)


def _watch(source: _Directories | _Endpoints, interval: float, counters: bool) -> None:
    from rich.console import Group
    from rich.live import Live

    before: dict[int, tuple[float, int]] = {}
    with Live(screen=True, auto_refresh=False) as live:
        while True:
            members = source.look()
            now = time.monotonic()
            rates = {}
            for index, member in enumerate(members):
                position = member.get("commitPosition")
                if position is not None:
                    if index in before:
                        since, earlier = before[index]
                        rates[index] = (position - earlier) / max(now - since, 1e-3)
                    before[index] = (now, position)
            live.update(Group(*_tables(members, counters, rates, live.console.width)), refresh=True)
            time.sleep(interval)


def _members_table(members: list[dict[str, Any]], rates: dict[int, float], in_rows: bool) -> Table:
    """A row a member, or on a narrow screen a column."""
    from rich import box
    from rich.table import Table

    lines = []
    for index, member in enumerate(members):
        if not member["isAlive"] and "error" in member:
            lines.append([str(member["memberId"]), member["error"], *[""] * (len(HEADINGS) - 2)])
            continue
        rate = rates.get(index)
        lines.append(
            [
                str(member["memberId"]),
                str(member["role"]) if member["isAlive"] else "not running",
                *(_cell(member.get(key)) for key in ("electionState", "moduleState", "leadershipTermId")),
                *(_cell(member.get(key)) for key in ("commitPosition", "appendPosition", "lag")),
                "" if rate is None else f"{rate:,.0f}",
                *(_cell(member.get(key)) for key in ("sessions", "elections", "errors")),
            ]
        )
    styles = [
        "dim" if not member["isAlive"] else "bold" if member["role"] == "LEADER" else "" for member in members
    ]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    if in_rows:
        for index, heading in enumerate(HEADINGS):
            table.add_column(heading, justify="left" if index < FIRST_NUMBER else "right")
        for line, style in zip(lines, styles, strict=True):
            table.add_row(*line, style=style)
    else:
        table.add_column(HEADINGS[0])
        for line, style in zip(lines, styles, strict=True):
            table.add_column(line[0], style=style, overflow="fold")
        for index, heading in enumerate(HEADINGS[1:], start=1):
            table.add_row(heading, *(line[index] for line in lines))
    return table


def _tables(
    members: list[dict[str, Any]], counters: bool, rates: dict[int, float], width: int
) -> list[Table]:
    from rich import box
    from rich.table import Table

    table = _members_table(members, rates, in_rows=width >= ROWS_WIDTH)
    tables = [table]
    if counters:
        for member in members:
            listing = Table(
                box=box.SIMPLE_HEAD, pad_edge=False, title=f"counters of member {member['memberId']}"
            )
            for heading in ("id", "type", "value"):
                listing.add_column(heading, justify="right")
            listing.add_column("label")
            for counter in member.get("counters", ()):
                listing.add_row(
                    str(counter["id"]), str(counter["typeId"]), f"{counter['value']:,}", counter["label"]
                )
            tables.append(listing)
    return tables


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else str(value)
