"""The log as rows: a run of log bytes into an Arrow record batch, at memory speed.

``ROW_SCHEMA`` is what ``cluster log``, LogReader and Spark show of the log. A row is an entry; it belongs to
the range in which its first frame begins, so that ranges which share their boundaries share no row and miss
none. What an entry does not have is null, and so is what it has with SBE's null value.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa

from cluster.errors import ConfigurationError, LogDamaged
from cluster.log import column_kernels as k
from cluster.log.frames import MALFORMED
from cluster.protocol.frame import DATA_FRAME_HEADER, FRAME_ALIGNMENT

ROW_SCHEMA = pa.schema(
    [
        ("position", pa.int64()),  # where the entry's first frame starts
        ("endPosition", pa.int64()),  # after the entry, exclusive
        ("leadershipTermId", pa.int64()),
        ("entryType", pa.string()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("clusterTime", pa.int64()),  # as it stands in the log, in the log's time unit
        ("clusterSessionId", pa.int64()),
        ("correlationId", pa.int64()),
        ("payload", pa.binary()),
        ("responseStreamId", pa.int32()),
        ("responseChannel", pa.string()),
        ("encodedPrincipal", pa.binary()),
        ("closeReason", pa.string()),
        ("action", pa.string()),
        ("actionFlags", pa.int32()),
        ("termBaseLogPosition", pa.int64()),
        ("leaderMemberId", pa.int32()),
        ("logSessionId", pa.int32()),
        ("timeUnit", pa.string()),
        ("appVersion", pa.int32()),
    ]
)
assert len(ROW_SCHEMA) == k.COLUMN_COUNT
# Of the entry's first frame, as it is recorded; only for who asks for them by name.
FRAME_SCHEMA = pa.schema(
    [
        ("frameFlags", pa.int32()),
        ("termId", pa.int32()),
        ("termOffset", pa.int32()),
        ("frameSessionId", pa.int32()),  # in a recording with checksums, the frame's checksum
        ("streamId", pa.int32()),
        ("reservedValue", pa.int64()),
    ]
)
HEADER_FIELDS = ("flags", "term_id", "term_offset", "session_id", "stream_id", "reserved_value")
ENTRY_TYPES = k.ENTRY_TYPE_NAMES
TIME_UNITS = k.TIME_UNIT_NAMES

_COMMON = (k.POSITION, k.END_POSITION, k.LEADERSHIP_TERM_ID, k.ENTRY_TYPE, k.TIMESTAMP, k.CLUSTER_TIME)
_COLUMNS_OF = {
    k.SESSION_MESSAGE: (k.CLUSTER_SESSION_ID, k.PAYLOAD),
    k.TIMER: (k.CORRELATION_ID,),
    k.SESSION_OPEN: (
        k.CLUSTER_SESSION_ID,
        k.CORRELATION_ID,
        k.RESPONSE_STREAM_ID,
        k.RESPONSE_CHANNEL,
        k.ENCODED_PRINCIPAL,
    ),
    k.SESSION_CLOSE: (k.CLUSTER_SESSION_ID, k.CLOSE_REASON),
    k.CLUSTER_ACTION: (k.ACTION, k.ACTION_FLAGS),
    k.NEW_LEADERSHIP_TERM: (
        k.TERM_BASE_LOG_POSITION,
        k.LEADER_MEMBER_ID,
        k.LOG_SESSION_ID,
        k.TIME_UNIT,
        k.APP_VERSION,
    ),
}
_NEVER_NULL = (k.POSITION, k.END_POSITION, k.ENTRY_TYPE)
_BITS_SET = (k.LEADERSHIP_TERM_ID, k.TIMESTAMP, k.CLUSTER_TIME, k.CLUSTER_SESSION_ID, k.PAYLOAD)
# The entry type and the longest name of the columns that hold names.
_NAME_LENGTHS = {
    k.CLOSE_REASON: (k.SESSION_CLOSE, max(map(len, k.CLOSE_REASON_NAMES))),
    k.ACTION: (k.CLUSTER_ACTION, max(map(len, k.ACTION_NAMES))),
    k.TIME_UNIT: (k.NEW_LEADERSHIP_TERM, max(map(len, k.TIME_UNIT_NAMES))),
}


@dataclass(frozen=True, slots=True)
class DecodedLog:
    """Rows, and from where to go on.

    ``next_position`` is the first frame that was not taken: at or beyond the end of the range when the range
    is exhausted, below it when the bytes end within an entry or there were enough rows. ``time_unit`` is what
    holds there (0 milliseconds, 1 microseconds, 2 nanoseconds); ``skipped`` counts messages of other schemas
    and of templates that are no entry.
    """

    record_batch: pa.RecordBatch
    next_position: int
    time_unit: int
    skipped: int


@dataclass(frozen=True, slots=True)
class _Plan:
    """``decoded`` is what the kernels write: columns that are wanted, and the position to find headers by."""

    columns: tuple[int, ...]
    decoded: tuple[int, ...]
    schema: pa.Schema
    entry_mask: int


@lru_cache(maxsize=64)
def _plan(columns: tuple[str, ...] | None, entry_types: tuple[str, ...] | None) -> _Plan:
    known = [*ROW_SCHEMA, *FRAME_SCHEMA]
    names = [field.name for field in known]
    _check_known("columns", columns or (), names)
    _check_known("entry_types", entry_types or (), ENTRY_TYPES)
    wanted = tuple(range(k.COLUMN_COUNT)) if columns is None else tuple(names.index(name) for name in columns)
    decoded = tuple(column for column in wanted if column < k.COLUMN_COUNT)
    if decoded != wanted and k.POSITION not in decoded:
        decoded = (k.POSITION, *decoded)
    kinds = ENTRY_TYPES if entry_types is None else entry_types
    mask = sum(1 << ENTRY_TYPES.index(kind) for kind in set(kinds))
    return _Plan(wanted, decoded, pa.schema([known[column] for column in wanted]), mask)


def _check_known(what: str, names: Iterable[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            raise ConfigurationError(f"{what}: {name!r} is unknown; expected some of {', '.join(known)}")


def schema_of(columns: Iterable[str] | None) -> pa.Schema:
    """The schema of record batches with these columns; of ROW_SCHEMA when there are none."""
    return _plan(None if columns is None else tuple(columns), None).schema


def log_to_record_batch(
    buffer: np.ndarray,
    start: int,
    limit: int,
    position: int,
    to_position: int | None = None,
    *,
    columns: Iterable[str] | None = None,
    entry_types: Iterable[str] | None = None,
    time_unit: int = k.MILLIS,
    rows_max: int | None = None,
) -> DecodedLog:
    """Decode the entries whose first frame lies in [``position``, ``to_position``) into a record batch.

    ``position`` is that of ``buffer[start]``, which begins a frame; the bytes up to ``limit`` may be more
    than the range, so that its last entry is whole. ``columns`` (names of ROW_SCHEMA and FRAME_SCHEMA, in any
    order; default: ROW_SCHEMA) and ``entry_types`` prune; ``time_unit`` is that of the log at ``position``,
    later terms say their own.
    Raises LogDamaged, with the offset in ``buffer``, when the first entry to take is none; a damaged entry
    after others ends the batch before it.
    """
    assert start % FRAME_ALIGNMENT == 0
    assert position % FRAME_ALIGNMENT == 0
    assert 0 <= start <= limit <= buffer.size
    plan = _plan(
        None if columns is None else tuple(columns), None if entry_types is None else tuple(entry_types)
    )
    to_offset = limit if to_position is None else min(limit, start + to_position - position)
    counts = np.zeros(k.COUNT_WORDS, np.int64)
    status, end, rows = k.count_rows(
        buffer, start, to_offset, limit, plan.entry_mask, limit if rows_max is None else rows_max, counts
    )
    slab, layout = _lay_out(plan, rows, counts)
    memory = np.frombuffer(slab, np.uint8)
    scratch = np.empty(counts[k.FRAGMENTED_LENGTH_MAX], np.uint8)
    filled, end, time_unit = k.fill_rows(
        buffer, start, end, limit, position, plan.entry_mask, time_unit, scratch, scratch, memory, layout
    )
    if filled == 0 and (rows > 0 or (status == MALFORMED and end == start)):
        raise LogDamaged(None, end, f"no whole entry at log position {position + end - start}")
    arrays = {column: _array(column, slab, layout, filled) for column in plan.decoded}
    if plan.decoded != plan.columns:
        offsets = arrays[k.POSITION].to_numpy() - position + start
        arrays |= _header_arrays(plan, buffer[: limit & -FRAME_ALIGNMENT], offsets)
    batch = pa.RecordBatch.from_arrays([arrays[c] for c in plan.columns], schema=plan.schema)
    return DecodedLog(batch, position + end - start, time_unit, int(counts[k.OTHER]))


def _lay_out(plan: _Plan, rows: int, counts: np.ndarray) -> tuple[pa.Buffer, np.ndarray]:
    """The memory of all columns that get a value, zeroed but for its data, and where each lies in it."""
    layout = np.full(k.LAYOUT_WORDS, -1, np.int64)
    layout[k.FILLED_AT :] = 0
    present = set(_COMMON)
    for entry_type, columns in _COLUMNS_OF.items():
        if counts[entry_type] > 0:
            present.update(columns)
    laid_out = [column for column in plan.decoded if column in present]
    size = 0
    for column in laid_out:
        if column not in _NEVER_NULL:
            layout[3 * column + k.VALIDITY] = size
            size += _align64((rows + 7) // 8)
    for column in laid_out:
        layout[3 * column + k.VALUES] = size
        size += _align64(_width(column) * rows if _width(column) else 4 * (rows + 1))
    zeroed = size
    for column in laid_out:
        if not _width(column):
            layout[3 * column + k.DATA] = size
            size += _align64(_data_length(column, rows, counts))
    slab = pa.allocate_buffer(size)
    memory = np.frombuffer(slab, np.uint8)
    memory[:zeroed] = 0
    for column in _BITS_SET:
        begin = layout[3 * column + k.VALIDITY]
        if begin >= 0:
            memory[begin : begin + (rows + 7) // 8] = 0xFF
    return slab, layout


def _header_arrays(plan: _Plan, buffer: np.ndarray, offsets: np.ndarray) -> dict[int, pa.Array]:
    """The wanted columns of the frame headers that lie at ``offsets``."""
    headers = buffer.view(DATA_FRAME_HEADER)[offsets // FRAME_ALIGNMENT]
    return {
        column: pa.array(
            headers[HEADER_FIELDS[column - k.COLUMN_COUNT]], FRAME_SCHEMA[column - k.COLUMN_COUNT].type
        )
        for column in plan.columns
        if column >= k.COLUMN_COUNT
    }


def _align64(length: int) -> int:
    return (length + 63) & ~63  # what Arrow asks of its buffers


def _width(column: int) -> int:
    """Bytes of a value, 0 for strings and bytes."""
    return _WIDTHS[column]


_WIDTHS = [
    0 if pa.types.is_string(kind) or pa.types.is_binary(kind) else kind.bit_width // 8
    for kind in ROW_SCHEMA.types
]


def _data_length(column: int, rows: int, counts: np.ndarray) -> int:
    """Bytes that are enough for a column's strings or bytes."""
    if column == k.PAYLOAD:
        return int(counts[k.PAYLOAD_LENGTH])
    if column in (k.RESPONSE_CHANNEL, k.ENCODED_PRINCIPAL):
        return int(counts[k.OPEN_LENGTH])
    if column == k.ENTRY_TYPE:
        lengths = sum(int(counts[kind]) * len(name) for kind, name in enumerate(ENTRY_TYPES))
    else:
        entry_type, name_length = _NAME_LENGTHS[column]
        lengths = int(counts[entry_type]) * name_length
    return lengths + k.WORD_SLACK


def _array(column: int, slab: pa.Buffer, layout: np.ndarray, rows: int) -> pa.Array:
    kind = ROW_SCHEMA.field(column).type
    validity_at, values_at, data_at = layout[3 * column : 3 * column + 3].tolist()
    if values_at < 0:
        return _nulls(kind, rows)
    buffers = [None if validity_at < 0 else slab.slice(validity_at, (rows + 7) // 8)]
    width = _width(column)
    if width:
        buffers.append(slab.slice(values_at, width * rows))
    else:
        buffers.append(slab.slice(values_at, 4 * (rows + 1)))
        end = int.from_bytes(slab.slice(values_at + 4 * rows, 4).to_pybytes(), "little")
        buffers.append(slab.slice(data_at, end))
    return pa.Array.from_buffers(kind, rows, buffers, 0 if validity_at < 0 else -1)


_NULLS: dict[pa.DataType, pa.Array] = {}


def _nulls(kind: pa.DataType, rows: int) -> pa.Array:
    """``rows`` nulls, cut from one array a type that grows when it is too short."""
    nulls = _NULLS.get(kind)
    if nulls is None or len(nulls) < rows:
        nulls = _NULLS[kind] = pa.nulls(max(rows, 1024), kind)
    return nulls.slice(0, rows)
