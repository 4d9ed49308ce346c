"""Records of files as tables for people; ``aeron_text.py`` has the words of Aeron's own tools."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from cluster.protocol.link import LogStatus
from cluster.protocol.mark_file import (
    TERMINATED,
    ArchiveMarkFileHeader,
    ClusterMarkFileHeader,
    MarkFileHeader,
)
from cluster.protocol.recording_log import RecordingLogEntry
from cluster.protocol.sbe import NULL_POSITION

if TYPE_CHECKING:
    from cluster.archive.recording_log import RecoveryPlan
    from cluster.protocol.catalog import CatalogEntry

Row = Sequence[Any]


def columns_of(headings: Sequence[str], rows: Iterable[Row]) -> str:
    """Columns as wide as they need be, numbers to the right; None is an empty cell."""
    rows = list(rows)
    cells = [headings, *([_cell(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    is_number = [any(isinstance(row[i], int) for row in rows) for i in range(len(headings))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, is_number, strict=True)
        ).rstrip()
        for line in cells
    )


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else str(value)


def _time(epoch_ms: int) -> str:
    try:
        return f"{datetime.fromtimestamp(epoch_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (OverflowError, ValueError, OSError):
        return str(epoch_ms)


def mark_table(headers: Iterable[ClusterMarkFileHeader]) -> str:
    """Mark files: which components own a directory, and when they were last alive."""
    return columns_of(
        ("component", "member", "service", "cluster", "pid", "started", "last alive"),
        (
            (
                header.component_type.name,
                str(header.member_id),
                header.service_name or (str(header.service_id) if header.service_id >= 0 else None),
                str(header.cluster_id),
                str(header.pid),
                _time(header.start_timestamp),
                _last_alive(header),
            )
            for header in headers
        ),
    )


def _last_alive(header: MarkFileHeader) -> str:
    return "ended in order" if header.activity_timestamp == TERMINATED else _time(header.activity_timestamp)


def archive_mark_table(header: ArchiveMarkFileHeader) -> str:
    """The mark file of an archive."""
    row = str(header.archive_id), str(header.pid), _time(header.start_timestamp), _last_alive(header)
    return columns_of(("archive", "pid", "started", "last alive"), [row])


def catalog_table(found: Iterable[tuple[CatalogEntry, str]]) -> str:
    """A catalog's recordings, each with the checksum in its frames."""
    return columns_of(
        ("recording", "state", "from", "to", "started", "session", "stream", "checksum", "channel"),
        (
            (
                str(entry.descriptor.recording_id),
                entry.header.state.name,
                entry.descriptor.start_position,
                None if entry.descriptor.stop_position == NULL_POSITION else entry.descriptor.stop_position,
                _time(entry.descriptor.start_timestamp),
                str(entry.descriptor.session_id),
                str(entry.descriptor.stream_id),
                checksum,
                entry.descriptor.stripped_channel,
            )
            for entry, checksum in found
        ),
    )


def member_table(found: Iterable[LogStatus]) -> str:
    """How members that answer stand."""
    from cluster.cli.top import shown_status

    headings = {
        "role": "role",
        "election": "electionState",
        "state": "moduleState",
        "term": "leadershipTermId",
        "committed": "commitPosition",
        "recorded": "appendPosition",
        "sessions": "sessions",
    }
    rows = [shown_status(status.member_id, status) for status in found]
    return columns_of(
        ("member", *headings),
        ((str(row["memberId"]), *(row[key] for key in headings.values())) for row in rows),
    )


def recording_table(found: Iterable[RecordingLogEntry]) -> str:
    """A recording log: terms and snapshots."""
    return columns_of(
        ("entry", "type", "term", "from", "to", "time", "service", "recording", "valid"),
        (
            (
                entry.entry_index,
                entry.entry_type.name,
                entry.leadership_term_id,
                entry.term_base_log_position,
                entry.log_position if entry.log_position >= 0 else None,  # of a term that goes on
                _time(entry.timestamp),
                _of_service(entry),
                str(entry.recording_id),
                "yes" if entry.is_valid else "no",
            )
            for entry in found
        ),
    )


def _of_service(entry: RecordingLogEntry) -> str | None:
    if not entry.entry_type.name.endswith("SNAPSHOT"):
        return None
    return "consensus module" if entry.service_id < 0 else str(entry.service_id)


def plan_table(found: RecoveryPlan) -> str:
    """What a start loads and replays."""
    lines = [
        f"last term         {found.last_leadership_term_id}, from {found.last_term_base_log_position:,}",
        f"recorded up to    {found.appended_log_position:,}",
        f"committed up to   {found.committed_log_position:,}",
    ]
    begin = max((entry.log_position for entry in found.snapshots), default=0)
    lines.append(f"replays           {max(found.appended_log_position - begin, 0):,} bytes from {begin:,}")
    if found.snapshots:
        lines += ["snapshots to load", recording_table(found.snapshots)]
    return "\n".join(lines)
