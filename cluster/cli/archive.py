"""``cluster archive``: what Aeron's ArchiveTool prints of a member's archive, and does to it."""

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from cluster.archive import archive_tool
from cluster.archive.archive import Archive
from cluster.archive.catalog_checksum import NAMES, checksum_named
from cluster.archive.catalog_file import CatalogFile
from cluster.archive.directory_lock import DirectoryLock, is_active, read_mark_header
from cluster.archive.files import OsFiles
from cluster.archive.frame_checksum import frame_checksum
from cluster.archive.frame_walk import FrameWalk, log_params
from cluster.archive.recording_damage import checksum_mismatch
from cluster.archive.recording_log import RecordingLog
from cluster.archive.recording_verification import settle, verify_recording
from cluster.archive.segments import Segments, segment_bases
from cluster.cli import aeron_text, tables
from cluster.cli.members import AnyMemberDirectory, own_directory
from cluster.cli.verbs import AsJson, Verb, Verbs, example, print_result
from cluster.counters import CountersReader
from cluster.errors import ClusterError, LogDamaged, NotAClusterDirectory, RemoteProtocolError, StorageErrors
from cluster.log.checksum import Checksum, verify_checksums
from cluster.log.runs import headers
from cluster.protocol.catalog import NULL_POSITION, CatalogEntry
from cluster.protocol.enums import RecordingState
from cluster.protocol.frame import HEADER_LENGTH, TYPE_DATA
from cluster.protocol.mark_file import ARCHIVE_MARK_FILE_NAME, ArchiveMarkFileHeader
from cluster.reader.member_directory import (
    find_archive_directory,
    find_cluster_directory,
    holds_lock,
    mark_directory,
    members_in,
)
from cluster.transport.clock import epoch_ms

app = typer.Typer(cls=Verbs, rich_markup_mode=None, add_completion=False, no_args_is_help=True)

Directory = Annotated[Path, own_directory("A member's directory, or its archive directory.")]
RecordingId = Annotated[
    int | None, typer.Argument(help="Id of one recording; by default all.", metavar="RECORDING")
]
AllSegments = Annotated[
    bool, typer.Option("--all", "-a", help="All segments of each recording, not only the last.")
]
Raw = Annotated[bool, typer.Option("--raw", help="Print every field as Aeron's ArchiveTool does.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Delete without asking.")]

_example = partial(example, "archive")


@app.callback(epilog="\b\nExample:\n  cluster archive verify --dir cluster-data/member-0")
def _archive() -> None:
    """Describe, dump or verify a member's archive, as Aeron's ArchiveTool does."""


@app.command(epilog=_example("describe --dir cluster-data/member-0", "describe 2 --dir member-0 --json"))
def describe(
    directory: AnyMemberDirectory,
    recording_id: RecordingId = None,
    raw: Raw = False,
    as_json: AsJson = False,
) -> None:
    """Show the mark file, the catalog's size, and the VALID recordings."""
    _describe(directory, recording_id, raw, as_json, valid_only=recording_id is None)


@app.command(epilog=_example("describe-all --dir cluster-data/member-0"))
def describe_all(directory: AnyMemberDirectory, raw: Raw = False, as_json: AsJson = False) -> None:
    """Show what describe shows, with the recordings of every state."""
    _describe(directory, None, raw, as_json, valid_only=False)


@app.command(
    epilog=_example(
        "dump --dir cluster-data/member-0",
        "dump 0 --dir member-0 --limit 100 --json",
        more="`cluster log dump` prints the log as entries instead.",
    )
)
def dump(
    directory: AnyMemberDirectory,
    recording_id: RecordingId = None,
    limit: Annotated[int, typer.Option(help="Frames of each recording to show; 0 for all.", min=0)] = 10,
    as_json: AsJson = False,
) -> None:
    """Show recordings frame by frame: header fields, and the bytes in hexadecimal."""
    archive = _archive_directory(directory)
    catalog = _catalog(archive)
    is_damaged = catalog.damage is not None
    for entry in _chosen(catalog, recording_id):
        _show_descriptor(archive, catalog, entry, as_json, with_state=True)
        checksum = _frame_checksum(archive, catalog, entry)
        segments = Segments(OsFiles(), archive, entry.descriptor)
        end, is_open = _end(archive, entry)
        shown = 0
        walk = FrameWalk(
            segments, log_params(entry.descriptor), entry.descriptor.start_position, end, chunk_length=65_536
        )
        try:
            for position, run in walk:
                good = len(run) if checksum is None else verify_checksums(checksum, run, 0, len(run))
                for frame in _frames(position, run[:good]):
                    if shown == limit > 0:
                        break
                    shown += 1
                    if as_json:
                        print(json.dumps({"recordingId": entry.descriptor.recording_id, **frame}))
                    else:
                        body = frame.pop("payload")
                        print(" ".join(f"{name}={value}" for name, value in frame.items()))
                        print(f"  {body}" if body else "  (no bytes)")
                if shown == limit > 0:
                    break
                if good < len(run):
                    raise checksum_mismatch(segments, position + good, run[good:], checksum)
            else:
                if walk.position < end and not (is_open and walk.is_unwritten):
                    is_damaged = True
                    _complain(walk.damage())
        except ClusterError as damage:
            is_damaged = True
            _complain(damage)
        finally:
            segments.close()
    if catalog.damage is not None:
        _complain(catalog.damage)
    if is_damaged:
        raise typer.Exit(1)


@app.command(
    epilog=_example(
        "verify --dir cluster-data/member-0",
        "verify --dir member-0 --all --checksum crc32c",
        "verify --dir cluster-data",
        more="Checksums are verified where frames have them. A recording that fails is marked INVALID, one\n"
        "that passes VALID. An end that a crash left open is written into the catalog. An archive that\n"
        "is in use, or cannot be written, is only read. In a whole cluster's directory the members are\n"
        "verified one after another.",
    )
)
def verify(
    directory: Annotated[
        Path, own_directory("A member's directory, its archive directory, or a whole cluster's.")
    ],
    recording_id: RecordingId = None,
    all_segments: AllSegments = False,
    checksum: Annotated[
        str | None,
        typer.Option(help="Require this checksum, crc32 or crc32c, in every frame and the catalog."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check that recordings are complete and undamaged; the exit status is 1 if one is not."""
    used = checksum_named(checksum)
    members = members_in(OsFiles(), str(directory))
    is_well = True
    for member in members:
        if not as_json:
            print(member, flush=True)
        try:
            is_well &= _verify(Path(member), recording_id, all_segments, used, as_json)
        except ClusterError as damage:
            _complain(damage)
            is_well = False
    if not members:
        is_well = _verify(directory, recording_id, all_segments, used, as_json)
    if not is_well:
        raise typer.Exit(1)


@app.command(cls=Verb, epilog=_example("checksum crc32c --dir cluster-data/member-0 --all"))
def checksum(
    name: Annotated[str, typer.Argument(help="crc32 or crc32c, or Aeron's name of either.", metavar="NAME")],
    directory: Directory,
    recording_id: RecordingId = None,
    all_segments: AllSegments = False,
    as_json: AsJson = False,
) -> None:
    """Write a checksum into every data frame (in place of its session id) and into the catalog."""
    used = checksum_named(name)
    if used is None:
        raise typer.BadParameter("expected crc32 or crc32c", param_hint="NAME")
    archive = _archive_directory(directory)
    with _opened(archive) as catalog:
        for entry in _chosen(catalog, recording_id):
            if entry.is_valid:
                covered = archive_tool.add_checksums(
                    OsFiles(), archive, catalog, entry, used, all_segments=all_segments
                )
                number = entry.descriptor.recording_id
                done = {"recordingId": number, "bytes": covered}
                print_result(as_json, done, f"(recordingId={number}) {covered} bytes")


@app.command(epilog=_example("compact --dir cluster-data/member-0 --yes"))
def compact(directory: Directory, yes: Yes = False, as_json: AsJson = False) -> None:
    """Remove recordings that are not VALID from the catalog, and delete their segments."""
    archive = _archive_directory(directory)
    with _opened(archive) as catalog:
        dropped = [entry.descriptor.recording_id for entry in catalog.entries if not entry.is_valid]
        _confirm(f"delete recordings {dropped} for good?" if dropped else None, yes)
        done = archive_tool.compact(OsFiles(), archive, catalog)
    records, size, files = done.recording_ids, done.catalog_bytes, done.files
    result = {"recordingIds": records, "catalogBytes": size, "files": files}
    print_result(as_json, result, f"deleted {len(records)} records ({size} bytes), {len(files)} segments")


@app.command(epilog=_example("delete-orphaned-segments --dir cluster-data/member-0"))
def delete_orphaned_segments(
    directory: Directory, recording_id: RecordingId = None, yes: Yes = False, as_json: AsJson = False
) -> None:
    """Delete segment files that no recording uses."""
    archive = _archive_directory(directory)
    with _opened(archive) as catalog:
        names = archive_tool.orphaned_segments(OsFiles(), archive, catalog, recording_id)
        for name in names if not as_json else ():
            print(name)
        _confirm(f"delete {len(names)} files for good?" if names else None, yes)
        archive_tool.delete_files(OsFiles(), archive, names)
    if as_json:
        print(json.dumps({"files": names}))


@app.command(
    cls=Verb,
    epilog=_example(
        "purge 134217728 --dir cluster-data/member-0",
        more="A running member does this by itself, by log_retained_snapshots in its configuration.",
    ),
)
def purge(
    directory: Directory,
    position: Annotated[
        int,
        typer.Argument(
            help="Position where the log is to begin: a segment's start, in bytes.", metavar="POSITION"
        ),
    ],
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete the log's segments before a position that a snapshot covers; the member must be stopped."""
    files = OsFiles()
    cluster = find_cluster_directory(files, str(directory))
    with closing(Archive.open(_archive_directory(directory), files=files, epoch_ms=epoch_ms)) as archive:
        recording_log = RecordingLog.open(cluster, files=files)
        snapshot_position = _whole_snapshot(archive, recording_log)
        _confirm(f"delete the log before {position} for good?", yes)
        start, begin = archive_tool.purge_log(archive, recording_log, position, snapshot_position)
    done = {"oldStartPosition": start, "startPosition": begin}
    print_result(as_json, done, f"the log began at {start}, it begins at {begin}")


def _whole_snapshot(archive: Archive, recording_log: RecordingLog) -> int | None:
    """Log position of the newest snapshot; None without one. Raises ClusterError where it is not whole."""
    from cluster.archive.snapshot_archive import SnapshotArchive
    from cluster.member.disk.snapshots import check_newest

    term = recording_log.find_last_term()
    if term is None or not archive.has_recording(term.recording_id):
        return None
    log = archive.recording(term.recording_id)
    try:
        newest = check_newest(
            recording_log, SnapshotArchive(archive, term_length=log.term_length, mtu=log.mtu)
        )
    except (LogDamaged, RemoteProtocolError) as damage:
        what = "the log is needed: its last snapshot is damaged"
        raise ClusterError(f"{what} (cluster tool invalidate-latest-snapshot): {damage}") from None
    return None if newest is None else newest[0].log_position


def _mark_verb(state: RecordingState, text: str) -> None:
    """The verb by which recordings come into that state."""

    def command(
        recording_id: Annotated[int, typer.Argument(help="Id of the recording.", metavar="RECORDING")],
        directory: Directory,
        as_json: AsJson = False,
    ) -> None:
        with _opened(_archive_directory(directory)) as catalog:
            archive_tool.mark(catalog, recording_id, state)
        done = {"recordingId": recording_id, "state": state.name}
        print_result(as_json, done, f"(recordingId={recording_id}) {state.name}")

    verb = f"mark-{state.name.lower()}"
    app.command(verb, cls=Verb, epilog=_example(f"{verb} 0 --dir cluster-data/member-0"), help=text)(command)


_mark_verb(RecordingState.VALID, "Make an INVALID recording VALID again.")
_mark_verb(
    RecordingState.INVALID, "Make a VALID recording INVALID: its files stay, but it is no longer listed."
)


@app.command(epilog=_example("count-entries --dir cluster-data/member-0"))
def count_entries(directory: AnyMemberDirectory, as_json: AsJson = False) -> None:
    """Print the number of VALID recordings."""
    count = len(_catalog(_archive_directory(directory)).descriptors())
    print_result(as_json, {"count": count}, count)


@app.command(epilog=_example("capacity --dir cluster-data/member-0"))
def capacity(directory: AnyMemberDirectory, as_json: AsJson = False) -> None:
    """Print the catalog's size in bytes."""
    found = _catalog(_archive_directory(directory)).capacity
    print_result(as_json, {"capacity": found}, found)


@app.command(epilog=_example("pid --dir cluster-data/member-0"))
def pid(directory: Directory, as_json: AsJson = False) -> None:
    """Print the process id of the running archive, and nothing else."""
    archive = _archive_directory(directory)
    mark = _mark_header(archive)
    if mark is None:
        raise NotAClusterDirectory(f"{directory}: no archive-mark.dat is here")
    is_locked = holds_lock(OsFiles(), archive, ARCHIVE_MARK_FILE_NAME)
    if not (is_active(mark, epoch_ms()) if is_locked is None else is_locked):
        raise NotAClusterDirectory(f"{directory}: no archive runs here; the last one was process {mark.pid}")
    print_result(as_json, {"pid": mark.pid}, mark.pid)


# ---- what several verbs need


def _archive_directory(directory: Path) -> str:
    return find_archive_directory(OsFiles(), str(directory))


def _catalog(archive: str) -> CatalogFile:
    return CatalogFile.open(OsFiles(), archive, readable_part=True)


@contextmanager
def _opened(archive: str) -> Iterator[CatalogFile]:
    """The catalog for writing, while nobody else may. Raises DirectoryInUse, StorageError, LogDamaged."""
    files = OsFiles()
    with (
        StorageErrors(archive, "", within=True),
        DirectoryLock.take(files, archive, ARCHIVE_MARK_FILE_NAME, epoch_ms()),
        closing(CatalogFile.open(files, archive, write=True)) as catalog,
    ):
        yield catalog


@contextmanager
def _opened_if_free(archive: str) -> Iterator[tuple[CatalogFile, bool]]:
    """The catalog, and whether it may be written: else the archive runs, or is read-only or damaged."""
    with ExitStack() as opened:
        try:
            found = opened.enter_context(_opened(archive)), True
        except ClusterError as error:
            print(f"warning: nothing will be changed: {error}", file=sys.stderr)
            found = _catalog(archive), False
        yield found


def _verify(
    directory: Path, recording_id: int | None, all_segments: bool, used: Checksum | None, as_json: bool
) -> bool:
    """Say of each recording whether it is well; return whether all are. Raises ClusterError."""
    archive = _archive_directory(directory)
    is_well = True
    with _opened_if_free(archive) as (catalog, can_write):
        for entry in _chosen(catalog, recording_id):
            if entry.header.state is RecordingState.DELETED:
                continue
            verified = verify_recording(
                OsFiles(),
                archive,
                catalog,
                entry,
                all_segments=all_segments,
                checksum=used,
                end_position=None if can_write else _live_end(archive, entry),
            )
            if can_write:
                settle(catalog, verified, epoch_ms())
            is_well = is_well and verified.damage is None
            outcome = {
                "dir": str(directory),
                "recordingId": verified.recording_id,
                "ok": verified.damage is None,
                "stopPosition": verified.stop_position,
                "error": None if verified.damage is None else str(verified.damage),
            }
            said = "OK" if verified.damage is None else f"ERR: {verified.damage}"
            print_result(as_json, outcome, f"(recordingId={verified.recording_id}) {said}")
        if catalog.damage is not None:
            _complain(catalog.damage)
            is_well = False
    return is_well


def _mark_header(archive: str) -> ArchiveMarkFileHeader | None:
    files = OsFiles()
    path = f"{mark_directory(files, archive, ARCHIVE_MARK_FILE_NAME)}/{ARCHIVE_MARK_FILE_NAME}"
    if not files.exists(path):
        return None
    header = read_mark_header(files, path)
    assert isinstance(header, ArchiveMarkFileHeader)
    return header


def _chosen(catalog: CatalogFile, recording_id: int | None) -> list[CatalogEntry]:
    if recording_id is None:
        return list(catalog.entries)
    entry = catalog.entry(recording_id)
    if entry is None:
        raise NotAClusterDirectory(f"{catalog.path}: no recording {recording_id}")
    return [entry]


def _describe(
    directory: Path, recording_id: int | None, raw: bool, as_json: bool, *, valid_only: bool
) -> None:
    archive = _archive_directory(directory)
    catalog = _catalog(archive)
    mark = _mark_header(archive)
    entries = [e for e in _chosen(catalog, recording_id) if e.is_valid or not valid_only]
    if as_json:
        described = {
            "mark": None if mark is None else aeron_text.fields(mark),
            "catalogCapacity": catalog.capacity,
            "recordings": [_entry_fields(archive, catalog, entry) for entry in entries],
        }
        print(json.dumps(described, indent=1))
    elif not raw:
        if mark is not None:
            print(tables.archive_mark_table(mark))
        print(f"catalog of {catalog.capacity:,} bytes")
        checksums = (NAMES[_frame_checksum(archive, catalog, entry)] for entry in entries)
        print(tables.catalog_table(zip(entries, checksums, strict=True)))
    else:
        if mark is not None:
            print(aeron_text.times_text(mark, epoch_ms()))
            print(aeron_text.mark_text(mark))
        print(f"Catalog capacity in bytes: {catalog.capacity}")
        for entry in entries:
            _show_descriptor(archive, catalog, entry, False, with_state=not valid_only)
    if catalog.damage is not None:
        raise catalog.damage


def _entry_fields(archive: str, catalog: CatalogFile, entry: CatalogEntry) -> dict[str, Any]:
    return {
        **aeron_text.fields(entry.descriptor),
        "state": entry.header.state.name,
        "checksum": entry.header.checksum,
        "frameChecksum": NAMES[_frame_checksum(archive, catalog, entry)],
    }


def _frame_checksum(archive: str, catalog: CatalogFile, entry: CatalogEntry) -> Checksum | None:
    """What the frames of a recording hold in place of session ids."""
    files = OsFiles()
    try:
        catalog.check_entry(entry, segment_bases(files, archive, entry.descriptor.recording_id))
    except LogDamaged:
        return None  # nothing shows where they are
    with closing(Segments(files, archive, entry.descriptor)) as segments:
        return frame_checksum(segments, catalog, entry)


def _show_descriptor(
    archive: str, catalog: CatalogFile, entry: CatalogEntry, as_json: bool, *, with_state: bool
) -> None:
    if as_json:
        print(json.dumps(_entry_fields(archive, catalog, entry)))
    else:
        state = f"|{entry.header.state.name}" if with_state else ""
        print(aeron_text.descriptor_text(entry.descriptor) + state)
        if (checksum := _frame_checksum(archive, catalog, entry)) is not None:
            print(f"  frameChecksum={NAMES[checksum]}")  # ours: the line above is Aeron's


def _live_end(archive: str, entry: CatalogEntry) -> int | None:
    """How far a running archive has written a recording, by its counters; None when they do not show it."""
    mark = _mark_header(archive)
    folders = [f"{archive.rpartition('/')[0] or '.'}/driver", mark.aeron_directory if mark else ""]
    for path in (f"{folder}/cnc.dat" for folder in folders if folder):
        if not OsFiles().exists(path):
            continue
        with CountersReader(path) as counters:
            found = counters.find_recording_position(
                entry.descriptor.recording_id, entry.descriptor.session_id
            )
            if counters.is_live(epoch_ms()) and found is not None:
                return found.get()
    return None


def _end(archive: str, entry: CatalogEntry) -> tuple[int, bool]:
    """Where a recording's frames end, or the end of its last segment when nothing shows it (True)."""
    if entry.descriptor.stop_position != NULL_POSITION:
        return entry.descriptor.stop_position, False
    live = _live_end(archive, entry)
    if live is not None:
        return live, False
    bases = Segments(OsFiles(), archive, entry.descriptor).bases()
    if not bases:
        return entry.descriptor.start_position, False
    return bases[-1] + entry.descriptor.segment_file_length, True


def _frames(position: int, run: Any) -> Iterator[dict[str, Any]]:
    for offset, header in headers(run):
        is_data = header.type == TYPE_DATA
        payload = run[offset + HEADER_LENGTH : offset + header.frame_length] if is_data else run[:0]
        yield {
            "position": position + offset,
            **aeron_text.fields(header),
            "flags": f"{header.flags:08b}",
            "type": "DATA" if is_data else "PAD",
            "payload": payload.tobytes().hex(),
        }


def _confirm(question: str | None, yes: bool) -> None:
    """Ask on the terminal; without an answer nothing is done."""
    if question is None or yes:
        return
    try:
        is_wanted = typer.confirm(question, default=True, err=True)
    except typer.Abort:
        is_wanted = False
    if not is_wanted:
        raise ClusterError("nothing was deleted: not confirmed (--yes does not ask)")


def _complain(error: ClusterError) -> None:
    sys.stdout.flush()
    print(f"damaged: {error}", file=sys.stderr)
