"""The services of a standby as its process runs them: as a member's, inline or in processes of their own."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

from cluster.archive.mark_files import ClusterMarkFile
from cluster.backup.standby import StandbyLife
from cluster.counters import CountersFile
from cluster.errors import AgentTermination, ServiceError
from cluster.member.services.remote_service import RemotePorts, RemoteService
from cluster.node.backup_config import BackupConfig
from cluster.node.disk_failures import SURVIVED
from cluster.node.hosted_service import (
    HostedService,
    ServiceAgent,
    ServiceCounters,
    inline_agent,
    service_start,
)
from cluster.node.node_log import NodeLog
from cluster.node.ports import ServiceSettings
from cluster.node.service_process import command_of, open_process
from cluster.service.channel import ServiceChannel
from cluster.service.service_loader import load_service
from cluster.transport.clock import epoch_ms
from cluster.transport.poller import Poller


class StandbyHosts:
    """What one life of a standby's services after the other is hosted by."""

    def __init__(
        self,
        config: BackupConfig,
        counters: CountersFile,
        mark_file: ClusterMarkFile,
        poller: Poller,
        log: NodeLog,
    ) -> None:
        self.config = config
        self.mark_file = mark_file
        self.poller = poller
        self.log = log
        settings = config.service_settings
        self.counters = [
            ServiceCounters.allocate(counters, settings, service_id)
            for service_id in range(len(settings.services))
        ]

    def open(self, life: StandbyLife) -> HostedServices:
        """Host the services of a life. Raises ConfigurationError, PortInUse."""
        return HostedServices(self, life)


class HostedServices:
    """The services of one life (``StandbyHost``)."""

    def __init__(self, hosts: StandbyHosts, life: StandbyLife) -> None:
        self._hosts = hosts
        self._life = life
        self._settings = replace(hosts.config.service_settings, context=life.context)
        self._services: list[HostedService] = []
        with ExitStack() as opened:
            opened.callback(self.close)
            for service_id, channel in enumerate(life.channels):
                self._services.append(self._host(service_id, channel))
            opened.pop_all()

    def _host(self, service_id: int, channel: ServiceChannel) -> HostedService:
        hosts, settings = self._hosts, self._settings
        is_inline = settings.service_modes[service_id] == "inline"
        agent = (
            self._inline(service_id, channel, settings) if is_inline else self._remote(service_id, channel)
        )
        return HostedService(
            service_id,
            agent,
            channel,
            hosts.counters[service_id],
            hosts.mark_file,
            settings,
            self._tell,
        )

    def _inline(self, service_id: int, channel: ServiceChannel, settings: ServiceSettings) -> ServiceAgent:
        return inline_agent(
            service_id,
            load_service(settings.services[service_id]),
            channel,
            self._hosts.counters[service_id],
            settings,
            lambda: self._life.position,
            self._life.archive,
            lambda error: self._on_error(service_id, error),
        )

    def _remote(self, service_id: int, channel: ServiceChannel) -> RemoteService:
        hosts, life = self._hosts, self._life
        driver_directory = f"{hosts.config.path}/driver"
        is_external = self._settings.service_modes[service_id] == "external"
        command = () if is_external else command_of(driver_directory, service_id)
        ports = RemotePorts(
            process=open_process(service_id, driver_directory, hosts.poller, command, hosts.log.info),
            snapshots=life.archive,
            recording=lambda: life.recording,
            newest_snapshot=life.newest_snapshot,
            commit_position=lambda: life.position,
            gauges=hosts.counters[service_id],
            tell=hosts.log.info,
            on_error=lambda error: self._on_error(service_id, error),
            snapshot_timeout_ns=self._settings.service_snapshot_timeout_ns,
            termination_timeout_ns=life.context.termination_timeout_ns,
        )
        return RemoteService(service_id, service_start(service_id, self._settings), channel, ports)

    def do_work(self, now_ns: int, cluster_time: int) -> int:
        """Turn the services. Raises LogDamaged, StorageError, AgentTermination."""
        work_count = 0
        for service_id, service in enumerate(self._services):
            try:
                work_count += service.do_work(now_ns, cluster_time)
            except (AgentTermination, *SURVIVED):
                raise
            except Exception as error:
                self._on_error(service_id, error)
        return work_count

    def _on_error(self, service_id: int, error: Exception) -> None:
        service = self._services[service_id]
        if not isinstance(error, ServiceError):
            self._record(self._hosts.log.error(service.name, error))
        service.on_error(error)

    def _tell(self, error: ServiceError, count: int) -> None:
        where = self._services[error.service_id].name
        self._record(self._hosts.log.error(where, error, position=error.log_position, times=count))

    def _record(self, text: str) -> None:
        self._hosts.mark_file.record_error(text, epoch_ms())

    def close(self) -> None:
        """End the services in order, and their processes."""
        for service in self._services:
            try:
                service.agent.close()
            except Exception as error:
                self._record(self._hosts.log.error(service.name, error))
