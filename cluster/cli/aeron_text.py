"""Records of files in the words of Aeron's own tools, and as JSON objects with the same names."""

from __future__ import annotations

import itertools
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any

from cluster.protocol.mark_file import TERMINATED, MarkFileHeader
from cluster.protocol.recording_log import RecordingLogEntry

if TYPE_CHECKING:
    from cluster.archive.recording_log import RecoveryPlan
    from cluster.protocol.catalog import RecordingDescriptor
    from cluster.protocol.error_log import ErrorLogEntry


def camel_case(name: str) -> str:
    """``term_base_log_position`` as Aeron spells it."""
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def fields(record: Any) -> dict[str, Any]:
    """A record's fields by Aeron's names, enumerations by name."""
    return {name: _plain(value) for name, value in _values(record).items()}


def _values(record: Any) -> dict[str, Any]:
    values = record.as_dict() if hasattr(record, "as_dict") else record._asdict()
    return {camel_case(name): value for name, value in values.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.name
    return value.hex() if isinstance(value, bytes) else value


def message_text(name: str, record: Any, schema: tuple[int, int, int]) -> str:
    """As SBE's decoders print themselves; ``schema`` is template id, schema id and version."""
    template_id, schema_id, version = schema
    quoted = {name for name, value in _values(record).items() if isinstance(value, str | bytes)}
    parts = (
        f"{name}='{value}'" if name in quoted else f"{name}={value}" for name, value in fields(record).items()
    )
    return (
        f"[{name}](sbeTemplateId={template_id}|sbeSchemaId={schema_id}|sbeSchemaVersion={version}"
        f"|sbeBlockLength={record.BLOCK_LENGTH}):{'|'.join(parts)}"
    )


def mark_text(header: MarkFileHeader) -> str:
    """A mark file's header."""
    schema = type(header).SCHEMA
    return message_text("MarkFileHeader", header, (200, schema.id, schema.version))


def descriptor_text(descriptor: RecordingDescriptor) -> str:
    """A catalog's entry."""
    return message_text("RecordingDescriptor", descriptor, (22, 101, 14))


def times_text(header: MarkFileHeader, now_ms: int) -> str:
    """The time of day, and since when and until when the owner of a mark file lived."""
    now = _local(now_ms)
    start, activity = _local(header.start_timestamp), f"{_local(header.activity_timestamp):%Y-%m-%d %H:%M:%S}"
    if header.activity_timestamp == TERMINATED:  # which Aeron shows as a day in 1969
        activity = "none, it ended in order"
    return f"{now:%H:%M:%S} (start: {start:%Y-%m-%d %H:%M:%S}, activity: {activity})"


def _local(epoch_ms: int) -> datetime:
    # What no calendar holds is shown as its end.
    try:
        return datetime.fromtimestamp(epoch_ms // 1000).astimezone()
    except (OverflowError, ValueError, OSError):
        return datetime.max


def entry_text(entry: RecordingLogEntry) -> str:
    """A recording log's entry."""
    parts = ", ".join(
        f"{name}={str(value).lower() if isinstance(value, bool) else value}"
        for name, value in entry_fields(entry).items()
    )
    return f"Entry{{{parts}}}"


def entry_fields(entry: RecordingLogEntry) -> dict[str, Any]:
    """The same as an object; the endpoint only where there is one."""
    ordered = snapshot_fields(entry) | {"type": entry.entry_type.name, "isValid": entry.is_valid}
    ordered["entryIndex"] = entry.entry_index
    if entry.archive_endpoint:
        ordered["archiveEndpoint"] = entry.archive_endpoint
    return ordered


def snapshot_fields(entry: RecordingLogEntry) -> dict[str, Any]:
    """A snapshot of a recovery plan: what an entry has before its type."""
    names = itertools.takewhile(lambda name: name != "entry_type", entry._fields)
    return {camel_case(name): getattr(entry, name) for name in names}


def plan_fields(plan: RecoveryPlan) -> dict[str, Any]:
    """A recovery plan as an object."""
    return {
        "lastLeadershipTermId": plan.last_leadership_term_id,
        "lastTermBaseLogPosition": plan.last_term_base_log_position,
        "appendedLogPosition": plan.appended_log_position,
        "committedLogPosition": plan.committed_log_position,
        "snapshots": [snapshot_fields(entry) for entry in plan.snapshots],
        "log": None if plan.log is None else fields(plan.log),
    }


def plan_text(plan: RecoveryPlan) -> str:
    """A recovery plan in one line."""

    def braces(name: str, values: dict[str, Any]) -> str:
        return f"{name}{{{', '.join(f'{key}={value}' for key, value in values.items())}}}"

    values = plan_fields(plan)
    values["snapshots"] = "[" + ", ".join(braces("Snapshot", s) for s in values["snapshots"]) + "]"
    values["log"] = "null" if plan.log is None else braces("Log", values["log"])
    return braces("RecoveryPlan", values)


def errors_text(entries: list[ErrorLogEntry]) -> str:
    """An error log, and how many different errors it has."""
    from cluster.archive.mark_files import error_log_text

    return f"{error_log_text(entries)}\n{len(entries)} distinct errors observed{'.' if entries else ''}"


def error_fields(entry: ErrorLogEntry) -> dict[str, Any]:
    """One error as an object, without its place in the file."""
    return {name: value for name, value in fields(entry).items() if name not in ("offset", "length")}
