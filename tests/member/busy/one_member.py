"""A member as a compiled turn has it: arrays, and a disk and sockets that note what they are asked.

A turn is given what comes. What it does is ``told`` in order: writes, sends by their descriptors, syncs.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from cluster.archive import recording_words as of_recording
from cluster.archive.sync_proof import NO_PROOF
from cluster.consensus import quorum
from cluster.consensus.cluster_time import AGREED_NS, NOW_NS, TIME_NS, TIME_WORDS
from cluster.consensus.kept_answers import KeptAnswers
from cluster.log import calls, message_calls
from cluster.log.connection_table import CLIENT, CRC, LINK_IN, LINK_OUT, SERVICE_LINK, TLS, ConnectionTable
from cluster.log.deliver import DeliveredMessages
from cluster.log.frames import SESSION_HEADER_LENGTH, LogParams
from cluster.log.message_columns import COLUMNS, LENGTHS, NUMBERS, OFFSETS, SESSION_IDS, TIMESTAMPS
from cluster.log.session_frames import ANSWERED_NUMBER, frame_ingress, join_payloads
from cluster.log.session_table import SessionTable
from cluster.member.busy import words as at
from cluster.member.busy.system import EVENT_LENGTH, IS_PACKED, READABLE
from cluster.member.busy.turn import busy_turns
from cluster.member.frames import consensus_frame
from cluster.member.log.log_words import COMMIT_POSITION
from cluster.member.services import service_table
from cluster.protocol import decode, streams
from cluster.protocol.consensus import AppendPosition, CommitPosition
from cluster.protocol.enums import AppendPositionFlags
from cluster.protocol.frame import FLAGS_UNFRAGMENTED, HEADER_LENGTH, header_at
from cluster.protocol.sbe import SCHEMA_ID_AT
from cluster.protocol.service_link import (
    SERVICE_LINK_SCHEMA,
    LogLimit,
    ServiceAnswers,
    decode_service_link,
)
from cluster.protocol.session import SessionMessageHeader
from cluster.testing.python_calls import FileCalls, put_call
from cluster.transport.envelopes import seal, unseal
from cluster.transport.message_frames import link_frame
from tests.member.busy.tables import tables_of

TERM, TERM_BEFORE = 7, 6
BASE, BEGIN, SEGMENT_BASE = 1024, 1120, 512  # of the log in memory, what comes, and its file
END = BEGIN + 2 * 96  # after two short messages
ROWS = 16
MS = 1_000_000
NOW = 5_000 * MS
STAMP = 900_000  # cluster time at NOW, in milliseconds
SYNC_NS = 60_000
KEPT_BYTES = 256  # of a supervised session: two short answers and a bit
# Descriptors: what comes from members 1 and 2, what goes to them, two clients, processes of services 1 and 2.
FROM = {1: 3, 2: 4}
TO = {1: 5, 2: 6}
CLIENT_A, CLIENT_B, SERVICE, SECOND = 7, 8, 9, 10
CONNECTIONS = {CLIENT_A: 70, CLIENT_B: 80}  # by descriptor
SESSIONS = {1: 70, 2: 80, 3: 70}  # connections by session
POSITION_COUNTER, COMMIT_COUNTER, TOGGLE = range(1, 4)
SERVICE_COUNTER = 8  # position, cycles, those that were too long; of each service
SYNC_TIME, COMMIT_TIME = 256, 1024


class OneMember:
    """Member 0 of three; it follows member 1 where it does not lead.

    Service 0 is in line, or none is, and so many others are in processes of their own.
    """

    def __init__(self, *, leads: bool, service: int = at.COMPILED_SERVICE, processes: int = 0) -> None:
        self.done: list[tuple[Any, ...]] = []  # as it was called
        self.told: list[Any] = []  # by what frames say
        self.now_ns = NOW
        self.takes: dict[int, int] = {}  # bytes that a socket takes, at most
        self._incoming: dict[int, bytes] = {}
        self._crc_in, self._crc_out = dict.fromkeys(FROM.values(), 0), dict.fromkeys(TO.values(), 0)
        self.calls = FileCalls({1: self})
        for place, call, count in (
            (calls.WAIT, self._wait, 4),
            (calls.CLOCK, self._clock, 2),
            (calls.RECEIVE, self._receive, 4),
            (calls.SEND, self._send, 3),
        ):
            self.calls.put(place, call, count)
        self.table = ConnectionTable(16)
        self.table.keep_parts()
        kinds = {fd: (LINK_IN, id_) for id_, fd in FROM.items()}
        kinds |= {fd: (LINK_OUT, id_) for id_, fd in TO.items()}
        kinds |= {fd: (CLIENT, connection) for fd, connection in CONNECTIONS.items()}
        kinds |= {SERVICE: (SERVICE_LINK, 1), SECOND: (SERVICE_LINK, 2)}
        for descriptor, (kind, owner) in kinds.items():
            self.table.serve(descriptor, kind, owner, 1 << 20)
        self.sessions, self.numbers = SessionTable(8), SessionTable(8)
        self.answers = KeptAnswers(KEPT_BYTES, self.sessions)
        for session_id, connection_id in SESSIONS.items():
            self.sessions.open(session_id, connection_id)
            self.numbers.open(session_id)
        self.tables = tables_of(
            words=self._words(leads, service),
            calls=self.calls.table,
            connections=self.table.words,
            by_connection=self.table.index,
            keepers=self.table.keepers,
            parts=self.table.parts,
            members=self._members(),
            log_end=np.array([BASE, BEGIN, BEGIN], np.int64),
            recording=of_recording.RecordingTables(
                self._recording(), NO_PROOF, self.calls.table, np.zeros(1 << 16, np.uint8)
            ),
            cursor=np.array([BEGIN, BEGIN], np.int64),
            service_cursor=np.array([BEGIN, BEGIN], np.int64),
            time=np.zeros(TIME_WORDS, np.int64),
            leadership=np.zeros(quorum.LEADERSHIP_WORDS, np.int64),
            follower=np.array([TERM, 1, BEGIN, 0, BEGIN, NOW + 200 * MS, 200 * MS], np.int64),
            followers=np.array([-1, -1, 0, TO[1], BEGIN, 1, TO[2], BEGIN, 1], np.int64),
            sessions=self.sessions.words,
            ranges=self.sessions.ranges,
            params=LogParams(1 << 16, 1408, 3, 77).words,
            counters=np.zeros(2048, np.int64),
            columns=(rows := DeliveredMessages(ROWS, 1 << 15)).words,
            side=rows.side,
            numbers=self.numbers.words,
            answer_ids=np.zeros(ROWS, np.int64),
            kept=self.answers.words,
            services=self._services(processes),
            ready=np.zeros(16, np.int64),
            received=np.zeros(1 << 14, np.uint8),
            log=np.zeros(1 << 16, np.uint8),
            egress=np.zeros(1 << 15, np.uint8),
            unsent=np.zeros(1 << 16, np.uint8),
            scratch=self._scratch(leads),
        )
        leadership, time = self.tables.leadership, self.tables.time
        self.tables.member_log[COMMIT_POSITION] = BEGIN
        leadership[quorum.LEADERSHIP_TERM_ID], leadership[quorum.QUORUM] = TERM, 2
        leadership[quorum.TIMEOUT_NS], leadership[quorum.HEARTBEAT_NS] = 10_000 * MS, 200 * MS
        leadership[quorum.COMMIT_RISEN_NS], leadership[quorum.COMMIT_DUE_NS] = NOW, NOW + 200 * MS
        leadership[quorum.APPEND_POSITION] = BEGIN
        leadership[quorum.COMMIT_POSITION] = leadership[quorum.QUORUM_POSITION] = BEGIN
        time[NOW_NS], time[TIME_NS], time[AGREED_NS] = NOW, STAMP * MS, STAMP * MS

    @staticmethod
    def _words(leads: bool, service: int) -> np.ndarray:
        words = np.zeros(at.WORDS, np.int64)
        words[at.ROLE] = at.LEADER_ROLE if leads else at.FOLLOWER_ROLE
        words[at.PASSES_MAX], words[at.TIME_DIVISOR] = 1, MS
        for due in (at.SLOW_TICK_NS, at.QUIET_UNTIL_NS, at.DUE_NS, at.LIMIT_DUE_NS, at.INPUT_LIMIT):
            words[due] = at.NEVER
        words[at.UNCOMMITTED_MAX] = words[at.PREPARE_AT] = 1 << 40
        words[at.CONTROL_TOGGLE] = words[at.NODE_TOGGLE] = TOGGLE
        words[at.POSITION_COUNTER], words[at.COMMIT_COUNTER] = POSITION_COUNTER, COMMIT_COUNTER
        words[at.SYNC_TIME], words[at.COMMIT_TIME] = SYNC_TIME, COMMIT_TIME
        words[at.LEADER_OUT] = TO[1]
        words[at.SERVICE], words[at.SERVICE_ROWS] = service, ROWS
        words[at.SERVICE_FUNCTION], words[at.IS_SERVING] = at.ECHO, leads
        words[at.SERVICE_LEADERSHIP_TERM_ID] = TERM_BEFORE
        words[at.NOW_NS] = words[at.LAST_NS] = NOW
        return words

    @staticmethod
    def _services(processes: int) -> np.ndarray:
        table = service_table.ServiceTable(3)
        for service_id in range(3):
            row = table.row(service_id)
            row[service_table.SERVED] = row[service_table.LIMIT] = BEGIN
            row[service_table.POSITION_COUNTER :][:3] = SERVICE_COUNTER + 3 * service_id + np.arange(3)
            if 1 <= service_id <= processes:
                row[service_table.LINK] = (SERVICE, SECOND)[service_id - 1]
        return table.words

    @staticmethod
    def _members() -> np.ndarray:
        members = np.zeros((3, quorum.ROW_WORDS), np.int64)
        members[:, quorum.ID] = range(3)
        members[:, quorum.REPORT_TERM_ID] = TERM
        members[:, quorum.REPORT_POSITION], members[:, quorum.LAST_ACTIVITY_NS] = BEGIN, NOW
        return members.ravel()

    @staticmethod
    def _recording() -> np.ndarray:
        words = np.zeros(of_recording.RECORDING_WORDS, np.int64)
        words[of_recording.APPEND_POSITION] = words[of_recording.SYNCED_POSITION] = BEGIN
        words[of_recording.SEGMENT_BASE], words[of_recording.SEGMENT_LENGTH] = SEGMENT_BASE, 1024
        words[of_recording.SEGMENT] = words[of_recording.SYNC_LEVEL] = 1
        words[of_recording.WRITTEN_BACK] = BEGIN
        return words

    @staticmethod
    def _scratch(leads: bool) -> np.ndarray:
        scratch = np.zeros(at.SCRATCH, np.uint8)
        report = AppendPosition(0, 0, 0, AppendPositionFlags.NONE)
        for place, frame in (
            (at.FRAME_AT, consensus_frame(CommitPosition(0, 0, 0) if leads else report)),
            (at.LIMIT_AT, link_frame(LogLimit(0))),
        ):
            scratch[place : place + len(frame)] = np.frombuffer(frame, np.uint8)
        return scratch

    # ---- the calls of a turn

    def _wait(self, epoll: int, events: int, events_max: int, timeout_ms: int) -> int:
        layout = "<Iq" if IS_PACKED else "<Ixxxxq"
        found = b"".join(struct.pack(layout, READABLE, descriptor) for descriptor in self._incoming)
        assert len(found) == EVENT_LENGTH * len(self._incoming)
        ctypes.memmove(events, found, len(found))
        return len(self._incoming)

    def _clock(self, clock: int, time: int) -> int:
        ctypes.memmove(time, struct.pack("<qq", *divmod(self.now_ns, 1_000_000_000)), 16)
        return 0

    def _receive(self, descriptor: int, buffer: int, length: int, flags: int) -> int:
        data = self._incoming.pop(descriptor)
        into = self.tables.sealed if self.table.get(descriptor, TLS) else self.tables.received
        room = into.ctypes.data + into.size - buffer
        assert len(data) <= length == min(room, self.tables.received.size)
        ctypes.memmove(buffer, data, len(data))
        return len(data)

    def _send(self, descriptor: int, pieces: int, count: int) -> int:
        vector = struct.unpack(f"<{2 * count}q", ctypes.string_at(pieces, 16 * count))
        data = b"".join(ctypes.string_at(*vector[i : i + 2]) for i in range(0, 2 * count, 2))
        data = data[: self.takes.get(descriptor, len(data))]
        if not data:
            raise BlockingIOError
        self.done.append(("send", descriptor, data))
        return len(data)

    def pwrite(self, data: bytes, offset: int) -> None:
        self.done.append(("write", offset, data))

    def datasync(self) -> None:
        self.now_ns += SYNC_NS
        self.done.append(("datasync",))

    # ---- what a test says and asks

    def supervise(self, session_id: int) -> None:
        """Have the session's answers kept."""
        self.tables.words[at.HAS_SUPERVISED] = 1
        for table in (self.sessions, self.numbers):
            table.slots["supervised"][table.slot_of(session_id)] = 1

    def turn(self, *incoming: tuple[int, bytes], after_ns: int = 0) -> int:
        """Take one turn with what comes over these descriptors; returns the reason."""
        self.now_ns += after_ns
        self._incoming = dict(incoming)
        self.done = []
        reason = int(busy_turns(self.tables))
        self.calls.raise_failure()
        self.told = [self._told(*done) for done in self.done]
        for descriptor in self._crc_out.keys() - self.takes.keys():
            assert self.table.get(descriptor, CRC) == self._crc_out[descriptor]
        return reason

    @property
    def left(self) -> set[int]:
        """Descriptors whose bytes were not received."""
        return set(self._incoming)

    def service(self, service_id: int) -> np.ndarray:
        """Its row."""
        return self.tables.services.reshape(-1, service_table.SERVICE_WORDS)[service_id]

    def shown(self, service_id: int) -> list[int]:
        """Its counters."""
        return self.tables.counters[SERVICE_COUNTER + 3 * service_id :][:3].tolist()

    @property
    def committed(self) -> int:
        return int(self.tables.member_log[COMMIT_POSITION])

    def word(self, place: int) -> int:
        return int(self.tables.words[place])

    def from_member(self, member_id: int, *frames: bytes) -> tuple[int, bytes]:
        """In an envelope of its link."""
        descriptor = FROM[member_id]
        buffers, self._crc_in[descriptor] = seal(frames, self._crc_in[descriptor])
        return descriptor, b"".join(map(bytes, buffers))

    def report(self, member_id: int, position: int, term: int = TERM) -> tuple[int, bytes]:
        said = AppendPosition(term, position, member_id, AppendPositionFlags.NONE)
        return self.from_member(member_id, consensus_frame(said))

    def _told(self, call: str, *given: Any) -> Any:
        if call == "write":
            return call, given[0] + SEGMENT_BASE, messages(np.frombuffer(given[1], np.uint8))
        return (given[0], self._frames(*given)) if call == "send" else call

    def _frames(self, descriptor: int, sent: bytes) -> list[Any]:
        """The frames within; those of a link are what its envelopes were sealed with."""
        buffer, start = np.frombuffer(sent, np.uint8), 0
        if descriptor in self.takes:
            return [sent]
        if descriptor not in self._crc_out:
            return messages(buffer)
        frames: list[Any] = []
        while start < len(buffer):
            begin, start, self._crc_out[descriptor] = unseal(buffer, start, self._crc_out[descriptor])
            frames += messages(buffer[begin:start])
        return frames


def messages(buffer: np.ndarray) -> list[Any]:
    """The message of each frame; (session id, timestamp, payload) of the log, with more of an answer."""
    found: list[Any] = []
    offset = 0
    while offset < len(buffer):
        header = header_at(buffer, offset)
        if header.flags != FLAGS_UNFRAGMENTED:
            found.append("a fragment")
            offset += header.aligned_length
            continue
        message, end = offset + HEADER_LENGTH, offset + header.frame_length
        at_payload = buffer, message, end - message
        schema_id = int(buffer[message + SCHEMA_ID_AT :][:2].view(np.uint16)[0])
        said: Any = (decode_service_link if schema_id == SERVICE_LINK_SCHEMA.id else decode)(*at_payload)
        if isinstance(said, SessionMessageHeader):
            payload = buffer[message + SESSION_HEADER_LENGTH : end].tobytes()
            term_id, *said = said
            if header.stream_id == streams.EGRESS:
                number = int(buffer[offset + ANSWERED_NUMBER :][:8].view(np.int64)[0])
                said = [term_id, *said, number]
            said = (*said, payload)
        found.append(said)
        offset += header.aligned_length
    return found


def ingress(session_id: int, payloads: Sequence[bytes], term: int = TERM) -> bytes:
    """Session messages, as a client sends them."""
    offsets, lengths, buffer = join_payloads(payloads)
    out = np.zeros(1 << 14, np.uint8)
    rows, end = frame_ingress(out, 0, offsets, lengths, buffer, 0, term, session_id)
    assert rows == len(payloads)
    return out[:end].tobytes()


def answers(*rows: tuple[int, int, int, bytes], term: int = TERM_BEFORE) -> bytes:
    """Answers to (session, timestamp, number, payload), as a service's process sends them."""
    columns = np.zeros((COLUMNS, len(rows)), np.int64)
    payloads = b""
    for row, (session_id, timestamp, number, payload) in enumerate(rows):
        columns[SESSION_IDS, row], columns[TIMESTAMPS, row] = session_id, timestamp
        columns[NUMBERS, row], columns[OFFSETS, row] = number, len(payloads)
        columns[LENGTHS, row] = len(payload)
        payloads += payload
    return link_frame(ServiceAnswers(term, columns.tobytes(), payloads))


def committed(position: int, term: int = TERM, leader_id: int = 1) -> bytes:
    return consensus_frame(CommitPosition(term, position, leader_id))


def log_frames(*payloads: bytes) -> list[bytes]:
    """Frames of short messages as a leader writes them from BEGIN on."""
    made = OneMember(leads=True)
    made.turn((CLIENT_A, ingress(1, payloads)))
    ((_, _, frames),) = (done for done in made.done if done[0] == "write")
    return [frames[begin : begin + 96] for begin in range(0, len(frames), 96)]


class Function:
    """A service's: answers each message of a call but ``silent`` ones, and no more at once."""

    def __init__(self, member, at_once, pythons=(), silent=()):
        self.at_once, self.pythons, self.silent, self.given = at_once, pythons, silent, []
        self.call = np.zeros(message_calls.CALL_WORDS, np.int64)
        self.answers, self.bytes = np.ones(COLUMNS * ROWS, np.int64), np.zeros(64, np.uint8)
        functions = np.zeros(1, np.int64)
        self.kept = put_call(functions, 0, self, 1)
        member.tables.words[at.SERVICE_FUNCTION] = functions[0]
        member.tables = member.tables._replace(
            service_call=self.call, answers=self.answers, answer_bytes=self.bytes
        )
        self.session_id = 1
        self.member = member

    def __call__(self, address):
        call, answered = self.call, 0
        numbers = (ctypes.c_int64 * ROWS).from_address(int(call[message_calls.NUMBERS_OF]))
        call[message_calls.STATUS] = message_calls.TAKEN
        end = min(call[message_calls.ROW] + self.at_once, call[message_calls.ROWS_END])
        for row in range(call[message_calls.ROW], end):
            if row in self.pythons:
                call[message_calls.STATUS], end = message_calls.REFUSED, row
                break
            self.given.append((row, numbers[row]))
            if row in self.silent:
                continue
            self.answers[SESSION_IDS * ROWS + answered], self.answers[NUMBERS * ROWS + answered] = (
                self.session_id,
                numbers[row],
            )
            self.answers[TIMESTAMPS * ROWS + answered] = self.answers[OFFSETS * ROWS + answered] = 0
            self.answers[LENGTHS * ROWS + answered], self.bytes[0] = 1, 65 + row
            answered += 1
        call[message_calls.ANSWERED] = answered
        return int(end)
