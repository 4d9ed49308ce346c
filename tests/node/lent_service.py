"""Compiled turns of a member for its service in a process of its own, between the turns of a ``Module``."""

from __future__ import annotations

import socket

import numpy as np
from numba import types

from cluster.consensus.kept_answers import KeptAnswers
from cluster.log.calls import SYSTEM_CALLS
from cluster.log.connection_table import CLIENT
from cluster.log.kernel import kernel
from cluster.log.memory import I64
from cluster.log.message_columns import COLUMNS
from cluster.log.runs import headers
from cluster.log.session_table import SessionTable
from cluster.member.busy import remote, words
from cluster.member.busy.services import LentServices
from cluster.member.busy.turn import MODULES
from cluster.member.log.log_words import COMMIT_POSITION
from cluster.member.services import service_table
from cluster.member.services.remote_service import RemoteService
from cluster.protocol import decode
from cluster.protocol.frame import HEADER_LENGTH
from cluster.protocol.service_link import LogLimit
from cluster.protocol.session import SessionMessageHeader
from cluster.transport.message_frames import link_frame
from cluster.transport.poller import Poller
from cluster.transport.sockets import Connection, ReceiveBuffer
from tests.member.busy.tables import tables_of

SESSIONS = (7, 8)  # of one client, which these turns know; they have no other
ROWS = 4096


@kernel(types.void(words.TABLES, I64), modules=MODULES)
def _give_and_receive(t, descriptor):  # type: ignore[no-untyped-def]
    """As ``busy_turns`` does, in a function of its own that is kept compiled."""
    remote.give_log(t)
    remote.receive_from_service(t, descriptor)


class LentTurns:
    """``turn`` does what ``busy_turns`` does for the service, once; ``reason`` is then why it would end."""

    def __init__(self, service: RemoteService, poller: Poller) -> None:
        self.service = service
        self.reason = 0
        self.taken = 0  # frames of the service that went no other way
        self.counters = np.zeros(3, np.int64)
        self._poller = poller
        ours, self.client = socket.socketpair()
        self._connection = Connection(
            ours, poller, ReceiveBuffer(1 << 16), is_log_allowed=False, connection_id=1
        )
        self._connection.serve(CLIENT, 1)
        poller.table.index[1] = self._connection.descriptor
        self.client.setblocking(False)
        self.sessions = SessionTable(8)
        for session in SESSIONS:
            self.sessions.open(session, connection_id=1)
        self._words = np.zeros(words.WORDS, np.int64)
        answers = KeptAnswers(1 << 20, self.sessions)
        self._services = LentServices([service], self._words.data, answers)
        service.words[service_table.POSITION_COUNTER :][:3] = range(3)
        scratch = np.zeros(words.SCRATCH, np.uint8)
        limit = np.frombuffer(link_frame(LogLimit(0)), np.uint8)
        scratch[words.LIMIT_AT : words.LIMIT_AT + len(limit)] = limit
        self.tables = tables_of(
            words=self._words,
            calls=SYSTEM_CALLS.table,
            counters=self.counters,
            services=service.words,
            sessions=self.sessions.words,
            ranges=self.sessions.ranges,
            columns=np.zeros(COLUMNS * ROWS, np.int64),
            kept=answers.words,
            received=np.zeros(1 << 20, np.uint8),
            egress=np.zeros(1 << 20, np.uint8),
            unsent=np.zeros(1 << 20, np.uint8),
            scratch=scratch,
        )

    def turn(self, commit_position: int, now_ns: int, *, is_leader: bool) -> bool:
        """Take what the service says, and tell it the commit position. False where Python has to."""
        if not self.service.awaits_events:
            return False
        w = self._words
        self._services.lend()
        if w[words.SERVICE] != words.NO_SERVICE:
            return False
        table = self._poller.table
        self.tables = self.tables._replace(
            connections=table.words, by_connection=table.index, parts=table.parts, keepers=table.keepers
        )
        w[words.ROLE] = words.LEADER_ROLE if is_leader else words.FOLLOWER_ROLE
        self.tables.member_log[COMMIT_POSITION] = commit_position
        w[words.NOW_NS], w[words.SERVICE_ROWS] = now_ns, ROWS
        w[words.REASON] = w[words.UNSENT_END] = 0
        descriptor = int(self.service.words[service_table.LINK])
        before = self.service.words[[service_table.ANSWERED, service_table.SERVED]]
        _give_and_receive(self.tables, descriptor)
        self.reason = int(w[words.REASON])
        after = self.service.words[[service_table.ANSWERED, service_table.SERVED]]
        self.taken += bool((before != after).any())
        self._services.take_back()
        connection = self._poller.target(descriptor)
        assert isinstance(connection, Connection)
        if self.reason & words.FRAMES:
            received = self.tables.received[w[words.GIVEN_BEGIN] : w[words.GIVEN_END]]
            connection.adopt(received)
        assert not self.reason & words.UNSENT
        return True

    def answers(self) -> list[tuple[int, bytes]]:
        """What the client was sent since the last time: sessions and payloads."""
        data = bytearray()
        while True:
            try:
                data += self.client.recv(1 << 20)
            except BlockingIOError:
                break
        buffer = np.frombuffer(bytes(data), np.uint8)
        found = []
        for offset, header in headers(buffer, 0, len(buffer)):
            begin, end = offset + HEADER_LENGTH, offset + header.frame_length
            message = decode(buffer, begin, end - begin)
            assert isinstance(message, SessionMessageHeader)
            payload = buffer[begin + 8 + SessionMessageHeader.BLOCK_LENGTH : end].tobytes()
            found.append((message.cluster_session_id, payload))
        return found

    def close(self) -> None:
        self._connection.close()
        self.client.close()
