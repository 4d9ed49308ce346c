"""``cluster tool lanes``: what a member's log has of the lanes of applications."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cluster.cli.members import AnyMemberDirectory
from cluster.cli.verbs import example

if TYPE_CHECKING:
    from cluster.protocol.snapshot import SnapshotLane
    from cluster.reader.directory import DirectoryLog

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(
    epilog=example(
        "tool",
        "lanes --dir cluster-data/member-0",
        more="Partition -1 has the last batch that is registered.",
    )
)
def lanes(
    directory: AnyMemberDirectory,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the lanes of applications: their batch, and how many of its rows are committed."""
    from cluster.reader.directory import DirectoryLog

    log = DirectoryLog(str(directory))
    try:
        found = [_fields(lane) for lane in _read(log, str(directory))]
    finally:
        log.close()
    if as_json:
        print(json.dumps(found, indent=1))
        return
    for fields in found:
        print(" ".join(f"{name}={value}" for name, value in fields.items()))


def _read(log: DirectoryLog, directory: str) -> list[SnapshotLane]:
    from cluster.reader.lanes import LaneCount
    from cluster.reader.snapshots import newest_module_records

    count, position = LaneCount(), log.start_position
    end = log.commit_position()
    found = newest_module_records(log.state.files, directory)
    if found is not None:
        position, records = found
        count.load(records, position)
    for begin, block in log.blocks(position, end):
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
