"""Whether another session is free, and for whom (protocol/shares.py)."""

from itertools import chain

from cluster.consensus.cluster_session import ClusterSession
from cluster.protocol.shares import FREE_MULTIPLE, beyond_share, principal_text, sharer_at


class SessionShares:
    """``pending`` and ``sessions`` are the manager's own."""

    def __init__(
        self, max_sessions: int, pending: list[ClusterSession], sessions: dict[int, ClusterSession]
    ) -> None:
        self._max_sessions = max_sessions
        self._pending = pending
        self._sessions = sessions

    def holder_at(self, address: str) -> str:
        """In whose share a client at an address is, until its principal is known."""
        return sharer_at(address)

    def refusal(self, holder: str | bytes, taken: int) -> str:
        """Why none is free for a holder while ``taken`` are; empty when one is, as for no holder."""
        free = self._max_sessions - taken
        if free <= 0:
            return f"concurrent session limit, {self._max_sessions} (max_sessions)"
        if not holder or taken < FREE_MULTIPLE * free:
            return ""
        count = sum(session.holder == holder for session in chain(self._pending, self._sessions.values()))
        name = holder if isinstance(holder, str) else f"principal {principal_text(holder)}"
        why = beyond_share(count, free)
        return why and f"concurrent session limit, {name} {why} (max_sessions)"
