"""Distinct error log: each different error once, with how often and when. In cnc.dat and the mark files.

    0            4        8                  16                  24
    | length i4  | count  | last epoch ms    | first epoch ms    | text ... | pad to a multiple of 8

``length`` counts header and text, not the padding; it is written last, and a length <= 0 ends the log.
Source: DistinctErrorLog of Agrona. Pure over a buffer that the caller owns; nothing here does I/O.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from cluster.errors import LogDamaged
from cluster.protocol.frame import align
from cluster.protocol.sbe import Buffer, Composite, i32, i64

ENTRY_ALIGNMENT: Final = 8


class ErrorRecord(Composite):
    """The 24 bytes in front of an error's text."""

    length: i32
    observation_count: i32
    last_observation_timestamp: i64
    first_observation_timestamp: i64


HEADER_LENGTH: Final = ErrorRecord.BLOCK_LENGTH
assert HEADER_LENGTH == 24


class ErrorLogEntry(NamedTuple):
    """One distinct error; ``offset`` is where its record begins, timestamps are epoch ms."""

    offset: int
    length: int  # without padding
    observation_count: int
    first_observation_timestamp: int
    last_observation_timestamp: int
    text: str


def decode_error_log(buffer: Buffer, offset: int = 0) -> Iterator[ErrorLogEntry]:
    """Errors from ``offset`` on; LogDamaged for a length that points outside."""
    limit = len(buffer)
    while offset + HEADER_LENGTH <= limit:
        record = ErrorRecord.decode_record(buffer, offset, limit)
        if record.length <= 0:
            return
        if record.length < HEADER_LENGTH or offset + record.length > limit:
            raise LogDamaged(
                None, offset, f"error log entry of {record.length} bytes, expected 24 to {limit - offset}"
            )
        text = bytes(buffer[offset + HEADER_LENGTH : offset + record.length]).decode("utf-8", "replace")
        yield ErrorLogEntry(
            offset,
            record.length,
            record.observation_count,
            record.first_observation_timestamp,
            record.last_observation_timestamp,
            text,
        )
        offset += align(record.length, ENTRY_ALIGNMENT)


def encode_error(text: str, timestamp: int) -> bytes:
    """The entry of an error first seen at ``timestamp``, without padding."""
    data = text.encode("utf-8")
    return ErrorRecord(HEADER_LENGTH + len(data), 1, timestamp, timestamp).encode_body() + data


def record_error(buffer: Any, text: str, timestamp: int) -> bool:
    """Count the error in the writable ``buffer``: again, if it is there, or as a new one.

    False when the log has no room for it (nothing is written then). The length is stored last, so that a
    reader of a mapped buffer never takes half an entry for a whole one, nor what is left of one for another.
    """
    view = memoryview(buffer).cast("B")
    end = 0
    for entry in decode_error_log(view):
        if entry.text == text:
            again = ErrorRecord(
                entry.length,
                entry.observation_count + 1,
                max(timestamp, entry.last_observation_timestamp),
                entry.first_observation_timestamp,
            )
            view[entry.offset : entry.offset + HEADER_LENGTH] = again.encode_body()
            return True
        end = entry.offset + align(entry.length, ENTRY_ALIGNMENT)
    data = encode_error(text, timestamp)
    if end + len(data) > len(view):
        return False
    view[end + 4 :] = data[4:].ljust(len(view) - end - 4, b"\0")
    view[end : end + 4] = data[:4]
    return True
