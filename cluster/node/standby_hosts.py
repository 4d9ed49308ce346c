"""The services of a standby as its process runs them: as a member's, inline or in processes of their own."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import repeat

from cluster.archive.mark_files import ClusterMarkFile
from cluster.backup.standby import StandbyLife
from cluster.member.services.service_table import ServiceTable
from cluster.node.backup_config import BackupConfig
from cluster.node.hosted_service import HostedService, HostPorts, ServiceCounters, host_services
from cluster.node.node_log import NodeLog
from cluster.node.service_process import ChildProcess, open_process
from cluster.service.service_loader import load_service
from cluster.transport.clock import monotonic_ns
from cluster.transport.poller import Poller


def host_standby(
    config: BackupConfig,
    counters: Sequence[ServiceCounters],
    mark_file: ClusterMarkFile,
    poller: Poller,
    log: NodeLog,
    life: StandbyLife,
) -> list[HostedService]:
    """Host the services of a life (``HostServices``). Raises ConfigurationError, PortInUse."""
    settings = replace(config.service_settings, context=life.context)

    def open_one(service_id: int) -> ChildProcess:
        mode = settings.service_modes[service_id]
        return open_process(service_id, mode, f"{config.path}/driver", poller, log)

    ports = HostPorts(
        settings,
        ServiceTable(len(life.channels)),
        load=lambda service_id: load_service(settings.services[service_id]),
        open_process=open_one,
        snapshots=life.archive,
        recording=lambda: life.recording,
        recording_log=life.recording_log,
        commit_position=lambda: life.position,
        clock_ns=monotonic_ns,
        say=log.info,
        warn=log.warning,
        record=log.record,
        on_service_error=lambda error, count: None,
    )
    return host_services(life.channels, counters, repeat(mark_file), ports)
