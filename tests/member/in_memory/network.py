"""Words of a script for the simulator's network: links between members, and clients' connections to them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from cluster.client.ingress_publication import IngressPublication
from cluster.testing.member import CLIENT_PORT, host_of
from cluster.testing.network import SimulatedPoller
from cluster.testing.world import Process
from cluster.transport.dial import dial
from cluster.transport.endpoint import Endpoint, Medium
from cluster.transport.links import LinksHandler
from cluster.transport.sockets import ReceiveBuffer
from tests.simulation.links import ObservedLinks
from tests.simulation.network import FaultyNetwork, FaultyPath

if TYPE_CHECKING:
    from tests.member.in_memory.cluster import SimulatedCluster
    from tests.member.in_memory.member import SimulatedMember
    from tests.simulation.member import Member

CLIENT_HOST = "10.0.1.1"


def a_network_without_faults(cluster: SimulatedCluster, delay_ns: tuple[int, int]) -> FaultyNetwork:
    """Each piece of bytes is on its way for ``delay_ns``, from the least to the most."""
    network = FaultyNetwork(cluster.world, cluster.world.random("network"))
    least_ns, most_ns = delay_ns
    network.defaults = FaultyPath(delay_ns=least_ns, jitter=(most_ns - least_ns) / least_ns)
    network.reset_of_killed_chance = 0.0
    return network


class Links:
    """The links between members of a cluster, by the ids of their ends."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster

    def block(self, from_id: int, to_id: int) -> None:
        """What is sent in this direction waits from now on; nobody is told."""
        self._cluster.network.path(host_of(from_id), host_of(to_id)).is_blocked = True

    def heal(self) -> None:
        """All directions are open, and what waited for them comes now."""
        network = self._cluster.network
        network.heal()
        for member in self._cluster.members:
            for sock in member.connections():
                network.retry(sock)

    def reset(self, member_id: int, other_id: int) -> None:
        """Connections between two processes break; each dials the other again."""
        for sock in self._cluster.members[member_id].connections():
            if sock.peer_host == host_of(other_id):
                self._cluster.network.cut(sock)


class ScriptedLinks(ObservedLinks):
    """The simulator's, over which a script may put words into a peer's mouth."""

    def __init__(self, member: Member, **arguments: Any) -> None:
        super().__init__(member, **arguments)
        self._heard: list[tuple[int, bytes]] = []

    def hear(self, member_id: int, frames: bytes) -> bool:
        """Take this as the peer's in the next turn; False while there is no link."""
        if not self.is_up(member_id):
            return False
        self._heard.append((member_id, frames))
        self._member.wake(self._member.world.now_ns)
        return True

    def poll(self, handler: LinksHandler) -> int:
        heard, self._heard = self._heard, []
        for member_id, frames in heard:
            buffer = np.frombuffer(frames, np.uint8)
            handler.on_frames(member_id, buffer, 0, len(buffer))
        return len(heard) + super().poll(handler)


class ClientConnection(Process):
    """A client's end of a connection to one member, which it greets before all else."""

    def __init__(
        self, member: SimulatedMember, on_frames: Callable[[bytes], None], on_closed: Callable[[], None]
    ) -> None:
        super().__init__(member.world, CLIENT_HOST, f"connection to {member.name}")
        self.on_frames = on_frames
        self._on_closed = on_closed
        self._poller = SimulatedPoller(member.cluster.network, self)
        endpoint = Endpoint(Medium.TCP, host_of(member.member_id), CLIENT_PORT)
        connection = dial(endpoint, self._poller, ReceiveBuffer())  # type: ignore[arg-type]
        self._publication = IngressPublication(member.member_id, endpoint, connection, cluster_id=-1)
        self._connection = connection
        self._to_send: deque[bytes] = deque()
        self._is_closing = False

    def send(self, frames: bytes) -> None:
        """Have it sent once the member has answered the greeting and takes it."""
        self._to_send.append(frames)
        self.wake(self.world.now_ns)

    def close(self) -> None:
        """End it in the next turn; nothing more is heard."""
        self._is_closing = True
        self.wake(self.world.now_ns)

    def turn(self) -> None:
        self._poller.wait(0)
        self._publication.do_work()
        if self._publication.is_connected:
            self._work()
        if self._is_closing:
            self._connection.close()
        if self._connection.is_closed:
            self.is_alive = False
            if not self._is_closing:
                self._on_closed()

    def _work(self) -> None:
        while self._to_send and self._connection.offer(self._to_send[0]) > 0:
            self._to_send.popleft()
        while not self._is_closing and self._connection.receive():
            start, end = self._connection.start, self._connection.end
            frames = self._connection.buffer[start:end].tobytes()
            self._connection.release(end)
            self.on_frames(frames)
