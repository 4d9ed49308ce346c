"""The messages that a client sent and does not know to be committed, framed as they go out.

Messages are numbered from 1 since the session was opened; the leader's log holds them in that order and
without gaps, so three numbers say all:

    1 ....... acknowledged ....... sent ....... offered
              committed, forgotten | on their way | not written to the socket yet, the last not framed yet

After a leader change the new leader reports how many its log holds; everything beyond goes out again, stamped
with the new term, and nothing goes twice.
"""

from bisect import bisect_right
from collections import deque
from typing import Protocol

from cluster.log.resend import frame_end, restamp, skip_messages
from cluster.log.session_frames import FRAME_OVERHEAD, frame_ingress, join_payloads
from cluster.protocol.arrays import np
from cluster.protocol.frame import align, frame_header
from cluster.protocol.session import SessionMessageHeader
from cluster.protocol.streams import INGRESS

WINDOW_BYTES_DEFAULT = 64 * 1024 * 1024
SEGMENT_LENGTH = 512 * 1024
SEGMENTS_KEPT = 8  # emptied ones, to be filled again


class Writable(Protocol):
    """Where frames go: as much as it takes now, and a wake-up when it takes more."""

    def write(self, buffer: memoryview) -> int: ...

    def want_writable(self) -> None: ...


class _Segment:
    """A run of whole frames: ``buffer[:end]``, of which ``sent`` bytes were written."""

    __slots__ = ("_walked", "_walked_end", "buffer", "end", "first", "length", "messages", "sent", "view")

    def __init__(self, length: int, first: int) -> None:
        self.length = length
        self.buffer = np.zeros(length, np.uint8)
        self.view: memoryview = self.buffer.data
        self.reset(first)

    def reset(self, first: int) -> None:
        self.end = 0
        self.sent = 0
        self.first = first  # number of its first message
        self.messages = 0
        self._walked = self._walked_end = 0  # so many of its messages end there

    def end_of(self, messages: int) -> int:
        """Where the first ``messages`` of it end. It goes on from the last answer, unless it is for fewer."""
        if messages < self._walked:
            self._walked = self._walked_end = 0
        self._walked_end = skip_messages(self.buffer, self._walked_end, self.end, messages - self._walked)
        self._walked = messages
        return self._walked_end


class UnacknowledgedWindow:
    """Frames messages, writes them out, keeps them until they are committed.

    Bounded: ``bytes_max`` of frames, counted by the segment; a batch that is larger than the whole window is
    taken when nothing else is in it.
    """

    def __init__(self, cluster_session_id: int, leadership_term_id: int, bytes_max: int) -> None:
        assert bytes_max > 0
        self._session_id = cluster_session_id
        self._bytes_max = bytes_max
        self._segment_length = min(SEGMENT_LENGTH, align(bytes_max // 4))
        self._segments: deque[_Segment] = deque()
        self._free: list[_Segment] = []
        self._buffered_bytes = 0
        self._claimed_bytes = 0  # of messages to come, which count as buffered
        self._unsent: deque[_Segment] = deque()  # those with bytes to write, oldest first
        self._gathered: list[bytes] = []  # the last messages, to be framed into the last segment
        self.gathered_bytes = 0  # framed
        self.leadership_term_id = leadership_term_id
        self.offered = 0
        self.acknowledged = 0
        self.position = 0  # bytes framed since the session opened
        self._sent_before = 0  # messages that leaders before this one were sent, at most
        self.is_paused = False  # nothing is written but the rest of a frame, until ``rewind``
        self._prefix = b""
        self._set_prefix()

    def _set_prefix(self) -> None:
        header = SessionMessageHeader(self.leadership_term_id, self._session_id, 0)
        self._prefix = frame_header(0, session_id=0, stream_id=INGRESS)[4:] + header.encode()

    @property
    def is_flushed(self) -> bool:
        """Whether all that may be was written: only then may another message go between."""
        if self.is_paused:
            return not self._unsent or self._is_between_frames(self._unsent[0])
        return not self._unsent and not self._gathered

    def _is_between_frames(self, segment: _Segment) -> bool:
        return frame_end(segment.buffer, segment.sent) == segment.sent

    @property
    def unacknowledged(self) -> int:
        return self.offered - self.acknowledged

    def is_sent(self, messages: int) -> bool:
        """Whether the leader was sent the first ``messages`` whole, or said that it holds them."""
        if not self._unsent:
            return messages <= self.offered - len(self._gathered)
        segment = self._unsent[0]
        ahead = messages - segment.first + 1
        return ahead <= 0 or (ahead <= segment.messages and segment.end_of(ahead) <= segment.sent)

    @property
    def sent(self) -> int:
        """How many messages that holds for. To count them takes long."""
        if not self._unsent:
            return self.offered - len(self._gathered)
        first, ahead = self._unsent[0].first, range(self._unsent[0].messages)
        return first - 1 + bisect_right(ahead, 0, key=lambda count: not self.is_sent(first + count))

    @property
    def sent_to_any(self) -> int:
        """How many messages some leader was sent: no log can hold more."""
        return max(self._sent_before, self.sent)

    # -- in --

    def claim(self, payload_length: int) -> bool:
        """Reserve room for one message until ``release``; False when there is none."""
        length = self._claimed_length(payload_length)
        is_used = self.unacknowledged or self._claimed_bytes
        if is_used and self._buffered_bytes + self._claimed_bytes + length > self._bytes_max:
            return False
        self._claimed_bytes += length
        return True

    def release(self, payload_length: int) -> None:
        """Give back what was claimed."""
        self._claimed_bytes -= self._claimed_length(payload_length)

    def _claimed_length(self, payload_length: int) -> int:
        return max(align(FRAME_OVERHEAD + payload_length), self._segment_length)

    def offer(self, payload: bytes, *, is_claimed: bool = False) -> bool:
        """Take one message; False without room, unless it was claimed."""
        length = (FRAME_OVERHEAD + len(payload) + 31) & -32
        segments, gathered_bytes = self._segments, self.gathered_bytes
        if not segments or segments[-1].end + gathered_bytes + length > segments[-1].length:
            if self._room(length, is_claimed) is None:
                return False
            gathered_bytes = 0
        self._gathered.append(payload)
        self.gathered_bytes = gathered_bytes + length
        self.offered += 1
        self.position += length
        return True

    def _frame_gathered(self) -> None:
        """Into the last segment, whose room they have."""
        payloads, framed = self._gathered, self.gathered_bytes
        if not payloads:
            return
        segment = self._segments[-1]
        if len(payloads) == 1:
            self._frame(segment, payloads[0])
        else:
            self._frame_batch(segment, *join_payloads(payloads))
        self._gathered, self.gathered_bytes = [], 0
        self._grew(segment, framed, len(payloads))

    def _frame(self, segment: _Segment, payload: bytes) -> None:
        """As the kernel does it, which takes longer for a message alone."""
        frame_length = FRAME_OVERHEAD + len(payload)
        padding, begin = -frame_length & 31, segment.end
        frame = b"".join((frame_length.to_bytes(4, "little"), self._prefix, payload, bytes(padding)))
        segment.view[begin : begin + len(frame)] = frame

    def offer_batch(self, offsets: np.ndarray, lengths: np.ndarray, buffer: np.ndarray) -> bool:
        """Take messages by columns over one buffer, all or none; False as for ``offer``."""
        count = len(offsets)
        if count == 0:
            return True
        framed = int(((lengths + (FRAME_OVERHEAD + 31)) & -32).sum())
        segment = self._room(framed)
        if segment is None:
            return False
        self._frame_batch(segment, offsets, lengths, buffer)
        self._grew(segment, framed, count)
        self.offered += count
        self.position += framed
        return True

    def _frame_batch(
        self, segment: _Segment, offsets: np.ndarray, lengths: np.ndarray, buffer: np.ndarray
    ) -> None:
        rows, _ = frame_ingress(
            segment.buffer,
            segment.end,
            offsets,
            lengths,
            buffer,
            0,
            self.leadership_term_id,
            self._session_id,
        )
        assert rows == len(offsets)

    def _room(self, length: int, is_claimed: bool = False) -> _Segment | None:
        """The segment that takes ``length`` more bytes, None when the window is full and they must wait."""
        self._frame_gathered()
        if self._segments:
            segment = self._segments[-1]
            if segment.end + length <= segment.length:
                return segment
            if self.acknowledged == self.offered:
                self._recycle(len(self._segments))
            elif not is_claimed and self._bytes_after(length) > self._bytes_max:
                return None
        first = self.offered + 1
        if length <= self._segment_length and self._free:
            segment = self._free.pop()
            segment.reset(first)
        else:
            segment = _Segment(max(length, self._segment_length), first)
        self._segments.append(segment)
        self._buffered_bytes += segment.length
        return segment

    def _bytes_after(self, length: int) -> int:
        """What is buffered and claimed once another segment took ``length`` bytes."""
        return self._buffered_bytes + self._claimed_bytes + max(length, self._segment_length)

    def _grew(self, segment: _Segment, length: int, messages: int) -> None:
        if segment.sent == segment.end:
            self._unsent.append(segment)
        segment.end += length
        segment.messages += messages

    # -- out --

    def flush(self, connection: Writable) -> int:
        """Write what the connection takes; returns the bytes, or its negative code."""
        if self.is_paused:
            self.finish_frame(connection)
            return 0
        self._frame_gathered()
        written = 0
        while self._unsent:
            segment = self._unsent[0]
            taken = connection.write(segment.view[segment.sent : segment.end])
            if taken < 0:
                return taken
            segment.sent += taken
            written += taken
            if segment.sent < segment.end:
                connection.want_writable()
                break
            self._unsent.popleft()
        return written

    def finish_frame(self, connection: Writable) -> bool:
        """Write no more than the rest of a frame that is half written; True when none is."""
        if not self._unsent:
            return True
        segment = self._unsent[0]
        end = frame_end(segment.buffer, segment.sent)
        taken = connection.write(segment.view[segment.sent : end]) if segment.sent < end else 0
        segment.sent += max(taken, 0)
        return segment.sent == end

    # -- acknowledged --

    def acknowledge(self, messages: int) -> bool:
        """Forget the first ``messages``, which were sent and are committed; True if that is news."""
        if messages <= self.acknowledged:
            return False
        self.acknowledged = messages
        done = 0
        for segment in self._segments:
            if segment.first + segment.messages - 1 > messages:
                break
            done += 1
        if done == len(self._segments):
            done -= 1  # the last one takes more
        self._recycle(done)
        return True

    def _recycle(self, segments: int) -> None:
        """Empty the oldest ``segments``, all acknowledged and hence sent."""
        for _ in range(segments):
            segment = self._segments.popleft()
            assert segment.sent == segment.end
            self._buffered_bytes -= segment.length
            if segment.length == self._segment_length and len(self._free) < SEGMENTS_KEPT:
                self._free.append(segment)

    # -- another leader --

    def rewind(self, messages: int, leadership_term_id: int) -> None:
        """The leader of ``leadership_term_id`` holds the first ``messages``: send the others to it.

        ``messages`` lies between what is acknowledged and ``sent_to_any``; what was written of the others
        went to a leader that is none any more.
        """
        self._sent_before = self.sent_to_any
        assert self.acknowledged <= messages <= self._sent_before
        self._frame_gathered()
        self.is_paused = False
        self.leadership_term_id = leadership_term_id
        self._set_prefix()
        self._unsent.clear()
        for segment in self._segments:
            appended = min(max(messages - segment.first + 1, 0), segment.messages)
            segment.sent = segment.end_of(appended)
            restamp(segment.buffer, segment.sent, segment.end, leadership_term_id)
            if segment.sent < segment.end:
                self._unsent.append(segment)
