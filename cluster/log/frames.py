"""A frame, a message, a position: what all kernels agree on.

    frame     32-byte header, payload, zeros up to the next multiple of 32
    message   one frame with BEGIN and END, or a first, middle and last ones that follow each other
    position  term count << bits | offset in the term

``next_message`` is the one place that decides where a message ends and what is skipped, by the rules of
Aeron's fragment assembly (LogAdapter, BoundedLogAdapter): padding is skipped, and so is a fragment whose
predecessor is not there.
"""

from dataclasses import dataclass, field

from cluster.log.kernel import routine
from cluster.log.memory import copy_bytes, get_i32, get_u8, get_u16, put_i64, zero_bytes
from cluster.protocol import sbe, streams
from cluster.protocol.arrays import np
from cluster.protocol.frame import (
    FLAG_BEGIN,
    FLAG_END,
    FLAGS_AT,
    FLAGS_UNFRAGMENTED,
    FRAME_ALIGNMENT,
    HEADER_LENGTH,
    MTU_MAX,
    TERM_LENGTH_MAX,
    TERM_LENGTH_MIN,
    TYPE_AT,
    TYPE_DATA,
    TYPE_PAD,
    VERSION_AT,
    message_length_max,
)
from cluster.protocol.session import SessionMessageHeader

DATA_UNFRAGMENTED = FLAGS_UNFRAGMENTED << 8 | TYPE_DATA << 16  # an i32 that most frames have at VERSION_AT

SBE_HEADER_LENGTH = sbe.HEADER_LENGTH
SCHEMA_ID = sbe.CLUSTER.id
SESSION_MESSAGE_HEADER = SessionMessageHeader.TEMPLATE_ID
SESSION_MESSAGE_BLOCK = SessionMessageHeader.BLOCK_LENGTH
LEADERSHIP_TERM_ID_AT = SBE_HEADER_LENGTH + SessionMessageHeader.offset_of("leadership_term_id")
CLUSTER_SESSION_ID_AT = SBE_HEADER_LENGTH + SessionMessageHeader.offset_of("cluster_session_id")
TIMESTAMP_AT = SBE_HEADER_LENGTH + SessionMessageHeader.offset_of("timestamp")
# What stands before an application's payload.
SESSION_HEADER_LENGTH = SBE_HEADER_LENGTH + SESSION_MESSAGE_BLOCK
SESSION_MESSAGE_SBE_HEADER = (
    SESSION_MESSAGE_BLOCK | SESSION_MESSAGE_HEADER << 16 | SCHEMA_ID << 32 | sbe.CLUSTER.version << 48
)

# CommitAck of our own schema, whose module the cache is not checked by (a test compares them), in its frame.
COMMIT_ACK_SBE_HEADER = 32 | 3 << 16 | 1111 << 32 | 1 << 48
COMMIT_ACK_FRAME_LENGTH = HEADER_LENGTH + SBE_HEADER_LENGTH + 32

# Why a kernel came back. Each says how far it came; what it stopped at begins there.
DONE = 0  # all that is whole was taken
OUT_FULL = 1  # the next message does not fit the output: empty it and call again
OTHER_MESSAGE = 2  # something for Python: another template, stream or schema
MALFORMED = 3  # bytes that nobody obeying the protocol sends or writes
TOO_LONG = 4  # of ingress, longer than the log takes: close its session with an error, skip it
UNLINKED = 5  # of ingress, an open session of this term without a connection (a new leader)

# What next_message found. No number is also one of those above.
WHOLE = 8  # an unfragmented message
FRAGMENTED = 9  # a whole message in several frames
SKIP = 10  # padding, or fragments without a first frame
INCOMPLETE = 11  # a message whose end lies beyond the limit, or nothing at all
DAMAGED = 12  # a length that no frame below the limit has

# Words of LogParams.words.
TERM_LENGTH, MTU, INITIAL_TERM_ID, SESSION_ID, STREAM_ID, POSITION_BITS, MESSAGE_LENGTH_MAX = range(7)


@dataclass(frozen=True, slots=True)
class LogParams:
    """What does not change while one leader writes the log: its geometry and the ids in every header.

    ``words`` is the same for kernels, which take one array faster than seven integers.
    """

    term_length: int
    mtu: int
    initial_term_id: int
    session_id: int
    stream_id: int = streams.LOG
    words: np.ndarray = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        bits = self.term_length.bit_length() - 1
        assert self.term_length == 1 << bits
        assert TERM_LENGTH_MIN <= self.term_length <= TERM_LENGTH_MAX
        # The session header of a message has to fit the first of its fragments.
        assert self.mtu % FRAME_ALIGNMENT == 0
        assert HEADER_LENGTH + SESSION_HEADER_LENGTH <= self.mtu <= MTU_MAX
        words = [self.term_length, self.mtu, self.initial_term_id, self.session_id, self.stream_id, bits]
        object.__setattr__(self, "words", np.array([*words, self.message_length_max], np.int64))

    @property
    def position_bits(self) -> int:
        """Bits to shift a term count by to have a position."""
        return self.term_length.bit_length() - 1

    @property
    def position_max(self) -> int:
        """Where a log ends for ever: term ids are 32 bits wide (Aeron: Publication.maxPossiblePosition)."""
        return self.term_length << 31

    @property
    def message_length_max(self) -> int:
        """Longest message, SBE header included."""
        return message_length_max(self.term_length)

    @property
    def batch_length_min(self) -> int:
        """Bytes that are always enough for one message: the padding before it, and the message framed."""
        max_payload = self.mtu - HEADER_LENGTH
        frames = -(-self.message_length_max // max_payload)
        return 2 * frames * self.mtu


@routine
def align_frame(length):  # type: ignore[no-untyped-def]
    return (length + 31) & ~31


@routine
def wrap_i32(value):  # type: ignore[no-untyped-def]
    return ((value + 0x8000_0000) & 0xFFFF_FFFF) - 0x8000_0000


@routine
def put_header(out, offset, frame_length, flags_and_type, term_offset, session_id, stream_id, term_id):  # type: ignore[no-untyped-def]
    """Write 32 bytes: ``flags_and_type`` is the i32 of version, flags and type; the reserved value is 0."""
    put_i64(out, offset, frame_length | flags_and_type << 32)
    put_i64(out, offset + 8, term_offset | session_id << 32)
    put_i64(out, offset + 16, stream_id & 0xFFFF_FFFF | term_id << 32)
    put_i64(out, offset + 24, 0)


@routine
def put_session_header(out, offset, leadership_term_id, cluster_session_id, timestamp):  # type: ignore[no-untyped-def]
    """Write the 32 bytes of SessionMessageHeader, SBE header included."""
    put_i64(out, offset, SESSION_MESSAGE_SBE_HEADER)
    put_i64(out, offset + LEADERSHIP_TERM_ID_AT, leadership_term_id)
    put_i64(out, offset + CLUSTER_SESSION_ID_AT, cluster_session_id)
    put_i64(out, offset + TIMESTAMP_AT, timestamp)


@routine
def framed_length(length, mtu):  # type: ignore[no-untyped-def]
    """Aligned bytes that a message takes, in as many frames as it needs."""
    max_payload = mtu - HEADER_LENGTH
    if length <= max_payload:
        return align_frame(length + HEADER_LENGTH)
    rest = length % max_payload
    last = align_frame(rest + HEADER_LENGTH) if rest > 0 else 0
    return length // max_payload * mtu + last


@routine
def padding_before(position, required, term_length):  # type: ignore[no-untyped-def]
    """Bytes to pad at ``position`` so that ``required`` ones do not cross the end of the term."""
    rest = term_length - (position & (term_length - 1))
    return rest if rest < required else 0


@routine
def put_padding(out, out_offset, position, length, params):  # type: ignore[no-untyped-def]
    """Write the frame that fills a term up to its end, its body zero."""
    term_id = wrap_i32((position >> params[POSITION_BITS]) + params[INITIAL_TERM_ID])
    term_offset = position & (params[TERM_LENGTH] - 1)
    flags_and_type = FLAGS_UNFRAGMENTED << 8 | TYPE_PAD << 16
    put_header(
        out, out_offset, length, flags_and_type, term_offset, params[SESSION_ID], params[STREAM_ID], term_id
    )
    zero_bytes(out, out_offset + HEADER_LENGTH, length - HEADER_LENGTH)


@routine
def next_message(buffer, offset, limit):  # type: ignore[no-untyped-def]
    """What begins at the frame at ``offset``, and where it ends (for INCOMPLETE and DAMAGED: ``offset``)."""
    if limit - offset < HEADER_LENGTH:
        return INCOMPLETE, offset
    frame_length = get_i32(buffer, offset)
    if frame_length < HEADER_LENGTH:
        return DAMAGED, offset
    end = offset + align_frame(frame_length)
    if end > limit:
        return INCOMPLETE, offset
    if get_i32(buffer, offset + VERSION_AT) == DATA_UNFRAGMENTED:
        return WHOLE, end
    flags = get_u8(buffer, offset + FLAGS_AT) & FLAGS_UNFRAGMENTED
    if get_u16(buffer, offset + TYPE_AT) != TYPE_DATA or not flags & FLAG_BEGIN:
        return SKIP, end
    if flags & FLAG_END:
        return WHOLE, end
    while True:
        begin = end
        if limit - begin < HEADER_LENGTH:
            return INCOMPLETE, offset
        frame_length = get_i32(buffer, begin)
        if frame_length < HEADER_LENGTH:
            return SKIP, begin  # the damage is reported when it is reached
        end = begin + align_frame(frame_length)
        if end > limit:
            return INCOMPLETE, offset
        flags = get_u8(buffer, begin + FLAGS_AT) & FLAGS_UNFRAGMENTED
        if get_u16(buffer, begin + TYPE_AT) != TYPE_DATA or flags & FLAG_BEGIN:
            return SKIP, begin
        if flags & FLAG_END:
            return FRAGMENTED, end


@routine
def gather(buffer, offset, end, out, out_offset):  # type: ignore[no-untyped-def]
    """Copy the payloads of the frames in ``buffer[offset:end]`` one after the other; return their end."""
    while offset < end:
        frame_length = get_i32(buffer, offset)
        copy_bytes(out, out_offset, buffer, offset + HEADER_LENGTH, frame_length - HEADER_LENGTH)
        out_offset += frame_length - HEADER_LENGTH
        offset += align_frame(frame_length)
    return out_offset
