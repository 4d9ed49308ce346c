"""``cluster tool consumers``: how far the consumer groups are that a log has reports of."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

import typer

from cluster.archive.files import OsFiles
from cluster.cli.connecting import connects
from cluster.cli.members import OptionalEndpoints, OptionalMemberDirectory, member_place
from cluster.cli.verbs import AsJson, example
from cluster.protocol.snapshot import SnapshotConsumer
from cluster.reader.consumers import REPORTS, ConsumerCount, reported_groups

if TYPE_CHECKING:
    from cluster.reader import LogReader

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(
    epilog=example(
        "tool", "consumers --dir cluster-data/member-0", "consumers --endpoints 127.0.0.1:9000 --json"
    )
)
@connects
def consumers(
    directory: OptionalMemberDirectory = None,
    endpoints: OptionalEndpoints = None,
    as_json: AsJson = False,
) -> None:
    """Show consumer groups: how far each is, and how many committed bytes it has not read."""
    from cluster.reader import LogReader
    from cluster.reader.remote import RemoteLog

    directory, endpoints = member_place(directory, endpoints)
    if directory is None:
        with closing(RemoteLog(endpoints or "", entry_filter=REPORTS)) as log:
            groups, end = list(reported_groups(log).values()), log.commit_position()
    else:
        with LogReader.open(dir=str(directory), entry_filter=REPORTS) as reader:
            groups, end = _read(reader, str(directory)), reader.commit_position()
    found = [_fields(group, end) for group in groups]
    if as_json:
        print(json.dumps(found, indent=1))
        return
    for fields in found:
        print(" ".join(f"{name}={value}" for name, value in fields.items()))


def _read(reader: LogReader, directory: str) -> list[SnapshotConsumer]:
    """With what the newest snapshot says of groups whose reports the log does not hold any more."""
    from cluster.reader.snapshots import newest_module_records

    count, position = ConsumerCount(), reader.start_position
    found = newest_module_records(OsFiles(), directory)
    if found is not None:
        position, records = found
        count.load(records, position)
    for _, block in reader.blocks(position, reader.commit_position(), is_committed=True):
        count.take(block)
    return count.groups()


def _fields(group: SnapshotConsumer, end: int) -> dict[str, Any]:
    return {
        "group": group.group.decode(),
        "position": group.position,
        "bytesBehind": max(end - group.position, 0),
        "reportedAt": group.reported_at,
        "principal": group.encoded_principal.decode(errors="replace"),
    }
