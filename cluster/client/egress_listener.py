"""What a client may hear, as a class to derive from (Aeron: EgressListener)."""

from __future__ import annotations

from cluster.protocol.enums import AdminResponseCode, EventCode


class EgressListener:
    """Override what is of interest; any object with some of these methods does as well.

    Without ``on_message`` of its own, answers stay for who takes them by ``answers``.
    Payloads are the listener's until it returns. One that takes whole runs at once has ``on_messages``
    instead of ``on_message`` (``egress_dispatch.py``); it is not here, because having it means being called.
    """

    def on_message(self, cluster_session_id: int, timestamp: int, payload: memoryview) -> None:
        """An answer of the service; ``timestamp`` is cluster time of the log entry that it answers."""

    def on_session_event(
        self,
        correlation_id: int,
        cluster_session_id: int,
        leadership_term_id: int,
        leader_member_id: int,
        code: EventCode,
        detail: str,
    ) -> None:
        """The session was opened, redirected, refused or closed."""

    def on_new_leader(
        self, cluster_session_id: int, leadership_term_id: int, leader_member_id: int, ingress_endpoints: str
    ) -> None:
        """The session goes on with another leader; the client follows by itself."""

    def on_admin_response(
        self,
        cluster_session_id: int,
        correlation_id: int,
        request_type: int,
        response_code: AdminResponseCode,
        message: str,
        payload: bytes,
    ) -> None:
        """What became of an admin request."""

    def on_session_lost(self, cluster_session_id: int, why: str, uncommitted_messages: int) -> None:
        """A client with ``reopen`` lost its session, and opens another: ``on_session_event`` tells its id.

        The last so many messages of the lost one may be in the log or not; they are not sent again.
        """
