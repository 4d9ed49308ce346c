"""How a client's session stands: what both clients say of it."""

from dataclasses import dataclass

from cluster.client.connecting import SessionOpening
from cluster.client.session_conductor import ClientState, SessionConductor
from cluster.protocol.lane import LaneStanding


@dataclass(slots=True)
class Standing:
    """A client's session, and another one that is opened in place of it."""

    session: SessionConductor
    lane: LaneStanding | None
    reopening: SessionOpening | None = None


class ClientStanding:
    """The state of a client's session, in ``ClusterClient`` and ``AsyncClusterClient``."""

    _standing: Standing

    @property
    def state(self) -> ClientState:
        """The state of the session, from CONNECTED to CLOSED (AeronCluster.State)."""
        standing = self._standing
        return standing.session.state if standing.reopening is None else ClientState.AWAIT_NEW_SESSION

    @property
    def is_closed(self) -> bool:
        """Whether the client has no session any more; ``why_closed`` has the reason."""
        return self._standing.session.state is ClientState.CLOSED and self._standing.reopening is None

    @property
    def why_closed(self) -> str:
        """Why the session is over, or empty. While a client reopens, why its last session ended."""
        return self._standing.session.why_closed

    @property
    def cluster_session_id(self) -> int:
        """Id of the session in the log; it changes after ``on_session_lost``."""
        return self._standing.session.cluster_session_id

    @property
    def leader_member_id(self) -> int:
        """The member that leads, or the last one that did, as far as the client knows."""
        return self._standing.session.leader_member_id

    @property
    def leadership_term_id(self) -> int:
        """The leadership term of that member."""
        return self._standing.session.leadership_term_id

    @property
    def offered(self) -> int:
        """How many messages of this session the client has accepted."""
        return self._standing.session.window.offered

    @property
    def acknowledged(self) -> int:
        """How many of them, from the first on, are known to be committed."""
        return self._standing.session.window.acknowledged

    @property
    def committed_position(self) -> int:
        """Log position after the last message that is known to be committed; -1 before the first."""
        return self._standing.session.committed_position

    @property
    def lane_rows(self) -> int:
        """Rows of the lane's batch in the log when this session opened the lane; 0 without a lane."""
        return 0 if self._standing.lane is None else self._standing.lane.rows

    @property
    def lane_standing(self) -> LaneStanding | None:
        """The same, with the positions of these rows in the log; None without a lane."""
        return self._standing.lane

    @property
    def max_payload_length(self) -> int:
        """The longest payload that the cluster accepts, in bytes."""
        return self._standing.session.payload_length_max
