"""``cluster tool lanes``: what a member's log has of the lanes of applications."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cluster.cli.connecting import connects
from cluster.cli.members import OptionalEndpoints, OptionalMemberDirectory, endpoints_unless
from cluster.cli.verbs import example

if TYPE_CHECKING:
    from cluster.protocol.snapshot import SnapshotLane
    from cluster.reader import LogReader

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(
    epilog=example(
        "tool",
        "lanes --dir cluster-data/member-0",
        more="Partition -1 has the last batch that is registered. --endpoints needs the whole log there.",
    )
)
@connects
def lanes(
    directory: OptionalMemberDirectory = None,
    endpoints: OptionalEndpoints = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the lanes of applications: their batch, and how many of its rows are committed."""
    from cluster.reader import LogReader

    endpoints = endpoints_unless(directory is not None, endpoints)
    place = {"endpoints": endpoints} if directory is None else {"dir": str(directory)}
    with LogReader.open(**place) as reader:
        found = [_fields(lane) for lane in _read(reader, None if directory is None else str(directory))]
    if as_json:
        print(json.dumps(found, indent=1))
        return
    for fields in found:
        print(" ".join(f"{name}={value}" for name, value in fields.items()))


def _read(reader: LogReader, directory: str | None) -> list[SnapshotLane]:
    """Raises LogPurged where the log begins later, and no directory has a snapshot of what was before."""
    from cluster.archive.files import OsFiles
    from cluster.errors import LogPurged
    from cluster.reader.lanes import LaneCount
    from cluster.reader.snapshots import newest_module_records

    count, position = LaneCount(), reader.start_position
    if directory is not None:
        found = newest_module_records(OsFiles(), directory)
        if found is not None:
            position, records = found
            count.load(records, position)
    elif position > 0:
        raise LogPurged(
            f"the log there begins at {position}, and what lanes had before is in snapshots; "
            "expected --dir of a member",
            position,
        )
    for begin, block in reader.blocks(position, reader.commit_position(), is_committed=True):
        count.take(begin, block)
    return count.lanes()


def _fields(lane: SnapshotLane) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "application": lane.application.decode(),
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
