"""What comes over a connection in a busy turn: whole frames, and half a frame that waits for its rest.

Half a frame waits in a row of ``parts``, as ``transport/sockets.py`` has it, too: it comes first with the
connection's next bytes, whoever receives them.
"""

from cluster.log.connection_table import (
    FRAME_LENGTH_MAX,
    HEARD_NS,
    IS_PART_NEW,
    KIND,
    LINK_IN,
    PART_BYTES,
    PART_LENGTH,
    PART_ROW,
    ROW_WORDS,
    drop_part,
    keep_part,
)
from cluster.log.kernel import routine
from cluster.log.memory import copy_bytes
from cluster.log.runs import NOT_A_FRAME, find_whole_frames
from cluster.member.busy import words as at
from cluster.member.busy.system import WOULD_BLOCK, receive
from cluster.protocol.frame import HEADER_LENGTH
from cluster.transport.envelopes import is_envelope


@routine
def receive_frames(t, descriptor, is_log_allowed):  # type: ignore[no-untyped-def]
    """Receive; returns where the bytes in ``received`` end and where the whole frames, and what follows them.

    All are 0 when nothing came.
    """
    row = descriptor * ROW_WORDS
    kept = t.connections[row + PART_LENGTH]
    if kept > 0:
        copy_bytes(t.received, 0, t.parts, t.connections[row + PART_ROW] * PART_BYTES, kept)
    length = receive(t, descriptor, kept)
    if length <= 0:
        if length != -WOULD_BLOCK:
            t.words[at.REASON] |= at.EVENT
        return 0, 0, 0
    t.connections[row + HEARD_NS] = t.words[at.NOW_NS]
    if kept == 0:
        t.connections[row + IS_PART_NEW] = 1
    drop_part(t.connections, t.keepers, descriptor)
    end, follows = find_whole_frames(
        t.received, 0, kept + length, t.connections[row + FRAME_LENGTH_MAX], is_log_allowed
    )
    return kept + length, end, follows


@routine
def leave(t, descriptor, begin, received, end, follows):  # type: ignore[no-untyped-def]
    """What was not taken: half a frame waits here for the rest, all else is for Python."""
    if begin == received:
        return
    w = t.words
    if begin > 0:
        t.connections[descriptor * ROW_WORDS + IS_PART_NEW] = 1
    is_part = begin == end and follows != NOT_A_FRAME
    if is_part and t.connections[descriptor * ROW_WORDS + KIND] == LINK_IN:
        is_part = received - begin < HEADER_LENGTH or is_envelope(t.received, begin)
    is_kept = is_part and keep_part(
        t.connections, t.keepers, t.parts, descriptor, follows, t.received, begin, received
    )
    if not is_kept:
        w[at.GIVEN], w[at.GIVEN_BEGIN], w[at.GIVEN_END] = descriptor, begin, received
        w[at.REASON] |= at.FRAMES
