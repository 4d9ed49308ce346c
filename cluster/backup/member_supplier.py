"""One member over the network: a backup queries it as a client would, and copies as a reader of the log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from cluster.client.ingress_publication import IngressPublication, MemberConnection
from cluster.protocol import link
from cluster.protocol.backup import BackupQuery, BackupResponse
from cluster.protocol.sbe import Message
from cluster.protocol.session import Challenge, ChallengeResponse, SessionEvent
from cluster.transport.credentials import CredentialsSupplier
from cluster.transport.endpoint import Endpoint
from cluster.transport.log_client import Answer, LogClient, RecordingAnswer, Unreachable

BLOCK_BYTES = 1024 * 1024


class ConnectionMaker(Protocol):
    """What connects to members (``cluster.transport.dialler.Dialler``)."""

    def dial(self, endpoint: Endpoint) -> MemberConnection: ...

    def poll(self) -> None:
        """Mark the connections that are ready; never waits."""
        ...


class MemberSupplier:
    """A ``Supplier`` (supplier.py). ``client`` reads; ``world`` dials for the queries."""

    def __init__(
        self,
        endpoint: Endpoint,
        client: LogClient,
        world: ConnectionMaker,
        credentials: CredentialsSupplier,
        cluster_id: int,
    ) -> None:
        self._endpoint = endpoint
        self._client = client
        self._world = world
        self._credentials = credentials
        self._cluster_id = cluster_id
        self._publication: IngressPublication | None = None
        self._unsent: Message | None = None
        self._correlation_id = 0

    @property
    def name(self) -> str:
        return str(self._endpoint)

    # ---- the query

    def ask(self, query: BackupQuery) -> None:
        self._hang_up()
        connection = self._world.dial(self._endpoint)
        self._publication = IngressPublication(-1, self._endpoint, connection, self._cluster_id)
        self._correlation_id = query.correlation_id
        self._unsent = query.replace(encoded_credentials=self._credentials.encoded_credentials())

    def poll(self) -> BackupResponse | SessionEvent | None:
        """Raises Unreachable when the connection is lost, or refused."""
        publication = self._publication
        assert publication is not None, "nothing was asked"
        self._world.poll()
        publication.do_work()
        if self._unsent is not None and publication.offer(self._unsent) > 0:
            self._unsent = None
        for message in publication.receive():
            if getattr(message, "correlation_id", None) != self._correlation_id:
                continue
            if isinstance(message, BackupResponse | SessionEvent):
                self._hang_up()
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

    def _hang_up(self) -> None:
        if self._publication is not None:
            self._publication.connection.close()
            self._publication = None

    # ---- what is copied

    def status(self) -> link.LogStatus:
        return self._client.status()

    def read(self, from_position: int, to_position: int) -> Iterator[Answer]:
        return self._client.read(from_position, to_position, BLOCK_BYTES)

    def read_recording(self, recording_id: int) -> Iterator[RecordingAnswer]:
        return self._client.read_recording(recording_id)

    def close(self) -> None:
        self._hang_up()
        self._client.close()
