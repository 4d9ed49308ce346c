"""Answers of services and acknowledgements of commits to clients: one send a client and turn.

commit advances ── touched sessions ── CommitAck ──┐
service's batches ── frame_egress ── ranges ───────┴── clients.send(connection, range, ack)
            to supervised sessions ── Supervision ── clients.send
"""

import numpy as np

from cluster.consensus.replica import ReplicatedState
from cluster.log.session_frames import ACK_LENGTH, frame_acks, frame_egress
from cluster.log.session_table import (
    COMMITTED,
    COMMITTED_POSITION,
    CONNECTION_ID,
    NULL_VALUE,
    TOUCHED_COUNT,
)
from cluster.member.clients.supervision import Supervision
from cluster.member.ports import Clients
from cluster.member.status import MemberStatus
from cluster.protocol.link import CommitAck
from cluster.service.channel import ServiceChannel, ServiceEgress
from cluster.transport.message_frames import link_frame

BUFFER_BYTES = 1024 * 1024


class EgressPublisher:
    """Sends for the leader; on other members answers are dropped as Aeron mocks them, or kept."""

    def __init__(
        self,
        clients: Clients,
        replica: ReplicatedState,
        status: MemberStatus,
        channels: tuple[ServiceChannel, ...],
        supervision: Supervision,
    ) -> None:
        self._clients = clients
        self._replica = replica
        self._table = replica.sessions.table
        self._status = status
        self._channels = channels
        self.supervision = supervision
        self._buffer = np.zeros(BUFFER_BYTES, np.uint8)
        self._view = self._buffer.data
        self._acks = np.empty(self._table.max_sessions * ACK_LENGTH, np.uint8)

    def poll(self) -> int:
        """Take what services answered since the last turn, and send it with the acks that are due."""
        is_leader = self._status.is_leading
        acks: dict[int, memoryview] = {}
        if is_leader and self._table.words[TOUCHED_COUNT]:
            acks = self._take_acks()
        work_count = 0
        for channel in self._channels:
            while channel.has_egress:
                batch = channel.poll_egress()
                assert batch is not None
                work_count += 1
                if batch.answer_ids is not None:
                    batch = self.supervision.keep(batch)
                if is_leader:
                    self._send(batch, acks)
        if is_leader:
            work_count += self.supervision.send()
        for connection_id, ack in acks.items():
            self._clients.send(connection_id, ack)
            work_count += 1
        return work_count

    def acknowledge(self, session_id: int) -> None:
        """Tell a session now what of it is committed: its client has just come back."""
        row = self._table.slots[self._table.slot_of(session_id)].item()
        if row[CONNECTION_ID] != NULL_VALUE:
            term_id = self._replica.leadership_term_id
            ack = CommitAck(session_id, term_id, row[COMMITTED], row[COMMITTED_POSITION])
            self._clients.send(row[CONNECTION_ID], link_frame(ack))

    def _take_acks(self) -> dict[int, memoryview]:
        """One run of ack frames a connection; they hold until the next call."""
        table = self._table
        count = frame_acks(self._acks, self._replica.leadership_term_id, table.words, table.ranges)
        ranges = table.ranges[: 3 * count].reshape(count, 3).tolist()
        return {connection_id: self._acks.data[begin:end] for connection_id, begin, end in ranges}

    def _send(self, batch: ServiceEgress, acks: dict[int, memoryview]) -> None:
        row = 0
        rows = len(batch)
        while row < rows:
            taken, ranges = frame_egress(
                self._buffer,
                0,
                batch.session_ids,
                batch.timestamps,
                batch.offsets,
                batch.lengths,
                batch.numbers,
                batch.buffer,
                row,
                batch.leadership_term_id,
                self._table,
            )
            for connection_id, begin, end in ranges:
                ack = acks.pop(connection_id, None) if taken == rows else None
                if ack is None:
                    self._clients.send(connection_id, self._view[begin:end])
                else:
                    self._clients.send(connection_id, self._view[begin:end], ack)
            if taken == row:
                self._buffer = np.zeros(2 * len(self._buffer), np.uint8)  # an answer longer than the buffer
                self._view = self._buffer.data
            row = taken
