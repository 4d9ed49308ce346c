"""``cluster tool lanes``, ``forget-lanes`` and ``consumers``: what a log has of applications and groups."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cluster.cli.connecting import connects
from cluster.cli.members import (
    OptionalEndpoints,
    OptionalMemberDirectory,
    member_place,
    optional_directory,
    place,
)
from cluster.cli.running_member import leader_directory, status_in
from cluster.cli.verbs import AsJson, Verb, print_result, tool_example
from cluster.protocol.lane import FORGET, Lane
from cluster.protocol.snapshot import SnapshotConsumer, SnapshotLane
from cluster.reader.counted import Count, CountedLog, count_log

if TYPE_CHECKING:
    from cluster.log.entry_filter import EntryFilter

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(
    epilog=tool_example(
        "lanes --dir cluster-data/member-0",
        more="A lane is a partition of an application that writes exactly once. Partition -1 shows its last\n"
        "registered batch.",
    )
)
@connects
def lanes(
    directory: OptionalMemberDirectory = None,
    endpoints: OptionalEndpoints = None,
    as_json: AsJson = False,
) -> None:
    """Show the lanes of applications: the batch of each, and how many of its rows are committed."""
    from cluster.reader.lanes import LaneCount

    count, _ = _counted(LaneCount(), directory, endpoints)
    _print([_fields(lane) for lane in count.lanes()], as_json, "no lanes")


@app.command(
    epilog=tool_example(
        "consumers --dir cluster-data/member-0", "consumers --endpoints 127.0.0.1:9000 --json"
    )
)
@connects
def consumers(
    directory: OptionalMemberDirectory = None,
    endpoints: OptionalEndpoints = None,
    as_json: AsJson = False,
) -> None:
    """Show consumer groups: the position of each, and how many committed bytes it has not read."""
    from cluster.reader.consumers import REPORTS, ConsumerCount

    count, end = _counted(ConsumerCount(), directory, endpoints, REPORTS)
    _print([_group_fields(group, end) for group in count.groups()], as_json, "no consumer groups")


@app.command(
    cls=Verb,
    epilog=tool_example(
        "forget-lanes --dir cluster-data 7c0c5d4e",
        "forget-lanes --endpoints db0:9000,db1:9000 --token-file operator.token 7c0c5d4e",
        more="Only for an application that has finished: what it sends again later is in the log twice.\n"
        "Over the network (--endpoints) it needs a principal with the rights write and admin.",
    ),
)
@connects
def forget_lanes(
    application: Annotated[str, typer.Argument(help="The application's name, from `cluster tool lanes`.")],
    directory: Annotated[
        Path | None, optional_directory("A running member's directory, or a whole cluster's.")
    ] = None,
    endpoints: OptionalEndpoints = None,
    as_json: AsJson = False,
) -> None:
    """Have all members forget the lanes of a finished application now, not after lane_retention."""
    from cluster.client import ClusterClient

    directory, endpoints = place(directory, endpoints)
    if directory is not None:
        endpoints = status_in(str(leader_directory(directory))).ipc_endpoints
    ClusterClient.connect(endpoints, lane=Lane(application, FORGET, 0)).close()
    done = {"application": application, "outcome": "forgotten"}
    print_result(as_json, done, f"lanes of {application} are forgotten")


def _counted(
    count: Count, directory: Path | None, endpoints: str | None, entry_filter: EntryFilter | None = None
) -> tuple[Count, int]:
    """``count`` with what the log there has, and how far that is committed. Raises ClusterError."""
    from cluster.reader.directory import DirectoryLog
    from cluster.reader.remote import RemoteLog

    directory, endpoints = member_place(directory, endpoints)
    if directory is None:
        log: CountedLog = RemoteLog(endpoints or "", entry_filter=entry_filter)
    else:
        log = DirectoryLog(str(directory))
    with closing(log):
        return count_log(count, log), log.commit_position()


def _print(rows: list[dict[str, Any]], as_json: bool, nothing: str) -> None:
    if as_json or not rows:
        print(json.dumps(rows, indent=1) if as_json else nothing)
        return
    for fields in rows:
        print(" ".join(f"{name}={value}" for name, value in fields.items()))


def _fields(lane: SnapshotLane) -> dict[str, Any]:
    return {
        "application": lane.application.decode(errors="replace"),
        "partition": lane.partition,
        "batch": lane.batch,
        **({"partitions": lane.partitions} if lane.partition < 0 else {"rows": lane.rows}),
        "sessionId": lane.holder_session_id,
        "openedAt": lane.opened_at,
        "principal": lane.encoded_principal.decode(errors="replace"),
    }


def _group_fields(group: SnapshotConsumer, end: int) -> dict[str, Any]:
    return {
        "group": group.group.decode(),
        "position": group.position,
        "bytesBehind": max(end - group.position, 0),
        "reportedAt": group.reported_at,
        "principal": group.encoded_principal.decode(errors="replace"),
    }
