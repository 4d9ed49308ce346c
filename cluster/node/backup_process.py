"""A backup that is its whole process: what its agent reaches of the world, its duty cycle, its end."""

from __future__ import annotations

import errno
import os
import signal
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from random import SystemRandom
from types import TracebackType
from typing import TYPE_CHECKING

from cluster.archive.files import OsFiles
from cluster.backup.agent import MS, ClusterBackupAgent
from cluster.backup.announcements import Announcements
from cluster.backup.counters import BackupCounters, StandbyCounters
from cluster.backup.directory import BackupDirectory
from cluster.backup.standby import Standby
from cluster.consensus.context import NULL_VALUE
from cluster.counters import CountersFile
from cluster.errors import ClusterError
from cluster.node import signals
from cluster.node.backup_config import BackupConfig
from cluster.node.disk_failures import DiskFailures, unexpected
from cluster.node.hosted_service import ServiceCounters
from cluster.node.node_log import NodeLog
from cluster.node.reload import reload
from cluster.node.standby_hosts import host_standby
from cluster.protocol.backup import StandbySnapshot
from cluster.reader.member_request import MemberRequest
from cluster.reader.member_supplier import MemberSupplier
from cluster.reader.served_member import ServedMember
from cluster.reader.supplier import Supplier
from cluster.security.audit import AuditLog
from cluster.security.loading import load_security
from cluster.security.reader_admission import ReaderAdmission
from cluster.transport.clock import epoch_ms, monotonic_ns
from cluster.transport.dialler import Dialler
from cluster.transport.endpoint import Endpoint, parse_endpoint
from cluster.transport.event_logs import EventLogs
from cluster.transport.file_look import FileLook
from cluster.transport.log_client import open_log_client
from cluster.transport.member_tls import ServerTls

if TYPE_CHECKING:
    from cluster.transport.grpc_gateway import GrpcGateway

IDLE_S = 0.05  # between two looks at what a member has committed
ACTIVITY_INTERVAL_NS = 1_000 * MS
LOG_FILE_NAME = "backup.log"


class BackupProcess:
    """Opens everything of one backup; ``run`` turns it until ``stop``. Use as a context manager."""

    def __init__(self, config: BackupConfig, read_config: Callable[[], BackupConfig] | None = None) -> None:
        """``read_config`` reads the configuration again, for ``reload``.

        Raises ConfigurationError, DirectoryInUse, LogDamaged, StorageError.
        """
        self._config = config
        self._context = config.context
        self._read_config = read_config
        self._is_stopped = False
        self._activity_ns = -ACTIVITY_INTERVAL_NS
        self.standby: Standby | None = None  # of a backup with services
        self._announcements: Announcements | None = None  # of a standby with an endpoint
        self._gateway: GrpcGateway | None = None  # at the endpoint
        self._readers: ReaderAdmission | None = None  # there
        self._audit: AuditLog | None = None  # of the endpoint
        self._is_reload_asked = False
        self._certificates: FileLook | None = None  # of the endpoint
        self.endpoints = config.member_endpoints
        self._failures = DiskFailures()
        self._errors_before = 0  # counted in earlier lives
        with ExitStack() as opened:  # what the process has
            self._world = Dialler(config.tls_files)
            opened.callback(self._world.close)
            self._log = NodeLog(config.path / LOG_FILE_NAME, config.log_level, config.node_log_bytes)
            opened.callback(self._log.close)
            self._begin_life()
            opened.push(lambda *error: self._life.__exit__(*error))
            self._opened = opened.pop_all()

    def _begin_life(self) -> None:
        """Open what the process has until a mistake ends it."""
        self._began_ns = monotonic_ns()
        with ExitStack() as opened:
            self._open(opened)
            self._life = opened.pop_all()

    def _open(self, opened: ExitStack) -> None:
        config = self._config
        suppliers: list[Supplier] = [
            *map(self._supplier, self.endpoints),
            *map(self._aeron_supplier, config.aeron_endpoints),
        ]
        self.copied_from = [supplier.name for supplier in suppliers]
        self._directory = directory = BackupDirectory(
            str(config.path),
            OsFiles(),
            cluster_id=config.cluster_id,
            file_sync_level=config.file_sync_level,
            epoch_ms=epoch_ms,
            say=self._log.info,
        )
        opened.push(lambda kind, *_: directory.abandon() if kind else directory.close())
        path = f"{config.path}/driver/cnc.dat"
        counters_file = CountersFile.create(path, pid=os.getpid(), now_ms=epoch_ms())
        self._counters_file = counters_file
        opened.push(lambda kind, *_: counters_file.close(orderly=kind is None))
        self._counters = counters = BackupCounters(counters_file, config.cluster_id)
        counters.errors.set(self._errors_before)
        self.agent = agent = ClusterBackupAgent(
            self._context,
            self._directory,
            suppliers,
            counters,
            SystemRandom(),
            on_event=self._log.info,
            on_error=self._on_error,
            needed_position=self._needed_position,
        )
        opened.push(lambda kind, *_: agent.abandon() if kind else agent.close())
        if config.endpoint:
            self._gateway = self._open_gateway(opened)
            opened.callback(self._gateway.stop)
        if config.services:
            announcements = self._open_announcements(opened) if config.endpoint else None
            self.standby = self._open_standby(counters, announcements)
            opened.callback(self.standby.close)

    def _open_gateway(self, opened: ExitStack) -> GrpcGateway:
        """Serve readers and members from a thread. Raises ConfigurationError, PortInUse."""
        from cluster.transport.grpc_gateway import GrpcGateway

        config, tls = self._config, None
        if (files := config.served_tls_files) is not None:
            tls = ServerTls(files, asks_clients=config.tls_client_certificates == "required")
            self._certificates = tls.look(self._log.on_certificates_read, self._on_error)
            if tls.exposure:
                self._log.warning(tls.exposure)
        self._audit = AuditLog(str(config.path / "audit.log"))
        opened.callback(self._audit.close)
        security = load_security(config, self._on_error, self._audit.refused)
        self._readers = ReaderAdmission(security, self._world.wake, is_open=config.is_open)
        gateway = GrpcGateway(
            parse_endpoint(config.endpoint),
            _refuse_client,
            self._open_log,
            0,
            on_error=self._on_reader_error,
            tls=tls,
            ask=self._readers.ask,
            events=EventLogs(str(config.path), NULL_VALUE).lines,
        )
        gateway.start()
        return gateway

    def _open_log(self) -> ServedMember:
        path = self._config.path
        return ServedMember(
            cluster_dir=f"{path}/cluster",
            archive_dir=f"{path}/archive",
            aeron_dir=f"{path}/driver",
            cluster_id=self._config.cluster_id,
            member_id=NULL_VALUE,
        )

    def _open_announcements(self, opened: ExitStack) -> Announcements:
        config = self._config
        self._announcements = Announcements(
            {str(endpoint): partial(self._announce, endpoint) for endpoint in self.endpoints},
            self._directory.recording_log,
            config.endpoint,
            len(config.services),
            self._context,
            on_event=self._log.info,
            on_error=self._on_error,
        )
        opened.callback(self._announcements.close)
        return self._announcements

    def _announce(self, endpoint: Endpoint, snapshot: StandbySnapshot) -> MemberRequest:
        config = self._config
        return MemberRequest(endpoint, self._world, config.credentials, config.cluster_id, snapshot)

    def _open_standby(self, counters: BackupCounters, announcements: Announcements | None) -> Standby:
        settings, mark_file = self._config.service_settings, self._directory.mark_files[0]
        of_services = [
            ServiceCounters.allocate(self._counters_file, settings, service_id)
            for service_id in range(len(settings.services))
        ]
        return Standby(
            self._config.module_context,
            self._directory,
            StandbyCounters(counters, self._config.cluster_id),
            partial(host_standby, self._config, of_services, mark_file, self._world.poller, self._log),
            on_event=self._log.info,
            on_error=self._on_error,
            on_snapshot=lambda position: None if announcements is None else announcements.announce(),
        )

    def _supplier(self, endpoint: Endpoint) -> MemberSupplier:
        config, credentials = self._config, self._config.credentials
        timeout_s = config.response_timeout_ns / (1_000 * MS)
        client = open_log_client(
            endpoint, timeout_s, config.tls_files, credentials=credentials.encoded_credentials
        )
        return MemberSupplier(endpoint, client, self._world, credentials, config.cluster_id)

    def _needed_position(self) -> int | None:
        """Of the services of a standby, and of readers."""
        positions = [None if self._gateway is None else self._gateway.log.least_position]
        if self.standby is not None and self.standby.life is not None:
            positions.append(self.standby.life.position)
        return min((position for position in positions if position is not None), default=None)

    def _aeron_supplier(self, endpoint: str) -> Supplier:
        from cluster.reader.aeron_supplier import AeronSupplier

        config = self._config
        timeout_s = config.response_timeout_ns / (1_000 * MS)
        return AeronSupplier(
            endpoint, config.aeron_dir or None, config.credentials, config.cluster_id, timeout_s
        )

    def _on_error(self, error: Exception) -> None:
        self._log.record(self._directory.mark_files[0], "backup", error)

    def _on_reader_error(self, error: ClusterError) -> None:
        """Called from the gateway's thread."""
        self._log.often("a reader was cut off", str(error), monotonic_ns())

    def stop(self) -> None:
        """End ``run`` after the turn it is in; for signal handlers and other threads."""
        self._is_stopped = True
        self._world.wake()

    def reload(self) -> None:
        """Ask for it, from a signal handler: logs and configuration, within a second."""
        self._is_reload_asked = True

    def answer_signals(self) -> None:
        signals.answer(self._log, self.reload)

    def run(self) -> None:
        """Take turns until stopped. Raises StorageError and LogDamaged of the directory, AgentTermination.

        What no turn is meant to raise ends a life, as of a member: the next one recovers from the disk.
        """
        while not self._is_stopped:
            try:
                self._turn()
            except ClusterError:
                raise
            except Exception as error:
                self._end_life(error)
                self._begin_again()

    def _turn(self) -> None:
        while not self._is_stopped:
            now_ms, now_ns = epoch_ms(), monotonic_ns()
            if now_ns - self._activity_ns >= ACTIVITY_INTERVAL_NS:
                self._activity_ns = now_ns
                self._directory.update_activity(now_ms)
                self._counters_file.update_heartbeat(now_ms)
                if self._certificates is not None:
                    self._certificates.do_work()
                self._reload_if_asked()
                self._log.report_repeated(now_ns)
            if not self._do_work(now_ns, now_ms):
                self._world.wait(IDLE_S)

    def _reload_if_asked(self) -> None:
        if not self._is_reload_asked:
            return
        self._is_reload_asked = False
        self._log.reopen_with(*(() if self._audit is None else (self._audit,)))
        if self._read_config is not None:
            self._config = reload(self._config, self._read_config, (self._context,), self._log)

    def _end_life(self, error: Exception) -> None:
        """Let go of everything, as a process that dies."""
        failure = unexpected(error, f"{self.agent.state.name}, log to {self.agent.position}")
        self._on_error(failure)
        self._errors_before = self._counters.errors.get() + 1
        now_ns = monotonic_ns()
        pause_ns = self._failures.on_failure(failure, now_ns - self._began_ns, now_ns)
        try:
            self._life.__exit__(type(error), error, error.__traceback__)
        except Exception as closing:
            self._log.error("closing", closing)
        self._log.warning("is started again", why=str(failure), pause_ms=pause_ns // MS)

    def _begin_again(self) -> None:
        """After a pause, unless it is stopped meanwhile. Raises what makes a start fail, but PortInUse."""
        while not self._is_stopped:
            if monotonic_ns() < self._failures.due_ns:
                time.sleep(IDLE_S)
                continue
            failure = self._failures.begin_again(self._begin_life, lambda error: False, monotonic_ns)
            if failure is None:
                return
            self._log.error("backup", failure)

    def _do_work(self, now_ns: int, now_ms: int) -> int:
        work_count = self.agent.do_work(now_ns, now_ms)
        if self.standby is not None:
            self._world.poll()
            work_count += self.standby.do_work(now_ns, is_retrieving=self.agent.is_retrieving)
        if self._announcements is not None:
            work_count += self._announcements.do_work(now_ns)
        if self._readers is not None:
            work_count += self._readers.do_work(now_ms)
        return work_count

    def __enter__(self) -> BackupProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """In order, but with an error as a process that dies: the next one recovers from the disk."""
        self._opened.__exit__(kind, error, trace)


def _refuse_client(certificate_name: str | None, host: str) -> socket.socket:
    raise OSError(errno.ECONNREFUSED, "it is a backup, which serves the log to readers alone")


def run_backup(
    config: BackupConfig,
    on_started: Callable[[BackupProcess], None],
    read_config: Callable[[], BackupConfig],
) -> None:
    """Run a backup until SIGTERM or Ctrl-C. Raises what ``BackupProcess`` raises."""
    signals.pass_over()
    with BackupProcess(config, read_config) as process:
        process.answer_signals()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: process.stop())
        on_started(process)
        process.run()
