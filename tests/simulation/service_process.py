"""Services in processes of their own: production's host, at the end of a connection to its member.

    RemoteService ── ChildProcess ··· two simulated sockets of one host ··· ModuleLink ── ServiceHost

It takes turns of its own, reads its member's files, dies with its member, and is started again after any
other end. What waits within a callback lets the world go on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cluster.consensus.context import ConsensusModuleContext
from cluster.errors import ClusterError
from cluster.member.services.remote_service import ServiceProcess
from cluster.node.module_link import ModuleLink
from cluster.node.service_host import ServiceHost, dial_member
from cluster.node.service_process import ChildProcess
from cluster.protocol.service_link import SERVICE_LINK_VERSION, ServiceHello
from cluster.service.clustered_service import ClusteredService
from cluster.testing.disk import SimulatedFiles
from cluster.testing.member import MemberProcess, SimulatedPorts
from cluster.testing.network import SimulatedPoller
from cluster.testing.world import MS, SECOND, ProcessDied
from cluster.transport.endpoint import Endpoint, Medium
from tests.simulation.world import Mortal

SERVICE_PORT = 9100  # of service 0; production has a Unix socket for each
TURN_NS = 20_000
TICK_NS = 10 * MS
PAUSE_NS = 100 * MS  # before it is started again


def endpoint_of(host: str, service_id: int) -> Endpoint:
    """Where a member listens for the process of its service."""
    return Endpoint(Medium.TCP, host, SERVICE_PORT + service_id)


class WaitingPoller(SimulatedPoller):
    """Of a process that may wait within a turn."""

    def wait(self, timeout_s: float) -> int:
        count = super().wait(0)
        if count or timeout_s == 0:
            return count
        self.process.sleep(int(timeout_s * SECOND))
        if not self.process.is_alive:
            raise ProcessDied
        return super().wait(0)


class HostProcess(Mortal):
    """From its start to its end."""

    def __init__(self, parent: ServiceParent, service_id: int) -> None:
        super().__init__(parent.world, parent.host, f"service {service_id} of {parent.name}")
        self.pid = parent.next_pid()
        self.poller = WaitingPoller(parent.network, self)
        self._parent = parent
        self._service_id = service_id
        self._files = SimulatedFiles(parent.disk, self, self.pid)
        self._connection = dial_member(endpoint_of(parent.host, service_id), self.poller)  # type: ignore[arg-type]
        self._host: ServiceHost | None = None

    def turn(self) -> int | None:
        """As ``run_service``, one turn of it."""
        self.spend(TURN_NS)
        self.poller.wait(0)
        if self._host is None:
            if not self._connection.is_connected:
                if self._connection.is_closed:
                    self._end()
                return TICK_NS
            self._host = self._open_host()
        host = self._host
        try:
            work_count = host.do_work(self._parent.clock_ns(), 0)
        except ClusterError as error:
            self.say(f"ends: {type(error).__name__}: {error}")
            host.end(error)
            self._end()
            return None
        self._parent.on_service_turned(self._service_id)
        if host.is_stopped:
            host.end(None)
            self._end()
        return 0 if work_count else TICK_NS

    def _open_host(self) -> ServiceHost:
        poller, service_id = self.poller, self._service_id
        link = ModuleLink(service_id, self._connection, poller, self._files)  # type: ignore[arg-type]
        link.send(ServiceHello(service_id, self.pid, SERVICE_LINK_VERSION))
        return ServiceHost(service_id, link, poller, self._files, self._load)  # type: ignore[arg-type]

    def _load(self, name: str) -> ClusteredService:
        return self._parent.load_service(self._service_id, self.world.random(f"process {self.pid}"))

    def _end(self) -> None:
        self.is_alive = False
        self.on_killed()

    def on_killed(self) -> None:
        self._parent.disk.on_process_died(self)
        self._parent.network.on_killed(self.poller)

    def lose_power(self) -> None:
        """With its machine, whose disk and host its member sees to."""
        self.is_alive = False
        self._parent.network.on_power_cut(self.poller)


class SimulatedChild:
    """``Child``: one ``HostProcess`` after the other."""

    def __init__(self, parent: ServiceParent, service_id: int) -> None:
        self.process: HostProcess | None = None
        self._parent = parent
        self._service_id = service_id
        self._due_ns = 0
        self._is_retired = False

    @property
    def is_running(self) -> bool:
        return self.process is not None

    def start(self, now_ns: int) -> bool:
        if self._is_retired or now_ns < self._due_ns:
            return False
        self.process = HostProcess(self._parent, self._service_id)
        self.process.wake(self._parent.world.now_ns)
        return True

    def take_end(self, now_ns: int) -> int | None:
        process = self.process
        if process is None or process.is_alive:
            return None
        process.say("has ended")
        self.process, self._due_ns = None, now_ns + PAUSE_NS
        return process.pid

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()

    def lose_power(self) -> None:
        """With its member's machine."""
        if self.process is not None and self.process.is_alive:
            self.process.lose_power()

    def retire(self) -> None:
        self._is_retired = True

    def await_end(self, timeout_s: float, work: Callable[[], object]) -> None:
        """Nobody waits within a turn of a member: it is killed."""
        self.kill()


class PortsApart(SimulatedPorts):
    """``Ports`` of a member whose services may be in processes of their own."""

    _member: ServiceParent

    def open_service_process(self, service_id: int) -> ServiceProcess:
        member = self._member
        child = member.children[service_id] = SimulatedChild(member, service_id)
        where = endpoint_of(member.host, service_id)
        return ChildProcess(service_id, where, member.poller, child, member.say)  # type: ignore[arg-type]


class ServiceParent(MemberProcess):
    """A member's process with those of its services, which die with it."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.children: dict[int, SimulatedChild] = {}  # by service id
        self._process_count = 0

    def open_ports(self, context: ConsensusModuleContext) -> SimulatedPorts:
        return PortsApart(self, context, self._random)

    def next_pid(self) -> int:
        """Of a process that it starts."""
        self._process_count += 1
        return 1_000_000 * (1 + self.member_id) + 1_000 * self.incarnation + self._process_count

    def on_service_turned(self, service_id: int) -> None:
        """The process of a service has taken a turn."""

    def on_killed(self) -> None:
        super().on_killed()
        for child in self.children.values():
            child.kill()

    def lose_power(self) -> None:
        super().lose_power()
        for child in self.children.values():
            child.lose_power()
