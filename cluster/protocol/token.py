"""A place in one cluster's log, as text that clients hand to readers: that of an offset of Spark's source.

    {"v": 2, "cluster": "0:1795233405608:1877313736", "position": 250144,
     "term": "3:139424:1795233499120:-220144"}

Who knows that a message is committed reads at least as far with it, at whatever member. ``cluster``
is the identity of the log: the cluster id, and the timestamp and log session id of its first
NewLeadershipTermEvent, which are the same on every member. ``term``, which may be left out, is the leadership
term of the last entry before ``position``: its id, its base position, and the same two of its own
event. Two logs that have it there are the same up to there (Raft's log matching), so a cluster has another
history than one restored to an earlier position. An offset of a checkpoint is a token too: what the
planning of a micro-batch adds to it is passed over.
"""

import json
from typing import Any, NamedTuple

from cluster.errors import ConfigurationError
from cluster.protocol.link import LogStatus
from cluster.protocol.log import NewLeadershipTermEvent

TOKEN_VERSION = 2


class LogIdentity(NamedTuple):
    """What distinguishes one cluster's log from another's, the same on every member.

    Timestamp and log session id of the first NewLeadershipTermEvent; both are None when the log's head was
    purged by a real Aeron archive, which does not keep them.
    """

    cluster_id: int
    first_term_timestamp: int | None
    log_session_id: int | None


class PositionToken(NamedTuple):
    """A place in a log: everything before ``position``, which is exclusive.

    ``cluster`` is None for a log without entries. ``term`` is the leadership term of the last entry before
    ``position``, or None if it is not known.
    """

    cluster: str | None
    position: int
    term: str | None = None

    def to_text(self) -> str:
        """The token as JSON, which ``parse_token`` reads; an offset of the Spark source is the same text."""
        term = {} if self.term is None else {"term": self.term}
        return json.dumps({"v": TOKEN_VERSION, "cluster": self.cluster, "position": self.position, **term})

    def is_of(self, cluster: str | None) -> bool:
        """Whether this may be a place in the log ``cluster``; an unknown part matches anything."""
        return self.cluster is None or cluster is None or is_one_log(self.cluster, cluster)


def parse_token(text: str) -> PositionToken:
    """Read a token. Raises ConfigurationError, with the text, if it is not one."""
    try:
        given: Any = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        given = None
    if not isinstance(given, dict) or not _is_token(given):
        raise ConfigurationError(
            f"{text!r:.200} is no position token; expected the text of client.token() or of an offset, "
            f"up to version {TOKEN_VERSION}"
        )
    return PositionToken(given.get("cluster"), given["position"], given.get("term"))


def _is_token(given: dict[str, Any]) -> bool:
    version, position = given.get("v"), given.get("position")
    return (
        type(version) is int
        and 0 < version <= TOKEN_VERSION
        and type(position) is int
        and position >= 0
        and isinstance(given.get("cluster"), str | None)
        and isinstance(given.get("term"), str | None)
    )


def identity_of(status: LogStatus) -> LogIdentity | None:
    """Whose log a member has, None while it has no entry."""
    timestamp, session_id = status.first_term_timestamp, status.first_log_session_id
    if session_id is None and status.commit_position < status.term_length:
        return None  # no entry yet, and none purged
    return LogIdentity(status.cluster_id, timestamp, session_id)


def identity_text(cluster_id: int, first_term_timestamp: int | None, log_session_id: int | None) -> str:
    """The identity of a log as it stands in tokens; ``?`` for what a purged log does not have any more."""
    parts = (cluster_id, first_term_timestamp, log_session_id)
    return ":".join("?" if part is None else str(part) for part in parts)


def term_text(event: NewLeadershipTermEvent) -> str:
    """A leadership term as it stands in tokens."""
    term_id, base = event.leadership_term_id, event.term_base_log_position
    return f"{term_id}:{base}:{event.timestamp}:{event.log_session_id}"


def is_in_term(term: str | None, last_term_id: int, position: int) -> bool:
    """Whether the last entry before ``position`` is of ``term``, in a log whose last is known."""
    if term is None:
        return False
    term_id, base, *_ = term.split(":")
    return int(term_id) == last_term_id and int(base) < position


def other_history(token_term: str | None, position: int, term: str | None) -> str | None:
    """Why a token at ``position`` is not of the log that has ``term`` there; None if it may be."""
    if token_term is None or term is None or is_one_log(token_term, term):
        return None
    return (
        f"position {position} in leadership term {token_term}, but the log has term {term} there: the "
        "cluster was restored to an earlier position and has gone on to other entries"
    )


def is_one_log(cluster: str, other: str) -> bool:
    """Whether two identities, or two terms, may be the same: what one does not have fits everything."""
    parts, other_parts = cluster.split(":"), other.split(":")
    return len(parts) == len(other_parts) and all(a == b or "?" in (a, b) for a, b in zip(parts, other_parts))
