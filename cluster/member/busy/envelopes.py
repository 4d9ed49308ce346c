"""Frames between members in a busy turn: sealed by ``transport/envelopes.py``, and sent.

What a socket does not take is put into ``unsent``, for Python to offer: from then on all for that socket goes
there, until Python has seen to it. Where ``unsent`` is full, Python closes the connection: it would go on
after a gap.
"""

from cluster.log.calls import address_of
from cluster.log.connection_table import CRC, IS_CUT, IS_QUEUED, ROW_WORDS, STATE
from cluster.log.crc import extend_crc_32
from cluster.log.frames import DATA_UNFRAGMENTED, SBE_HEADER_LENGTH
from cluster.log.kernel import routine
from cluster.log.memory import copy_bytes, get_i32, get_i64, put_i64
from cluster.member.busy import words as at
from cluster.member.busy.system import send
from cluster.protocol.consensus import AppendPosition, CommitPosition
from cluster.protocol.frame import HEADER_LENGTH, STREAM_ID_AT, VERSION_AT, align
from cluster.protocol.sbe import Message
from cluster.protocol.streams import CONSENSUS
from cluster.transport.envelopes import put_envelope

# Messages of every turn, in a frame of their own: SBE header, then the block.
SBE_AT, BLOCK_AT = HEADER_LENGTH, HEADER_LENGTH + SBE_HEADER_LENGTH
KIND_MASK = 0xFFFF_FFFF << 16


def kind_of(message: type[Message]) -> int:
    """Template and schema, as ``KIND_MASK`` leaves them of its SBE header."""
    template_id, schema_id = message.KIND
    return template_id << 16 | schema_id << 32


# Of both term and position lie in the same place.
APPEND_POSITION_KIND, COMMIT_POSITION_KIND = kind_of(AppendPosition), kind_of(CommitPosition)
LEADERSHIP_TERM_AT = BLOCK_AT + AppendPosition.offset_of("leadership_term_id")
POSITION_AT = BLOCK_AT + AppendPosition.offset_of("log_position")
REPORT_FLAGS_AT = BLOCK_AT + AppendPosition.offset_of("flags")
POSITION_FRAME_LENGTH_MIN = HEADER_LENGTH + CommitPosition.ENCODED_LENGTH
POSITION_FRAME_LENGTH = align(HEADER_LENGTH + AppendPosition.ENCODED_LENGTH)


@routine
def offer(t, descriptor, a_bytes, a, a_length, b_bytes, b, b_length):  # type: ignore[no-untyped-def]
    """Send two pieces of arrays, as one; False when they were not and will not be sent."""
    row = descriptor * ROW_WORDS
    taken = 0
    length = a_length + b_length
    if t.connections[row + STATE] & IS_CUT:
        return False
    if t.connections[row + STATE] == 0:
        taken = send(t, descriptor, address_of(a_bytes, a), a_length, address_of(b_bytes, b), b_length)
        if taken == length and t.connections[row + STATE] == 0:
            return True
        taken = max(taken, 0)  # Python's own attempt finds out why it was none
    begin = t.words[at.UNSENT_END]
    rest = length - taken
    t.connections[row + STATE] |= IS_QUEUED
    t.words[at.REASON] |= at.UNSENT
    put_i64(t.unsent, begin, descriptor)
    if rest + 24 > t.unsent.size - begin - t.connections.size:  # 16 bytes for the end of each connection
        put_i64(t.unsent, begin + 8, at.IS_TO_CLOSE)
        t.words[at.UNSENT_END] += 16
        t.connections[row + STATE] |= IS_CUT
        return False
    put_i64(t.unsent, begin + 8, rest)
    begin += 16
    if taken < a_length:
        copy_bytes(t.unsent, begin, a_bytes, a + taken, a_length - taken)
        begin += a_length - taken
        taken = a_length
    copy_bytes(t.unsent, begin, b_bytes, b + taken - a_length, length - taken)
    t.words[at.UNSENT_END] += 16 + (rest + 7 & ~7)
    return True


@routine
def send_sealed(t, descriptor, has_position, source, begin, end):  # type: ignore[no-untyped-def]
    """Send whole frames in one envelope, first of them the position that lies ready; False: not taken."""
    row = descriptor * ROW_WORDS
    out = t.scratch
    length = POSITION_FRAME_LENGTH if has_position else 0
    crc = extend_crc_32(t.connections[row + CRC], out, at.FRAME_AT, at.FRAME_AT + length)
    crc = extend_crc_32(crc, source, begin, end)
    header_length = HEADER_LENGTH + length
    put_envelope(out, at.HEADER_AT, length + end - begin, crc)
    if not offer(t, descriptor, out, at.HEADER_AT, header_length, source, begin, end - begin):
        return False
    t.connections[row + CRC] = crc
    return True


@routine
def set_position(t, term_id, position):  # type: ignore[no-untyped-def]
    """Fill in the AppendPosition or CommitPosition whose frame lies ready."""
    put_i64(t.scratch, at.FRAME_AT + LEADERSHIP_TERM_AT, term_id)
    put_i64(t.scratch, at.FRAME_AT + POSITION_AT, position)


@routine
def is_position_message(buffer, offset, end, kind):  # type: ignore[no-untyped-def]
    """Whether the frame there is a whole message of this kind."""
    return (
        get_i32(buffer, offset) >= POSITION_FRAME_LENGTH_MIN
        and get_i32(buffer, offset + VERSION_AT) == DATA_UNFRAGMENTED
        and get_i32(buffer, offset + STREAM_ID_AT) == CONSENSUS
        and offset + POSITION_FRAME_LENGTH <= end
        and get_i64(buffer, offset + SBE_AT) & KIND_MASK == kind
    )
