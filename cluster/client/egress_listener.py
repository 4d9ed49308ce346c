"""What a client may hear, as a class to derive from (Aeron: EgressListener)."""

from cluster.protocol.enums import AdminResponseCode, EventCode


class EgressListener:
    """Override the methods that you need. Any object with some of these methods will do, too.

    Without an ``on_message``, answers go to ``answers``. A payload is valid until the method returns. A
    listener may have ``on_messages`` instead of ``on_message``, to get whole runs at once
    (``egress_dispatch.py``). This class does not define it, because a listener that has it is called.
    """

    def on_message(self, cluster_session_id: int, timestamp: int, payload: memoryview) -> None:
        """An answer of the service; ``timestamp`` is the cluster time of the entry that it answers."""

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
        """Another member leads, and the session continues; the client follows by itself."""

    def on_admin_response(
        self,
        cluster_session_id: int,
        correlation_id: int,
        request_type: int,
        response_code: AdminResponseCode,
        message: str,
        payload: bytes,
    ) -> None:
        """The outcome of an admin request."""

    def on_session_lost(self, cluster_session_id: int, why: str, uncommitted_messages: int) -> None:
        """The session of a client with ``reopen`` is lost. ``on_session_event`` reports the next one.

        The last ``uncommitted_messages`` of the lost session may or may not be in the log; the client does
        not send them again.
        """
