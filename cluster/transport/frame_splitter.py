"""Cuts a stream of bytes where frames end, for media that carry messages: each holds whole frames only."""

from cluster.errors import RemoteProtocolError
from cluster.log.runs import NOT_A_FRAME, whole_frames
from cluster.protocol.arrays import np
from cluster.protocol.frame import HEADER_LENGTH, header_at
from cluster.transport.other_protocols import spoken_by
from cluster.transport.sockets import FRAME_LENGTH_MAX


class FrameSplitter:
    """Holds back what is not a whole frame yet."""

    __slots__ = ("_frame_length_max", "_rest")

    def __init__(self, frame_length_max: int = FRAME_LENGTH_MAX) -> None:
        self._frame_length_max = frame_length_max
        self._rest = bytearray()

    def split(self, data: bytes) -> bytes:
        """Return the whole frames of what was kept and ``data``; RemoteProtocolError for no frame."""
        rest = self._rest
        if rest:
            rest += data
            if len(rest) < HEADER_LENGTH or header_at(rest).frame_length > len(rest):
                return b""  # a large frame comes in pieces: not looked at again for each
            data = bytes(rest)
        end, follows = whole_frames(np.frombuffer(data, np.uint8), 0, len(data), self._frame_length_max, True)
        if follows == NOT_A_FRAME:
            first = data[end : end + 32]
            raise RemoteProtocolError(f"not a frame: {spoken_by(first) or first.hex()}")
        self._rest = bytearray(data[end:])
        return data[:end]


def check_whole(data: bytes, frame_length_max: int) -> None:
    """``RemoteProtocolError`` unless ``data`` is a run of whole unfragmented frames."""
    end, follows = whole_frames(np.frombuffer(data, np.uint8), 0, len(data), frame_length_max, False)
    if follows == NOT_A_FRAME:
        raise RemoteProtocolError(
            f"byte {end} of {len(data)}: not a frame of at most {frame_length_max} bytes: "
            f"{data[end : end + 32].hex()}"
        )
    if end != len(data):
        raise RemoteProtocolError(f"byte {end} of {len(data)}: a frame is cut off")
