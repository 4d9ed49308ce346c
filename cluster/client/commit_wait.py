"""Waiting until what was offered is committed, whoever does the waiting."""

from collections.abc import Callable

from cluster.client.session_conductor import SessionConductor
from cluster.errors import ClientClosed, TimedOut


class CommitWait:
    """For the messages of one session that are offered before; others may go on offering meanwhile."""

    def __init__(self, session: SessionConductor, now_ns: Callable[[], int], timeout_s: float | None) -> None:
        self._session = session
        self._offered = session.window.offered
        self._now_ns = now_ns
        self._timeout_s = timeout_s
        self._begin_ns = now_ns()

    @property
    def position(self) -> int:
        """Log position after the last message that is known to be committed."""
        return self._session.committed_position

    def rest_s(self, rest_max_s: float) -> float:
        """How long to wait before the next look, so that the time-out is not missed."""
        if self._timeout_s is None:
            return rest_max_s
        left_s = self._timeout_s - (self._now_ns() - self._begin_ns) / 1e9
        return min(max(left_s, 0.0), rest_max_s)

    def is_over(self) -> bool:
        """Whether all are committed. Raises TimedOut with how many are not, or ClientClosed."""
        session = self._session
        missing, offered = self._offered - session.window.acknowledged, self._offered
        if missing <= 0:
            return True
        if session.is_closed:
            raise ClientClosed(
                f"session {session.cluster_session_id} closed ({session.why_closed}) with "
                f"{missing} of {offered} messages not known to be committed"
            )
        if self._timeout_s is not None and self._now_ns() - self._begin_ns > self._timeout_s * 1e9:
            raise TimedOut(f"{missing} of {offered} messages are not committed after {self._timeout_s:g} s")
        return False
