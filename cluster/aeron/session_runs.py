"""Runs of one session's messages, in frames as a client's connection has them, taken by the run.

What is not one frame with a SessionMessageHeader ends a run, and is for Python.
"""

from __future__ import annotations

import numpy as np

from cluster.log.crc import crc_32
from cluster.log.frames import (
    DATA_UNFRAGMENTED,
    SESSION_HEADER_LENGTH,
    SESSION_MESSAGE_SBE_HEADER,
    align_frame,
    put_header,
)
from cluster.log.kernel import kernel, routine
from cluster.log.memory import BYTES, BYTES_OUT, I64, WORDS, WORDS_OUT, get_i32, get_i64
from cluster.log.message_columns import MessageColumns
from cluster.protocol import streams
from cluster.protocol.frame import HEADER_LENGTH, STREAM_ID_AT, VERSION_AT

_OVERHEAD = HEADER_LENGTH + SESSION_HEADER_LENGTH
_WITHOUT_VERSION = 0xFFFF_FFFF_FFFF  # of the SBE header


@routine
def _message_end(run, at, limit, session_id):  # type: ignore[no-untyped-def]
    """End of the frame at ``at`` if it has a message of the session, else ``at``."""
    if limit - at < _OVERHEAD or get_i32(run, at + VERSION_AT) != DATA_UNFRAGMENTED:
        return at
    length = get_i32(run, at)
    end = at + align_frame(length)
    sbe_header = get_i64(run, at + HEADER_LENGTH)
    if length < _OVERHEAD or end > limit:
        return at
    if (sbe_header ^ SESSION_MESSAGE_SBE_HEADER) & _WITHOUT_VERSION:
        return at
    return end if get_i64(run, at + HEADER_LENGTH + 16) == session_id else at


@kernel(I64(BYTES, I64, I64, I64, I64))
def _ingress_end(run, at, limit, session_id, leadership_term_id):  # type: ignore[no-untyped-def]
    while True:
        end = _message_end(run, at, limit, session_id)
        if end == at or get_i32(run, at + STREAM_ID_AT) != streams.INGRESS:
            return at
        if get_i64(run, at + HEADER_LENGTH + 8) != leadership_term_id:
            return at
        at = end


def ingress_end(run: np.ndarray, start: int, end: int, session_id: int, leadership_term_id: int) -> int:
    """Where the messages end that ``run[start:end]`` begins with, sent by the session in this term."""
    assert 0 <= start <= end <= run.size
    return int(_ingress_end(run, start, end, session_id, leadership_term_id))


@kernel(I64(BYTES_OUT, I64, I64, I64))
def _take_egress(run, at, limit, session_id):  # type: ignore[no-untyped-def]
    while True:
        end = _message_end(run, at, limit, session_id)
        if end == at:
            return at
        put_header(run, at, get_i32(run, at), DATA_UNFRAGMENTED, 0, 0, streams.EGRESS, 0)
        at = end


def take_egress(run: np.ndarray, start: int, session_id: int) -> int:
    """Where the messages to the session end that ``run[start:]`` begins with; their frames get our header."""
    assert 0 <= start <= run.size
    return int(_take_egress(run, start, run.size, session_id))


@kernel(I64(BYTES, I64, I64, WORDS_OUT))
def _checksums_of_frames(run, at, end, out):  # type: ignore[no-untyped-def]
    count = 0
    while at < end:
        frame_end = at + get_i32(run, at)
        out[count] = crc_32(run, at + _OVERHEAD, frame_end)
        count += 1
        at += align_frame(frame_end - at)
    return count


def checksums_of_frames(run: np.ndarray, start: int, end: int) -> list[int]:
    """CRC-32 of the payload of each message of ``run[start:end]``, which ``ingress_end`` has found."""
    assert 0 <= start <= end <= run.size
    out = np.empty((end - start) // _OVERHEAD, np.int64)
    found: list[int] = out[: _checksums_of_frames(run, start, end, out)].tolist()
    return found


@kernel(I64(BYTES, WORDS, WORDS, WORDS_OUT))
def _checksums(buffer, offsets, lengths, out):  # type: ignore[no-untyped-def]
    for row in range(out.size):
        out[row] = crc_32(buffer, offsets[row], offsets[row] + lengths[row])
    return out.size


def checksums_of_rows(messages: MessageColumns, rows: np.ndarray) -> list[int]:
    """CRC-32 of the payloads of these rows."""
    out = np.empty(rows.size, np.int64)
    _checksums(messages.buffer, messages.offsets[rows], messages.lengths[rows], out)
    found: list[int] = out.tolist()
    return found
