"""A member: archive, counters, links, clients, consensus module and services put together in one process.

    gRPC gateway (a thread) --ipc--+
    tcp and ipc clients -----------+--> ClientPort ---+
    other members ---------------------> MemberLinks -+--> ConsensusModuleAgent --+--> Archive
                                                             | ServiceChannel     +--> cnc.dat
                                                           ClusteredServiceAgent ----> the user's service

One thread turns all of them (``runner.py``). Nothing is decided here: what a member does is in
``cluster/member/`` and ``cluster/service/``. When the disk fails them they are taken apart and, later, put
together anew in the same process (``node/disk_failures.py``): a process has one life after the other.
"""

from __future__ import annotations

import gc
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from cluster.archive.export_watermark import ExportWatermark
from cluster.archive.files import OsFiles
from cluster.archive.mark_files import ClusterMarkFile
from cluster.counters import CountersFile
from cluster.errors import ClusterError, ConfigurationError, MemberRestart, PortInUse, ServiceError
from cluster.log.frames import message_length_max
from cluster.member.agent import ConsensusModuleAgent
from cluster.member.counters import MemberCounters
from cluster.member.repair import open_files
from cluster.node import config_text
from cluster.node.config import NodeConfig
from cluster.node.descriptors import fit_descriptors
from cluster.node.disk_failures import SURVIVED, DiskFailures
from cluster.node.hosted_service import HostedService, OnServiceError
from cluster.node.log import NodeLog
from cluster.node.runner import Agent, AgentRunner, cluster_clock
from cluster.protocol.enums import (
    ClusterComponentType,
    ClusterControlToggle,
    ElectionState,
    Role,
)
from cluster.service.channel import ServiceChannel
from cluster.transport.endpoint import Endpoint, Medium, parse_endpoint
from cluster.transport.links import MemberLinks
from cluster.transport.poller import Poller, Target
from cluster.transport.server import ClientPort

if TYPE_CHECKING:
    from cluster.transport.grpc_gateway import GrpcGateway

HOUSEKEEPING_INTERVAL_NS = 1_000_000_000
CLOSE_TIMEOUT_S = 10.0


class ClusterNode:
    """One member. ``launch`` runs it in a thread of its own, ``run`` in the caller's.

    ``on_leader`` is told whenever this member begins or ceases to lead with its election over,
    ``on_service_error`` of the errors of services, of each kind the first and every doubling of their count.
    """

    def __init__(
        self,
        config: NodeConfig,
        on_leader: Callable[[bool], None] | None = None,
        on_service_error: OnServiceError | None = None,
    ) -> None:
        """Open everything; what is opened is closed again when something fails.

        Raises DirectoryInUse, PortInUse, LogDamaged, StorageError, ConfigurationError.
        """
        self.config = config
        self.error: ClusterError | None = None  # why the member ended, when it was not asked to
        self._on_leader = on_leader
        self._on_service_error = on_service_error
        self._thread: threading.Thread | None = None
        self._is_leader = False
        self._is_orderly = False
        self._is_stop_asked = False
        self._gateway: GrpcGateway | None = None
        self._is_living = False  # the agents are put together
        self._is_alone = len(config.cluster_members) == 1
        self._began_ns = 0
        self._errors_before = 0  # counted in earlier lives
        self._failures = DiskFailures()
        self._next_housekeeping_ns = 0
        self._clock = cluster_clock(config.cluster_clock)
        self._opened = ExitStack()  # what the process has
        self._life = ExitStack()  # what it has until its disk fails
        try:
            self._open()
            self._begin_life()
        except BaseException:
            self._life.close()
            self._opened.close()
            raise

    @classmethod
    def launch(cls, config: NodeConfig | str | os.PathLike[str] | None = None, **keys: Any) -> ClusterNode:
        """Run a member in a thread of this process: ``launch("node.toml")``, ``launch(dir="m0", ...)``.

        ``keys`` are those of the configuration, over the file and the environment. Returns when the member
        listens; it is a context manager that closes it.
        """
        if not isinstance(config, NodeConfig):
            config = config_text.load(config, overrides=keys)
        elif keys:
            raise ConfigurationError(f"give {', '.join(keys)} within the NodeConfig, or a file instead of it")
        node = cls(config)
        node._thread = threading.Thread(
            target=node._run_in_thread, name=f"cluster-{config.member_id}", daemon=True
        )
        node._thread.start()
        return node

    # -- putting together --

    def _open(self) -> None:
        config = self.config
        self._mark_file = self._create_mark_file(
            ClusterComponentType.CONSENSUS_MODULE, ingress_channel="aeron:udp"
        )
        self._opened.callback(lambda: self._end(self._mark_file))
        self.log = NodeLog(config.path / "node.log", config.log_level, member=config.member_id)
        self._opened.callback(self.log.close)
        self.log.info("starts", pid=os.getpid(), dir=str(config.path), python=sys.version.split()[0])

        self._bounds, told = fit_descriptors(config.bounds)
        if told:
            self.log.info("strangers get less than was configured", why=told)
        self._poller = Poller()
        self._opened.callback(self._poller.close)

    def _create_mark_file(self, component_type: ClusterComponentType, **fields: Any) -> ClusterMarkFile:
        config = self.config
        return ClusterMarkFile.create(
            str(config.cluster_path),
            files=OsFiles(),
            component_type=component_type,
            now_ms=_epoch_ms(),
            cluster_id=config.cluster_id,
            member_id=config.member_id,
            aeron_directory=str(config.driver_path),
            **fields,
        )

    def _begin_life(self) -> None:
        """Put the agents together, and let them recover what the disk has. Raises what that raises."""
        config = self.config
        files = OsFiles()
        driver_dir = str(config.driver_path)
        context = config.module_context
        self._failures.check_room(files, str(config.archive_path), config.archive_segment_file_length)
        self._counters_file = CountersFile.create(
            f"{driver_dir}/cnc.dat", pid=os.getpid(), now_ms=_epoch_ms()
        )
        self._life.callback(lambda: self._counters_file.close(orderly=self._is_orderly))
        archive, recording_log, node_state = open_files(
            files,
            str(config.archive_path),
            str(config.cluster_path),
            file_sync_level=config.file_sync_level,
            segment_length=config.archive_segment_file_length,
            checksum=config.archive_record_checksum,
            is_after_failure=self._failures.leaves_files_behind,
            is_alone=self._is_alone,
            epoch_ms=_epoch_ms,
            tell=self.log.info,
        )
        self._life.callback(lambda: archive.close() if self._is_orderly else archive.abandon())
        self._life.callback(recording_log.close)
        self._life.callback(node_state.close)
        for recovered in archive.recovered:
            self.log.info("recovered a recording that was not stopped", what=str(recovered))
        self._archive_mark_file = archive.create_mark_file(aeron_directory=driver_dir)
        self._life.callback(lambda: self._end(self._archive_mark_file))

        self._counters = MemberCounters(self._counters_file, context)
        self._counters.errors.set(self._errors_before)
        links = MemberLinks(
            config.member_id,
            parse_endpoint(f"tcp:{config.member.consensus_endpoint}"),
            {m.member_id: parse_endpoint(f"tcp:{m.consensus_endpoint}") for m in config.cluster_members},
            secret=secrets.randbits(63),
            cluster_id=config.cluster_id,
            poller=self._poller,
            on_error=self._on_peer_error,
            bounds=self._bounds,
        )
        self._life.callback(links.close)
        self._links = links
        ipc = Endpoint(Medium.IPC, path=str(config.ipc_path))
        listen = [ipc] if config.ipc_ingress or config.grpc_gateway != "none" else []
        if tcp_ingress := config.tcp_ingress_of(config.member):
            listen.append(parse_endpoint(f"tcp:{tcp_ingress}"))
        length_max = message_length_max(config.log_term_length)
        clients = ClientPort(
            listen,
            poller=self._poller,
            member_id=config.member_id,
            cluster_id=config.cluster_id,
            incarnation=links.incarnation,
            message_length_max=length_max,
            on_error=self._on_peer_error,
            bounds=self._bounds,
            hand_over=self._hand_over if config.grpc_gateway == "thread" else None,
        )
        self._life.callback(clients.shutdown)
        self._clients = clients

        needed_positions = [self._reader_position]
        if config.log_export_watermark:
            exported = ExportWatermark(files, str(config.cluster_path), self._on_watermark_error)
            needed_positions.append(exported.position)
        channels = [ServiceChannel() for _ in config.services]
        self._consensus_module = ConsensusModuleAgent(
            context,
            archive=archive,
            recording_log=recording_log,
            node_state=node_state,
            links=links,
            clients=clients,
            service_channels=channels,
            counters=self._counters,
            random=Random(secrets.randbits(64)),
            mark_file=self._mark_file,
            needed_positions=needed_positions,
            on_event=lambda event: self.log.info(event),
            on_error=lambda error: self._record(self._mark_file, "consensus module", error),
            distrusts_log=self._failures.distrusts_all,
        )
        self._services: list[HostedService] = []
        for service_id, channel in enumerate(channels):
            mark_file = self._create_mark_file(
                ClusterComponentType.CONTAINER,
                service_id=service_id,
                service_name=config.services[service_id],
            )
            self._life.callback(self._end, mark_file)
            service = HostedService(
                service_id,
                config,
                channel,
                mark_file=mark_file,
                counters_file=self._counters_file,
                commit_position=self._counters.commit_position.get,
                snapshots=self._consensus_module.snapshots.archive,
                max_message_length=length_max,
                on_error=self._on_service_error,
            )
            self._services.append(service)
        if config.grpc_gateway == "thread":
            self._open_gateway(ipc, length_max)

        self._runner = AgentRunner(
            [self._consensus_module, *(service.agent for service in self._services), self],
            self._poller,
            self._clock,
            spin_ns=config.idle_spin_ns,
            on_error=self._on_agent_error,
        )
        self._began_ns = time.monotonic_ns()
        self._consensus_module.on_start(self._began_ns, self._clock())
        self._is_living = True

    def _open_gateway(self, ipc: Endpoint, length_max: int) -> None:
        from cluster.reader.serving import ServedLog
        from cluster.transport.grpc_gateway import GrpcGateway

        config = self.config

        def open_log() -> ServedLog:
            return ServedLog(
                cluster_dir=str(config.cluster_path),
                archive_dir=str(config.archive_path),
                aeron_dir=str(config.driver_path),
                cluster_id=config.cluster_id,
                member_id=config.member_id,
                ingress_endpoints=config.ingress_endpoints,
                tcp_endpoints=tcp_endpoints(config),
                ipc_endpoints=f"{config.member_id}=ipc:{config.ipc_path}" if config.ipc_ingress else "",
            )

        self._gateway = gateway = GrpcGateway(
            parse_endpoint(config.member.ingress_endpoint),
            ipc,
            open_log,
            length_max,
            self._bounds,
            self._on_peer_error,
        )
        gateway.start()
        self._life.callback(gateway.stop)

    def _reader_position(self) -> int | None:
        """Where the slowest of the remote readers is."""
        return None if self._gateway is None else self._gateway.least_reader_position

    def _hand_over(self, sock: socket.socket, received: bytes) -> None:
        """A reader of the log came to a tcp: or ipc: port: the gateway's thread serves it like its own."""
        assert self._gateway is not None
        self._gateway.adopt(sock, received)

    # -- running --

    @property
    def is_leader(self) -> bool:
        """Whether this member leads, its election being over."""
        return self._is_leader

    @property
    def is_running(self) -> bool:
        """Whether a launched member's thread still turns."""
        return self._thread is not None and self._thread.is_alive()

    def run(self) -> None:
        """Turn the agents until ``stop``, an orderly termination, or an error that ends the member.

        A disk that fails ends a life of theirs and not the member: they begin again when it is well, and so
        they do when the disk has got a newer state from another member. Then everything is closed. What
        ended the member against its will comes out as a ClusterError.
        """
        try:
            while not self._is_stop_asked:
                try:
                    self._runner.run()
                    break
                except SURVIVED as error:
                    if not self._failures.is_survived(error, is_alone=self._is_alone):
                        raise
                    self._end_life(error)
                    self._begin_again()
            self._is_orderly = True
        except ClusterError as error:
            self._record(self._mark_file, "member", error)
            self.error = error
            raise
        except BaseException as error:
            self._record(self._mark_file, "member", error)
            raise
        finally:
            self._close_all()

    def _end_life(self, error: ClusterError) -> None:
        """Let go of everything, as a process that dies: others notice it by their links, and elect."""
        if not isinstance(error, MemberRestart):
            self._record(self._mark_file, "disk", error)
            self._counters.errors.get_and_add(1)
        self._errors_before = self._counters.errors.get()
        self._is_living = False
        if self._is_leader and self._on_leader is not None:
            self._on_leader(False)
        self._is_leader = False
        self._links.close()  # at once: what is closed below may take its time, as the gateway does
        self._clients.shutdown()
        for service in self._services:
            try:
                service.agent.close()
            except Exception as failure:
                self._on_service_failure(service, failure)
        now_ns = time.monotonic_ns()
        pause_ns = self._failures.on_failure(error, now_ns - self._began_ns, now_ns)
        self._close_life()
        self.log.info(
            "acknowledges nothing more, and is started again", why=str(error), pause_ms=pause_ns // 10**6
        )

    def _begin_again(self) -> None:
        """Wait until the disk is well, or until this member is to stop; whoever asks is still heard."""
        while not self._is_stop_asked:
            left_ns = self._failures.due_ns - time.monotonic_ns()
            if left_ns > 0:
                self._poller.wait(left_ns / 1e9)
                continue
            try:
                self._begin_life()
                _forget_unused()
                return
            except (*SURVIVED, PortInUse) as error:
                if not isinstance(error, PortInUse) and not self._failures.is_survived(
                    error, is_alone=self._is_alone
                ):
                    raise
                self._close_life()
                self._record(self._mark_file, "disk", error)
                self._failures.on_failure(error, 0, time.monotonic_ns())

    def _close_life(self) -> None:
        """Close what a life has open, whatever the disk says to that."""
        life, self._life = self._life, ExitStack()
        try:
            life.close()
        except (ClusterError, OSError) as error:
            self.log.error("closing", error)

    def _run_in_thread(self) -> None:
        try:
            self.run()
        except ClusterError:
            pass  # kept in ``error``, and in the logs

    def stop(self) -> None:
        """Ask the member to end in order, from any thread or a signal handler."""
        self._is_stop_asked = True
        self._runner.stop()

    def watch(self, fd: int, events: int, target: Target) -> None:
        """Have the member's thread tell ``target`` of a descriptor's epoll events."""
        self._poller.register(fd, target, events)

    def unwatch(self, fd: int) -> None:
        """Undo ``watch``."""
        self._poller.unregister(fd)

    def terminate_cluster(self) -> bool:
        """Ask the leader to bring the whole cluster to its end; False when this member does not lead.

        Followers process the log up to the leader's end first (Aeron: ClusterControl, ABORT).
        """
        toggle = self._counters.control_toggle
        if not self._is_leader or toggle.get() != ClusterControlToggle.NEUTRAL:
            return False
        toggle.set(ClusterControlToggle.ABORT)
        return True

    def close(self) -> None:
        """End a launched member in order and wait for it. Raises what had ended it before."""
        self.stop()
        if self._thread is not None:
            self._thread.join(CLOSE_TIMEOUT_S)
        if self.error is not None:
            raise self.error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def do_work(self, now_ns: int, cluster_time: int) -> int:
        """The node's own part, behind the services: send their answers, say how the member stands."""
        work_count = self._consensus_module.publish_egress()
        counters = self._counters
        is_leader = (
            counters.node_role.get() == Role.LEADER and counters.election_state.get() == ElectionState.CLOSED
        )
        if is_leader != self._is_leader:
            self._is_leader = is_leader
            if self._on_leader is not None:
                self._on_leader(is_leader)
        if now_ns >= self._next_housekeeping_ns:
            self._next_housekeeping_ns = now_ns + HOUSEKEEPING_INTERVAL_NS
            self.log.tell_repeated(now_ns)
            now_ms = _epoch_ms()
            self._counters_file.update_heartbeat(now_ms)
            self._archive_mark_file.update_activity(now_ms)
            for service in self._services:
                service.mark_file.update_activity(now_ms)
        self._counters_file.drain_commands()
        if self._consensus_module.is_closed:
            self.stop()
        return work_count

    def _close_all(self) -> None:
        """Agents first, then what they used, in the reverse order of opening."""
        with self._opened, self._life:
            self.log.info("ends", in_order=self._is_orderly)
            if self._is_orderly and self._is_living:
                self._consensus_module.close()
                now_ns, cluster_time = time.monotonic_ns(), self._clock()
                for service in self._services:
                    try:
                        service.agent.do_work(now_ns, cluster_time)  # takes the termination position
                        service.agent.close()
                    except Exception as error:
                        self._on_service_failure(service, error)

    def _end(self, mark_file: Any) -> None:
        if self._is_orderly:
            mark_file.close()
        else:
            mark_file.abandon()

    # -- errors --

    def _on_agent_error(self, agent: Agent, error: Exception) -> None:
        """Counted, and the agent goes on with what comes next (Aeron: the container's error handler)."""
        if isinstance(error, SURVIVED):
            raise error  # of the disk, whoever met it
        service = next((service for service in self._services if service.agent is agent), None)
        if service is not None:
            self._on_service_failure(service, error)
            service.check_policy(error)
        elif isinstance(error, ClusterError):
            # The consensus module reports by itself what it can live with.
            raise error
        else:
            self._counters.errors.get_and_add(1)
            self._record(self._mark_file, "consensus module", error)

    def _on_service_failure(self, service: HostedService, error: Exception) -> None:
        fields = {"position": error.log_position} if isinstance(error, ServiceError) else {}
        self._record(service.mark_file, service.name, error, **fields)
        service.on_error(error)

    def _on_watermark_error(self, error: ClusterError) -> None:
        self._record(self._mark_file, "export watermark", error)

    def _on_peer_error(self, error: ClusterError) -> None:
        """Called from the gateway's thread too."""
        self.log.often("a peer was cut off", str(error), time.monotonic_ns())

    def _record(self, mark_file: ClusterMarkFile, where: str, error: BaseException, **fields: Any) -> None:
        text = self.log.error(where, error, **fields)
        try:
            mark_file.record_error(text, _epoch_ms())
        except OSError as failure:
            self.log.error("error log", failure)


def _forget_unused() -> None:
    """Free what an ended life has left, which may have been put out of the collector's sight."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def _epoch_ms() -> int:
    return time.time_ns() // 1_000_000


def tcp_endpoints(config: NodeConfig) -> str:
    """Where the members take plain TCP clients, as ``--endpoints`` takes it."""
    pairs = [(member.member_id, config.tcp_ingress_of(member)) for member in config.cluster_members]
    return ",".join(f"{member_id}=tcp:{address}" for member_id, address in pairs if address)
