"""The verbs of ``cluster tool`` about a backup: when it asks next, members made of it, and itself as one."""

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from cluster.archive.files import OsFiles
from cluster.backup.promote import promote_backup
from cluster.backup.restore import Founding, MemberFolders, Place, restore_member
from cluster.cli import aeron_text
from cluster.cli.durations import duration_parser
from cluster.cli.host_audit import note_on_host
from cluster.cli.members import NewFolder, OnlyMember, own_directory
from cluster.cli.running_member import live_counters, mark_of
from cluster.cli.status_document import look_at
from cluster.cli.verbs import AsJson, print_result, tool_example
from cluster.counters import CountersReader
from cluster.errors import ClusterError, ConfigurationError
from cluster.protocol.counter_types import CounterTypeId
from cluster.protocol.enums import ClusterBackupState, ClusterComponentType
from cluster.protocol.identity import ClusterIdentity
from cluster.protocol.recording_log import RECORDING_LOG_FILE_NAME
from cluster.transport.clock import epoch_ms

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(
    epilog=tool_example(
        "backup-query --dir backup",
        "backup-query 10s --dir backup",
        more="It prints the backup's state, the position of its copy of the log, and the time of its next\n"
        "query.",
    ),
)
def backup_query(
    directory: Annotated[Path, own_directory("The directory of a running backup.")],
    delay: Annotated[
        float | None,
        typer.Argument(
            help="Query the members this long from now: 0s, 10s, 5m.",
            metavar="DELAY",
            parser=duration_parser("10s"),
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show when a backup next asks the members for a new snapshot, or change that time."""
    mark = mark_of(str(directory))
    if mark.component_type != ClusterComponentType.BACKUP:
        raise ClusterError(f"{directory}: the directory of a {mark.component_type.name}, expected a BACKUP's")
    kind = CounterTypeId.BACKUP_STATE
    with live_counters(str(directory), mark, kind=kind, write=delay is not None) as counters:
        state = counters.find(kind, mark.cluster_id)
        position = counters.find(CounterTypeId.BACKUP_LIVE_LOG_POSITION, mark.cluster_id)
        deadline = counters.find(CounterTypeId.BACKUP_NEXT_QUERY_DEADLINE, mark.cluster_id)
        assert state is not None and position is not None and deadline is not None, "a backup has all three"
        now_ms = time.time_ns() // 1_000_000
        if delay is not None:
            deadline.set(now_ms + round(delay * 1_000))
        described = {
            "state": ClusterBackupState(state.get()).name,
            "logPosition": position.get(),
            "now": _time(now_ms),
            "nextQuery": _time(deadline.get()) if deadline.get() > 0 else None,  # set when it is level
        }
    print_result(
        as_json,
        described,
        "\n".join(f"{key}: {value}" for key, value in described.items() if value is not None),
    )


@app.command(
    epilog=tool_example(
        "backup-metrics --dir backup > /var/lib/node_exporter/cluster_backup.prom",
        more="It is for the textfile collector of node_exporter, and also works for a stopped backup.",
    ),
)
def backup_metrics(
    directory: Annotated[Path, own_directory("The directory of a backup.")],
) -> None:
    """Print a backup's metrics for Prometheus: whether it runs, its position, and its next query."""
    from cluster.cli.metrics import backup_metrics_text

    found = look_at(str(directory), mark := mark_of(str(directory)))
    if not found["isBackup"]:
        raise ClusterError(f"{directory}: the directory of a {mark.component_type.name}, expected a BACKUP's")
    print(backup_metrics_text(found), end="")


def _time(epoch_ms: int) -> str:
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).isoformat(timespec="milliseconds")


@app.command(
    epilog=tool_example(
        "restore --from backup --to restored",
        "restore --from backup --to /data/cluster --member 2",
        "restore --from backup --to restored --members 1 --to-position 1048576",
        more="The directories are laid out as for `cluster up`, so `cluster up --dir restored` starts them.\n"
        "Open sessions are closed with TIMEOUT. Never run these members and members of the old cluster at\n"
        "the same time.",
    )
)
def restore(
    backup: Annotated[Path, typer.Option("--from", help="A backup's directory; the backup must be stopped.")],
    to: NewFolder,
    members: Annotated[int, typer.Option(help="How many members the new cluster has.", min=1)] = 3,
    member_id: OnlyMember = None,
    to_position: Annotated[
        int | None,
        typer.Option(
            help="Cut the log off after the last entry that ends at or before this position (bytes)."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make the members' directories of a new cluster from a backup; every byte of it is checked."""
    files = OsFiles()
    member_ids = tuple(range(members)) if member_id is None else ()
    founding = Founding("restore", ClusterIdentity(0).with_members(None, member_ids))
    _check_are_missing(files, to, member_ids)
    for number in member_ids or [member_id]:
        directory = f"{to}/member-{number}"
        restored = restore_member(
            MemberFolders.find(files, str(backup)),
            Place(files, directory),
            founding=founding,
            to_position=to_position,
            epoch_ms=epoch_ms,
        )
        described = {"dir": directory, **aeron_text.fields(restored)}
        print_result(as_json, described, _restored_line(described))


def _check_are_missing(files: OsFiles, to: Path, member_ids: tuple[int, ...]) -> None:
    """Say how to go on where some of several members are made: by an attempt that failed, maybe."""
    log = f"cluster/{RECORDING_LOG_FILE_NAME}"
    made = [number for number in member_ids if files.exists(f"{to}/member-{number}/{log}")]
    missing = [number for number in member_ids if number not in made]
    if made and missing:
        raise ConfigurationError(
            f"{to}/member-{made[0]}: is there already, and whole; if this restore has made it, make the "
            f"missing ones by themselves: {', '.join(f'--member {number}' for number in missing)}"
        )


@app.command(
    epilog=tool_example(
        "promote --dir backup",
        "promote --dir backup --joins",
        more="It prints the lag: how many bytes the copy ends below the last known commit position of the\n"
        "members. Without --joins, first stop every member of the old cluster, and never start one again.",
    )
)
def promote(
    directory: Annotated[Path, own_directory("A backup's directory; the backup must be stopped.")],
    joins: Annotated[
        bool,
        typer.Option("--joins", help="Let it replace a member of the old cluster, which goes on running."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Turn a backup's directory into a member's: of a new cluster of one, or of the old cluster."""
    known = _members_commit_position(directory)
    place = Place(OsFiles(), str(directory))
    promoted = promote_backup(place, joins=joins, epoch_ms=epoch_ms)
    lag = None if known is None else max(known - promoted.end_position, 0)
    found = aeron_text.fields(promoted) | {"membersCommitPosition": known, "lag": lag}
    described = {"dir": str(directory), **found}
    role = "a member of the old cluster" if joins else "a new cluster of one member"
    note_on_host(directory, "PROMOTE", f"done: {role}")
    line = f"{_restored_line(described)}, lag {'unknown' if lag is None else lag}: {role}"
    print_result(as_json, described, line)


def _members_commit_position(directory: Path) -> int | None:
    """The last one that the backup knew of, None if its counters do not say."""
    try:
        with CountersReader(f"{directory}/driver/cnc.dat") as counters:
            found = counters.find(CounterTypeId.BACKUP_MEMBERS_COMMIT_POSITION)
            return found.get() or None if found is not None else None
    except ClusterError:
        return None


def _restored_line(described: dict[str, Any]) -> str:
    snapshot = described["snapshotPosition"]
    log = f"{described['dir']}: the log from {described['startPosition']} to {described['endPosition']}"
    line = f"{log}, " + ("no snapshot" if snapshot is None else f"the snapshot at {snapshot}")
    if described["generation"] is None:
        return line
    return f"{line}, generation {described['generation']}; what was committed after its end is lost"
