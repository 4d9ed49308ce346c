"""What is configured of one service container (Aeron: ClusteredServiceContainer.Context)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from cluster.protocol.service_link import ServiceStart
from cluster.protocol.versions import DEFAULT_APP_VERSION

SERVICE_ID_MAX = 9
NULL_CLIENT_ID = -1


@dataclass(frozen=True, slots=True)
class ServiceContext:
    """What ``cluster.context()`` returns.

    ``service_name`` is ``module:ClassName`` as configured. ``client_id`` is the id in the first ServiceAck,
    like that of Aeron's client. Lengths are in bytes. ``error_handler`` counts an error that the service has
    handled, in counter 215, ``node.log`` and the error log (Aeron: countedErrorHandler).
    """

    service_id: int = 0
    service_name: str = ""
    cluster_id: int = 0
    member_id: int = 0
    cluster_directory: str = ""
    archive_directory: str = ""
    error_handler: Callable[[Exception], None] = lambda error: None
    client_id: int = 0
    app_version: int = DEFAULT_APP_VERSION
    is_responder: bool = True  # whether offers to clients are sent, or answered with NOT_CONNECTED
    max_message_length: int = 8 * 1024 * 1024  # of the default term length, 64 MiB

    # Messages that one turn delivers. Aeron's limit is 50 fragments; a vectorised service gains from more,
    # and a slow one (10 µs a message) still yields well within the 100 ms threshold of a cycle.
    log_fragment_limit: int = 4096
    log_read_bytes: int = 1024 * 1024

    @classmethod
    def of(cls, service_id: int, start: ServiceStart) -> Self:
        """As a member says of the service."""
        return cls(
            service_id=service_id,
            service_name=start.name.decode(),
            cluster_id=start.cluster_id,
            member_id=start.member_id,
            cluster_directory=start.cluster_directory.decode(),
            archive_directory=start.archive_directory.decode(),
            client_id=service_id + 1,
            app_version=start.app_version,
            is_responder=start.is_responder,
            max_message_length=start.max_message_length,
            log_fragment_limit=start.log_fragment_limit,
        )

    def __post_init__(self) -> None:
        assert 0 <= self.service_id <= SERVICE_ID_MAX
        assert self.client_id != NULL_CLIENT_ID
