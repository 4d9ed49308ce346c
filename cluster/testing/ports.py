"""What a simulated process gives to each life of its member: a disk, a network and a clock of its own."""

from collections.abc import Sequence
from random import Random
from typing import Any, Protocol

from cluster.archive.files import Buffer, Files
from cluster.archive.mark_files import ClusterMarkFile
from cluster.consensus.authentication import Security
from cluster.consensus.context import ConsensusModuleContext
from cluster.counters import CountersFile
from cluster.errors import ServiceError
from cluster.member.log.retention import NeededPosition
from cluster.member.ports import FetchedRecordings
from cluster.member.services.remote_service import ServiceProcess
from cluster.protocol.cnc import CNC_FILE_NAME
from cluster.protocol.enums import ClusterComponentType
from cluster.protocol.frame import message_length_max
from cluster.service.clustered_service import ClusteredService
from cluster.testing.calls import SimulatedCalls
from cluster.testing.counters_files import create_counters
from cluster.testing.disk import Disk, SimulatedFiles
from cluster.testing.network import SimulatedPoller
from cluster.transport.endpoint import Endpoint, Medium
from cluster.transport.links import MemberLinks
from cluster.transport.server import ClientPort

LINK_PORT, CLIENT_PORT = 9002, 9001


def host_of(member_id: int) -> str:
    return f"10.0.0.{member_id + 1}"


class Owner(Protocol):
    """The process of a member (``cluster.testing.member``)."""

    host: str
    disk: Disk
    files: SimulatedFiles
    poller: SimulatedPoller
    directory: str
    incarnation: int
    passes_max: int  # of compiled turns in a run

    @property
    def is_compiled(self) -> bool:
        """Whether compiled turns stand for its own where they can."""

    @property
    def security(self) -> Security:
        """Who may come in, and what they may do."""

    def clock_ns(self) -> int: ...

    def epoch_ms(self) -> int: ...

    def load_service(self, service_id: int, random: Random) -> ClusteredService: ...

    def fetch_recordings(self, endpoint: str, recording_ids: Sequence[int]) -> FetchedRecordings: ...

    def on_sent(self, to_member_id: int, buffers: tuple[Buffer, ...]) -> None: ...

    def on_error(self, error: Exception) -> None: ...

    def on_recorded_error(self, where: str, error: BaseException) -> None: ...

    def tell(self, text: str) -> None: ...


class ObservedLinks(MemberLinks):
    """Production links; what they are to take is told before it is on its way."""

    def __init__(self, member: Owner, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._member = member

    def send(self, member_id: int, *buffers: Buffer) -> int:
        if self.is_up(member_id):
            self._member.on_sent(member_id, buffers)
        return super().send(member_id, *buffers)

    def send_again(self, member_id: int, frame: bytes) -> int:
        """An old message comes once more."""
        return super().send(member_id, frame)


class SimulatedPorts:
    """``Ports`` of one simulated process."""

    links_type = ObservedLinks

    def __init__(self, member: Owner, context: ConsensusModuleContext, random: Random) -> None:
        """Take the directory, as a ClusterNode does before its first life. Raises DirectoryInUse."""
        self.files: Files = member.files
        self.random = random
        self.poller = member.poller
        self.passes_max = member.passes_max
        self.idle_spin_ns = 0
        self.calls: SimulatedCalls | None = None
        if member.is_compiled:
            self.calls = SimulatedCalls(member)
        self._member = member
        self._context = context
        self.security = member.security
        self.mark_file = ClusterMarkFile.create(
            f"{member.directory}/cluster",
            files=self.files,
            component_type=ClusterComponentType.CONSENSUS_MODULE,
            now_ms=self.epoch_ms(),
            cluster_id=context.cluster_id,
            member_id=context.member_id,
            aeron_directory=f"{member.directory}/driver",
        )

    def monotonic_ns(self) -> int:
        return self._member.clock_ns()

    def epoch_ms(self) -> int:
        return self._member.epoch_ms()

    def boot_id(self) -> str:
        return f"boot {self._member.disk.boots}"

    def open_counters(self) -> CountersFile:
        member = self._member
        path = f"{member.directory}/driver/{CNC_FILE_NAME}"
        return create_counters(member.disk, path, pid=self.files.process_id(), now_ms=self.epoch_ms())

    def open_links(self) -> ObservedLinks:
        member, context = self._member, self._context
        return self.links_type(
            member,
            member_id=context.member_id,
            listen=Endpoint(Medium.TCP, member.host, LINK_PORT),
            members={i: Endpoint(Medium.TCP, host_of(i), LINK_PORT) for i in context.member_ids},
            secret=member.incarnation,
            cluster_id=context.cluster_id,
            poller=member.poller,
            clock_ns=member.clock_ns,
            on_error=member.on_error,
            heartbeat_interval_ns=context.leader_heartbeat_interval_ns,
            link_timeout_ns=context.link_timeout_ns,
        )

    def open_clients(self, incarnation: int) -> ClientPort:
        member, context = self._member, self._context
        return ClientPort(
            [Endpoint(Medium.TCP, member.host, CLIENT_PORT)],
            poller=member.poller,  # type: ignore[arg-type]
            member_id=context.member_id,
            cluster_id=context.cluster_id,
            incarnation=incarnation,
            message_length_max=message_length_max(context.log_term_length),
            clock_ns=member.clock_ns,
            on_error=member.on_error,
        )

    def load_service(self, service_id: int) -> ClusteredService:
        return self._member.load_service(service_id, self.random)

    def open_service_process(self, service_id: int) -> ServiceProcess:
        raise AssertionError("all services of a simulated member are inline")

    def fetch_recordings(self, endpoint: str, recording_ids: Sequence[int]) -> FetchedRecordings:
        return self._member.fetch_recordings(endpoint, recording_ids)

    def needed_positions(self) -> list[NeededPosition]:
        return []

    def on_event(self, text: str) -> None:
        self._member.tell(text)

    on_warning = on_event

    def record(self, mark_file: ClusterMarkFile, where: str, error: BaseException) -> None:
        self._member.on_recorded_error(where, error)

    def on_service_error(self, error: ServiceError, count: int) -> None:
        """``record`` has told it."""
