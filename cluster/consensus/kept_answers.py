"""Answers to supervised sessions, which every member keeps until their clients have them.

    service 0 of a session   taken | in flight ...... | waiting ......        each numbered from 1
                                   | sent, by a leader | not sent, or not to be sent from here

What a service answers follows from the log, so all members number alike, and whoever leads next goes on where
the client says that it is. What is taken is a hint: a member that has not heard of it keeps more than others.

A session that keeps ``bytes_max`` is full: its leader takes no more of its messages. Answers of what the log
has already still come; beyond ``LOST_FACTOR`` times as much the oldest are lost, and the leader closes the
session.

They are kept as frames in words and bytes that compiled turns share (``log/kept_frames.py``).
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from cluster.errors import LocalProtocolError
from cluster.log import kept_frames as at
from cluster.log.session_frames import FRAME_OVERHEAD, EgressMessages, parse_egress
from cluster.log.session_table import SessionTable
from cluster.protocol.frame import align
from cluster.protocol.sbe import NULL_VALUE
from cluster.protocol.session import split_answer_id
from cluster.protocol.snapshot import SnapshotAnswer, SnapshotAnswered

LOST_FACTOR = 16
PIECE_LENGTH = 4096  # bytes of an answer in one record of a snapshot, which fits the shortest log
BUFFER_BYTES = 256 * 1024  # of a stream at first; what no answer lies in takes no memory
ROWS_AT_FIRST = 16
PARSED_ROWS = 256


class AnswerColumns(NamedTuple):
    """Answers of services: a row each, int64, over one buffer of payloads. ``numbers`` may be one for all."""

    session_ids: np.ndarray
    timestamps: np.ndarray
    offsets: np.ndarray
    lengths: np.ndarray
    numbers: np.ndarray  # of the messages that are answered, in their sessions; 0 for none
    answer_ids: np.ndarray  # 0 to a session that is not supervised
    buffer: np.ndarray


class KeptAnswers:
    """Of the sessions of ``table``. ``bytes_max``: of one session, with the frames of the answers."""

    def __init__(self, bytes_max: int, table: SessionTable) -> None:
        self.bytes_max = bytes_max
        self._table = table
        self._buffers: dict[int, np.ndarray] = {}  # by row
        self._heads: dict[int, int] = {}  # by session id
        self._free: list[int] = []
        self.words = np.zeros(0, np.int64)
        self._grow_table(ROWS_AT_FIRST)

    def _grow_table(self, rows: int) -> None:
        """Have room for more streams: the words are another array."""
        old = self.words
        used = int(old[at.TOUCHED_AT]) if old.size else at.HEADER_WORDS
        touched_at = at.HEADER_WORDS + rows * at.ROW_WORDS
        self.words = np.zeros(touched_at + rows, np.int64)
        if old.size:
            self.words[:used] = old[:used]
            self.words[touched_at : touched_at + old.size - used] = old[used:]
        self.words[at.BYTES_MAX], self.words[at.KEPT_BYTES_MAX] = self.bytes_max, LOST_FACTOR * self.bytes_max
        self.words[at.TOUCHED_AT] = touched_at
        self._free += range(touched_at - at.ROW_WORDS, used - 1, -at.ROW_WORDS)

    # -- streams --

    def _open(self, session_id: int, service_id: int) -> int:
        """Begin a stream: the row of it."""
        if not self._free:
            self._grow_table(2 * (int(self.words[at.TOUCHED_AT]) - at.HEADER_WORDS) // at.ROW_WORDS)
        row, words = self._free.pop(), self.words
        words[row : row + at.ROW_WORDS] = 0
        words[row + at.SESSION_ID], words[row + at.SERVICE_ID] = session_id, service_id
        words[row + at.CONNECTION_ID] = NULL_VALUE
        self._use(row, np.empty(BUFFER_BYTES, np.uint8))
        if (head := self._heads.setdefault(session_id, row)) != row:
            words[row + at.NEXT], words[head + at.NEXT] = words[head + at.NEXT], row
        else:
            self._table.slots["kept_at"][self._table.slot_of(session_id)] = row
        return row

    def _use(self, row: int, buffer: np.ndarray) -> None:
        self._buffers[row] = buffer
        self.words[row + at.ADDRESS], self.words[row + at.SIZE] = buffer.ctypes.data, buffer.size

    def _make_room(self, row: int, length: int) -> None:
        """Give the stream a buffer for four times what it has and will have."""
        begin, sent, end = self.words[row + at.BEGIN : row + at.END + 1].tolist()
        kept = end - begin
        buffer = np.empty(max(4 * (kept + length), BUFFER_BYTES), np.uint8)
        buffer[:kept] = self._buffers[row][begin:end]
        self._use(row, buffer)
        self.words[row + at.BEGIN : row + at.END + 1] = 0, sent - begin, kept

    def _stream(self, session_id: int, service_id: int) -> int | None:
        """The row of the service's answers to the session."""
        words = self.words
        return next((row for row in self._rows(session_id) if words[row + at.SERVICE_ID] == service_id), None)

    def _rows(self, session_id: int) -> Iterator[int]:
        row = self._heads.get(session_id, 0)
        while row:
            yield row
            row = int(self.words[row + at.NEXT])

    def keep(self, columns: AnswerColumns) -> None:
        """Take the answers that have an id, unless they were given before, or their clients have them.

        Raises LocalProtocolError for one that lies outside of its buffer.
        """
        row, end = 0, len(columns.session_ids)
        while (row := at.keep_run(self.words, self._table.words, *columns, row)) != end:
            if row < 0:
                raise LocalProtocolError(f"row {-1 - row}: an answer that does not lie in its buffer")
            session_id, answer_id = int(columns.session_ids[row]), int(columns.answer_ids[row])
            service_id, _ = split_answer_id(answer_id)
            stream = self._stream(session_id, service_id) or self._open(session_id, service_id)
            self._make_room(stream, align(FRAME_OVERHEAD + int(columns.lengths[row])))

    def take(self, session_id: int, service_id: int, number: int) -> bool:
        """The client of the open session has the answers of the service up to ``number``: is that news?"""
        row = self._stream(session_id, service_id) or self._open(session_id, service_id)
        return at.take_answers(self.words, self._heads[session_id], row, number)

    def taken(self) -> Iterator[tuple[int, int, int]]:
        """All that is known to be taken: session, service, number."""
        for session_id in self._heads:
            for row in self._rows(session_id):
                if taken := int(self.words[row + at.TAKEN]):
                    yield session_id, int(self.words[row + at.SERVICE_ID]), taken

    # -- for a leader --

    def ask(self, session_id: int, connection_id: int) -> None:
        """The client of the open session asks for its answers over this connection; NULL_VALUE: no more.

        What was in flight over another one is to be sent again.
        """
        head = self._heads.get(session_id) or self._open(session_id, 0)
        if self.words[head + at.CONNECTION_ID] != connection_id:
            self.words[head + at.CONNECTION_ID] = connection_id
            self.words[head + at.IN_FLIGHT_BYTES] = 0
            for row in self._rows(session_id):
                self.words[row + at.SENT] = self.words[row + at.BEGIN]

    def asked_over(self, session_id: int) -> int:
        """The connection that the session's answers are asked for over, or NULL_VALUE."""
        head = self._heads.get(session_id)
        return NULL_VALUE if head is None else int(self.words[head + at.CONNECTION_ID])

    def touch(self, session_id: int) -> None:
        """Have the session among those that are ``take_touched``."""
        at.touch(self.words, self._heads[session_id])

    def take_touched(self) -> list[int]:
        """Sessions that may have something to be sent, since the last time."""
        words, begin = self.words, int(self.words[at.TOUCHED_AT])
        heads = words[begin : begin + int(words[at.TOUCHED_COUNT])]
        words[heads + at.IS_TOUCHED] = 0
        words[at.TOUCHED_COUNT] = 0
        return words[heads + at.SESSION_ID].tolist()

    def stop_asking(self) -> None:
        """Nobody asks for answers here any more."""
        self.take_touched()
        for head in self._heads.values():
            self.words[head + at.CONNECTION_ID] = NULL_VALUE

    def due(self, session_id: int, leadership_term_id: int) -> Iterator[memoryview]:
        """Frames to be sent now, in the order of each service: no more than ``bytes_max`` are in flight."""
        head = self._heads.get(session_id, 0)
        while True:
            row, begin, end = at.send_next(self.words, head, leadership_term_id)
            if not row:
                return
            yield self._buffers[row][begin:end].data

    def byte_count(self, session_id: int) -> int:
        """How much of the session is kept."""
        head = self._heads.get(session_id)
        return 0 if head is None else int(self.words[head + at.KEPT_BYTES])

    def lost(self) -> list[int]:
        """Sessions whose clients, which have asked, lack an answer that is kept no more."""
        words = self.words
        return [
            session_id
            for session_id, head in self._heads.items()
            if words[head + at.CONNECTION_ID] != NULL_VALUE
            and any(at.has_gap(words, row) for row in self._rows(session_id))
        ]

    # -- with the sessions --

    def prune(self) -> None:
        """Forget the sessions that have come to their end."""
        for session_id in [known for known in self._heads if self._table.slot_of(known) < 0]:
            rows = list(self._rows(session_id))
            touched = [other for other in self.take_touched() if other != session_id]
            del self._heads[session_id]
            for other in touched:
                self.touch(other)
            for row in rows:
                del self._buffers[row]
            self._free += rows

    def records(self) -> Iterator[bytes]:
        """What a snapshot has of all that is kept now, in pieces that are encoded as they are asked for."""
        kept = [
            (
                session_id,
                self._buffers[row][slice(*self.words[[row + at.BEGIN, row + at.END]].tolist())].copy(),
            )
            for session_id in sorted(self._heads)
            for row in sorted(self._rows(session_id), key=lambda row: int(self.words[row + at.SERVICE_ID]))
        ]
        return (piece for session_id, frames in kept for piece in _pieces(session_id, frames))

    def load(self, records: list[SnapshotAnswer | SnapshotAnswered]) -> None:
        """Begin from the records of a snapshot, whose sessions are open."""
        payloads: dict[tuple[int, int, int], list[bytes]] = {}
        answered: dict[tuple[int, int], int] = {}
        for record in records:
            if isinstance(record, SnapshotAnswered):
                answered[record.cluster_session_id, record.answer_id] = record.number
            else:
                session_id, answer_id, timestamp, piece = record
                payloads.setdefault((session_id, answer_id, timestamp), []).append(piece)
        for (session_id, answer_id, timestamp), parts in payloads.items():
            payload = b"".join(parts)
            values = (
                session_id,
                timestamp,
                0,
                len(payload),
                answered.get((session_id, answer_id), 0),
                answer_id,
            )
            columns = [np.array([value], np.int64) for value in values]
            self.keep(AnswerColumns._make([*columns, np.frombuffer(payload or b"\0", np.uint8)]))


def _pieces(session_id: int, frames: np.ndarray) -> Iterator[bytes]:
    messages, begin = EgressMessages(PARSED_ROWS), 0
    while begin < len(frames):
        _, begin = parse_egress(frames, begin, len(frames), messages)
        ids, numbers, timestamps = messages.answer_ids, messages.numbers, messages.timestamps
        for row, (answer_id, answered, timestamp) in enumerate(
            zip(ids.tolist(), numbers.tolist(), timestamps.tolist(), strict=True)
        ):
            payload = messages.payload(row)
            if answered:
                yield SnapshotAnswered(session_id, answer_id, answered).encode()
            for piece in range(0, max(len(payload), 1), PIECE_LENGTH):
                part = bytes(payload[piece : piece + PIECE_LENGTH])
                yield SnapshotAnswer(session_id, answer_id, timestamp, part).encode()
