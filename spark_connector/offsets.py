"""Where a stream stands in the log, as the JSON that Spark keeps in its checkpoint.

    {"v": 2, "cluster": "0:1795233405608:1877313736", "position": 250144,
     "term": "3:139424:1795233499120:-220144", "from": 96,
     "plan": {"maxBytesPerPartition": 67108864, "minPartitions": 1, "maxPartitions": 200}}
    {"v": 2, "cluster": "0:1795233405608:1877313736", "position": 96}

``position`` is excluded: the next entry starts there. ``cluster`` is the identity of the log: the
cluster id, and the timestamp and log session id of its first NewLeadershipTermEvent, which are the
same on every member; null says that the log had no entry yet. ``term`` is the leadership term of the last
entry before ``position``, where that is known: a token, which says why (``cluster.protocol.token``).

The end of a micro-batch says besides how it was planned; a stream's initial offset, which ends none, does
not. ``from`` is where the batch began: Spark keeps only the ends of batches, and asks for the initial offset
again when it restarts over a first batch that was planned but not committed. ``latest`` would by then be
somewhere else. ``plan`` holds the options by which the batch was cut into tasks: one that runs again has the
same tasks, whatever the options are by then.

Spark compares offsets as text. What changes without the log growing (leader, time) is not in them,
and an offset that did not move is handed back as it came. 0.1 wrote no ``term``. Version 1 had no ``plan``,
and ``"initial": true`` in an initial offset; a batch that it planned is cut by the options of the day.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cluster.errors import ConfigurationError, DataLoss
from cluster.protocol.frame import FRAME_ALIGNMENT
from cluster.protocol.token import TOKEN_VERSION, is_one_log
from spark_connector.planning import PlanLimits

OFFSET_VERSION = TOKEN_VERSION  # the text of an offset is a token
MANY_OFFSET_VERSION = 3  # maps the names of several clusters to their offsets (``many_clusters``)


@dataclass(frozen=True, slots=True)
class Offset:
    """One end of a range of the log."""

    cluster: str | None
    position: int
    from_position: int | None = None  # where the micro-batch that ends here began; None: no batch ends here
    limits: PlanLimits | None = None  # how that batch is cut into tasks; None: version 1 did not say
    term: str | None = None  # that of the last entry before ``position``; None: not known

    def to_json(self) -> dict[str, Any]:
        """The offset as Spark keeps it: always the same keys in the same order."""
        made: dict[str, Any] = {"v": OFFSET_VERSION, "cluster": self.cluster, "position": self.position}
        if self.term is not None:
            made["term"] = self.term
        if self.from_position is not None:
            assert self.limits is not None
            made |= {"from": self.from_position, "plan": dict(zip(_LIMIT_NAMES, self.limits))}
        return made

    @classmethod
    def from_json(cls, given: Any) -> Offset:
        """Read an offset of a checkpoint. Raises ConfigurationError if it is none of ours."""
        if not isinstance(given, dict) or type(given.get("v")) is not int:
            raise ConfigurationError(f"the checkpoint's offset {given!r} is not one of the cluster source")
        if given["v"] == MANY_OFFSET_VERSION:
            raise ConfigurationError(
                f"the checkpoint's offset {given!r:.200} is of several clusters by their names; expected "
                "that of one cluster, or a read with an option such as endpoints.NAME for each of them"
            )
        if given["v"] > OFFSET_VERSION:
            raise ConfigurationError(
                f"the checkpoint's offset {given!r} has version {given['v']}, written by a newer release; "
                f"this one reads up to version {MANY_OFFSET_VERSION}"
            )
        ends_a_batch = "from" in given if given["v"] > 1 else given.get("initial") is not True
        position: Any = given.get("position")
        begin: Any = given.get("from") if ends_a_batch else None
        positions = [position, begin] if ends_a_batch else [position]
        are_positions = all(type(at) is int and at >= 0 and at % FRAME_ALIGNMENT == 0 for at in positions)
        are_texts = all(isinstance(given.get(name), str | None) for name in ("cluster", "term"))
        if not are_positions or not are_texts:
            raise ConfigurationError(f"the checkpoint's offset {given!r} is damaged")
        limits = _limits(given) if ends_a_batch and given["v"] > 1 else None
        return cls(given.get("cluster"), position, begin, limits, given.get("term"))


_LIMIT_NAMES = ("maxBytesPerPartition", "minPartitions", "maxPartitions")  # in the order of PlanLimits


def _limits(given: dict[str, Any]) -> PlanLimits:
    """How the batch that ends at the offset ``given`` was planned. Raises ConfigurationError for nonsense."""
    plan = given.get("plan")
    values: list[Any] = [plan.get(name) for name in _LIMIT_NAMES] if isinstance(plan, dict) else []
    if not values or not all(type(value) is int and value > 0 for value in values) or values[1] > values[2]:
        raise ConfigurationError(f"the checkpoint's offset {given!r} is damaged")
    return PlanLimits(*values)


def check_cluster(offset: Offset, cluster: str | None) -> str | None:
    """The identity to go on with, the one that has more. Raises DataLoss when they are two logs."""
    if offset.cluster is None and offset.position == 0:
        return cluster  # taken before the log had an entry: it fits every log from its beginning
    if offset.cluster is None or cluster is None or not is_one_log(offset.cluster, cluster):
        raise DataLoss(
            f"the checkpoint is of cluster {offset.cluster} (position {offset.position}), but what is read "
            f"now is cluster {cluster or 'without any entry'}; an identity is cluster id, timestamp and log "
            "session id of the first leadership term. Use the cluster of the checkpoint, or a new checkpoint"
        )
    return offset.cluster if "?" in cluster else cluster


def batch_range(start: Offset, end: Offset) -> tuple[int, int]:
    """The positions ``[from, to)`` between two offsets; after ``start`` where a purge was no failure."""
    if start.from_position is None:
        begin = end.position if end.from_position is None else end.from_position
    else:
        begin = max(start.position, end.from_position or 0)
    if begin > end.position:
        raise DataLoss(
            f"the checkpoint's offsets run backwards: a micro-batch from position {begin} to {end.position}"
        )
    return begin, end.position
