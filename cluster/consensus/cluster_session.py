"""One client (or tool) as the consensus module sees it (Aeron: ClusterSession)."""

from enum import IntEnum

from cluster.consensus.context import NULL_POSITION, NULL_VALUE
from cluster.errors import LocalProtocolError
from cluster.protocol.consumer import Consumer, plain_principal
from cluster.protocol.enums import CloseReason, EventCode
from cluster.protocol.lane import Lane
from cluster.protocol.response_channel import is_supervised
from cluster.protocol.resume import resume_hash
from cluster.protocol.session import ENCODED_PRINCIPAL_LENGTH_MAX


class SessionState(IntEnum):
    """In Aeron's order; a connection here is there when its request is, so CONNECTING lasts no time."""

    INIT = 0
    CONNECTING = 1
    CONNECTED = 2
    CHALLENGED = 3
    AUTHENTICATED = 4
    REJECTED = 5
    OPEN = 6
    CLOSING = 7
    INVALID = 8
    CLOSED = 9


class SessionAction(IntEnum):
    """What a session was made for; only CLIENT ones are in the log."""

    CLIENT = 0
    BACKUP = 1
    HEARTBEAT = 2
    STANDBY_SNAPSHOT = 3


class ClusterSession:
    """``connection_id`` is -1 on a member that does not serve it; counts are in the session table."""

    __slots__ = (
        "action",
        "close_reason",
        "connection_id",
        "consumer",
        "correlation_id",
        "detail",
        "encoded_credentials",
        "encoded_principal",
        "event_code",
        "has_new_leader_event_pending",
        "has_open_event_pending",
        "holder",
        "id",
        "is_closed_by_service",
        "lane",
        "opened_log_position",
        "response_channel",
        "response_stream_id",
        "resume_correlation_id",
        "resume_hash",
        "state",
        "time_of_last_activity_ns",
    )

    def __init__(
        self,
        session_id: int,
        *,
        correlation_id: int,
        response_stream_id: int,
        response_channel: str,
        connection_id: int = NULL_VALUE,
        action: SessionAction = SessionAction.CLIENT,
        now_ns: int = 0,
    ) -> None:
        self.id = session_id
        self.action = action
        self.state = SessionState.INIT
        self.correlation_id = correlation_id
        self.response_stream_id = response_stream_id
        self.response_channel = response_channel
        self.resume_hash = resume_hash(response_channel)  # empty: it cannot be resumed
        self.connection_id = connection_id
        self.resume_correlation_id = NULL_VALUE  # of the newest SessionResume: older ones come late
        self.encoded_credentials = b""  # until it is decided about
        self.encoded_principal = b""
        self.holder: str | bytes = ""  # address or principal in whose share it is; empty: in nobody's
        self.lane: Lane | None = None  # that it asks for, until it is open
        self.consumer: Consumer | None = None  # that it reports, likewise
        self.opened_log_position = NULL_POSITION
        self.close_reason: CloseReason | None = None
        self.is_closed_by_service = False  # asked by the services of all members at one place in the log
        self.event_code: EventCode | None = None  # of the event that refuses the session
        self.detail = ""  # of that event, or of the one that closes it
        self.has_open_event_pending = True  # until a SessionEvent OK went out from this member
        self.has_new_leader_event_pending = False
        self.time_of_last_activity_ns = now_ns  # only until it is open

    @property
    def is_supervised(self) -> bool:
        """Whether every member keeps its answers until its client has them."""
        return is_supervised(self.response_channel)

    def reject(self, code: EventCode, detail: str) -> None:
        self.state = SessionState.REJECTED
        self.encoded_credentials = b""
        self.event_code = code
        self.detail = detail

    def authenticate(self, encoded_principal: bytes) -> None:
        if len(encoded_principal) > ENCODED_PRINCIPAL_LENGTH_MAX:
            raise LocalProtocolError(
                f"a principal of {len(encoded_principal)} bytes for session {self.id}: "
                f"at most {ENCODED_PRINCIPAL_LENGTH_MAX} are allowed"
            )
        self.encoded_principal = bytes(encoded_principal)
        self.encoded_credentials = b""
        self.state = SessionState.AUTHENTICATED

    def name(self, encoded_principal: bytes) -> None:
        """Whose it is, as the log says; a principal has a share of its own, wherever it comes from."""
        self.encoded_principal = encoded_principal
        self.holder = plain_principal(encoded_principal) or self.holder

    def open(self, log_position: int) -> None:
        """The session is in the log; its SessionOpenEvent ends at ``log_position``."""
        assert self.state in (SessionState.INIT, SessionState.AUTHENTICATED)  # read from the log, or let in
        self.state = SessionState.OPEN
        self.opened_log_position = log_position

    def closing(self, reason: CloseReason) -> None:
        """To be closed as soon as the log takes it; nothing more is sent to the client before."""
        assert self.state is SessionState.OPEN  # a close has one reason (I-7)
        self.close_reason = reason
        self.state = SessionState.CLOSING
        self.has_open_event_pending = False
        self.has_new_leader_event_pending = False
