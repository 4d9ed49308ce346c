"""Clients of a cluster in memory: the ``ClusterClient`` of production over simulated connections."""

from collections import deque
from collections.abc import Mapping
from random import Random
from typing import Any, Protocol

from cluster.client.cluster_client import ClusterClient
from cluster.client.connecting import SessionOpening
from cluster.client.context import ClientContext
from cluster.client.ingress_publication import IngressPublications
from cluster.client.requests import Request
from cluster.errors import ClientClosed, ClusterError, TimedOut
from cluster.protocol import NULL_VALUE, Message
from cluster.protocol.lane import Lane
from cluster.protocol.resume import TOKEN_LENGTH
from cluster.testing.network import Network, SimulatedPoller
from cluster.testing.world import MS, SECOND, Process, ProcessDied, VirtualWorld
from cluster.transport.credentials import CredentialsSupplier
from cluster.transport.dial import dial
from cluster.transport.endpoint import Endpoint
from cluster.transport.sockets import Connection, ReceiveBuffer

TICK_NS = 20 * MS
TURN_NS = 20_000


class ClientProcess(Protocol):
    """What a client's world needs of the process that it is in; a new life has a new poller."""

    poller: SimulatedPoller
    tokens: Random

    @property
    def now_ns(self) -> int: ...

    def sleep(self, duration_ns: int) -> None: ...


class ClientWorld:
    """What a client sees of the simulation (``cluster.client.ingress_publication.World``)."""

    def __init__(self, process: ClientProcess) -> None:
        self._process = process
        self._poller = process.poller
        self._receive_buffer = ReceiveBuffer(256 * 1024)

    def now_ns(self) -> int:
        return self._process.now_ns

    def warn(self, line: str) -> None:
        pass  # members that are not there are part of the play

    def poll(self) -> None:
        self.wait(0)
        self._poller.wait(0)

    def wait(self, timeout_s: float, *, is_due: bool = False) -> None:
        self._process.sleep(int(timeout_s * SECOND))
        if self._process.poller is not self._poller:
            raise ProcessDied  # meanwhile, in the midst of a call of this client

    def wake(self) -> None:
        raise AssertionError("nobody else waits")

    def fileno(self) -> int:
        raise AssertionError("no event loop waits")

    def run_beside(self, duty: object) -> None:
        raise AssertionError("a process of the simulation has one thread")

    def call_soon(self) -> None:
        raise AssertionError("a process of the simulation has one thread")

    def dial(self, endpoint: Endpoint) -> Connection:
        return dial(endpoint, self._poller, self._receive_buffer)  # type: ignore[arg-type]

    def response_channel(self, connection: Any, endpoint: Endpoint) -> str:
        host, port = connection.local_address
        return f"aeron:udp?endpoint={host}:{port}"

    def resume_token(self) -> bytes:
        return self._process.tokens.randbytes(TOKEN_LENGTH)

    def on_forked(self, why: str) -> None:
        raise AssertionError("nobody forks a process of the simulation")

    def close(self) -> None:
        pass


class SimulatedClient(Process):
    """A client with one session. ``answers`` are payloads; ``why_closed`` is empty while it is open."""

    def __init__(
        self,
        world: VirtualWorld,
        number: int,
        name: str,
        network: Network,
        endpoints: Mapping[int, Endpoint],
        credentials: bytes | CredentialsSupplier = b"",
        *,
        is_supervised: bool = False,
        lane: Lane | None = None,
    ) -> None:
        super().__init__(world, f"10.0.{1 + number // 250}.{1 + number % 250}", name)
        self.poller = SimulatedPoller(network, self)
        self.tokens = world.random(f"tokens of client {number}")
        self.answers: list[bytes] = []
        self.received: list[bytes] = []  # all answers, taken or not
        self.why_closed = ""
        self._is_leaving = False
        self._waiting: deque[bytes] = deque()
        self._asked: bytes | None = None
        self._request: Request | None = None
        self._context = ClientContext(
            {member_id: str(endpoint) for member_id, endpoint in endpoints.items()},
            self._on_message,
            credentials=credentials,
            client_name=name,
            supervised=is_supervised,
            lane=lane,
        )
        self._client_world = ClientWorld(self)
        self._attempt: SessionOpening | None = SessionOpening(self._context, self._client_world)
        self._client: ClusterClient | None = None

    # -- used by a test --

    def offer(self, payload: bytes) -> None:
        """Send a message. ``SimulatedCluster.settle`` returns once all are committed and processed."""
        assert not self.is_closed, f"{self.name}: the session is closed: {self.why_closed}"
        self._waiting.append(bytes(payload))
        self.wake(self.world.now_ns)

    def request(self, payload: bytes, timeout: float = 60.0) -> bytes:
        """Send a message after all earlier ones, and let time pass until its answer arrives.

        Returns the first answer that the service sends while it handles the message; further answers go to
        ``answers``. Raises TimedOut after ``timeout`` virtual seconds, and ClientClosed if the session ends.
        """
        assert not self.is_closed, f"{self.name}: the session is closed: {self.why_closed}"
        self._asked, self._request = bytes(payload), None
        self.wake(self.world.now_ns)
        end_ns = self.world.now_ns + int(timeout * SECOND)
        while (request := self._request) is None or (answer := request.result()) is None:
            if self.is_closed:
                raise ClientClosed(f"{self.name}: the session is closed: {self.why_closed}")
            if self.world.now_ns > end_ns or not self.world.step():
                self._asked = None
                assert self._client is not None
                if request is None:
                    raise TimedOut(f"the message was not taken in {timeout:g} s")
                raise self._client.end_request(request, timeout)
        return answer.payload

    def take_answers(self) -> list[bytes]:
        """The answers that have arrived since the last call."""
        taken, self.answers = self.answers, []
        return taken

    def ask_for_snapshot(self) -> None:
        """Send an AdminRequest for a snapshot, which needs the right to administer."""
        assert self._client is not None, f"{self.name} has no session"
        self._client.send_admin_request_to_take_a_snapshot(self.world.now_ns)

    def close(self) -> None:
        """Close the session, as time passes, once everything offered is sent."""
        self._is_leaving = True
        self.wake(self.world.now_ns)

    @property
    def session_id(self) -> int:
        """The session's id; -1 before it is open."""
        return -1 if self._client is None else self._client.cluster_session_id

    @property
    def lane_rows(self) -> int:
        """How many rows of the lane's batch the log had when this session opened."""
        return 0 if self._client is None else self._client.lane_rows

    @property
    def is_open(self) -> bool:
        """Whether its session is open."""
        return self._client is not None and not self.why_closed

    @property
    def is_closed(self) -> bool:
        """Whether its session has ended, or could not be opened (``why_closed``)."""
        return bool(self.why_closed)

    @property
    def is_settled(self) -> bool:
        """Whether everything offered is committed, or the session is over."""
        if self.is_closed:
            return True
        client = self._client
        is_sent = client is not None and client.acknowledged == client.offered
        return is_sent and not self._waiting and not self._is_leaving

    # -- turning --

    def turn(self) -> int | None:
        """For the virtual world: one turn of the program."""
        self.spend(TURN_NS)
        if self.is_closed:
            return None
        try:
            if self._client is None:
                self._connect()
            else:
                self._work(self._client)
        except ClusterError as error:
            self._end(f"{type(error).__name__}: {error}")
        return TICK_NS

    def _connect(self) -> None:
        self.poller.wait(0)
        assert self._attempt is not None
        if self._attempt.poll():
            self._client = ClusterClient(self._context, self._client_world, self._attempt)
            self._attempt = None
            self.say(f"has session {self.session_id}")

    def _work(self, client: ClusterClient) -> None:
        client.poll_egress()
        while self._waiting and not client.is_closed and client.offer(self._waiting[0]) > 0:
            self._waiting.popleft()
        if self._asked is not None and not self._waiting and not client.is_closed:
            request = Request()
            if client.begin_request(request, self._asked) > 0:
                self._asked, self._request = None, request
        if client.is_closed:
            self._end(client.why_closed)
        elif self._is_leaving and not self._waiting:
            client.close()
            self._end("closed by the client")

    def _end(self, why: str) -> None:
        self.why_closed = why
        self._waiting.clear()
        self.say(f"session {self.session_id} ended: {why}")

    def _on_message(self, session_id: int, timestamp: int, payload: memoryview) -> None:
        self.answers.append(bytes(payload))
        self.received.append(bytes(payload))


class SimulatedCaller(Process):
    """A program that sends members single messages of its own choice, as a tool or a faulty client does."""

    def __init__(
        self, world: VirtualWorld, number: int, name: str, network: Network, endpoints: Mapping[int, Endpoint]
    ) -> None:
        super().__init__(world, f"10.0.{1 + number // 250}.{1 + number % 250}", name)
        self.poller = SimulatedPoller(network, self)
        self.tokens = world.random(f"tokens of caller {number}")
        self._unsent: deque[Message] = deque()
        self._members = IngressPublications(ClientWorld(self), endpoints, NULL_VALUE)

    def send(self, message: Message) -> None:
        """To the member whose connection comes first, as time passes."""
        self._unsent.append(message)
        self.wake(self.world.now_ns)

    def turn(self) -> int:
        """For the virtual world: one turn of the program."""
        self.spend(TURN_NS)
        self.poller.wait(0)
        self._members.do_work(self.now_ns)
        for member in self._members.connected():
            for _ in member.receive():
                pass
            while self._unsent and member.offer(self._unsent[0]) > 0:
                self._unsent.popleft()
        return TICK_NS
