"""What one publication sends to a subscription, in runs of whole frames (Aeron: Image.blockPoll)."""

from __future__ import annotations

import numpy as np

from cluster.errors import MediaDriverError
from cluster.log.kernel import kernel
from cluster.log.memory import BYTES, BYTES_OUT, I64, copy_bytes
from cluster.log.ordered import load_i32, store_i64
from cluster.media.cnc_file import CncFile
from cluster.media.log_buffers import LogBuffers
from cluster.protocol.frame import FRAME_ALIGNMENT, HEADER_LENGTH

_DAMAGED = -1


@kernel(I64(BYTES, I64, I64, BYTES_OUT, I64))
def _poll(log, term_length, position, out, at):  # type: ignore[no-untyped-def]
    """Copy whole frames of one term to ``out`` from ``at`` on, as many as fit; returns their length.

    Minus that of the first one where it is longer than there is room.
    """
    offset = position & (term_length - 1)
    term = position // term_length % 3 * term_length
    start = offset
    while offset < term_length:
        length = load_i32(log, term + offset)
        if length <= 0:
            break
        aligned = (length + FRAME_ALIGNMENT - 1) // FRAME_ALIGNMENT * FRAME_ALIGNMENT
        if length < HEADER_LENGTH or offset + aligned > term_length:
            return _DAMAGED
        if offset - start + aligned > out.size - at:
            if offset == start:
                return -aligned
            break
        offset += aligned
    copy_bytes(out, at, log, term + start, offset - start)
    return offset - start


@kernel(I64(BYTES_OUT, I64, I64))
def _store(buffer, at, value):  # type: ignore[no-untyped-def]
    store_i64(buffer, at, value)
    return value


class Image:
    """Reads from where the driver says that it begins. How far it is lets the sender go on."""

    def __init__(
        self,
        cnc: CncFile,
        correlation_id: int,
        session_id: int,
        counter_id: int,
        log: LogBuffers,
        source_identity: str = "",
    ) -> None:
        """It comes from ``source_identity``, ``host:port``. Raises MediaDriverError for no position."""
        self.correlation_id = correlation_id
        self.session_id = session_id
        self.source_identity = source_identity
        self.is_closed = False  # by the driver: what it had written can still be read
        self.needed = 0  # room for the next frame, where the last poll had less
        self._counters = cnc.buffer
        self._counter_at = cnc.value_offset(counter_id)
        self._log = log
        self.position = int(cnc.buffer[self._counter_at : self._counter_at + 8].view(np.int64)[0])
        if self.position < 0 or self.position % FRAME_ALIGNMENT:
            raise MediaDriverError(f"an image begins at {self.position}, expected a multiple of 32")

    @property
    def term_length(self) -> int:
        """Bytes of its publication's terms."""
        return self._log.term_length

    @property
    def mtu_length(self) -> int:
        """Bytes of its publication's longest frames."""
        return self._log.mtu_length

    @property
    def initial_term_id(self) -> int:
        """Of its publication."""
        return self._log.initial_term_id

    @property
    def next_length_address(self) -> int:
        """Where in memory the length of the next frame stands once it is there; valid while the image is."""
        term = self.position // self.term_length % 3 * self.term_length
        return self._log.address + term + self.position % self.term_length

    @property
    def is_end_of_stream(self) -> bool:
        """Whether all was read that its publication has sent before it ended."""
        return self.position >= self._log.metadata.end_of_stream_position

    def poll(self, out: np.ndarray, at: int = 0) -> int:
        """Copy the next whole frames to ``out[at:]``; returns the bytes. Raises MediaDriverError.

        Where there is no room for the first of them, ``needed`` says how much it takes. Padding may take an
        eighth of a term, whatever the MTU is.
        """
        assert out.dtype == np.uint8
        assert 0 <= at <= out.size
        length = _poll(self._log.buffer, self._log.term_length, self.position, out, at)
        if length == _DAMAGED:
            raise MediaDriverError(f"an image of session {self.session_id} has no frame at {self.position}")
        self.needed = max(-length, 0)
        if length < 0:
            return 0
        if length:
            self.position += length
            if not self.is_closed:  # else the counter is another's by now
                _store(self._counters, self._counter_at, self.position)
        return length
