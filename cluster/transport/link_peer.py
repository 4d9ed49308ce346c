"""What is known of the other end of a link: both of its connections, and who it is."""

from dataclasses import dataclass, field

from cluster.log.connection_table import LINK_IN, LINK_OUT
from cluster.protocol.enums import RefusedCertificate
from cluster.transport.endpoint import Endpoint
from cluster.transport.sockets import Connection


@dataclass(eq=False, slots=True)
class LinkClaim:
    """A connection whose Hello is of another process than the one that we know at the member's address."""

    connection: Connection
    incarnation: int
    crc: int
    deadline_ns: int  # of the answer
    is_kept_alive: bool
    question: Connection | None = None  # to the member's address, who is there


@dataclass(eq=False, slots=True)
class LinkPeer:
    """One other member, and both connections of its link, each with the checksum of all that went over it."""

    member_id: int
    endpoint: Endpoint
    first_dial_ns: int
    outgoing: Connection | None = None
    outgoing_incarnation: int | None = None  # None until its HelloReply
    incoming: Connection | None = None  # only after its Hello
    incoming_incarnation: int | None = None
    incarnation: int | None = None  # of the process that last answered at its address
    claim: LinkClaim | None = None
    is_up: bool = False
    is_gone: bool = False
    is_kept_alive: bool = False  # by the other side, too: members of earlier releases may be silent
    sent_ns: int = 0  # when something went out last, and the checksum after it
    sent_crc: int = 0
    up_since_ns: int = 0
    lost_ns: int | None = None  # when it was up last
    refusals: int = 0
    refused_certificate: RefusedCertificate = RefusedCertificate.NONE  # by the last dial that was answered
    next_question_ns: int = field(init=False)
    next_dial_ns: int = field(init=False)
    dial_ns: int = 0

    def __post_init__(self) -> None:
        self.next_question_ns = self.next_dial_ns = self.first_dial_ns

    def on_up(self, now_ns: int) -> None:
        """Frames can be sent, and come."""
        self.is_up = True
        self.is_gone = False
        self.refused_certificate = RefusedCertificate.NONE
        incoming, outgoing = self._connections()
        self.up_since_ns = incoming.heard_ns = self.sent_ns = now_ns
        self.sent_crc = outgoing.crc

    def on_lost(self, now_ns: int) -> None:
        """A connection of the link that was up has ended: it is dialled again at once."""
        self.is_up = False
        self.refusals = 0
        self.next_dial_ns = self.lost_ns = now_ns

    def is_quiet(self, now_ns: int, quiet_ns: int) -> bool:
        """Whether nothing was sent for so long; whoever hears that it is sends something now."""
        _, outgoing = self._connections()
        if outgoing.crc != self.sent_crc:
            self.sent_ns, self.sent_crc = now_ns, outgoing.crc
        if now_ns - self.sent_ns < quiet_ns:
            return False
        self.sent_ns = now_ns
        return True

    @property
    def awaits_dial(self) -> bool:
        """Whether it is to be dialled, at ``next_dial_ns``."""
        return not self.is_up and self.outgoing is None

    @property
    def is_broken(self) -> bool:
        """Whether a connection of the link has ended, which its owner has not looked at yet."""
        return any(
            connection is not None and connection.is_closed for connection in (self.incoming, self.outgoing)
        )

    @property
    def awaits_events(self) -> bool:
        """Whether there is nothing to be read or seen to, until a socket or time gives more."""
        if self.claim is not None or self.is_broken:
            return False
        if self.is_up:
            return self.incoming is not None and not (self.incoming.is_readable or self.incoming.has_frames)
        is_dialling = self.outgoing is None or not (self.outgoing.is_connected or self.outgoing.is_readable)
        return is_dialling and self.incoming is None

    def serve(self) -> int:
        """Let kernels use both connections; returns the descriptor of the one that sends."""
        incoming, outgoing = self._connections()
        incoming.serve(LINK_IN, self.member_id)
        outgoing.serve(LINK_OUT, self.member_id)
        return outgoing.descriptor

    def _connections(self) -> tuple[Connection, Connection]:
        assert self.incoming is not None and self.outgoing is not None
        return self.incoming, self.outgoing
