"""A service in a process of its own: the container that a member hosts inline, at the end of a socket.

    ServiceHost ── ClusteredServiceAgent ── ServiceChannel ── ModuleLink ··· socket ··· RemoteService
                        └── the log and the snapshot, read from the member's files

The process ends with its connection: the member starts another one.
"""

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import InitVar, dataclass

from cluster.archive.files import Files, OsFiles
from cluster.errors import AgentTermination, ClusterError, LogDamaged, StorageError
from cluster.member.counters import DutyCycleStallTracker
from cluster.node import signals
from cluster.node.memory import settle_memory
from cluster.node.module_link import ModuleLink
from cluster.node.runner import AgentRunner
from cluster.node.service_errors import raised
from cluster.node.service_process import socket_path
from cluster.node.service_snapshots import ServiceSnapshots
from cluster.node.supervisor import die_with
from cluster.protocol.service_link import FRAME_LENGTH_MAX, SERVICE_LINK_VERSION, ServiceEnd, ServiceHello
from cluster.service.agent import ClusteredServiceAgent
from cluster.service.clustered_service import ClusteredService
from cluster.service.service_context import ServiceContext
from cluster.service.service_loader import load_service
from cluster.transport.dial import dial
from cluster.transport.endpoint import Endpoint, Medium
from cluster.transport.poller import Poller
from cluster.transport.sockets import SEND_QUEUE_BYTES_MAX, Connection, ReceiveBuffer

QUEUE_BYTES_MAX = 8 * SEND_QUEUE_BYTES_MAX  # never reached: the link asks before it sends


@dataclass
class ServiceHost:
    """The agent and its link, turned by the process's one thread."""

    _service_id: int
    _link: ModuleLink
    poller: InitVar[Poller]
    _files: Files
    _load: Callable[[str], ClusteredService] = load_service  # by the name that the member says
    _agent: ClusteredServiceAgent | None = None
    _snapshots: ServiceSnapshots | None = None

    def __post_init__(self, poller: Poller) -> None:
        self._runner = AgentRunner(self, poller, lambda: 0, spin_ns=0)

    @property
    def is_stopped(self) -> bool:
        """Whether its last turn was taken."""
        return self._runner.is_stopped

    def stop(self) -> None:
        """End in order, from a signal handler too."""
        self._runner.stop()

    def run(self) -> None:
        """Turn until the service, its member or ``stop`` ends it. Raises what it ends of, and says that."""
        try:
            self._runner.run()
        except Exception as error:
            self.end(error)
            raise
        self.end(None)

    def end(self, error: Exception | None) -> None:
        """End the container, and report to the member why, whatever ``on_terminate`` raises."""
        if self._agent is not None and self._snapshots is not None:
            self._snapshots.close()
            try:
                self._agent.close()
            except Exception as failed:
                self._link.send(raised(failed))
        if error is not None:
            self._link.send(ServiceEnd(isinstance(error, LogDamaged), str(error).encode()))
        self._link.drain()

    @property
    def awaits_events(self) -> bool:
        """Whether another turn would find nothing to do but what its member gives it."""
        agent, snapshots = self._agent, self._snapshots
        return (
            agent is not None
            and snapshots is not None
            and agent.awaits_events
            and not snapshots.is_writing
            and not self._link.has_unsent
        )

    def do_work(self, now_ns: int, cluster_time: int) -> int:
        """Take one turn; what a callback raises is reported, and the service goes on."""
        link = self._link
        work_count = link.poll()
        if self._agent is None and link.start is not None:
            self._agent = self._make_agent()
        if self._agent is not None and self._snapshots is not None:
            work_count += self._snapshots.do_work()
            try:
                work_count += self._agent.do_work(now_ns, cluster_time)
            except (AgentTermination, LogDamaged, StorageError):
                link.flush()
                raise
            except ClusterError as error:
                link.send(raised(error))
            work_count += link.flush(is_end_of_turn=True)
        if link.is_closed or (self._agent is not None and self._agent.is_closed):
            self.stop()
        return work_count

    def _make_agent(self) -> ClusteredServiceAgent:
        """Raises ConfigurationError for a service that cannot be loaded."""
        start, link = self._link.start, self._link
        assert start is not None
        service = self._load(start.name.decode())
        self._snapshots = ServiceSnapshots(self._service_id, link, self._files, service.forks_for_snapshots)
        return ClusteredServiceAgent(
            service,
            link.channel,
            lambda: link.commit_position,
            ServiceContext.of(self._service_id, start),
            duty_cycle_tracker=DutyCycleStallTracker(
                link.cycles,  # type: ignore[arg-type]  # has the two that the tracker sets
                start.cycle_threshold_ns,
            ),
            snapshots=self._snapshots,
            on_reported=lambda error: link.send(raised(error)),
        )


def run_service(driver_directory: str, service_id: int, *, is_child: bool) -> None:
    """Run the service until its member, whose ``is_child`` it may be, or a signal ends it."""
    if is_child:
        die_with(os.getppid(), signal.SIGKILL)
    # What the service prints is read while it runs.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    poller, files = Poller(), OsFiles()
    link = ModuleLink(service_id, _connect(driver_directory, service_id, poller), poller, files)
    link.send(ServiceHello(service_id, os.getpid(), SERVICE_LINK_VERSION))
    if not is_child:
        print(f"service {service_id}: connected to its member at {socket_path(driver_directory, service_id)}")
    host = ServiceHost(service_id, link, poller, files, _load)
    signals.pass_over()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: host.stop())
    host.run()


def _load(name: str) -> ClusteredService:
    service = load_service(name)
    settle_memory()
    return service


def dial_member(endpoint: Endpoint, poller: Poller) -> Connection:
    """Of a service's process; where no member waits for it, it is closed."""
    return dial(
        endpoint,
        poller,
        ReceiveBuffer(),
        is_log_allowed=False,
        frame_length_max=FRAME_LENGTH_MAX,
        queue_bytes_max=QUEUE_BYTES_MAX,
    )


def _connect(driver_directory: str, service_id: int, poller: Poller) -> Connection:
    endpoint = Endpoint(Medium.IPC, path=socket_path(driver_directory, service_id))
    connection = dial_member(endpoint, poller)
    if connection.is_closed:
        why = connection.why_closed
        raise ClusterError(f"{endpoint}: no member waits for the process of service {service_id}: {why}")
    return connection
