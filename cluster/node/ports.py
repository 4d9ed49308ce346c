"""What a life of a member goes by, and what its process gives to it."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal, Protocol

from cluster.archive.files import Files
from cluster.archive.mark_files import ClusterMarkFile
from cluster.consensus.authentication import Security
from cluster.consensus.context import ConsensusModuleContext
from cluster.counters import CountersFile
from cluster.errors import ServiceError
from cluster.log.calls import Calls
from cluster.member.busy.lend import ServedSockets
from cluster.member.log.retention import NeededPosition
from cluster.member.ports import Clients, FetchedRecordings, Links
from cluster.member.services.remote_service import ServiceProcess
from cluster.protocol.enums import RefusedCertificate
from cluster.service.clustered_service import ClusteredService


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """What services are run by, those of a member and those of a standby."""

    context: ConsensusModuleContext
    archive_directory: str
    cluster_directory: str
    services: Sequence[str]  # their names, by service id
    service_modes: Sequence[str]  # process, inline or external
    service_snapshot_timeout_ns: int
    service_responder: bool
    service_error_policy: Literal["continue", "stop"]
    service_cycle_threshold_ns: int
    log_fragment_limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeSettings(ServiceSettings):
    """What every life of a member goes by: its context, its directories, and keys of the configuration."""

    driver_directory: str
    file_sync_level: int
    archive_segment_file_length: int  # bytes
    archive_record_checksum: str | None
    archive_cached_length: int  # bytes before the end of the log

    @property
    def is_alone(self) -> bool:
        """No other member has what this one loses."""
        return len(self.context.member_ids) == 1


class OpenLinks(Links, Protocol):
    """Links of one life."""

    incarnation: int

    def refused_certificate(self, member_id: int) -> RefusedCertificate:
        """Whose certificate keeps this member without a link to that one."""

    def silence_ns(self, member_id: int) -> int:
        """For how long nothing has come over a link that is up."""

    def close(self) -> None: ...


class OpenClients(Clients, Protocol):
    """Clients' connections of one life."""

    def shutdown(self) -> None: ...


class Ports(Protocol):
    """What a process gives to each life of its member. What it makes again for each is opened here."""

    files: Files
    random: Random
    mark_file: ClusterMarkFile  # the consensus module's
    security: Security

    @property
    def calls(self) -> Calls | None:
        """For compiled turns; None where Python takes all turns."""

    @property
    def poller(self) -> ServedSockets: ...

    passes_max: int  # of compiled turns in a run, where whoever turns the member does the waiting; 0: they do
    idle_spin_ns: int

    def epoch_ms(self) -> int: ...

    def monotonic_ns(self) -> int: ...

    def boot_id(self) -> str:
        """Another one each time the machine is started; "" where nobody knows."""

    def open_counters(self) -> CountersFile: ...

    def open_links(self) -> OpenLinks: ...

    def open_clients(self, incarnation: int) -> OpenClients:
        """``incarnation`` is that of the links."""

    def load_service(self, service_id: int) -> ClusteredService: ...

    def open_service_process(self, service_id: int) -> ServiceProcess:
        """Of a service that is not inline."""

    def fetch_recordings(self, endpoint: str, recording_ids: Sequence[int]) -> FetchedRecordings:
        """Begin to fetch recordings from the archive at an endpoint. Raises ConfigurationError."""

    def needed_positions(self) -> Sequence[NeededPosition]:
        """From where on others than the member need the log."""

    def on_event(self, text: str, /) -> None:
        """Something rare happened; a line for people."""

    def on_warning(self, text: str, /) -> None:
        """So did something that should not happen."""

    def record(self, mark_file: ClusterMarkFile, where: str, error: BaseException) -> None:
        """Write an error to the log of the process and to the mark file, where tools look for it."""

    def on_service_error(self, error: ServiceError, count: int) -> None:
        """A service failed so often in this way, of which the first and every doubling is reported."""
