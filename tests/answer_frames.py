"""The frame of one answer of a service, as a leader sends it."""

from cluster.protocol import streams
from cluster.protocol.frame import frame
from cluster.protocol.session import SessionMessageHeader


def answer_frame(
    leadership_term_id: int,
    session_id: int,
    payload: bytes,
    *,
    timestamp: int = 0,
    answered: int = 0,
    answer_id: int = 0,
) -> bytes:
    """``answered``: the number of the message that it answers; ``answer_id``: 0 to others."""
    number = answered.to_bytes(8, "little")
    return frame(
        SessionMessageHeader(leadership_term_id, session_id, timestamp).encode() + payload,
        term_offset=int.from_bytes(number[:4], "little", signed=True),
        session_id=int.from_bytes(number[4:], "little", signed=True),
        stream_id=streams.EGRESS,
        reserved_value=answer_id,
    )
