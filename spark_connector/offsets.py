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
        cluster, position = given.get("cluster"), given.get("position")
        initial, from_position = given.get("initial", False), given.get("from")
        if not (
            (cluster is None or isinstance(cluster, str))
            and _is_position(position)
            and (from_position is None if initial is True else _is_position(from_position))
        ):
            raise ConfigurationError(f"the checkpoint's offset {given!r} is damaged")
        return cls(cluster, position, from_position, initial is True)


def identity_text(cluster_id: int, first_term_timestamp: int, log_session_id: int) -> str:
    """The identity of a log as it stands in offsets."""
    return f"{cluster_id}:{first_term_timestamp}:{log_session_id}"


def check_cluster(offset: Offset, cluster: str | None) -> None:
    """Raise DataLoss unless ``offset`` belongs to the log that is there, whose identity is ``cluster``."""
    if offset.cluster is None and offset.position == 0:
        return  # taken before the log had an entry: it fits every log from its beginning
    if offset.cluster != cluster:
        raise DataLoss(
            f"the checkpoint is of cluster {offset.cluster} (position {offset.position}), but what is read "
            f"now is cluster {cluster or 'without any entry'}; an identity is cluster id, timestamp and log "
            "session id of the first leadership term. Use the cluster of the checkpoint, or a new checkpoint"
        )


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


def _is_position(value: Any) -> bool:
    return type(value) is int and value >= 0
