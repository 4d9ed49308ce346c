"""The real world as the lives of a ClusterNode get it: this machine's files, sockets and clock."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from cluster.archive.export_watermark import ExportWatermark
from cluster.archive.files import Files
from cluster.archive.mark_files import ClusterMarkFile
from cluster.consensus.authentication import Security
from cluster.counters import CountersFile
from cluster.errors import ClusterError, ServiceError, TlsFailed
from cluster.member.log.retention import NeededPosition
from cluster.node.config import NodeConfig
from cluster.node.disk_failures import unexpected
from cluster.node.node_log import NodeLog
from cluster.node.ports import OpenLinks
from cluster.node.service_process import ChildProcess, open_process
from cluster.protocol.frame import message_length_max
from cluster.service.clustered_service import ClusteredService
from cluster.service.service_loader import load_service
from cluster.transport.bounds import Bounds
from cluster.transport.clock import boot_id, epoch_ms, monotonic_ns
from cluster.transport.credentials import as_supplier, credentials_of
from cluster.transport.endpoint import Endpoint, Medium, parse_endpoint
from cluster.transport.event_logs import EventLogs
from cluster.transport.file_look import FileLook
from cluster.transport.handed_over import HandedOver
from cluster.transport.links import MemberLinks
from cluster.transport.log_client import RecordingAnswer, open_log_client
from cluster.transport.log_server import Ask
from cluster.transport.member_tls import MemberTls
from cluster.transport.outsiders import Outsiders
from cluster.transport.poller import Poller
from cluster.transport.recording_fetch import FetchedInThread, read_recordings
from cluster.transport.server import ClientPort

if TYPE_CHECKING:
    from cluster.aeron.aeron_ingress import AeronIngress
    from cluster.aeron.aeron_links import AeronLinks
    from cluster.aeron.archive_server import ArchiveServer
    from cluster.node.control import ControlPort
    from cluster.reader.served_member import ServedMember
    from cluster.transport.grpc_gateway import GrpcGateway

STANDBY_TIMEOUT_S = 10.0  # of its silence
DAY_MS = 86_400_000
WARNED_BEFORE_END_MS = 14 * DAY_MS


@dataclass(eq=False)
class Machine:
    """``Ports`` of a process of its own."""

    _config: NodeConfig
    files: Files
    mark_file: ClusterMarkFile
    poller: Poller
    _bounds: Bounds
    _log: NodeLog
    security: Security
    _tls: MemberTls | None
    _ask: Ask
    on_service_error: Callable[[ServiceError, int], None]
    on_error: Callable[[str, Exception], None]  # counts it, too
    restart: Callable[[], None]
    passes_max: int = 0
    cut_off_count: int = 0  # peers
    _warn_of_end_ms: int = 0  # of the certificate, once a day
    _clients: ClientPort = field(init=False)
    _outsiders: Outsiders = field(default_factory=Outsiders)
    _gateway: GrpcGateway | None = None
    _aeron: AeronIngress | None = None
    _archive: ArchiveServer | None = None
    _java: AeronLinks | None = None  # to its members
    _certificates: FileLook | None = None

    def __post_init__(self) -> None:
        log, tls = self._log, self._tls
        self.on_event, self.on_warning, self.record = log.info, log.warning, log.record
        self.random = Random(secrets.randbits(64))
        self.calls = self.files.calls
        self.idle_spin_ns = self._config.idle_spin_ns
        self._message_length_max = message_length_max(self._config.log_term_length)
        if tls is not None:
            on_error = partial(self.on_error, "certificates, of which the old ones stay in use")
            self._certificates = tls.look(log.on_certificates_read, on_error)
            if tls.exposure:
                log.warning(tls.exposure)

    def _on_peer_error(self, error: ClusterError) -> None:
        """Called from the gateway's thread too."""
        self.cut_off_count += 1
        is_of_tls = isinstance(error, TlsFailed)  # and keeps somebody out who may be wanted
        self._log.often("a peer was cut off", str(error), monotonic_ns(), is_warning=is_of_tls)

    epoch_ms = staticmethod(epoch_ms)
    monotonic_ns = staticmethod(monotonic_ns)
    boot_id = staticmethod(boot_id)

    def open_counters(self) -> CountersFile:
        path = f"{self._config.driver_path}/cnc.dat"
        return CountersFile.create(path, pid=os.getpid(), now_ms=epoch_ms())

    def open_links(self) -> OpenLinks:
        config = self._config
        if config.consensus_channel != "none":
            return self._open_aeron_links()
        return MemberLinks(
            config.member_id,
            parse_endpoint(f"tcp:{config.listens_at(config.member.consensus_endpoint)}"),
            {m.member_id: parse_endpoint(f"tcp:{m.consensus_endpoint}") for m in config.cluster_members},
            secret=secrets.randbits(63),
            cluster_id=config.cluster_id,
            poller=self.poller,
            on_error=self._on_peer_error,
            bounds=self._bounds,
            local={id_: Endpoint(Medium.IPC, path=str(path)) for id_, path in config.link_paths.items()},
            tls=self._tls,
            heartbeat_interval_ns=config.leader_heartbeat_interval_ns,
            link_timeout_ns=config.module_context.link_timeout_ns,
        )

    def _open_aeron_links(self) -> OpenLinks:
        from cluster.aeron.aeron_links import AeronLinks

        config = self._config
        what = "and leads them where it is elected" if config.may_lead else "and never leads"
        self.on_event(f"follows members of Java's by a media driver, {what}")
        self._java = AeronLinks(
            config.member,
            {m.member_id: m for m in config.cluster_members if m.member_id != config.member_id},
            config.consensus_channel,
            config.aeron_dir,
            listens_at=config.listens_at,
            incarnation=secrets.randbits(63),
            clock_ns=monotonic_ns,
            on_error=self._on_aeron_error,
        )
        return self._java

    def open_clients(self, incarnation: int) -> ClientPort:
        config = self._config
        listen = [Endpoint(Medium.IPC, path=str(config.ipc_path))] if config.ipc_ingress else []
        if config.tcp_listen:
            listen.append(parse_endpoint(f"tcp:{config.tcp_listen}"))
        self._clients = ClientPort(
            listen,
            poller=self.poller,
            member_id=config.member_id,
            cluster_id=config.cluster_id,
            incarnation=incarnation,
            message_length_max=self._message_length_max,
            on_error=self._on_peer_error,
            bounds=self._bounds,
            hand_over=self._hand_over if config.grpc_gateway == "thread" else None,
            tls=self._tls,
            outsiders=self._outsiders,
            dial=self._dial,
        )
        return self._clients

    def _dial(self, session_id: int, response_channel: str, response_stream_id: int) -> None:
        if self._aeron is not None:
            self._aeron.dial(session_id, response_channel, response_stream_id)

    def load_service(self, service_id: int) -> ClusteredService:
        return load_service(self._config.services[service_id])

    def open_service_process(self, service_id: int) -> ChildProcess:
        mode = self._config.service_modes[service_id]
        return open_process(service_id, mode, str(self._config.driver_path), self.poller, self._log)

    def fetch_recordings(
        self, endpoint: str, recording_ids: Sequence[int]
    ) -> FetchedInThread[RecordingAnswer]:
        config = self._config
        credentials = as_supplier(credentials_of(config.standby_token_file, "", ""))
        client = open_log_client(
            parse_endpoint(endpoint),
            STANDBY_TIMEOUT_S,
            config.tls_files,
            credentials=credentials.encoded_credentials,
        )
        return FetchedInThread(read_recordings(client, recording_ids))

    def needed_positions(self) -> Sequence[NeededPosition]:
        needed: list[NeededPosition] = [self._reader_position]
        if self._config.log_export_watermark:
            directory = str(self._config.cluster_path)
            on_error = partial(self.on_error, "export watermark")
            needed.append(ExportWatermark(self.files, directory, on_error).position)
        return needed

    @property
    def connection_count(self) -> int:
        """Connections of clients, of the present life."""
        return self._clients.connection_count

    @property
    def reader_count(self) -> int:
        """Readers of the log, over all media."""
        replays = 0 if self._archive is None else self._archive.replay_count
        return replays + (0 if self._gateway is None else self._gateway.log.reader_count)

    # -- certificates --

    @property
    def certificate_end_ms(self) -> int:
        """Of the certificate that is shown, since the epoch; 0 without TLS."""
        return 0 if self._tls is None else int(self._tls.not_after.timestamp() * 1000)

    def refresh_certificates(self) -> None:
        """Have them read again where their files have changed; warn each day of the last before they end."""
        if self._certificates is None:
            return
        self._certificates.do_work()
        now_ms = epoch_ms()
        if self.certificate_end_ms - now_ms < WARNED_BEFORE_END_MS and now_ms >= self._warn_of_end_ms:
            self._warn_of_end_ms = now_ms + DAY_MS
            assert self._tls is not None
            self._log.warning("its certificate ends soon", valid_to=self._tls.not_after.isoformat())

    # -- the gateway --

    def open_gateway(self) -> GrpcGateway:
        """Serve gRPC, and the readers of every medium, from a thread beside the life; it is to be stopped."""
        from cluster.transport.grpc_gateway import GrpcGateway

        self._gateway = GrpcGateway(
            parse_endpoint(self._config.listens_at(self._config.member.ingress_endpoint)),
            self._clients.connect,
            self._open_log,
            self._message_length_max,
            self._bounds,
            self._on_peer_error,
            self._tls,
            self._ask,
            self._control_port(),
            EventLogs(str(self._config.path), self._config.member_id).lines,
        )
        self._gateway.start()
        return self._gateway

    def open_aeron(self) -> AeronIngress:
        """Serve Aeron's clients and backups from a thread beside the life; it is to be stopped."""
        from cluster.aeron.aeron_ingress import AeronIngress

        self._aeron = AeronIngress(
            self._config.aeron_channels,
            self._config.aeron_dir,
            self._config.member_id,
            self._clients.connect,
            self._message_length_max,
            self._bounds,
            on_error=self._on_aeron_error,
            on_event=self.on_event,
        )
        self._aeron.start()
        return self._aeron

    def open_aeron_archive(self) -> ArchiveServer:
        """Replay recordings to Aeron's clients from a thread beside the life; it is to be stopped."""
        from cluster.aeron.archive_server import ArchiveServer
        from cluster.reader.served_archive import ServedArchive

        config = self._config
        self._archive = ArchiveServer(
            config.aeron_archive,
            config.aeron_dir,
            lambda: ServedArchive(
                str(config.cluster_path),
                str(config.archive_path),
                str(config.driver_path),
                lambda: None if self._java is None else self._java.led_session_id,
            ),
            self._ask,
            config.member_id,
            self._bounds,
            on_error=self._on_aeron_error,
            on_event=self.on_event,
        )
        self._archive.start()
        return self._archive

    def _on_aeron_error(self, error: Exception) -> None:
        is_mistake = not isinstance(error, ClusterError | OSError)
        if is_mistake:
            error = unexpected(error, "Aeron's clients are served again")
        self._log.often("Aeron's medium", str(error), monotonic_ns(), is_warning=is_mistake)

    def _control_port(self) -> ControlPort:
        from cluster.node.control import ControlPort

        config = self._config
        return ControlPort(
            f"{config.driver_path}/cnc.dat",
            config.cluster_id,
            config.member_id,
            lambda: self._open_log().status(0),
            {Medium.GRPC: config.ingress_endpoints, Medium.TCP: config.tcp_endpoints},
            self.restart,
            self.security.on_administered,
            config.path / "node.log",
        )

    def _open_log(self) -> ServedMember:
        from cluster.reader.served_member import ServedMember

        config = self._config
        return ServedMember(
            cluster_dir=str(config.cluster_path),
            archive_dir=str(config.archive_path),
            aeron_dir=str(config.driver_path),
            cluster_id=config.cluster_id,
            member_id=config.member_id,
            ingress_endpoints=config.ingress_endpoints,
            tcp_endpoints=config.tcp_endpoints,
            ipc_endpoints=f"{config.member_id}=ipc:{config.ipc_path}" if config.ipc_ingress else "",
        )

    def _reader_position(self) -> int | None:
        """Where the slowest of the remote readers is."""
        positions = (
            None if self._gateway is None else self._gateway.log.least_position,
            None if self._archive is None else self._archive.least_position,
        )
        return min((position for position in positions if position is not None), default=None)

    def _hand_over(self, reader: HandedOver) -> None:
        """A reader of the log came to a tcp: or ipc: port: the gateway's thread serves it like its own."""
        assert self._gateway is not None
        self._gateway.adopt(reader)


def member_tls_of(config: NodeConfig) -> MemberTls | None:
    """What the member shows over TLS. Raises ConfigurationError for files that will not do."""
    files = config.tls_files
    if files is None:
        return None
    asks_clients = config.tls_client_certificates == "required"
    return MemberTls(files, config.member_id, config.cluster_id, asks_clients=asks_clients)
