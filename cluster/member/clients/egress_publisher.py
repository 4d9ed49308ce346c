"""Answers of services and acknowledgements of commits to clients: one send a client and turn.

service's batches, sessions that were touched ── frame_egress ── ranges ── clients.send(connection, range)
                       to supervised sessions ── Supervision ── clients.send
"""

import numpy as np

from cluster.consensus.replica import ReplicatedState
from cluster.log.session_frames import ACK_LENGTH, frame_egress
from cluster.log.session_table import COMMITTED, COMMITTED_POSITION, CONNECTION_ID, TOUCHED_COUNT
from cluster.member.clients.supervision import Supervision, drain_egress
from cluster.member.ports import Clients
from cluster.member.status import MemberStatus
from cluster.protocol.link import CommitAck
from cluster.protocol.sbe import NULL_VALUE
from cluster.service.channel import NO_NUMBERS, ServiceChannel, ServiceEgress
from cluster.transport.message_frames import link_frame

BUFFER_BYTES = 1024 * 1024
_NO_ROWS = np.zeros(0, np.int64)
_NO_ANSWERS = ServiceEgress(0, _NO_ROWS, _NO_ROWS, _NO_ROWS, _NO_ROWS, np.zeros(0, np.uint8), NO_NUMBERS)


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
        self.buffer = np.zeros(BUFFER_BYTES + self._table.max_sessions * ACK_LENGTH, np.uint8)

    def poll(self) -> int:
        """Take what services answered since the last turn, and send it with the acks that are due."""
        is_leader = self._status.is_leading
        work_count = 0
        for batch in drain_egress(self._channels, self._replica.answers):
            work_count += 1
            if is_leader and len(batch):
                self._send(batch)
        if is_leader:
            work_count += self.supervision.send()
            if self._table.words[TOUCHED_COUNT]:
                self._send(_NO_ANSWERS)
                work_count += 1
        return work_count

    def acknowledge(self, session_id: int) -> None:
        """Report to a session now what of it is committed: its client has just come back."""
        row = self._table.slots[self._table.slot_of(session_id)].item()
        if row[CONNECTION_ID] != NULL_VALUE:
            term_id = self._replica.leadership_term_id
            ack = CommitAck(session_id, term_id, row[COMMITTED], row[COMMITTED_POSITION])
            self._clients.send(row[CONNECTION_ID], link_frame(ack))

    def _send(self, batch: ServiceEgress) -> None:
        row = 0
        while True:
            taken, ranges = frame_egress(
                self.buffer,
                batch.session_ids,
                batch.timestamps,
                batch.offsets,
                batch.lengths,
                batch.numbers,
                batch.buffer,
                row,
                batch.leadership_term_id,
                self._replica.leadership_term_id,
                self._table,
            )
            for connection_id, begin, end in ranges:
                self._clients.send(connection_id, self.buffer.data[begin:end])
            if taken == len(batch):
                return
            if taken == row:
                self.buffer = np.zeros(2 * len(self.buffer), np.uint8)  # for an answer longer than it
            row = taken
