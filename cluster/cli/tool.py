"""``cluster tool``: what Aeron's ClusterTool prints of a member's cluster directory, from its files."""

import json
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer

from cluster.archive.catalog_file import CatalogFile
from cluster.archive.directory_lock import read_mark_header
from cluster.archive.export_watermark import read_export_watermark, write_export_watermark
from cluster.archive.files import OsFiles
from cluster.archive.recording_log import RecordingLog
from cluster.archive.recording_log_tool import seed_from_latest_snapshot, sort_file
from cluster.cli import aeron_text, backups, change, control, data_loss, lanes, tables
from cluster.cli.connecting import connects
from cluster.cli.host_audit import note_on_host
from cluster.cli.members import (
    AnyMemberDirectory,
    ArchiveDirectory,
    ConsensusEndpoints,
    MediaDriverDirectory,
    OptionalEndpoints,
    OptionalMemberDirectory,
    OwnDirectory,
    ask_members,
    check_is_alone,
    directory_option,
    member_place,
    optional_directory,
    place,
    text_or_none,
)
from cluster.cli.running_member import counters_files, home_of, leads, lock_directory, mark_of, status_in
from cluster.cli.verbs import AsJson, Verbs, print_result, tool_example
from cluster.counters import CountersReader
from cluster.errors import ClusterError, LogDamaged, NotAClusterDirectory
from cluster.protocol import CLUSTER, decode
from cluster.protocol.catalog import NULL_POSITION
from cluster.protocol.error_log import decode_error_log
from cluster.protocol.link import LogStatus
from cluster.protocol.mark_file import CLUSTER_MARK_FILE_NAME, MARK_FILE_HEADER_LENGTH, ClusterMarkFileHeader
from cluster.protocol.members import ingress_endpoints
from cluster.reader.member_directory import (
    find_cluster_directory,
    find_member,
    is_running,
    mark_directory,
)
from cluster.reader.snapshots import module_image
from cluster.transport.clock import epoch_ms
from cluster.transport.endpoint import parse_endpoints
from cluster.transport.member_status import member_status


class ToolVerbs(Verbs):
    """By what they are for."""

    panels = {
        "See": (
            "describe",
            "list-members",
            "is-leader",
            "pid",
            "errors",
            "recording-log",
            "recovery-plan",
            "describe-latest-cm-snapshot",
            "consumers",
            "lanes",
        ),
        "Control": (
            "snapshot",
            "suspend",
            "resume",
            "transfer-leadership",
            "shutdown",
            "abort",
            "forget-lanes",
            "close-member",
            "make-members",
        ),
        "Repair": (
            "accept-data-loss",
            "invalidate-latest-snapshot",
            "validate-recording-log",
            "sort-recording-log",
            "seed-recording-log-from-snapshot",
        ),
        "Backup": (
            "backup-query",
            "backup-metrics",
            "restore",
            "promote",
            "standby-snapshot",
            "replicate-standby-snapshot",
            "export-watermark",
        ),
    }


app = typer.Typer(cls=ToolVerbs, rich_markup_mode=None, add_completion=False, no_args_is_help=True)
app.add_typer(control.app)
app.add_typer(backups.app)
app.add_typer(change.app)
app.add_typer(data_loss.app)
app.add_typer(lanes.app)

OptionalDirectory = Annotated[
    Path | None, optional_directory("A member's directory, or its cluster directory.")
]
Raw = Annotated[bool, typer.Option("--raw", help="Print every field as Aeron's ClusterTool does.")]
ServiceCount = Annotated[
    int, typer.Option("--services", help="How many services a whole snapshot has.", min=0)
]


@app.callback(epilog=tool_example("describe --dir cluster-data/member-0"))
def _tool() -> None:
    """See, control, repair and restore members, as Aeron's ClusterTool does."""


@app.command(epilog=tool_example("describe --dir cluster-data/member-0"))
@connects
def describe(
    directory: OptionalMemberDirectory = None,
    endpoints: OptionalEndpoints = None,
    raw: Raw = False,
    as_json: AsJson = False,
) -> None:
    """Show the mark files: which components own the directory, and when they were last alive.

    With --endpoints it shows the role, state and positions of each member that answers.
    """
    directory, endpoints = member_place(directory, endpoints)
    if endpoints is not None:
        _describe_running(endpoints, raw, as_json)
        return
    marks = _marks(str(directory))
    if not marks:
        raise NotAClusterDirectory(f"{directory}: no mark file is here")
    if as_json:
        print(json.dumps([{"file": path, **aeron_text.fields(mark)} for path, mark in marks], indent=1))
        return
    if not raw:
        print(tables.mark_table(mark for _, mark in marks))
        return
    for _, mark in marks:
        print(f"Type: {mark.component_type.name} {aeron_text.times_text(mark, epoch_ms())}")
        print(aeron_text.mark_text(mark))


def _describe_running(endpoints: str, raw: bool, as_json: bool) -> None:
    statuses = _statuses(endpoints)
    if as_json or not raw:
        fields = [aeron_text.fields(status) for status in statuses]
        print(json.dumps(fields, indent=1) if as_json else tables.member_table(statuses))
        return
    for status in statuses:
        schema = (status.TEMPLATE_ID, status.SCHEMA.id, status.SCHEMA.version)
        print(aeron_text.message_text("LogStatus", status, schema))


def _statuses(endpoints: str) -> list[LogStatus]:
    """Of the members that answer. Raises ClusterError when none does."""
    answers = ask_members(parse_endpoints(endpoints)).values()
    found = [answer for answer in answers if not isinstance(answer, ClusterError)]
    if not found:
        raise ClusterError("; ".join(map(str, answers)))
    return found


@app.command(epilog=tool_example("pid --dir cluster-data/member-0"))
def pid(
    directory: Annotated[Path, directory_option("A member's directory, or its cluster directory.")],
    as_json: AsJson = False,
) -> None:
    """Print the process id of the running member, and nothing else."""
    mark = mark_of(str(directory))
    if not is_running(OsFiles(), str(directory)):
        raise NotAClusterDirectory(f"{directory}: no member runs here; the last one was process {mark.pid}")
    print_result(as_json, {"pid": mark.pid}, mark.pid)


@app.command(epilog=tool_example("recording-log --dir cluster-data/member-0"))
def recording_log(directory: AnyMemberDirectory, raw: Raw = False, as_json: AsJson = False) -> None:
    """Show the leadership terms and snapshots in log order, one per line."""
    log = _recording_log(str(directory), readable_part=True)
    if as_json:
        print(json.dumps([aeron_text.entry_fields(entry) for entry in log.entries], indent=1))
    elif raw:
        for entry in log.entries:
            print(aeron_text.entry_text(entry))
    else:
        print(tables.recording_table(log.entries))
    if log.damage is not None:
        raise log.damage


@app.command(epilog=tool_example("sort-recording-log --dir cluster-data/member-0"))
def sort_recording_log(directory: OwnDirectory, as_json: AsJson = False) -> None:
    """Rewrite the recording log in order, if it is out of order; the member must be stopped."""
    with lock_directory(str(directory)):
        is_sorted = sort_file(_recording_log(str(directory), write=True))
    if is_sorted:
        note_on_host(home_of(directory), "SORT_RECORDING_LOG")
    said = "sorted" if is_sorted else "already in order"
    print_result(as_json, {"sorted": is_sorted}, said)


@app.command(
    epilog=tool_example(
        "seed-recording-log-from-snapshot --dir cluster-data/member-0",
        more="The old file is kept as recording.log.bak. "
        "If there is no valid snapshot, the recording log is removed.",
    ),
)
def seed_recording_log_from_snapshot(directory: OwnDirectory, as_json: AsJson = False) -> None:
    """Start a new log from the latest snapshot; the member must be stopped."""
    with lock_directory(str(directory)):
        log = _recording_log(str(directory), write=True)
        home = home_of(directory)  # which is not found any more once recording.log is removed
        is_seeded = seed_from_latest_snapshot(OsFiles(), log)
    said = "seeded from the latest snapshot" if is_seeded else "no valid snapshot, recording log removed"
    note_on_host(home, "SEED_RECORDING_LOG_FROM_SNAPSHOT", f"done: {said}")
    print_result(as_json, {"seeded": is_seeded}, said)


@app.command(epilog=tool_example("invalidate-latest-snapshot --dir cluster-data/member-0"))
def invalidate_latest_snapshot(directory: OwnDirectory, as_json: AsJson = False) -> None:
    """Mark the newest snapshot invalid, so that the next start loads the one before it.

    The member must be stopped.
    """
    with lock_directory(str(directory)):
        is_done = _recording_log(str(directory), write=True).invalidate_latest_snapshot()
    if is_done:
        note_on_host(home_of(directory), "INVALIDATE_LATEST_SNAPSHOT")
    said = f"invalidate-latest-snapshot: {'true' if is_done else 'false, there is no valid snapshot'}"
    print_result(as_json, {"invalidated": is_done}, said)
    if not is_done:
        raise typer.Exit(1)


@app.command(epilog=tool_example("recovery-plan --dir cluster-data/member-0 --services 1"))
def recovery_plan(
    directory: AnyMemberDirectory,
    services: ServiceCount = 1,
    archive_directory: ArchiveDirectory = None,
    raw: Raw = False,
    as_json: AsJson = False,
) -> None:
    """Show which snapshots a start would load, and how much log it would replay."""
    archive = _archive_directory(directory, archive_directory)
    catalog = CatalogFile.open(OsFiles(), archive, readable_part=True)
    descriptors = {descriptor.recording_id: descriptor for descriptor in catalog.descriptors()}
    log = _recording_log(str(directory))
    if any(descriptor.stop_position == NULL_POSITION for descriptor in descriptors.values()):
        from cluster.reader.directory import DirectoryLog

        with closing(DirectoryLog(str(directory), archive_dir=archive)) as of_member:
            found = of_member.recording.replace(stop_position=of_member.extent().written)
        descriptors[found.recording_id] = found
    plan = log.recovery_plan(services, descriptors.get)
    if not plan.snapshots and (latest := log.latest_snapshot()) is not None:
        raise ClusterError(
            f"{log.path}: no snapshot has an entry of each of {services} services, "
            f"the last one at {latest.log_position} neither"
        )
    if as_json:
        print(json.dumps(aeron_text.plan_fields(plan), indent=1))
    else:
        print(aeron_text.plan_text(plan) if raw else tables.plan_table(plan))


@app.command(epilog=tool_example("describe-latest-cm-snapshot --dir cluster-data/member-0"))
def describe_latest_cm_snapshot(
    directory: AnyMemberDirectory, archive_directory: ArchiveDirectory = None, as_json: AsJson = False
) -> None:
    """Show the consensus module's newest valid snapshot: its sessions, timers and pending messages."""
    latest = _recording_log(str(directory)).latest_snapshot()
    if latest is None:
        raise NotAClusterDirectory(f"{directory}: no valid snapshot of the consensus module")
    archive = _archive_directory(directory, archive_directory)
    image = module_image(OsFiles(), archive, latest.recording_id)
    records: list[dict[str, Any]] = []
    for data in image:
        message = decode(data)
        if message is None:
            continue
        payload = data[8 + message.BLOCK_LENGTH :] if message.TEMPLATE_ID == 1 else None
        if as_json:
            records.append({"record": type(message).__name__, **aeron_text.fields(message)})
            if payload is not None:
                records[-1]["payload"] = payload.hex()
            continue
        schema = (message.TEMPLATE_ID, CLUSTER.id, CLUSTER.version)
        text = aeron_text.message_text(type(message).__name__, message, schema)
        print(text if payload is None else f"{text} payload={payload.hex()}")
    if as_json:
        summary = {"recordingId": latest.recording_id, "length": image.length, "records": records}
        print(json.dumps(summary, indent=1))
    else:
        print(f"recordingId={latest.recording_id} length={image.length}")


@app.command(epilog=tool_example("errors --dir cluster-data/member-0"))
def errors(directory: AnyMemberDirectory, as_json: AsJson = False) -> None:
    """Show the error logs of the member's components: consensus module, driver and services."""
    marks = _marks(str(directory))
    if not marks:
        raise NotAClusterDirectory(f"{directory}: no mark file is here")
    components: list[dict[str, Any]] = []
    for index, (path, mark) in enumerate(marks):
        entries = _mark_errors(path)
        components.append(
            {"component": mark.component_type.name, "errors": [aeron_text.error_fields(e) for e in entries]}
        )
        if not as_json:
            print(f"Type: {mark.component_type.name} {aeron_text.times_text(mark, epoch_ms())}")
            print("Cluster component error log:")
            print(aeron_text.errors_text(entries))
        if index == 0:
            components.append(_driver_errors(str(directory), mark, as_json))
    if as_json:
        print(json.dumps(components, indent=1))


@app.command(
    epilog=tool_example(
        "is-leader --dir cluster-data/member-0 && echo yes",
        more="A leader whose election has not ended yet does not count.",
    ),
)
@connects
def is_leader(
    directory: OptionalDirectory = None, endpoints: OptionalEndpoints = None, as_json: AsJson = False
) -> None:
    """Exit with status 0 if the member leads, else with 1."""
    directory, endpoints = place(directory, endpoints)
    found = leads(str(directory)) if endpoints is None else _leads_at(endpoints)
    if as_json:
        print(json.dumps({"isLeader": found}))
    if not found:
        raise typer.Exit(1)


def _leads_at(endpoints: str) -> bool:
    members = parse_endpoints(endpoints)
    if len(members) > 1:
        raise typer.BadParameter(f"expected one member, not {len(members)}", param_hint="--endpoints")
    [endpoint] = members.values()
    status = member_status(endpoint)
    return status.leader_member_id == status.member_id  # -1 in an election


@app.command(
    epilog=tool_example(
        "list-members --dir cluster-data/member-0",
        "list-members --consensus-endpoints 10.0.0.5:9003 --aeron-dir /dev/shm/aeron",
    ),
)
@connects
def list_members(
    directory: OptionalMemberDirectory = None,
    endpoints: OptionalEndpoints = None,
    consensus_endpoints: ConsensusEndpoints = None,
    aeron_directory: MediaDriverDirectory = None,
    as_json: AsJson = False,
) -> None:
    """Ask a running member which member leads and which members there are."""
    if consensus_endpoints is not None:
        check_is_alone(consensus_endpoints, endpoints, directory)
        found = _listed_by(consensus_endpoints, aeron_directory)
    else:
        directory, endpoints = member_place(directory, endpoints)
        status = _statuses(endpoints)[0] if endpoints is not None else status_in(str(directory))
        found = {
            "leaderMemberId": status.leader_member_id,
            "memberId": status.member_id,
            "activeMembers": status.ingress_endpoints,
        }
    print_result(as_json, found, ", ".join(f"{key}={value}" for key, value in found.items()))


def _listed_by(consensus_endpoints: str, aeron_directory: Path | None) -> dict[str, Any]:
    """What a member of a real Aeron Cluster says that is asked over its own medium."""
    from cluster.aeron.aeron_log import AeronLog
    from cluster.aeron.aeron_member import answered_members

    with closing(AeronLog(consensus_endpoints, aeron_dir=text_or_none(aeron_directory))) as log:
        response = log.backup_response()
    return {
        "leaderMemberId": response.leader_member_id,
        "memberId": response.member_id,
        "activeMembers": ingress_endpoints(answered_members(response).values()),
    }


@app.command(
    epilog=tool_example(
        "export-watermark 1048576 --dir cluster-data/member-0",
        more="With log_export_watermark = true the member keeps the log from this position on.",
    ),
)
def export_watermark(
    directory: OwnDirectory,
    position: Annotated[
        int | None,
        typer.Argument(
            help="Log position in bytes; what is before it has been exported. Without it: show the one set.",
            min=0,
            metavar="POSITION",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Set, or show, the position up to which the log has been exported."""
    files = OsFiles()
    cluster = find_cluster_directory(files, str(directory))
    if position is not None:
        write_export_watermark(files, cluster, position)
        note_on_host(home_of(directory), "EXPORT_WATERMARK", f"done: {position}")
    found = read_export_watermark(files, cluster)
    print_result(as_json, {"position": found}, "none" if found is None else found)


# ---- finding what a verb needs


def _marks(directory: str) -> list[tuple[str, ClusterMarkFileHeader]]:
    """Path and header of the consensus module's (or backup's) mark file, then of each service's."""
    files = OsFiles()
    services = cluster = find_cluster_directory(files, directory)
    marks = _marks_in(files, cluster, [CLUSTER_MARK_FILE_NAME])
    for _, header in marks:
        # An absolute path of another machine, or a relative one, may lead nowhere: then they are beside it.
        if header.services_cluster_dir and files.is_directory(header.services_cluster_dir):
            services = header.services_cluster_dir
    found = filter(_is_service_mark, files.list_directory(services))
    names = sorted({f"{name.rpartition('.')[0]}.dat" for name in found})
    return marks + _marks_in(files, services, names)


def _marks_in(files: OsFiles, folder: str, names: list[str]) -> list[tuple[str, ClusterMarkFileHeader]]:
    """Those of these names that are there."""
    marks = []
    for path in (f"{mark_directory(files, folder, name)}/{name}" for name in names):
        if files.exists(path):
            header = read_mark_header(files, path)
            assert isinstance(header, ClusterMarkFileHeader)
            marks.append((path, header))
    return marks


def _is_service_mark(name: str) -> bool:
    return name.startswith("cluster-mark-service-") and name.endswith((".dat", ".lnk"))


def _recording_log(directory: str, *, write: bool = False, readable_part: bool = False) -> RecordingLog:
    files = OsFiles()
    cluster = find_cluster_directory(files, directory)
    if write and not files.exists(f"{cluster}/recording.log"):
        raise NotAClusterDirectory(f"{cluster}: recording.log is missing")
    return RecordingLog.open(cluster, files=files, write=write, readable_part=readable_part)


def _archive_directory(directory: Path, archive_directory: Path | None) -> str:
    apart = None if archive_directory is None else str(archive_directory)
    return find_member(OsFiles(), str(directory), apart).archive


def _mark_errors(path: str) -> list[Any]:
    with closing(OsFiles().open(path)) as file:
        data = file.pread(max(file.size() - MARK_FILE_HEADER_LENGTH, 0), MARK_FILE_HEADER_LENGTH)
    try:
        return list(decode_error_log(data))
    except LogDamaged as damage:
        raise damage.at(path, MARK_FILE_HEADER_LENGTH) from None


def _driver_errors(directory: str, mark: ClusterMarkFileHeader, as_json: bool) -> dict[str, Any]:
    """The error log in the counters file; a file that is not there has none, and that is said."""
    found = None
    if paths := counters_files(directory, mark):
        with CountersReader(paths[0]) as counters:
            found = counters.errors()
    if not as_json:
        print(f"\nAeron driver error log (directory: {mark.aeron_directory}):")
        print("no counters file is there" if found is None else aeron_text.errors_text(found))
    return {
        "component": "DRIVER",
        "errors": None if found is None else [aeron_text.error_fields(entry) for entry in found],
    }
