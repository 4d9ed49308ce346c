"""Lanes as the log in a directory has them, counted as members count (consensus/lanes.py)."""

from collections.abc import Iterable

import numpy as np

from cluster.consensus.context import ConsensusModuleContext
from cluster.consensus.lanes import LaneTable
from cluster.errors import RemoteProtocolError
from cluster.log.deliver import read_message
from cluster.log.follow import follow_log
from cluster.log.frames import OTHER_MESSAGE
from cluster.log.session_table import SessionTable
from cluster.protocol import decode
from cluster.protocol.log import SessionCloseEvent, SessionOpenEvent
from cluster.protocol.snapshot import SnapshotLane, SnapshotSession

SESSIONS_MAX = 1_000_000  # at one time; no member takes more


class LaneCount:
    """Takes the records of a snapshot, if there is one, and then the committed log after it."""

    def __init__(self) -> None:
        self._table = SessionTable(SESSIONS_MAX)
        self._lanes = LaneTable(ConsensusModuleContext(), self._table)

    def load(self, records: Iterable[bytes], log_position: int) -> None:
        """Begin from the snapshot of a consensus module at ``log_position``. Raises RemoteProtocolError."""
        lanes = []
        for record in records:
            message = decode(record)
            if isinstance(message, SnapshotSession):
                session_id = message.cluster_session_id
                if session_id <= 0 or self._table.slot_of(session_id) >= 0:
                    raise RemoteProtocolError(
                        f"snapshot: session {session_id}, expected each once, from 1 on"
                    )
                row = self._table.slots[self._table.open(session_id)]
                row["appended"] = row["committed"] = message.committed_messages
                row["committed_position"] = message.committed_position
            elif isinstance(message, SnapshotLane):
                lanes.append(message)
        try:
            self._lanes.load(lanes, log_position)
        except UnicodeDecodeError as error:
            raise RemoteProtocolError(f"snapshot: application {error.object!r}: {error.reason}") from None

    def take(self, position: int, block: np.ndarray) -> None:
        """Count what ``block`` has, whole messages from ``position`` on. Raises LogDamaged."""
        status, offset, _ = follow_log(block, 0, len(block), position, self._table)
        while status == OTHER_MESSAGE:
            message, offset = read_message(block, offset, len(block))
            if message is not None:
                self._on_entry(message, position + offset)
            status, offset, _ = follow_log(block, offset, len(block), position + offset, self._table)

    def _on_entry(self, message: bytes, log_position: int) -> None:
        match decode(message):
            case SessionOpenEvent(cluster_session_id=id_, encoded_principal=principal, timestamp=time):
                self._table.open(id_)
                self._lanes.on_open(id_, bytes(principal), log_position, time)
            case SessionCloseEvent(cluster_session_id=id_) if self._table.slot_of(id_) >= 0:
                self._lanes.on_close(id_)
                self._table.close(id_)

    def lanes(self) -> list[SnapshotLane]:
        """All lanes by application and partition; ``rows`` with those of the session that has the lane."""
        return [record.replace(rows=record.rows + self._kept(record)) for record in self._lanes.records()]

    def _kept(self, record: SnapshotLane) -> int:
        slot = self._table.slot_of(record.holder_session_id)
        return int(self._table.slots["committed"][slot]) if slot >= 0 else 0
