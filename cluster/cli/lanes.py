"""``cluster tool lanes`` and ``forget-lanes``: what the log has of the lanes of applications."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cluster.archive.files import OsFiles
from cluster.cli.connecting import connects
from cluster.cli.members import (
    OptionalEndpoints,
    OptionalMemberDirectory,
    member_place,
    optional_directory,
    place,
)
from cluster.cli.running_member import leader_directory, status_in
from cluster.cli.verbs import AsJson, Verb, example
from cluster.protocol.snapshot import SnapshotLane

if TYPE_CHECKING:
    from cluster.reader import LogReader

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(
    epilog=example(
        "tool",
        "lanes --dir cluster-data/member-0",
        more="Partition -1 has the last batch that is registered.",
    )
)
@connects
def lanes(
    directory: OptionalMemberDirectory = None,
    endpoints: OptionalEndpoints = None,
    as_json: AsJson = False,
) -> None:
    """Show the lanes of applications: their batch, and how many of its rows are committed."""
    from cluster.reader import LogReader
    from cluster.reader.remote import RemoteLog
    from cluster.reader.snapshots import newest_module_records

    directory, endpoints = member_place(directory, endpoints)
    if directory is None:
        log = RemoteLog(endpoints or "")
        with LogReader(log) as reader:
            found = _read(reader, log.module_snapshot() if log.start_position > 0 else None)
    else:
        with LogReader.open(dir=str(directory)) as reader:
            found = _read(reader, newest_module_records(OsFiles(), str(directory)))
    lines = [_fields(lane) for lane in found]
    if as_json:
        print(json.dumps(lines, indent=1))
        return
    for fields in lines:
        print(" ".join(f"{name}={value}" for name, value in fields.items()))


@app.command(
    "forget-lanes",
    cls=Verb,
    epilog=example(
        "tool",
        "forget-lanes --dir cluster-data 7c0c5d4e",
        "forget-lanes --endpoints db0:9000,db1:9000 --token-file operator.token 7c0c5d4e",
        more="For an application that writes no more: what it sends again after this is in the log twice.\n"
        "Over the network (--endpoints) it takes a principal with the rights write and admin.",
    ),
)
@connects
def forget_lanes(
    application: Annotated[str, typer.Argument(help="Whose lanes: `cluster tool lanes` has the names.")],
    directory: Annotated[
        Path | None, optional_directory("A running member's directory, or a whole cluster's.")
    ] = None,
    endpoints: OptionalEndpoints = None,
    as_json: AsJson = False,
) -> None:
    """Have all members forget the lanes of an application that is finished, before lane_retention."""
    from cluster.client import ClusterClient
    from cluster.protocol.lane import FORGET, Lane

    directory, endpoints = place(directory, endpoints)
    if directory is not None:
        endpoints = status_in(str(leader_directory(directory))).ipc_endpoints
    ClusterClient.connect(endpoints, lane=Lane(application, FORGET, 0)).close()
    if as_json:
        print(json.dumps({"application": application, "outcome": "forgotten"}))
    else:
        print(f"lanes of {application} are forgotten")


def _read(reader: LogReader, snapshot: tuple[int, Iterable[bytes]] | None) -> list[SnapshotLane]:
    """With what ``snapshot``, its log position and records, says of the log before it."""
    from cluster.reader.lanes import LaneCount

    count, position = LaneCount(), reader.start_position
    if snapshot is not None:
        position, records = snapshot
        count.load(records, position)
    for begin, block in reader.blocks(position, reader.commit_position(), is_committed=True):
        count.take(begin, block)
    return count.lanes()


def _fields(lane: SnapshotLane) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "application": lane.application.decode(errors="replace"),
        "partition": lane.partition,
        "batch": lane.batch,
    }
    if lane.partition < 0:
        fields["partitions"] = lane.partitions
    else:
        fields["rows"] = lane.rows
    return fields | {
        "sessionId": lane.holder_session_id,
        "openedAt": lane.opened_at,
        "principal": lane.encoded_principal.decode(errors="replace"),
    }
