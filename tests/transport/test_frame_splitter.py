"""A stream of bytes, cut where frames end: nothing whole is held back, and nothing that is not goes on."""

from __future__ import annotations

import pytest

from cluster.errors import RemoteProtocolError
from cluster.protocol.frame import frame
from cluster.transport.frame_splitter import FrameSplitter, check_whole

FRAMES = [frame(bytes([n]) * length, session_id=1, stream_id=101) for n, length in enumerate((1, 32, 0, 300))]
STREAM = b"".join(FRAMES)
ENDS = [sum(map(len, FRAMES[:count])) for count in range(len(FRAMES) + 1)]


@pytest.mark.parametrize("step", [1, 7, 31, 32, 33, 64, 96, len(STREAM)])
def test_a_frame_goes_on_with_the_byte_that_ends_it(step):
    splitter, given = FrameSplitter(), b""
    for begin in range(0, len(STREAM), step):
        given += splitter.split(STREAM[begin : begin + step])
        arrived = min(begin + step, len(STREAM))
        assert given == STREAM[: max(end for end in ENDS if end <= arrived)]


def test_a_frame_that_comes_in_three_pieces_goes_on_with_the_last():
    splitter = FrameSplitter()
    large = frame(b"x" * 1000, session_id=1, stream_id=101)

    assert [splitter.split(large[begin:end]) for begin, end in ((0, 40), (40, 500), (500, None))] == [
        b"",
        b"",
        large,
    ]


def test_what_is_no_frame_is_told_with_the_frames_before_it_or_without():
    for pieces in ([FRAMES[1] + bytes(32)], [FRAMES[1], bytes(32)], [b"", bytes(20), bytes(12)]):
        splitter = FrameSplitter()
        with pytest.raises(RemoteProtocolError, match="not a frame: 0000"):
            for piece in pieces:
                splitter.split(piece)


@pytest.mark.parametrize("length", [968, 969])
def test_a_frame_may_be_as_long_as_was_said(length):
    data = frame(bytes(length), session_id=1, stream_id=101)
    if length == 968:
        assert FrameSplitter(1000).split(data) == data
        check_whole(data, 1000)
        return
    with pytest.raises(RemoteProtocolError, match="not a frame"):
        FrameSplitter(1000).split(data)
    with pytest.raises(RemoteProtocolError, match="not a frame of at most 1000 bytes"):
        check_whole(data, 1000)


@pytest.mark.parametrize("missing", [1, 31, 32, 300])
def test_a_message_that_ends_within_a_frame_is_refused(missing):
    check_whole(STREAM, 1000)
    with pytest.raises(RemoteProtocolError, match=f"of {len(STREAM) - missing}: a frame is cut off"):
        check_whole(STREAM[:-missing], 1000)
