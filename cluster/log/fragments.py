"""Frames as rows, of a recording that is no cluster's log: nothing is known of what they hold."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from cluster.log.columns import FRAME_SCHEMA, HEADER_FIELDS, schema_of
from cluster.log.scan import frame_starts
from cluster.protocol.catalog import RecordingDescriptor
from cluster.protocol.frame import DATA_FRAME_HEADER, FRAME_ALIGNMENT, HEADER_LENGTH, TYPE_DATA

# What a fragment has, of ROW_SCHEMA and FRAME_SCHEMA; the other columns are null.
FRAGMENT_SCHEMA = schema_of(("position", "endPosition", "payload", *FRAME_SCHEMA.names))


def fragments_to_record_batch(
    run: np.ndarray,
    position: int,
    to_position: int | None,
    columns: Iterable[str] | None,
    recording: RecordingDescriptor,
) -> pa.RecordBatch:
    """The data frames of a run of whole frames, from ``position`` on, that begin before ``to_position``.

    A replay has a session and stream of its own: each row has those of the ``recording``.
    ``columns`` are names of ROW_SCHEMA and FRAME_SCHEMA, by default those of FRAGMENT_SCHEMA.
    """
    schema = FRAGMENT_SCHEMA if columns is None else schema_of(columns)
    starts = frame_starts(run)
    headers = run.view(DATA_FRAME_HEADER)[starts // FRAME_ALIGNMENT]
    wanted = headers["type"] == TYPE_DATA
    if to_position is not None:
        wanted &= starts + position < to_position
    starts, headers = starts[wanted], headers[wanted]
    ends = starts + headers["frame_length"]
    values: dict[str, Any] = {name: headers[it] for name, it in zip(FRAME_SCHEMA.names, HEADER_FIELDS)}
    values["frameSessionId"] = np.full(len(starts), recording.session_id)
    values["streamId"] = np.full(len(starts), recording.stream_id)
    values["position"] = starts + position
    values["endPosition"] = position - (-ends // FRAME_ALIGNMENT) * FRAME_ALIGNMENT
    if "payload" in schema.names:
        data = run.tobytes()
        values["payload"] = [data[start + HEADER_LENGTH : end] for start, end in zip(starts, ends)]
    arrays = [
        pa.array(values[name], kind) if name in values else pa.nulls(len(starts), kind)
        for name, kind in zip(schema.names, schema.types)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
