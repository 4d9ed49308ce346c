"""One request to one member, over a client's connection that is made for it."""

from cluster.client.ingress_publication import IngressPublication
from cluster.protocol.backup import BackupQuery, BackupResponse, StandbySnapshot
from cluster.protocol.sbe import Message
from cluster.protocol.session import Challenge, ChallengeResponse, SessionEvent
from cluster.transport.credentials import CredentialsSupplier
from cluster.transport.dialler import Dialler
from cluster.transport.endpoint import Endpoint
from cluster.transport.log_client import Unreachable


class MemberRequest:
    """``poll`` takes it on; a challenge of the member's authenticator is answered."""

    def __init__(
        self,
        endpoint: Endpoint,
        world: Dialler,
        credentials: CredentialsSupplier,
        cluster_id: int,
        request: BackupQuery | StandbySnapshot,
    ) -> None:
        self._endpoint = endpoint
        self._world = world
        self._credentials = credentials
        self._publication = IngressPublication(-1, endpoint, world.dial(endpoint), cluster_id)
        self._correlation_id = request.correlation_id
        self._unsent: Message | None = request.replace(encoded_credentials=credentials.encoded_credentials())

    @property
    def is_sent(self) -> bool:
        """Whether the member has all that was to be said."""
        return self._unsent is None

    def poll(self) -> BackupResponse | SessionEvent | None:
        """The answer, once it is there. Raises Unreachable when the connection is lost, or refused."""
        publication = self._publication
        self._world.poll()
        publication.do_work()
        if self._unsent is not None and publication.offer(self._unsent) > 0:
            self._unsent = None
        for message in publication.receive():
            if getattr(message, "correlation_id", None) != self._correlation_id:
                continue
            if isinstance(message, BackupResponse | SessionEvent):
                self.close()
                return message
            if isinstance(message, Challenge):
                self._answer(message)
        if publication.is_closed:
            raise Unreachable(f"{self._endpoint}: {publication.connection.why_closed}")
        return None

    def _answer(self, challenge: Challenge) -> None:
        self._correlation_id += 1
        self._unsent = ChallengeResponse(
            self._correlation_id,
            challenge.cluster_session_id,
            self._credentials.on_challenge(challenge.encoded_challenge),
        )

    def close(self) -> None:
        self._publication.connection.close()
