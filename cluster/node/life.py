"""One life of a member: from the recovery of its disk to its end. The only place that puts a member together.

    archive, recording.log, node-state.dat ──┐
    counters, mark files ────────────────────┼──▶ ConsensusModuleAgent ◀── ServiceChannel ──▶ services
    links to members, clients' connections ──┘

What a life reaches of the world comes from its process, as ``Ports``: a ``ClusterNode`` gives the machine's
files, sockets and clock, a simulated process gives simulated ones. A process has one life after the other
when its disk fails it (``disk_failures.py``).
"""

from contextlib import ExitStack

from cluster.archive.mark_files import ClusterMarkFile, MarkFile
from cluster.consensus.context import NULL_VALUE
from cluster.errors import ClusterError, UnexpectedError
from cluster.member.agent import ConsensusModuleAgent
from cluster.member.busy.lend import BusyTurns
from cluster.member.busy.words import PREPARE, SERVICES
from cluster.member.counters import MemberCounters
from cluster.member.disk.member_files import open_files
from cluster.member.services.service_table import ServiceTable
from cluster.node.disk_failures import DiskFailures, unexpected
from cluster.node.hosted_service import HostedService, HostPorts, ServiceCounters, host_services
from cluster.node.ports import LifeSettings, Ports
from cluster.protocol.enums import ClusterComponentType
from cluster.service.channel import ServiceChannel


class MemberLife:
    """All that one life has. ``consensus_module`` and the agents of ``services`` are to be turned."""

    def __init__(self, settings: LifeSettings, ports: Ports, failures: DiskFailures) -> None:
        """Open everything. Raises LogDamaged, DirectoryInUse, PortInUse, StorageError, ConfigurationError."""
        self.settings = settings
        self.services: list[HostedService] = []
        self._ports = ports
        self._is_orderly = False
        self.opened = ExitStack()  # closed with the life, last first
        try:
            self._open_files(failures)
            self._open_media()
            self._open_agents(distrusts_log=failures.distrusts_disk)
            self.busy = self._open_busy_turns()
            self.opened.callback(self._close_busy_turns)
        except BaseException:
            self._let_go()
            raise

    # -- opening --

    def _open_files(self, failures: DiskFailures) -> None:
        settings, ports = self.settings, self._ports
        failures.check_room(ports.files, settings.archive_directory, settings.archive_segment_file_length)
        self.counters_file = ports.open_counters()
        self.opened.callback(lambda: self.counters_file.close(orderly=self._is_orderly))
        self.opened.push(self._note_end)
        self.files = open_files(
            ports.files,
            settings.archive_directory,
            settings.cluster_directory,
            file_sync_level=settings.file_sync_level,
            segment_length=settings.archive_segment_file_length,
            checksum=settings.archive_record_checksum,
            cached_length=settings.archive_cached_length,
            is_after_failure=failures.distrusts_disk,
            is_alone=settings.is_alone,
            boot_id=ports.boot_id(),
            epoch_ms=ports.epoch_ms,
            say=ports.on_event,
        )
        self.opened.callback(
            lambda: self.files.archive.close() if self._is_orderly else self.files.archive.abandon()
        )
        self.opened.callback(self.files.recording_log.close)
        self.opened.callback(self.files.node_state.close)
        for recovered in self.files.archive.recovered:
            ports.on_event(f"a recording was not stopped: {recovered}")
        self._archive_mark_file = self.files.archive.create_mark_file(
            aeron_directory=settings.driver_directory
        )
        self.opened.callback(self._close_mark_file, self._archive_mark_file)

    def _open_media(self) -> None:
        self.links = self._ports.open_links()
        self.opened.callback(self.links.close)
        self.clients = self._ports.open_clients(self.links.incarnation)
        self.opened.callback(self.clients.shutdown)

    def _open_agents(self, *, distrusts_log: bool) -> None:
        ports, context = self._ports, self.settings.context
        self.counters = MemberCounters(self.counters_file, context)
        channels = [ServiceChannel() for _ in range(context.service_count)]
        self.consensus_module = ConsensusModuleAgent(
            context,
            files=self.files,
            links=self.links,
            clients=self.clients,
            service_channels=channels,
            counters=self.counters,
            random=ports.random,
            mark_file=ports.mark_file,
            security=ports.security,
            fetch_recordings=ports.fetch_recordings,
            needed_positions=ports.needed_positions(),
            on_event=ports.on_event,
            on_warning=ports.on_warning,
            on_error=lambda error: ports.record(ports.mark_file, "consensus module", error),
            distrusts_log=distrusts_log,
        )
        module = self.consensus_module
        self.opened.callback(module.parts.standby_snapshots.close)
        self._service_table = ServiceTable(len(channels))
        hosting = HostPorts(
            self.settings,
            self._service_table,
            load=ports.load_service,
            open_process=ports.open_service_process,
            snapshots=module.parts.snapshots.archive,
            recording=lambda: module.log.recording,
            recording_log=self.files.recording_log,
            commit_position=self.counters.commit_position.get,
            clock_ns=ports.monotonic_ns,
            say=ports.on_event,
            warn=ports.on_warning,
            record=ports.record,
            on_service_error=ports.on_service_error,
        )
        service_ids = range(context.service_count)
        mark_files = [*map(self._mark_service, service_ids)]
        counters = [ServiceCounters.allocate(self.counters_file, self.settings, i) for i in service_ids]
        self.services = host_services(channels, counters, mark_files, hosting)

    def _mark_service(self, service_id: int) -> ClusterMarkFile:
        settings = self.settings
        mark_file = ClusterMarkFile.create(
            settings.cluster_directory,
            files=self._ports.files,
            component_type=ClusterComponentType.CONTAINER,
            now_ms=self._ports.epoch_ms(),
            cluster_id=settings.context.cluster_id,
            member_id=settings.context.member_id,
            aeron_directory=settings.driver_directory,
            service_id=service_id,
            service_name=settings.services[service_id],
        )
        self.opened.callback(self._close_mark_file, mark_file)
        return mark_file

    def _open_busy_turns(self) -> BusyTurns | None:
        ports = self._ports
        if ports.calls is None:
            return None
        return BusyTurns(
            self.consensus_module,
            [service.agent for service in self.services],
            self._service_table,
            self.counters_file,
            ports.poller,
            ports.calls,
            spin_ns=ports.idle_spin_ns,
            passes_max=ports.passes_max,
        )

    def _close_busy_turns(self) -> None:
        """Before the counters are unmapped; an error on its way out may still refer to the turns."""
        if self.busy is not None:
            self.busy.let_go()
        self.busy = None

    # -- living --

    def start(self, now_ns: int, cluster_time: int) -> None:
        """Recover what the disk has. Raises LogDamaged, DataLoss, StorageError."""
        self.consensus_module.on_start(now_ns, cluster_time)

    def do_work(self, now_ns: int, cluster_time: int) -> int:
        """Turn the consensus module, then the services; returns how much was done.

        What the services answer goes out in the same turn. An error of one is counted and told, and it goes
        on after that entry. Raises what the consensus module raises, SURVIVED when the disk fails a service,
        and AgentTermination.
        """
        work_count = self.consensus_module.do_work(now_ns, cluster_time)
        work_count += self._turn_services(now_ns, cluster_time)
        return work_count + self.consensus_module.publish_egress()

    def _turn_services(self, now_ns: int, cluster_time: int) -> int:
        return sum(service.turn(now_ns, cluster_time) for service in self.services)

    def turn_busily(self) -> int | None:
        """Take compiled turns until something is rare: why (``busy/words.py``), None where it took none."""
        busy, module = self.busy, self.consensus_module
        reason = None
        while busy is not None and self._may_be_lent and (found := busy.run()) is not None:
            reason = found
            if reason & SERVICES:
                self._turn_services(module.turn.now_ns, module.replica.cluster_time)
                module.publish_egress()
            if not reason or reason & ~(SERVICES | PREPARE):
                break
        return reason

    @property
    def awaits_events(self) -> bool:
        """Whether another turn would find nothing to do but what a socket or time gives it."""
        return self.consensus_module.awaits_events and self._do_services_await_events

    @property
    def next_due_ns(self) -> int:
        """When time gives it something to do, sockets aside."""
        return self.consensus_module.next_due_ns

    @property
    def _may_be_lent(self) -> bool:
        return self.consensus_module.may_be_lent and self._do_services_await_events

    @property
    def _do_services_await_events(self) -> bool:
        return all(service.agent.awaits_events for service in self.services)

    def update_activity(self) -> None:
        """Give the signs of life that tools look for; the consensus module gives its own."""
        now_ms = self._ports.epoch_ms()
        self.counters_file.update_heartbeat(now_ms)
        self._archive_mark_file.update_activity(now_ms)
        for service in self.services:
            service.mark_file.update_activity(now_ms)

    # -- ending --

    def unexpected(self, error: Exception) -> UnexpectedError:
        """For an exception that no turn is meant to raise: what it is, and what the member was at."""
        module = self.consensus_module
        recording = module.log.recording
        appended = NULL_VALUE if recording is None else recording.append_position
        served = "".join(f"; {note}" for note in getattr(error, "__notes__", ()))
        return unexpected(
            error,
            f"{module.phase.name.name}, term {module.replica.leadership_term_id}, log to {appended}, "
            f"committed to {module.log.commit_position}, processed to {module.parts.processing.position}"
            f"{served}",
        )

    def close(self, now_ns: int, cluster_time: int) -> None:
        """End in order: the agents, then what they used, last opened first. Raises StorageError."""
        self._is_orderly = True
        self._committed_position = self.consensus_module.parts.histories.committed_position
        with self.opened:
            self.consensus_module.close()
            for service in self.services:
                try:
                    service.do_work(now_ns, cluster_time)  # takes the termination position
                except Exception as error:
                    service.note(error)
                service.close()

    def _note_end(self, failure: type[BaseException] | None, *_: object) -> None:
        """Everything is closed; after a failure nobody knows what of it is on the disk."""
        if self._is_orderly and failure is None:
            settings, position = self.settings, self._committed_position
            self.files.life.end(position, (settings.archive_directory, settings.cluster_directory))

    def abandon(self) -> None:
        """Let go of everything as the death of a process would, whatever the disk says to that."""
        self.links.close()  # at once: what is closed after it may take its time, as the gateway does
        self.clients.shutdown()
        for service in self.services:
            service.close()
        self._let_go()

    def _let_go(self) -> None:
        try:
            self.opened.close()
        except (ClusterError, OSError) as error:
            self._ports.record(self._ports.mark_file, "closing", error)

    def _close_mark_file(self, mark_file: MarkFile) -> None:
        if self._is_orderly:
            mark_file.close()
        else:
            mark_file.abandon()
