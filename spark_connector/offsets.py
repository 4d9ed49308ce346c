"""Where a stream stands in the log, as the JSON that Spark keeps in its checkpoint.

    {"cluster": "0:1795233405608:1877313736", "from": 96, "position": 250144, "v": 1}
    {"cluster": "0:1795233405608:1877313736", "initial": true, "position": 96, "v": 1}

``position`` is excluded: the next entry starts there. ``cluster`` is the identity of the log: the
cluster id, and the timestamp and log session id of its first NewLeadershipTermEvent, which are the
same on every member; null says that the log had no entry yet.

Spark keeps only the ends of micro-batches, and asks for the initial offset again when it starts anew
over a first batch that was planned but not committed. ``latest`` would by then be somewhere else. So
an end says ``from`` where its batch began, and a batch that begins at an initial offset begins there.

Spark compares offsets as text. What changes without the log growing (leader, time) is not in them,
and an offset that did not move is handed back as it came.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cluster.errors import ConfigurationError, DataLoss

OFFSET_VERSION = 1


@dataclass(frozen=True, slots=True)
class Offset:
    """One end of a range of the log."""

    cluster: str | None
    position: int
    from_position: int | None = None  # where the micro-batch that ends here began
    initial: bool = False

    def to_json(self) -> dict[str, Any]:
        """The offset as Spark keeps it: always the same keys in the same order."""
        assert self.initial == (self.from_position is None)
        if self.initial:
            return {"cluster": self.cluster, "initial": True, "position": self.position, "v": OFFSET_VERSION}
        return {
            "cluster": self.cluster,
            "from": self.from_position,
            "position": self.position,
            "v": OFFSET_VERSION,
        }

    @classmethod
    def from_json(cls, given: Any) -> Offset:
        """Read an offset of a checkpoint. Raises ConfigurationError if it is none of ours."""
        if not isinstance(given, dict) or type(given.get("v")) is not int:
            raise ConfigurationError(f"the checkpoint's offset {given!r} is not one of the cluster source")
        if given["v"] > OFFSET_VERSION:
            raise ConfigurationError(
                f"the checkpoint's offset {given!r} has version {given['v']}, written by a newer release; "
                f"this one reads up to version {OFFSET_VERSION}"
            )
        offset = cls(
            given.get("cluster"), given.get("position", -1), given.get("from"), given.get("initial") is True
        )
        positions = [offset.position] if offset.initial else [offset.position, offset.from_position]
        if not (isinstance(offset.cluster, str | None) and all(type(p) is int and p >= 0 for p in positions)):
            raise ConfigurationError(f"the checkpoint's offset {given!r} is damaged")
        return offset


def identity_text(cluster_id: int, first_term_timestamp: int | None, log_session_id: int | None) -> str:
    """The identity of a log as it stands in offsets; ``?`` for what a purged log does not tell any more."""
    parts = (cluster_id, first_term_timestamp, log_session_id)
    return ":".join("?" if part is None else str(part) for part in parts)


def check_cluster(offset: Offset, cluster: str | None) -> str | None:
    """The identity to go on with after ``offset`` over the log ``cluster``: the one that tells more.

    Raises DataLoss when they are two logs.
    """
    if offset.cluster is None and offset.position == 0:
        return cluster  # taken before the log had an entry: it fits every log from its beginning
    if offset.cluster is None or cluster is None or not _are_one(offset.cluster, cluster):
        raise DataLoss(
            f"the checkpoint is of cluster {offset.cluster} (position {offset.position}), but what is read "
            f"now is cluster {cluster or 'without any entry'}; an identity is cluster id, timestamp and log "
            "session id of the first leadership term. Use the cluster of the checkpoint, or a new checkpoint"
        )
    return offset.cluster if "?" in cluster else cluster


def _are_one(cluster: str, other: str) -> bool:
    parts, other_parts = cluster.split(":"), other.split(":")
    return len(parts) == len(other_parts) and all(a == b or "?" in (a, b) for a, b in zip(parts, other_parts))


def batch_range(start: Offset, end: Offset) -> tuple[int, int]:
    """The positions ``[from, to)`` of the micro-batch between two offsets; empty if ``from == to``."""
    if start.initial:
        begin = end.position if end.from_position is None else end.from_position
    else:
        begin = start.position
    if begin > end.position:
        raise DataLoss(
            f"the checkpoint's offsets run backwards: a micro-batch from position {begin} to {end.position}"
        )
    return begin, end.position
