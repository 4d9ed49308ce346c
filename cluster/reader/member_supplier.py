"""One member over the network: a backup queries it as a client would, and copies as a reader of the log."""

from collections.abc import Iterator
from dataclasses import dataclass

from cluster.protocol import link
from cluster.protocol.backup import BackupQuery, BackupResponse
from cluster.protocol.session import SessionEvent
from cluster.reader.member_request import MemberRequest
from cluster.transport.credentials import CredentialsSupplier
from cluster.transport.dialler import Dialler
from cluster.transport.endpoint import Endpoint
from cluster.transport.log_client import Answer, LogClient, RecordingAnswer

BLOCK_BYTES = 1024 * 1024


@dataclass(eq=False)
class MemberSupplier:
    """A ``Supplier`` (supplier.py). ``client`` reads; ``world`` dials for the queries."""

    _endpoint: Endpoint
    _client: LogClient
    _world: Dialler
    _credentials: CredentialsSupplier
    _cluster_id: int
    _request: MemberRequest | None = None

    @property
    def name(self) -> str:
        return str(self._endpoint)

    # ---- the query

    def ask(self, query: BackupQuery) -> None:
        self.hang_up()
        self._request = MemberRequest(self._endpoint, self._world, self._credentials, self._cluster_id, query)

    def poll(self) -> BackupResponse | SessionEvent | None:
        """Raises Unreachable when the connection is lost, or refused."""
        assert self._request is not None, "nothing was asked"
        answer = self._request.poll()
        if answer is not None:
            self._request = None
        return answer

    def hang_up(self) -> None:
        """Close the connection of a query that is not answered."""
        if self._request is not None:
            self._request.close()
            self._request = None

    # ---- what is copied

    def status(self) -> link.LogStatus:
        return self._client.status()

    def read(self, from_position: int, to_position: int) -> Iterator[Answer]:
        return self._client.read(from_position, to_position, BLOCK_BYTES)

    def read_recording(self, recording_id: int) -> Iterator[RecordingAnswer]:
        return self._client.read_recording(recording_id)

    def close(self) -> None:
        self.hang_up()
        self._client.close()
