"""What the agent is given: the media, by what it calls on them. The simulator gives others."""

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from cluster.archive.files import Buffer
from cluster.transport.links import LinksHandler
from cluster.transport.log_client import RecordingAnswer
from cluster.transport.published_log import PublishedLog
from cluster.transport.server import ClientsHandler, Heard


class Links(Protocol):
    """Links to the other members (``cluster.transport.links.MemberLinks``)."""

    def poll(self, handler: LinksHandler) -> int: ...

    def send(self, member_id: int, *buffers: Buffer) -> int:
        """Send whole frames, all or nothing; not above 0 when they were not taken."""

    def is_up(self, member_id: int) -> bool: ...

    def is_stable(self, member_id: int) -> bool: ...

    def queued_bytes(self, member_id: int) -> int: ...

    def is_full(self, member_id: int) -> bool:
        """Whether so much is queued for the member that recorded bytes wait."""

    def publish(self, log: PublishedLog | None) -> None:
        """Have members that ask for no log get this one from its present end on; None: it ends."""

    def serve(self, member_id: int) -> int | None:
        """Let kernels receive on the link, and send at this descriptor; None when it is down."""

    def withhold(self, member_id: int) -> None:
        """Let kernels receive on the link no more."""

    @property
    def awaits_events(self) -> bool:
        """Whether another ``poll`` would find nothing but what a socket or time gives it."""

    @property
    def next_dial_ns(self) -> int:
        """When time gives ``poll`` a member to dial; NEVER_NS while no member is to be dialled."""


class Clients(Protocol):
    """Connections of clients (``cluster.transport.server.ClientPort``)."""

    @property
    def has_ready(self) -> bool:
        """Whether some have sent what was not taken yet."""

    def poll(self, handler: ClientsHandler) -> int: ...

    def greet(self, handler: ClientsHandler, heard: Heard) -> int:
        """Take connections and their Hello: who reads or administers is served, in every phase.

        Of clients with a session nothing is taken.
        """

    def send(self, connection_id: int, *buffers: Buffer) -> int: ...

    def is_connected(self, connection_id: int) -> bool: ...

    def certificate_name(self, connection_id: int) -> str | None: ...

    def is_over_tcp(self, connection_id: int) -> bool:
        """Whether the client came to the TCP port of the member, and not by gRPC or over a Unix socket."""

    def address(self, connection_id: int) -> str:
        """The client's in the network, over gRPC, too; empty over a Unix socket."""

    def dial(self, session_id: int, response_channel: str, response_stream_id: int) -> None:
        """Have a session's client reached; the connection comes by ``poll``, or never."""

    def dialled_session(self, connection_id: int) -> int | None:
        """The session for which it was dialled; None of a connection that came by itself."""

    def close(self, connection_id: int, why: str = ...) -> None:
        """Close once what was sent is out."""


class FetchedRecordings(Protocol):
    """Recordings of another archive, one after the other, as it answers ``LogClient.read_recording``."""

    def poll(self) -> RecordingAnswer | None:
        """The next part, None while there is none; never waits. Raises ClusterError when none will come."""

    def close(self) -> None: ...


# Begins to fetch recordings by their ids from the archive at an endpoint. Raises ConfigurationError.
FetchRecordings: TypeAlias = Callable[[str, Sequence[int]], FetchedRecordings]


class Peers(NamedTuple):
    """The other members, for a part that asks them for something."""

    ids: Sequence[int]
    gone_ids: Collection[int]  # whose processes are known to be gone; changes as that is found out
    links: Links
