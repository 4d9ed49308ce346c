"""Errors of services, as people read them: of each kind the first with its traceback, then counts."""

import traceback
from typing import Any

from cluster.errors import ServiceError
from cluster.protocol.service_link import ServiceRaised
from cluster.service.callbacks import raised_at

TRACE_LENGTH_MAX = 16_384  # characters, of its end


def service_error_fields(error: ServiceError, count: int) -> dict[str, Any]:
    """What a member reports of one: the ``count``-th of its kind in its process."""
    trace = error.trace or "".join(traceback.format_exception(error.__cause__))
    return {
        "kind": error.kind,
        "text": str(error),
        "position": error.log_position,
        "count": count,
        "trace": trace[-TRACE_LENGTH_MAX:] if count == 1 else "",
    }


def raised(error: Exception) -> ServiceRaised:
    """What a member hears of an error in the process of its service."""
    if not isinstance(error, ServiceError):
        return ServiceRaised(0, -1, False, "", "", b"", str(error).encode(), b"")
    cause = error.__cause__
    assert cause is not None
    session_id = -1 if error.cluster_session_id is None else error.cluster_session_id
    trace = "".join(traceback.format_exception(cause))[-TRACE_LENGTH_MAX:]
    return ServiceRaised(
        error.log_position,
        session_id,
        error.is_reported,
        error.callback,
        error.cause_name,
        raised_at(cause).encode(),
        str(cause).encode(),
        trace.encode(errors="replace"),
    )


class ServiceErrorText:
    """Text for each error that is reported; of each kind one traceback, whichever member was first."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def of(self, member_id: int, described: dict[str, Any], where_logged: str) -> str:
        """One line; below it traceback and ``where_logged``, when no member has reported the kind before."""
        line = f"member {member_id}: {described['text']}; at position {described['position']} of the log"
        if described["count"] > 1:
            return f"{line}, {described['count']} times so far\n"
        if described["kind"] in self._seen:
            return f"{line}\n"
        self._seen.add(described["kind"])
        return f"{line}\n{described['trace']}{where_logged}\n"
