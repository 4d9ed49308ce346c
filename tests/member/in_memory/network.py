"""Links between members, and clients' connections, with the rules of ``cluster.transport``.

A link is an ordered stream of frames each way: nothing is lost or reordered while it stands. What can happen
is delay, silence (a partition: frames wait), and a break, which loses what is on its way and is told to both
ends. Links are brought up again after a break as ``MemberLinks`` does: every 50 ms; three refusals, or
another incarnation, mean that the process behind it is gone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

import numpy as np

from tests.simulation.world import MS, World

US = 1_000

DIAL_INTERVAL_NS = 50 * MS
STABLE_AFTER_NS = 1_000 * MS
REFUSALS_OF_GONE = 3
FIRST_CONTACT_TIMEOUT_NS = 5_000 * MS
NOT_CONNECTED = -1


class _Way:
    """Frames on their way from one end to the other, in order."""

    __slots__ = ("frames", "last_arrival_ns")

    def __init__(self) -> None:
        self.frames: deque[tuple[int, bytes]] = deque()
        self.last_arrival_ns = 0


class Network:
    """All links of a cluster. ``delay_ns`` is drawn for every batch of frames that is sent."""

    def __init__(self, world: World, delay_ns: tuple[int, int] = (20 * US, 200 * US)) -> None:
        self._world = world
        self._random = world.random("links")
        self.delay_ns = delay_ns
        self._ends: dict[int, SimulatedLinks] = {}
        self._ways: dict[tuple[int, int], _Way] = {}
        self._blocked: set[tuple[int, int]] = set()  # directions in which frames wait

    def attach(self, end: SimulatedLinks) -> None:
        """A process that listens on its links; it and the others dial each other."""
        self._ends[end.member_id] = end
        for other_id in end.other_ids:
            self._dial(end.member_id, other_id, 0)

    def detach(self, member_id: int) -> None:
        """The process is gone, and dialling it is refused; what it had sent arrives before the break does."""
        end = self._ends.pop(member_id, None)
        if end is None:
            return
        end.is_closed = True
        for other in self._ends.values():
            way = self._ways.get((member_id, other.member_id))
            if other.is_up(member_id) and way is not None:
                at_ns = max(way.last_arrival_ns, self._world.now_ns) + self.delay()
                self._world.at(at_ns, partial(self._on_end_of_stream, member_id, other.member_id, way))

    def _on_end_of_stream(self, member_id: int, other_id: int, way: _Way) -> None:
        if self._ways.get((member_id, other_id)) is way and not self.is_blocked(member_id, other_id):
            self._break(other_id, member_id)

    def _break(self, member_id: int, other_id: int) -> None:
        """The link breaks for both ends; each dials again."""
        for one, two in ((member_id, other_id), (other_id, member_id)):
            self._ways.pop((one, two), None)
            end = self._ends.get(one)
            if end is not None and end.is_up(two):
                end.on_broken(two)
                self._dial(one, two, 0)

    def reset(self, member_id: int, other_id: int) -> None:
        """A connection reset between two live processes."""
        end = self._ends.get(member_id)
        if end is not None and end.is_up(other_id):
            self._break(member_id, other_id)

    def block(self, from_id: int, to_id: int) -> None:
        """Frames in this direction wait from now on; nobody is told."""
        self._blocked.add((from_id, to_id))

    def heal(self) -> None:
        """What waited arrives now."""
        blocked, self._blocked = self._blocked, set()
        for _, to_id in sorted(blocked):
            end = self._ends.get(to_id)
            if end is not None:
                end.wake()
        for member_id, other_id in sorted(blocked):
            if member_id not in self._ends:
                self._break(other_id, member_id)  # what could not be told before
            self._dial(member_id, other_id, 0)
            self._dial(other_id, member_id, 0)

    def is_blocked(self, from_id: int, to_id: int) -> bool:
        return (from_id, to_id) in self._blocked

    def _dial(self, from_id: int, to_id: int, refusals: int) -> None:
        delay_ns = self.delay() if refusals == 0 else DIAL_INTERVAL_NS
        self._world.at(self._world.now_ns + delay_ns, self._on_dialled, from_id, to_id, refusals)

    def _on_dialled(self, from_id: int, to_id: int, refusals: int) -> None:
        end = self._ends.get(from_id)
        if end is None or end.is_up(to_id):
            return
        if self.is_blocked(from_id, to_id) or self.is_blocked(to_id, from_id):
            return  # silence: dialled again when the partition heals
        other = self._ends.get(to_id)
        if other is None:
            refusals += 1
            if refusals >= REFUSALS_OF_GONE:
                end.on_refused(to_id)
            self._dial(from_id, to_id, min(refusals, REFUSALS_OF_GONE))
            return
        if other.is_up(from_id):
            self._break(to_id, from_id)  # what is left of a former life
        for one, two in ((end, other), (other, end)):
            self._ways[(one.member_id, two.member_id)] = _Way()
        end.on_connected(to_id, other.incarnation)
        other.on_connected(from_id, end.incarnation)

    def delay(self) -> int:
        """How long one batch of bytes is on its way."""
        return self._random.randint(*self.delay_ns)

    def send(self, from_id: int, to_id: int, frames: bytes) -> bool:
        way = self._ways.get((from_id, to_id))
        if way is None:
            return False
        end = self._ends.get(to_id)
        if end is None:
            return True  # taken by the kernel, and lost
        arrival_ns = max(way.last_arrival_ns, self._world.now_ns + self.delay())
        way.last_arrival_ns = arrival_ns
        way.frames.append((arrival_ns, frames))
        self._world.at(arrival_ns, end.wake)
        return True

    def insert(self, from_id: int, to_id: int, frames: bytes) -> bool:
        """Frames that have arrived now, ahead of those that are on their way; False without a link."""
        way, end = self._ways.get((from_id, to_id)), self._ends.get(to_id)
        if way is None or end is None:
            return False
        way.frames.appendleft((self._world.now_ns, frames))
        end.wake()
        return True

    def take(self, from_id: int, to_id: int) -> bytes:
        """What has arrived by now."""
        way = self._ways.get((from_id, to_id))
        if way is None or self.is_blocked(from_id, to_id):
            return b""
        arrived = []
        while way.frames and way.frames[0][0] <= self._world.now_ns:
            arrived.append(way.frames.popleft()[1])
        return b"".join(arrived)

    def queued_bytes(self, from_id: int, to_id: int) -> int:
        way = self._ways.get((from_id, to_id))
        return 0 if way is None else sum(len(frames) for _, frames in way.frames)


class SimulatedLinks:
    """``MemberLinks`` of one process."""

    def __init__(
        self,
        network: Network,
        world: World,
        member_id: int,
        member_ids: Iterable[int],
        incarnation: int,
        wake: Callable[[], None],
    ) -> None:
        self.member_id = member_id
        self.incarnation = incarnation
        self.other_ids = [other for other in member_ids if other != member_id]
        self.is_closed = False
        self._network = network
        self._world = world
        self._wake = wake
        self._incarnation_of: dict[int, int] = {}
        self._gone: set[int] = set()
        self._since_ns = world.now_ns
        self._up_since_ns: dict[int, int] = {}
        self._news: list[tuple[int, str, int]] = []

    def wake(self) -> None:
        if not self.is_closed:
            self._wake()

    def close(self) -> None:
        self._network.detach(self.member_id)

    # ---- told by the network

    def on_connected(self, other_id: int, incarnation: int) -> None:
        known = self._incarnation_of.get(other_id)
        if known is not None and known != incarnation:
            self._news.append((other_id, "gone", 0))
        self._incarnation_of[other_id] = incarnation
        self._gone.discard(other_id)
        self._up_since_ns[other_id] = self._world.now_ns
        self._news.append((other_id, "up", incarnation))
        self.wake()

    def on_broken(self, other_id: int) -> None:
        del self._up_since_ns[other_id]
        self._news.append((other_id, "down", 0))
        self.wake()

    def on_refused(self, other_id: int) -> None:
        is_late = self._world.now_ns - self._since_ns < FIRST_CONTACT_TIMEOUT_NS
        if other_id not in self._gone and not (is_late and other_id not in self._incarnation_of):
            self._gone.add(other_id)
            self._news.append((other_id, "gone", 0))
            self.wake()

    # ---- Links

    def poll(self, handler) -> int:  # type: ignore[no-untyped-def]
        work_count = 0
        while self._news:
            other_id, what, incarnation = self._news.pop(0)
            work_count += 1
            if what == "up":
                handler.on_link_up(other_id, incarnation)
            elif what == "down":
                handler.on_link_down(other_id)
            else:
                handler.on_member_gone(other_id)
        for other_id in self.other_ids:
            frames = self._network.take(other_id, self.member_id)
            if frames:
                buffer = np.frombuffer(frames, np.uint8)
                handler.on_frames(other_id, buffer, 0, len(buffer))
                work_count += 1
        return work_count

    def send(self, member_id: int, *buffers) -> int:  # type: ignore[no-untyped-def]
        if member_id not in self._up_since_ns:
            return NOT_CONNECTED
        frames = b"".join(bytes(memoryview(buffer).cast("B")) for buffer in buffers)
        return len(frames) if self._network.send(self.member_id, member_id, frames) else NOT_CONNECTED

    def is_up(self, member_id: int) -> bool:
        return member_id in self._up_since_ns

    def is_stable(self, member_id: int) -> bool:
        since_ns = self._up_since_ns.get(member_id)
        return since_ns is not None and self._world.now_ns - since_ns >= STABLE_AFTER_NS

    def queued_bytes(self, member_id: int) -> int:
        return self._network.queued_bytes(self.member_id, member_id)


class SimulatedClients:
    """``ClientPort`` of one process; clients are objects that frames are given to."""

    def __init__(self, network: Network, world: World, wake: Callable[[], None]) -> None:
        self._world = world
        self._wake = wake
        self.delay = network.delay
        self._connections: dict[int, ClientConnection] = {}
        self._next_id = 1
        self._news: list[tuple[str, int]] = []
        self._arrived: dict[int, bytes] = {}

    # ---- called by clients

    def connect(self, on_frames: Callable[[bytes], None], on_closed: Callable[[], None]) -> ClientConnection:
        connection = ClientConnection(self, self._next_id, on_frames, on_closed)
        self._next_id += 1
        self._connections[connection.id] = connection
        self._news.append(("connect", connection.id))
        self._wake()
        return connection

    def deliver(self, connection_id: int, frames: bytes) -> None:
        if connection_id in self._connections:
            self._arrived[connection_id] = self._arrived.get(connection_id, b"") + frames
            self._wake()

    def hang_up(self, connection_id: int) -> None:
        if self._connections.pop(connection_id, None) is not None:
            self._arrived.pop(connection_id, None)
            self._news.append(("disconnect", connection_id))
            self._wake()

    # ---- Clients

    def poll(self, handler) -> int:  # type: ignore[no-untyped-def]
        work_count = 0
        while self._news:
            what, connection_id = self._news.pop(0)
            work_count += 1
            if what == "connect":
                handler.on_connect(connection_id)
            else:
                handler.on_disconnect(connection_id)
        for connection_id in sorted(self._arrived):
            frames = self._arrived.pop(connection_id, None)
            if frames is None:
                continue
            buffer = np.frombuffer(frames, np.uint8)
            taken = handler.on_frames(connection_id, buffer, 0, len(buffer))
            if taken is not None and taken < len(frames):
                self._arrived[connection_id] = frames[taken:]
            work_count += 1
        return work_count

    def send(self, connection_id: int, *buffers) -> int:  # type: ignore[no-untyped-def]
        connection = self._connections.get(connection_id)
        if connection is None:
            return NOT_CONNECTED
        frames = b"".join(bytes(memoryview(buffer).cast("B")) for buffer in buffers)
        connection.receive_later(frames)
        return len(frames)

    def is_connected(self, connection_id: int) -> bool:
        return connection_id in self._connections

    def close(self, connection_id: int, why: str = "") -> None:
        connection = self._connections.pop(connection_id, None)
        if connection is not None:
            self._arrived.pop(connection_id, None)
            self._news.append(("disconnect", connection_id))
            connection.closed_later()

    def shutdown(self) -> None:
        """The process is gone: every client sees the end of its stream."""
        for connection_id in sorted(self._connections):
            self._connections.pop(connection_id).closed_later()


class ClientConnection:
    """A client's end; ordered both ways."""

    def __init__(
        self,
        port: SimulatedClients,
        connection_id: int,
        on_frames: Callable[[bytes], None],
        on_closed: Callable[[], None],
    ) -> None:
        self.id = connection_id
        self._port = port
        self._world = port._world
        self._on_frames = on_frames
        self._on_closed = on_closed
        self._is_closed = False
        self._to_member_ns = 0
        self._to_client_ns = 0

    def send(self, frames: bytes) -> None:
        self._to_member_ns = max(self._to_member_ns, self._world.now_ns + self._port.delay())
        self._world.at(self._to_member_ns, lambda: self._port.deliver(self.id, frames))

    def close(self) -> None:
        self._is_closed = True
        self._world.at(max(self._to_member_ns, self._world.now_ns), lambda: self._port.hang_up(self.id))

    def receive_later(self, frames: bytes) -> None:
        self._to_client_ns = max(self._to_client_ns, self._world.now_ns + self._port.delay())
        self._world.at(self._to_client_ns, lambda: None if self._is_closed else self._on_frames(frames))

    def closed_later(self) -> None:
        def told() -> None:
            if not self._is_closed:
                self._is_closed = True
                self._on_closed()

        self._world.at(max(self._to_client_ns, self._world.now_ns + self._port.delay()), told)
