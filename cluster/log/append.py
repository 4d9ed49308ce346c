"""Messages into the log, framed as Aeron's ExclusivePublication frames them.

A message longer than the MTU allows is fragmented; all its frames lie in one term, and where they would not
fit, a padding frame fills the term first (spec: a message never crosses a term's end). The caller owns the
array and the position: append, write out, start again at the array's start.
"""

import numpy as np

from cluster.log.frames import (
    INITIAL_TERM_ID,
    MTU,
    POSITION_BITS,
    SESSION_ID,
    STREAM_ID,
    TERM_LENGTH,
    LogParams,
    align_frame,
    framed_length,
    padding_before,
    put_header,
    put_padding,
    wrap_i32,
)
from cluster.log.kernel import kernel, routine
from cluster.log.memory import BYTES, BYTES_OUT, I64, WORDS, copy_bytes, put_i64
from cluster.protocol.frame import FLAG_BEGIN, FLAG_END, FRAME_ALIGNMENT, HEADER_LENGTH, TYPE_DATA

BACK_PRESSURED = -2  # as Aeron's publications say it: not now, offer again when the output is empty


@routine
def put_message(out, out_offset, position, params, source, offset, length):  # type: ignore[no-untyped-def]
    """Frame ``source[offset:offset + length]`` at ``position``; it is known to fit the term and ``out``."""
    term_id = wrap_i32((position >> params[POSITION_BITS]) + params[INITIAL_TERM_ID])
    term_offset = position & (params[TERM_LENGTH] - 1)
    max_payload = params[MTU] - HEADER_LENGTH
    flags = FLAG_BEGIN
    done = 0
    begin = out_offset
    while flags & FLAG_END == 0:
        piece = min(length - done, max_payload)
        if done + piece == length:
            flags |= FLAG_END
        frame_length = piece + HEADER_LENGTH
        end = begin + align_frame(frame_length)
        # Zeros after the payload first: whole words that the payload then overwrites in part.
        for word in range(end - 32, end, 8):
            put_i64(out, word, 0)
        flags_and_type = flags << 8 | TYPE_DATA << 16
        put_header(
            out,
            begin,
            frame_length,
            flags_and_type,
            term_offset,
            params[SESSION_ID],
            params[STREAM_ID],
            term_id,
        )
        copy_bytes(out, begin + HEADER_LENGTH, source, offset + done, piece)
        term_offset += end - begin
        done += piece
        begin = end
        flags &= ~FLAG_BEGIN


@kernel(I64(BYTES_OUT, I64, I64, WORDS, BYTES))
def _append_message(out, out_offset, position, params, message):  # type: ignore[no-untyped-def]
    required = framed_length(message.size, params[MTU])
    padding = padding_before(position, required, params[TERM_LENGTH])
    if padding + required > out.size - out_offset:
        return BACK_PRESSURED
    if padding > 0:
        put_padding(out, out_offset, position, padding, params)
    put_message(out, out_offset + padding, position + padding, params, message, 0, message.size)
    return position + padding + required


def append_message(out: np.ndarray, out_offset: int, position: int, params: LogParams, message: bytes) -> int:
    """Append one message (SBE header included); return the position after it, or BACK_PRESSURED.

    ``out[out_offset]`` is the byte at ``position``; of ``out`` exactly the bytes from ``position`` to the
    returned position are written. BACK_PRESSURED when ``out`` is too short; nothing is written then.
    An output of ``params.batch_length_min`` bytes is always long enough.
    """
    assert position % FRAME_ALIGNMENT == 0
    assert 0 <= out_offset <= out.size
    assert 0 < len(message) <= params.message_length_max
    return _append_message(out, out_offset, position, params.words, np.frombuffer(message, np.uint8))


@kernel(I64(I64, I64, WORDS))
def _message_end_position(position, length, params):  # type: ignore[no-untyped-def]
    required = framed_length(length, params[MTU])
    return position + padding_before(position, required, params[TERM_LENGTH]) + required


def message_end_position(position: int, length: int, params: LogParams) -> int:
    """Position after a message of ``length`` that is appended at ``position``, with the padding it needs.

    For the ``logPosition`` inside ClusterActionRequest and NewLeadershipTermEvent (Aeron's LogPublisher).
    """
    assert position % FRAME_ALIGNMENT == 0
    assert 0 < length <= params.message_length_max
    return _message_end_position(position, length, params.words)
