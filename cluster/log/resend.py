"""A client's unacknowledged frames, made ready for another leader."""

from cluster.log.frames import align_frame
from cluster.log.kernel import kernel
from cluster.log.memory import BYTES_OUT, I64, get_i32, put_i64
from cluster.protocol.arrays import np
from cluster.protocol.frame import HEADER_LENGTH

LEADERSHIP_TERM_ID_OFFSET = HEADER_LENGTH + 8  # after the frame's and the SBE header


@kernel(I64(BYTES_OUT, I64, I64, I64))
def _skip_messages(buffer, start, end, messages):  # type: ignore[no-untyped-def]
    offset = start
    while messages > 0 and offset < end:
        offset += align_frame(get_i32(buffer, offset))
        messages -= 1
    return offset


@kernel(I64(BYTES_OUT, I64, I64, I64))
def _restamp(buffer, start, end, leadership_term_id):  # type: ignore[no-untyped-def]
    offset = start
    messages = 0
    while offset < end:
        put_i64(buffer, offset + LEADERSHIP_TERM_ID_OFFSET, leadership_term_id)
        offset += align_frame(get_i32(buffer, offset))
        messages += 1
    return messages


@kernel(I64(BYTES_OUT, I64))
def _frame_end(buffer, offset):  # type: ignore[no-untyped-def]
    end = 0
    while end < offset:
        end += align_frame(get_i32(buffer, end))
    return end


def frame_end(buffer: np.ndarray, offset: int) -> int:
    """Return the first end of a frame at or after ``offset``; frames begin at 0 and reach that far."""
    assert 0 <= offset <= buffer.size
    return int(_frame_end(buffer, offset))


def skip_messages(buffer: np.ndarray, start: int, end: int, messages: int) -> int:
    """Return where the frames of ``buffer[start:end]`` go on after the first ``messages`` of them.

    All are whole session messages of ``frame_ingress``.
    """
    assert 0 <= start <= end <= buffer.size
    return int(_skip_messages(buffer, start, end, messages))


def restamp(buffer: np.ndarray, start: int, end: int, leadership_term_id: int) -> int:
    """Put another leadership term id into every frame of ``buffer[start:end]``; return how many there are."""
    assert 0 <= start <= end <= buffer.size
    return int(_restamp(buffer, start, end, leadership_term_id))
