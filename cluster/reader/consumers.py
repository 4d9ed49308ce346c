"""Consumer groups as a log has them, by the rules of the members (consensus/consumers.py)."""

from collections.abc import Iterable

import numpy as np

from cluster.consensus.consumers import ConsumerTable
from cluster.consensus.context import ConsensusModuleContext
from cluster.errors import RemoteProtocolError
from cluster.log.deliver import read_message
from cluster.log.entry_filter import EntryFilter
from cluster.protocol import decode
from cluster.protocol.log import SessionOpenEvent
from cluster.protocol.sbe import kind_at
from cluster.protocol.snapshot import SnapshotConsumer
from cluster.reader.counted import CountedLog, count_log

REPORTS = EntryFilter(("SESSION_OPEN",))  # what a reader of groups needs of the log


class ConsumerCount:
    """Takes the records of a snapshot, if there is one, and then the committed log after it."""

    def __init__(self) -> None:
        self._consumers = ConsumerTable(ConsensusModuleContext())

    def load(self, records: Iterable[bytes], log_position: int) -> None:
        """Begin from the snapshot of a consensus module at ``log_position``. Raises RemoteProtocolError."""
        found = [message for message in map(decode, records) if isinstance(message, SnapshotConsumer)]
        try:
            self._consumers.load(found, log_position)
        except UnicodeDecodeError as error:
            raise RemoteProtocolError(f"snapshot: consumer group {error.object!r}: {error.reason}") from None

    def take(self, position: int, block: np.ndarray) -> None:
        """Take the reports of ``block``, which has whole messages."""
        offset = 0
        while offset < len(block):
            message, end = read_message(block, offset, len(block))
            if end == offset:
                return
            if message is not None and kind_at(message) == SessionOpenEvent.KIND:
                event = SessionOpenEvent.decode(message)
                self._consumers.on_open(bytes(event.encoded_principal), event.timestamp)
            offset = end

    def groups(self) -> list[SnapshotConsumer]:
        """All groups by name."""
        return list(self._consumers.records())


def reported_groups(log: CountedLog) -> dict[str, SnapshotConsumer]:
    """The groups by name, by ``REPORTS`` and the newest snapshot of a purged log. Raises ClusterError."""
    log.end_position()  # waits for a majority: to one member that lags a group has not reported, or less
    return {record.group.decode(): record for record in count_log(ConsumerCount(), log).groups()}
