"""What clients send, into the leader's log: the check, the stamp and the framing of a run in one call.

    ingress   header | SBE header | term id, session id, timestamp | payload     one frame a message
    log       header | SBE header | term id, session id, CLUSTER TIME | payload  fragmented at the MTU

The rules are those of Aeron's IngressAdapter and ConsensusModuleAgent (C-200, C-202, C-203, C-215): a message
or keep-alive counts when its leadership term id is the current one and its session is open and came over this
connection; else it is dropped, silently, and counted. Whatever is not one of these two goes to Python.
Messages of a retained session (SessionRetained) are dropped, too: its client knows, and sends them again.
"""

import numpy as np
from numba import types

from cluster.log.append import put_message
from cluster.log.frames import (
    CLUSTER_SESSION_ID_AT,
    DATA_UNFRAGMENTED,
    DONE,
    LEADERSHIP_TERM_ID_AT,
    MALFORMED,
    MESSAGE_LENGTH_MAX,
    MTU,
    OTHER_MESSAGE,
    OUT_FULL,
    SBE_HEADER_LENGTH,
    SCHEMA_ID,
    SESSION_HEADER_LENGTH,
    SESSION_MESSAGE_BLOCK,
    SESSION_MESSAGE_HEADER,
    TERM_LENGTH,
    TOO_LONG,
    UNLINKED,
    LogParams,
    align_frame,
    framed_length,
    padding_before,
    put_padding,
    put_session_header,
)
from cluster.log.kernel import kernel
from cluster.log.memory import BYTES, BYTES_OUT, I64, WORDS, WORDS_OUT, get_i32, get_i64, get_u16
from cluster.log.session_table import (
    ACTIVE_NS,
    APPENDED,
    CONNECTION_ID,
    DROPPED_SESSION,
    DROPPED_TERM,
    KEEP_ALIVES,
    MESSAGES,
    OPEN,
    RETAINED,
    STATE,
    SessionTable,
    find_slot,
)
from cluster.protocol import streams
from cluster.protocol.frame import FRAME_ALIGNMENT, HEADER_LENGTH, STREAM_ID_AT, VERSION_AT
from cluster.protocol.sbe import NULL_VALUE, SCHEMA_ID_AT, TEMPLATE_ID_AT
from cluster.protocol.session import SessionKeepAlive

SESSION_KEEP_ALIVE, SESSION_KEEP_ALIVE_BLOCK = SessionKeepAlive.TEMPLATE_ID, SessionKeepAlive.BLOCK_LENGTH


@kernel(types.UniTuple(I64, 3)(BYTES_OUT, I64, I64, WORDS, BYTES, I64, I64, WORDS_OUT, I64, I64, I64, I64))
def append_run(  # type: ignore[no-untyped-def]
    out,
    out_offset,
    position,
    params,
    ingress,
    offset,
    end,
    table,
    connection_id,
    leadership_term_id,
    timestamp,
    now_ns,
):
    last_session_id = NULL_VALUE
    slot = -1
    while end - offset >= HEADER_LENGTH:
        frame_length = get_i32(ingress, offset)
        if frame_length < HEADER_LENGTH:
            return MALFORMED, position, offset
        frame_end = offset + align_frame(frame_length)
        if frame_end > end:
            break
        if (
            get_i32(ingress, offset + VERSION_AT) != DATA_UNFRAGMENTED
            or get_i32(ingress, offset + STREAM_ID_AT) != streams.INGRESS
            or frame_length < HEADER_LENGTH + SBE_HEADER_LENGTH
        ):
            return OTHER_MESSAGE, position, offset
        message = offset + HEADER_LENGTH
        block_length = get_u16(ingress, message)
        template_id = get_u16(ingress, message + TEMPLATE_ID_AT)
        is_message = template_id == SESSION_MESSAGE_HEADER
        is_ours = is_message or template_id == SESSION_KEEP_ALIVE
        if not is_ours or get_u16(ingress, message + SCHEMA_ID_AT) != SCHEMA_ID:
            return OTHER_MESSAGE, position, offset
        block_length_min = SESSION_MESSAGE_BLOCK if is_message else SESSION_KEEP_ALIVE_BLOCK
        payload_length = frame_length - HEADER_LENGTH - SBE_HEADER_LENGTH - block_length
        if block_length < block_length_min or payload_length < 0:
            return MALFORMED, position, offset

        session_id = get_i64(ingress, message + CLUSTER_SESSION_ID_AT)
        if session_id != last_session_id:
            last_session_id = session_id
            slot = find_slot(table, session_id)
        if get_i64(ingress, message + LEADERSHIP_TERM_ID_AT) != leadership_term_id:
            table[DROPPED_TERM] += 1
            offset = frame_end
            continue
        if slot >= 0 and table[slot + CONNECTION_ID] == NULL_VALUE and table[slot + STATE] == OPEN:
            return UNLINKED, position, offset
        if slot < 0 or table[slot + STATE] != OPEN or table[slot + CONNECTION_ID] != connection_id:
            table[DROPPED_SESSION] += 1
            offset = frame_end
            continue

        if is_message and table[slot + RETAINED] != 0:
            table[DROPPED_SESSION] += 1
            table[slot + ACTIVE_NS] = now_ns
            offset = frame_end
            continue

        if is_message:
            length = SESSION_HEADER_LENGTH + payload_length
            if length > params[MESSAGE_LENGTH_MAX]:
                return TOO_LONG, position, offset
            required = framed_length(length, params[MTU])
            padding = padding_before(position, required, params[TERM_LENGTH])
            if padding + required > out.size - out_offset:
                return OUT_FULL, position, offset
            if padding > 0:
                put_padding(out, out_offset, position, padding, params)
                out_offset += padding
                position += padding
            # A newer client's block may be longer: the log's own header goes right before the payload.
            put_message(
                out,
                out_offset,
                position,
                params,
                ingress,
                message + block_length - SESSION_MESSAGE_BLOCK,
                length,
            )
            put_session_header(out, out_offset + HEADER_LENGTH, leadership_term_id, session_id, timestamp)
            out_offset += required
            position += required
            table[slot + APPENDED] += 1
            table[MESSAGES] += 1
        else:
            table[KEEP_ALIVES] += 1
        table[slot + ACTIVE_NS] = now_ns
        offset = frame_end
    return DONE, position, offset


def append_ingress(
    out: np.ndarray,
    out_offset: int,
    position: int,
    params: LogParams,
    ingress: np.ndarray,
    start: int,
    end: int,
    table: SessionTable,
    connection_id: int,
    leadership_term_id: int,
    timestamp: int,
    now_ns: int,
) -> tuple[int, int, int]:
    """Append the session messages of ``ingress[start:end]`` to the log; return (status, position, consumed).

    ``out[out_offset]`` is the byte at ``position``; the bytes up to the returned position are written.
    ``now_ns``, of the monotonic clock, is when their sessions were heard.
    ``consumed`` is the offset in ``ingress`` of the first frame not taken. With DONE, what is left there is
    less than a frame; with any other status the frame at ``consumed`` is the caller's to handle and step over
    (OUT_FULL: write ``out``, and call again from there). Nobody's message delays another connection's.
    """
    assert position % FRAME_ALIGNMENT == 0
    assert 0 <= out_offset <= out.size
    assert 0 <= start <= end <= ingress.size
    return append_run(
        out,
        out_offset,
        position,
        params.words,
        ingress,
        start,
        end,
        table.words,
        connection_id,
        leadership_term_id,
        timestamp,
        now_ns,
    )
