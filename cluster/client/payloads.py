"""Messages as callers have them, as columns over one buffer."""

from collections.abc import Sequence
from typing import Any, TypeAlias

from cluster.errors import LocalProtocolError
from cluster.log.session_frames import join_payloads
from cluster.protocol.arrays import np
from cluster.service.payload import not_bytes

# A sequence of bytes, (buffer, offsets, lengths), or a pyarrow array of binary or string values.
Payloads: TypeAlias = Sequence[bytes] | tuple[np.ndarray, np.ndarray, np.ndarray] | Any


def as_columns(payloads: Payloads) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(offsets, lengths, buffer), of Arrow and numpy without a copy. Raises LocalProtocolError."""
    if isinstance(payloads, tuple) and len(payloads) == 3 and isinstance(payloads[0], np.ndarray):
        columns: Any = payloads
        buffer, offsets, lengths = columns
        if buffer.dtype != np.uint8 or len(offsets) != len(lengths):
            raise LocalProtocolError(
                "payload columns: expected (uint8 buffer, offsets, lengths) of equal length"
            )
        return (
            np.ascontiguousarray(offsets, np.int64),
            np.ascontiguousarray(lengths, np.int64),
            np.ascontiguousarray(buffer),
        )
    if hasattr(payloads, "type") and hasattr(payloads, "null_count"):
        return _of_arrow(payloads)
    try:
        return join_payloads(payloads)
    except TypeError:
        raise not_bytes(payloads) from None


def _of_arrow(array: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    import pyarrow as pa

    if array.null_count:
        raise LocalProtocolError(f"payload array: {array.null_count} of {len(array)} values are null")
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
        if isinstance(array, pa.ChunkedArray):  # no chunks at all
            array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    kind = array.type
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        width: type[np.signedinteger] = np.int32
    elif pa.types.is_large_binary(kind) or pa.types.is_large_string(kind):
        width = np.int64
    else:
        raise LocalProtocolError(f"payload array: expected binary or string values, got {kind}")
    _, offsets_buffer, data = array.buffers()
    if len(array) == 0:
        empty = np.zeros(0, np.int64)
        return empty, empty, np.zeros(0, np.uint8)
    bounds = np.frombuffer(offsets_buffer, width)[array.offset : array.offset + len(array) + 1].astype(
        np.int64
    )
    buffer = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    return bounds[:-1].copy(), np.diff(bounds), buffer
