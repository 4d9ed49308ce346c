"""What is counted in a whole log: by the newest snapshot, and by all that is committed after it."""

from collections.abc import Iterable
from typing import Protocol, TypeVar

import numpy as np

from cluster.transport.committed_log import AS_COMMITTED, CommittedLog


class CountedLog(CommittedLog, Protocol):
    """A log beside which there are snapshots: that of a directory, or of members elsewhere."""

    def module_snapshot(self) -> tuple[int, Iterable[bytes]] | None:
        """Log position and records of the newest, or None; where the log has its start there may be none."""


class LogCount(Protocol):
    """What is counted."""

    def load(self, records: Iterable[bytes], log_position: int) -> None:
        """Begin from the snapshot of a consensus module at ``log_position``. Raises RemoteProtocolError."""

    def take(self, position: int, block: np.ndarray) -> None:
        """Count what ``block`` has, whole messages from ``position`` on. Raises LogDamaged."""


Count = TypeVar("Count", bound=LogCount)


def count_log(count: Count, log: CountedLog) -> Count:
    """Count what a log has, and what its newest snapshot says of the log before. Raises ClusterError."""
    position = log.start_position
    if (snapshot := log.module_snapshot()) is not None:
        position, records = snapshot
        count.load(records, position)
    for begin, block in log.blocks(position, log.commit_position(), AS_COMMITTED):
        count.take(begin, block)
    return count
