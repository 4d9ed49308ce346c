"""Clients of the simulation: the production ClusterClient, which opens, sends, vanishes and comes back.

Each message names its client, its session and its number in the session, from 1 without gaps:

    <what the service is to do><client>.<session>.<number>|<filler>
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from cluster.client.cluster_client import ClusterClient
from cluster.client.connecting import SessionOpening
from cluster.client.context import ClientContext
from cluster.errors import ClusterError
from cluster.testing.client import ClientWorld
from cluster.testing.network import Network, SimulatedPoller
from cluster.testing.world import MS, SECOND, Process, ProcessDied, VirtualWorld
from cluster.transport.endpoint import Endpoint, Medium

KINDS = "....eeeettxm"
ECHO = b"e"
LENGTHS = (0, 8, 20, 40, 60, 100, 100, 100, 300, 1_500, 4_000)
CLIENT_TICK_NS = 20 * MS
TURN_NS = 20_000
NAP_CHANCE = 0.02  # of a supervised client, in a turn: its answers pile up, and it falls behind
NAP_MAX_NS = 2 * SECOND


class ClientObserver:
    """What the invariants want to hear of clients."""

    def on_session(self, client: Client, session_id: int) -> None: ...

    def on_left(self, client: Client, session_id: int, leadership_term_id: int) -> None: ...

    def on_acknowledged(self, client: Client, session_id: int, messages: int, position: int) -> None: ...

    def on_egress(self, client: Client, session_id: int, payload: bytes) -> None: ...


class Client(Process):
    """One client program: a session at a time, from ``is_sending`` until told to stop."""

    def __init__(
        self,
        world: VirtualWorld,
        number: int,
        network: Network,
        endpoints: Mapping[int, Endpoint],
        random: Random,
        observer: ClientObserver,
        *,
        is_supervised: bool = False,
    ) -> None:
        super().__init__(world, f"10.0.1.{number + 1}", f"client {number}")
        self.number = number
        self.poller = SimulatedPoller(network, self)
        self.is_sending = True
        self.is_leaving = False  # closes its session
        self.rate = random.choice([0.02, 0.1, 0.3])  # chance of a burst in a turn
        self.burst = random.choice([1, 2, 8])
        self.client: ClusterClient | None = None
        self.sessions = 0
        self.is_supervised = is_supervised
        self._naps = world.random(f"naps of client {number}")
        self.asked: list[int] = []  # numbers of the session's messages that every service is to answer
        self._network = network
        self._endpoints = dict(endpoints)
        self._random = random
        self._observer = observer
        self._attempt: SessionOpening | None = None
        self._ends_after = 0  # messages of this session
        self._endings = world.random(f"endings of client {number}")
        self.tokens = world.random(f"tokens of client {number}")
        self._ends_by_service = False  # asks for it with its last message
        self._has_asked = False
        self._urged: str | None = None
        self._told_acknowledged = 0
        self._rests_until_ns = 0

    # -- turning --

    def turn(self) -> int | None:
        self.spend(TURN_NS)
        if self.now_ns < self._rests_until_ns:
            return self._rests_until_ns - self.now_ns
        if self.is_supervised and self._naps.random() < NAP_CHANCE:
            self._rests_until_ns = self.now_ns + self._naps.randrange(NAP_MAX_NS)
        try:
            if self.client is None:
                self._connect()
            else:
                self._work(self.client)
        except ClusterError as error:
            self.say(f"{type(error).__name__}: {error}")
            self._forget()
        except ProcessDied:
            pass  # ``vanish`` has let go of everything
        return CLIENT_TICK_NS

    def _connect(self) -> None:
        if not self.is_sending:
            return
        if self._attempt is None:
            context = ClientContext(
                {i: str(endpoint) for i, endpoint in self._endpoints.items()},
                self._on_egress,
                client_name=self.name,
                message_timeout_s=5.0,
                window_bytes=32 * 1024,
                supervised=self.is_supervised,
            )
            self._context = context
            self._world = ClientWorld(self)
            self._attempt = SessionOpening(context, self._world)
        self.poller.wait(0)
        for _ in range(3):
            if self._attempt.poll():
                self.client = ClusterClient(self._context, self._world, self._attempt)
                self._attempt = None
                self.sessions += 1
                self.asked = []
                self._told_acknowledged = 0
                self._ends_after = self._random.choice([5, 50, 1_000_000])
                self._ends_by_service = self._endings.random() < 0.4
                self._has_asked = False
                session_id = self.client.cluster_session_id
                self.say(f"has session {session_id}")
                self._observer.on_session(self, session_id)
                return

    def _work(self, client: ClusterClient) -> None:
        if not client.is_closed:  # else an offer of the last turn came upon its end
            client.poll_egress()
        self._tell_acknowledged(client)
        if client.is_closed:
            self.say(f"session {client.cluster_session_id} ended: {client.why_closed}")
            self._forget()
            return
        urged, self._urged = self._urged, None
        if urged and self.is_sending and not self._has_asked:
            is_sent = self._offer(client, self._payload(client, urged))
            self._has_asked = is_sent and urged == "c"
        if (self.is_leaving or urged == "") and not self._has_asked:
            self._leave(client)
            return
        if self.is_sending and not self._has_asked and self._random.random() < self.rate:
            for _ in range(self._random.randint(1, self.burst)):
                if not self._offer(client, self._payload(client)):
                    break
            self._tell_acknowledged(client)
        if client.offered >= self._ends_after and client.acknowledged == client.offered:
            if not self._ends_by_service:
                self._leave(client)
            else:
                self._urged = "c"

    def _leave(self, client: ClusterClient) -> None:
        self._observer.on_left(self, client.cluster_session_id, client.leadership_term_id)
        client.close()
        self.say(f"closes session {client.cluster_session_id}")
        self._forget()

    def urge(self, kind: str) -> None:
        """Something is about to happen: send a message of this kind at once; "": close the session."""
        self._urged = kind
        self.wake(self.world.now_ns)

    def _offer(self, client: ClusterClient, payload: bytes) -> bool:
        is_taken = client.offer(payload) > 0
        if is_taken and payload.startswith(ECHO):
            self.asked.append(client.offered)
        return is_taken

    def _payload(self, client: ClusterClient, kind: str = "") -> bytes:
        random = self._random
        kind = kind or random.choice(KINDS)
        head = f"{kind}{self.number}.{client.cluster_session_id}.{client.offered + 1}|".encode()
        return head + b"~" * random.choice(LENGTHS)

    def _tell_acknowledged(self, client: ClusterClient) -> None:
        if client.acknowledged != self._told_acknowledged:
            self._told_acknowledged = client.acknowledged
            self._observer.on_acknowledged(
                self, client.cluster_session_id, client.acknowledged, client.committed_position
            )

    def _on_egress(self, session_id: int, timestamp: int, payload: memoryview) -> None:
        self._observer.on_egress(self, session_id, bytes(payload))

    # -- ending --

    def _forget(self) -> None:
        """The session is over; another one is opened some time later."""
        if self._attempt is not None:
            self._attempt.close()
        self.client = self._attempt = None
        self._rests_until_ns = self.now_ns + self._random.randrange(SECOND)

    def vanish(self) -> None:
        """The program is killed, and started anew: its session has nobody any more."""
        self.say("vanishes")
        self._network.on_killed(self.poller)
        self.poller = SimulatedPoller(self._network, self)
        self._attempt = None
        self.client = None
        self._rests_until_ns = self.world.now_ns + self._random.randrange(SECOND)

    @property
    def is_done(self) -> bool:
        """Nothing that it sent is unacknowledged."""
        return self.client is None or self.client.acknowledged == self.client.offered


def client_endpoints(hosts: Mapping[int, str], port: int) -> dict[int, Endpoint]:
    return {member_id: Endpoint(Medium.TCP, host, port) for member_id, host in hosts.items()}
