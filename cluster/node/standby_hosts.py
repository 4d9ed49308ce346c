"""The services of a standby as its process runs them: as a member's, inline or in processes of their own."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import repeat

from cluster.archive.mark_files import ClusterMarkFile
from cluster.backup.standby import StandbyLife
from cluster.member.services.service_table import ServiceTable
from cluster.node.backup_config import BackupConfig
from cluster.node.hosted_service import HostPorts, ServiceCounters, host_services
from cluster.node.node_log import NodeLog
from cluster.node.service_process import ChildProcess, open_process
from cluster.service.service_loader import load_service
from cluster.transport.clock import monotonic_ns
from cluster.transport.poller import Poller


@dataclass
class HostedServices:
    """The services of one life (``StandbyHost``), of a process with these counters and this mark file."""

    _config: BackupConfig
    _counters: Sequence[ServiceCounters]
    _mark_file: ClusterMarkFile
    _poller: Poller
    _log: NodeLog
    _life: StandbyLife

    def __post_init__(self) -> None:
        """Host them. Raises ConfigurationError, PortInUse."""
        life = self._life
        self._settings = replace(self._config.service_settings, context=life.context)
        ports = HostPorts(
            self._settings,
            ServiceTable(len(life.channels)),
            load=lambda service_id: load_service(self._settings.services[service_id]),
            open_process=self._open_process,
            snapshots=life.archive,
            recording=lambda: life.recording,
            recording_log=life.recording_log,
            commit_position=lambda: life.position,
            clock_ns=monotonic_ns,
            tell=self._log.info,
            warn=self._log.warning,
            record=self._log.record,
            on_service_error=lambda error, count: None,
        )
        self._services = host_services(life.channels, self._counters, repeat(self._mark_file), ports)

    def _open_process(self, service_id: int) -> ChildProcess:
        mode, folder = self._settings.service_modes[service_id], f"{self._config.path}/driver"
        return open_process(service_id, mode, folder, self._poller, self._log)

    def do_work(self, now_ns: int, cluster_time: int) -> int:
        """Turn the services. Raises LogDamaged, StorageError, AgentTermination."""
        return sum(service.turn(now_ns, cluster_time) for service in self._services)

    def close(self) -> None:
        """End the services in order, and their processes."""
        for service in self._services:
            service.close()
