"""ClusterClient: a session with the cluster (AeronCluster), which also follows the leader by itself.

What waits for an outcome is made here of calls that do not (``client_calls.py``, which also says in which
thread each of them happens), and of sleeps between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Self, TypeVar, Unpack

from cluster.client.client_calls import ALL, ClientCalls
from cluster.client.connecting import ConnectState, SessionOpening
from cluster.client.context import ClientContext, ClientSettings
from cluster.client.egress_dispatch import Answer, EgressBatch
from cluster.client.environment import context_of
from cluster.client.ingress_publication import World
from cluster.client.requests import TIMEOUT_S, Request
from cluster.client.session_conductor import WAIT_S
from cluster.errors import TimedOut, need
from cluster.protocol.enums import Offer
from cluster.service.payload import Payload
from cluster.transport.dialler import Dialler
from cluster.transport.endpoint import Endpoint
from cluster.transport.forks import leave_to_parent

WAIT_MAX_S = 1.0  # for one answer, before the session is looked at again

Taken = TypeVar("Taken", Answer, EgressBatch)


class ClusterClient(ClientCalls):
    """An open session with a cluster. Open it with ``connect``; use it as a context manager to close it."""

    @classmethod
    def connect(
        cls,
        endpoints: str | Mapping[int, str | Endpoint] | None = None,
        egress_listener: object = None,
        **settings: Unpack[ClientSettings],
    ) -> ClusterClient:
        """Open a session and return its client.

        ``endpoints`` is ``host:9000,…`` or ``0=host:9000,1=…``. Over gRPC and ``tcp:`` one reachable member
        is enough, because it names the others. For ``ipc:`` list every member. Do the same for ``tcp:``
        unless ``tcp_ingress`` is ``auto``. ``aeron:host:9003,…`` lists the consensus endpoints of a real
        Aeron Cluster (``docs/aeron.md``). Without ``endpoints`` the client uses those in CLUSTER_ENDPOINTS.
        Other environment variables replace settings that are not given.

        ``egress_listener`` is a callable ``(cluster_session_id, timestamp, payload)``, or an object with
        methods of ``EgressListener``.

        Settings and their defaults; ``ClientContext`` describes them:

            credentials=b""             who the client is: bytes, or a CredentialsSupplier
            client_name=""              for people, at most 100 characters
            message_timeout_s=5.0       seconds to connect, and for a leader to answer
            new_leader_timeout_s=None   seconds without a leader; None: as the cluster announces
            keep_alive_interval_s=1.0   seconds of silence before a keep-alive; None: no thread
            window_bytes=67108864       bytes of messages that may be sent and not committed
            reopen=False                open another session when one is lost; needs on_session_lost
            supervised=False            the members keep answers until the client has them
            lane=None                   a Lane: the cluster counts its rows
            consumer=None               a Consumer: report a group's position, and nothing else
            cluster_id=-1               refuse members of another cluster; -1 accepts any
            tls=None                    TlsFiles, paths of PEM files, if the members use TLS
            aeron_dir=None              with aeron: endpoints, of a media driver here; None: the user's

        The client's own thread keeps the session alive and follows the leader, unless
        ``keep_alive_interval_s`` is None. After a fork, the copy in the child process raises ClientClosed and
        leaves the session alone.

        Raises ConfigurationError before anything is sent; TimedOut if no leader answers within
        ``message_timeout_s``; RemoteProtocolError if no endpoint is one for clients; TlsFailed;
        AuthenticationRejected; BatchRegistered if the lane's batch is already registered; or ClusterError
        with the reason that the cluster gave.
        """
        with closing(AsyncConnect(endpoints, egress_listener, **settings)) as attempt:
            while (client := attempt.poll()) is None:
                attempt.wait(WAIT_S)
        return client

    def send(self, *parts: Payload, timeout_s: float | None = None) -> int:
        """Send one message, made of the given parts. Returns its position once the client has accepted it.

        Waits while too much is uncommitted or the client looks for a leader, for at most ``timeout_s``
        seconds (None: without limit). Use ``await_committed`` to learn that the message is committed.

        Raises TimedOut, ClientClosed if the session is over, LocalProtocolError if the message is longer than
        ``max_payload_length``, and TypeError if a part is not bytes.
        """
        return self._until_taken(lambda: self.offer(*parts), self._deadline_ns(timeout_s), timeout_s)

    def request(self, *parts: Payload, timeout_s: float = TIMEOUT_S) -> Answer:
        """Send one message, and return the first answer that the service sends while it handles the message.

        Many threads may wait at a time. Further answers to the message, and an answer after the time-out, go
        to the listener or to ``answers``. If the leader dies before it has delivered an answer, the answer is
        lost, unless the session is supervised.

        Raises TimedOut if there is no answer within ``timeout_s`` seconds, with what is known of the message;
        otherwise as ``send`` does.
        """
        deadline_ns = self._deadline_ns(timeout_s)
        request = Request()
        self._until_taken(lambda: self.begin_request(request, *parts), deadline_ns, timeout_s)
        try:
            while (answer := request.result()) is None:
                self.poll_if_free()
                if (answer := request.result()) is not None:
                    break
                if self.now_ns() >= deadline_ns:
                    raise self.end_request(request, timeout_s)
                self.rest(min(WAIT_S, (deadline_ns - self.now_ns()) / 1e9), is_due=True)
        finally:
            self.end_request(request, timeout_s)
        return answer

    def _until_taken(self, attempt: Callable[[], int], deadline_ns: int, timeout_s: float | None) -> int:
        while (result := attempt()) < 0:
            if result == Offer.CLOSED:
                raise self.closed_error()
            if self.now_ns() >= deadline_ns:
                raise TimedOut(f"the message was not taken in {timeout_s:g} s: {Offer(result).name}")
            self.rest(min(WAIT_S, (deadline_ns - self.now_ns()) / 1e9))
        return result

    def _deadline_ns(self, timeout_s: float | None) -> int:
        return 1 << 62 if timeout_s is None else self.now_ns() + int(timeout_s * 1e9)

    def await_committed(self, timeout_s: float | None = None) -> int:
        """Poll until every message that was offered before this call is committed.

        It does not wait for later offers of other threads. Returns the log position after the last message
        that is known to be committed. Raises TimedOut after ``timeout_s`` seconds (None: no limit), with the
        number of uncommitted messages, and ClientClosed if the session is lost, even if another one replaces
        it.
        """
        commit = self.commit_wait(timeout_s)
        while not commit.is_over():
            self._poll(ALL)
            if not commit.is_over():
                self.rest(WAIT_S, is_due=True)
        return commit.position

    def answers(self, timeout_s: float | None = None) -> Iterator[Answer]:
        """Yield the service's answers one by one, for a client whose listener has no ``on_message``.

        Ends when no answer has come for ``timeout_s`` seconds (None: never). An answer is taken once it is
        yielded; another call continues after it. All other events still go to the listener.

        Raises ClientClosed if the session is over, ClusterError if answers were dropped because too many were
        waiting (``retained_egress.py``), and LocalProtocolError if a listener takes the messages.
        """
        return self._each(self.take_answer, timeout_s)

    def answer_batches(self, timeout_s: float | None = None) -> Iterator[EgressBatch]:
        """Yield the same answers as columns, one batch for each run that arrived together."""
        return self._each(self.take_answer_batch, timeout_s)

    def _each(self, take: Callable[[], Taken | None], timeout_s: float | None) -> Iterator[Taken]:
        while True:
            deadline_ns = self._deadline_ns(timeout_s)
            while (taken := take()) is None:
                rest_s = (deadline_ns - self.now_ns()) / 1e9
                if rest_s <= 0:
                    return
                self.rest(min(rest_s, WAIT_MAX_S))
            yield taken


def _world_of(context: ClientContext) -> Dialler:
    if not context.is_aeron:
        return Dialler(context.tls)
    need("reader")  # its kernels, which clients of ours do without
    from cluster.aeron.aeron_dialler import AeronDialler

    timeout_s = context.message_timeout_s
    return AeronDialler(context.aeron_dir, context.credentials_supplier, context.client_name, timeout_s)


class AsyncConnect:
    """An attempt to open a session, one step at a time (AeronCluster.AsyncConnect).

    with AsyncConnect("127.0.0.1:9000") as attempt:
        while (client := attempt.poll()) is None:
            print(attempt.state.name)
            attempt.wait(0.01)
    """

    def __init__(
        self,
        endpoints: str | Mapping[int, str | Endpoint] | None = None,
        egress_listener: object = None,
        **settings: Unpack[ClientSettings],
    ) -> None:
        """Take what ``ClusterClient.connect`` takes. Raises ConfigurationError; nothing is sent before."""
        self._context = context_of(endpoints, egress_listener, settings)
        self._world: World = _world_of(self._context)  # type: ignore[assignment]
        self._opening = SessionOpening(self._context, self._world)
        self._client: ClusterClient | None = None

    @property
    def state(self) -> ConnectState:
        """The step that the attempt has reached."""
        return self._opening.state

    @property
    def step(self) -> int:
        """Aeron's number of that step."""
        return int(self.state)

    def poll(self) -> ClusterClient | None:
        """Take one step; returns the client once its session is open. Raises as ``ClusterClient.connect``."""
        if self._client is None:
            self._world.poll()
            if self._opening.poll():
                self._client = ClusterClient(self._context, self._world, self._opening)
                leave_to_parent(self._client)
                if self._context.keep_alive_interval_s is not None:
                    self._client.run_beside()
        return self._client

    def fileno(self) -> int:
        """A descriptor that becomes readable when a ``wait`` would end, for an event loop."""
        return self._world.fileno()

    def wait(self, timeout_s: float) -> None:
        """Sleep until there may be something for ``poll`` to do, at most ``timeout_s`` seconds."""
        self._world.wait(timeout_s)

    def close(self) -> None:
        """Give up an unfinished attempt. A client that it has made belongs to the caller."""
        if self._client is None:
            self._opening.close()
            self._world.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
