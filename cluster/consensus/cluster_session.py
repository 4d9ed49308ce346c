"""One client (or tool) as the consensus module sees it (Aeron: ClusterSession)."""

from dataclasses import KW_ONLY, dataclass, field
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


@dataclass(eq=False, slots=True)
class ClusterSession:
    """``connection_id`` is -1 on a member that does not serve it; counts are in the session table."""

    id: int
    _: KW_ONLY
    correlation_id: int
    response_stream_id: int
    response_channel: str
    connection_id: int = NULL_VALUE
    action: SessionAction = SessionAction.CLIENT
    time_of_last_activity_ns: int = 0  # only until it is open
    state: SessionState = SessionState.INIT
    resume_hash: str = field(init=False)  # empty: it cannot be resumed
    resume_correlation_id: int = NULL_VALUE  # of the newest SessionResume: older ones come late
    encoded_credentials: bytes = b""  # until it is decided about
    encoded_principal: bytes = b""
    holder: str | bytes = ""  # address or principal in whose share it is; empty: in nobody's
    lane: Lane | None = None  # that it asks for, until it is open
    consumer: Consumer | None = None  # that it reports, likewise
    opened_log_position: int = NULL_POSITION
    close_reason: CloseReason | None = None
    is_closed_by_service: bool = False  # asked by the services of all members at one place in the log
    event_code: EventCode | None = None  # of the event that refuses the session
    detail: str = ""  # of that event, or of the one that closes it
    has_open_event_pending: bool = True  # until a SessionEvent OK went out from this member
    has_new_leader_event_pending: bool = False

    def __post_init__(self) -> None:
        self.resume_hash = resume_hash(self.response_channel)

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
