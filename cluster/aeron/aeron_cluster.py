"""A session of a real Aeron Cluster, by the client of a media driver (Aeron: AeronCluster).

    with AeronLog("host:9003", aeron_dir=…) as log:                            # consensus endpoints
        session = AeronCluster.connect(log.ingress_endpoints(), aeron_dir=…, alias="orders/0/17")
        session.offer(b"…")            # a position above 0, or a code of Offer
        session.close()

What is offered is not committed: a leader that dies takes messages with it that it had accepted, and says
nothing. Only the log counts. So an offer may name the term that it is meant for. Once the connection was lost
in a term nothing more goes there, for a gap in what the leader got would stay unseen: ``settle`` says that
there is none. In a new term the leader drops what was meant for an earlier one.

    CONNECTING ── OK ──▶ CONNECTED ── connection lost ──▶ AWAIT_LEADER ── new term, or settle() ──▶ CONNECTED
                             └── closed by the cluster, no leader in time, driver lost ──▶ CLOSED

A thread beside the session reads egress and sends keep-alives, whatever its application does meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Self

import numpy as np

from cluster.aeron.session_runs import ingress_end, take_egress
from cluster.errors import (
    AuthenticationRejected,
    ClientClosed,
    ClusterError,
    MediaDriverError,
    RemoteProtocolError,
    TimedOut,
)
from cluster.log.deliver import read_message
from cluster.media.aeron import Aeron
from cluster.media.client_conductor import IDLE_S, ChannelRefused
from cluster.media.publication import Publication
from cluster.media.response_channel import Answers
from cluster.protocol import CLUSTER, Message, decode, streams
from cluster.protocol.enums import EventCode, Offer
from cluster.protocol.frame import frame
from cluster.protocol.response_channel import with_parameter
from cluster.protocol.sbe import read_header
from cluster.protocol.session import (
    Challenge,
    ChallengeResponse,
    NewLeaderEvent,
    SessionCloseRequest,
    SessionConnectRequest,
    SessionEvent,
    SessionKeepAlive,
    SessionMessageHeader,
)
from cluster.protocol.versions import CLIENT_PROTOCOL_VERSION, PACKAGE_VERSION
from cluster.transport.clock import monotonic_ns
from cluster.transport.credentials import CredentialsSupplier, FixedCredentials

KEEP_ALIVE_INTERVAL_NS = 500_000_000
ASK_AGAIN_NS = 100_000_000  # after a redirect to nobody, or an election
REACH_AGAIN_NS = 1_000_000_000  # after the driver has refused a member's endpoint
PREFERRED_NS = 2_000_000_000  # how long to hold out for the leader that a redirect named
CLOSE_ATTEMPTS = 200  # while the leader takes nothing: 0.1 s
LEADER_TIMEOUT_S = 60.0  # as long as ``AeronLog`` waits for a member

OnEgress = Callable[[np.ndarray | bytes], object]


class AeronClusterState(Enum):
    """Where a session is (AeronCluster.State)."""

    CONNECTING = auto()
    CONNECTED = auto()
    AWAIT_LEADER = auto()
    CLOSED = auto()


class AeronCluster:
    """One session. ``connect`` opens it and runs it; who constructs it calls ``do_work`` by itself."""

    def __init__(
        self,
        aeron: Aeron,
        ingress_endpoints: Mapping[int, str],
        *,
        alias: str = "",
        credentials: CredentialsSupplier | None = None,
        client_name: str = "",
        leader_timeout_s: float = LEADER_TIMEOUT_S,
        on_egress: OnEgress | None = None,
        now_ns: Callable[[], int] = monotonic_ns,
    ) -> None:
        """``ingress_endpoints``: ``host:port`` by member id. One is enough, the cluster names the others.

        ``alias`` stands in the response channel, which the log keeps with the session's open.
        ``on_egress`` gets egress to the session, by who calls ``do_work``, in frames as a client's connection
        has them: the service's messages in runs that hold until it returns, any other message alone.
        Raises MediaDriverError, ChannelRefused where no way leads to any endpoint.
        """
        self._aeron = aeron
        self._endpoints = dict(ingress_endpoints)
        self._credentials = credentials or FixedCredentials(b"")
        self._client_name = client_name
        self._leader_timeout_ns = int(leader_timeout_s * 1e9)
        self._on_egress = on_egress
        self._now_ns = now_ns
        self._egress = self._add_egress()
        channel = self._egress.channel
        self._response_channel = with_parameter(channel, "alias", alias) if alias else channel
        self._publications: dict[int, Publication] = {}
        self._refused: dict[int, ChannelRefused] = {}  # by member, for now
        self._reach_again_ns = 0
        self._asked: int | None = None  # the member that the request went to
        self._request: Message | None = None  # to be sent to it
        self._correlation_id = -1
        self._not_before_ns = 0
        self._sent_ns = 0
        self._prefer_until_ns = 0
        self._awaited_ns = 0  # since when there is no leader to send to
        self._is_whole = True  # the leader has got what it was sent in this term
        self._announced: tuple[int, int] | None = None  # term and leader, by the log
        self._header = b""
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self.state = AeronClusterState.CONNECTING
        self.session_id = -1
        self.leadership_term_id = -1
        self.leader_member_id = -1
        self.leader_heartbeat_timeout_ns: int | None = None
        self.why_closed = ""
        self.refusal: ClusterError | None = None  # or what else has ended it

    @classmethod
    def connect(
        cls,
        ingress_endpoints: Mapping[int, str],
        *,
        aeron_dir: str | None = None,
        alias: str = "",
        credentials: CredentialsSupplier | None = None,
        timeout_s: float = 10.0,
    ) -> Self:
        """An open session, with a client of the media driver and a thread of its own.

        Answers of the service are dropped. Raises MediaDriverError, TimedOut, AuthenticationRejected, and
        ClusterError with what the cluster refuses it for.
        """
        aeron = Aeron.connect(aeron_dir, timeout_s)
        try:
            session = cls(aeron, ingress_endpoints, alias=alias, credentials=credentials)
            session._open(timeout_s)
        except BaseException:
            aeron.close()
            raise
        session._thread = threading.Thread(target=session._run, name="aeron-cluster", daemon=True)
        session._thread.start()
        return session

    def _open(self, timeout_s: float) -> None:
        deadline_ns = self._now_ns() + int(timeout_s * 1e9)
        while self.state is not AeronClusterState.CONNECTED:
            self.check_open()
            if self._now_ns() > deadline_ns:
                raise TimedOut(f"no session within {timeout_s:g} s; {self.describe()}")
            if not self.do_work():
                time.sleep(IDLE_S)

    def _run(self) -> None:
        while self.state is not AeronClusterState.CLOSED:
            with self._lock:
                work_count = self.do_work()
            time.sleep(0 if work_count else IDLE_S)

    # ---- what an application asks

    @property
    def is_closed(self) -> bool:
        """Whether the session is over; ``why_closed`` says why."""
        return self.state is AeronClusterState.CLOSED

    def check_open(self) -> None:
        """Raise what ended the session, if it is over."""
        if self.is_closed:
            raise self.refusal or ClientClosed(f"session {self.session_id} is closed: {self.why_closed}")

    def describe(self) -> str:
        """How far the session has come, for people."""
        if self.is_closed:
            return self.why_closed
        what = "nobody is reached" if self._asked is None else f"member {self._asked} was asked"
        return f"{what}; ingress endpoints {self.ingress_endpoints}{self._refusals}"

    @property
    def _refusals(self) -> str:
        return "".join(f"; {refusal}" for refusal in self._refused.values())

    @property
    def ingress_endpoints(self) -> str:
        """Where the members take sessions, as they list it."""
        return ",".join(f"{member_id}={endpoint}" for member_id, endpoint in self._endpoints.items())

    @property
    def message_length_max(self) -> int:
        """The longest payload that can be offered, in bytes; 0 while no member is connected."""
        lengths = [each.message_length_max for each in self._publications.values()]
        return max(max(lengths, default=0) - SessionMessageHeader.ENCODED_LENGTH, 0)

    def offer(self, payload: bytes, leadership_term_id: int | None = None) -> int:
        """Send one message to the leader: a position above 0, or a code of ``Offer``.

        With a term, NOT_CONNECTED unless the session is in it. Raises LocalProtocolError for a message that
        is too long.
        """
        with self._lock:
            if self.state is not AeronClusterState.CONNECTED:
                return Offer.CLOSED if self.is_closed else Offer.NOT_CONNECTED
            if leadership_term_id not in (None, self.leadership_term_id):
                return Offer.NOT_CONNECTED
            return self._offer(self._header + payload)

    def offer_frames(self, run: np.ndarray, start: int, end: int) -> int:
        """Send the messages of this session and term that ``run[start:end]`` begins with.

        They are in frames as a client's connection has them. Returns where the first unsent frame begins.
        """
        with self._lock:
            if self.state is not AeronClusterState.CONNECTED:
                return start
            end = ingress_end(run, start, end, self.session_id, self.leadership_term_id)
            sent = self._publications[self.leader_member_id].offer_frames(run, start, end)
            if sent > start:
                self._sent_ns = self._now_ns()
            return sent

    def send(self, message: Message) -> int:
        """Send what is no message of the application, such as an AdminRequest; as ``offer``."""
        with self._lock:
            if self.state is not AeronClusterState.CONNECTED:
                return Offer.CLOSED if self.is_closed else Offer.NOT_CONNECTED
            return self._offer(message.encode())

    def settle(self) -> None:
        """The log has all that was offered: the session may go on in its term after a lost connection."""
        self._is_whole = True

    def follow_leader(self, leadership_term_id: int, member_id: int) -> None:
        """The log says that this member leads, from this term on; the cluster may have said so before."""
        self._announced = leadership_term_id, member_id

    def close(self, why: str = "closed by the client") -> None:
        """Ask the cluster to close the session, and give all back to the driver."""
        with self._lock:
            if self.state is AeronClusterState.CONNECTED:
                self._offer_close()
            self._end(why)
        if self._thread is not None:
            self._thread.join()
            self._aeron.close()

    def _offer_close(self) -> None:
        """A session whose request gets lost stays open until its time-out, and others wait for its end."""
        request = SessionCloseRequest(self.leadership_term_id, self.session_id).encode()
        for _ in range(CLOSE_ATTEMPTS):
            if self._offer(request) != Offer.BACK_PRESSURED:
                return
            time.sleep(IDLE_S)

    def wait(self, timeout_s: float, descriptor: int, *, is_reading: bool, is_due: bool) -> None:
        """Until egress has come or the descriptor is readable, at most so long; for who calls ``do_work``.

        It comes with less delay for who says that some ``is_due``.
        """
        self._egress.wait(timeout_s, descriptor, is_reading=is_reading, is_due=is_due)

    # ---- the duty cycle

    def do_work(self, *, is_reading: bool = True) -> int:
        """Take in what has come, send what is due; returns how much was done. Waits for the driver alone.

        Unless ``is_reading`` egress stays where it is, and holds its sender back in a while.
        """
        try:
            return self._do_work(is_reading)
        except ClusterError as error:  # of the driver, or of what a member sends
            self._end(str(error), error)
            return 1

    def _do_work(self, is_reading: bool) -> int:
        if self.is_closed:
            return 0
        work_count = self._aeron.conductor.do_work()
        for run in self._egress.poll_runs() if is_reading else ():
            work_count += 1
            self._on_run(run)
        now_ns = self._now_ns()
        match self.state:
            case AeronClusterState.CONNECTING:
                work_count += self._ask(now_ns)
            case AeronClusterState.CONNECTED | AeronClusterState.AWAIT_LEADER:
                if self._announced is not None:
                    self._on_new_leader(*self._announced)
                self._stay(now_ns)
        return work_count

    def _stay(self, now_ns: int) -> None:
        """Keep the session alive, or wait for who leads it."""
        if self.leader_member_id not in self._publications:
            self._connect_to(self.leader_member_id)
        publication = self._publications.get(self.leader_member_id)
        if publication is not None and publication.is_connected:
            if self._is_whole:
                self.state = AeronClusterState.CONNECTED
            if now_ns - self._sent_ns >= KEEP_ALIVE_INTERVAL_NS:
                self._offer(SessionKeepAlive(self.leadership_term_id, self.session_id).encode())
        elif self.state is AeronClusterState.CONNECTED:
            self.state, self._awaited_ns, self._is_whole = AeronClusterState.AWAIT_LEADER, now_ns, False
        if (
            self.state is AeronClusterState.AWAIT_LEADER
            and now_ns - self._awaited_ns > self._leader_timeout_ns
        ):
            timeout = f"{self._leader_timeout_ns / 1e9:g} s"
            self._end(f"no leader took the session up within {timeout}{self._refusals}")

    def _offer(self, message: bytes) -> int:
        result = self._publications[self.leader_member_id].offer(message)
        if result > 0:
            self._sent_ns = self._now_ns()
        return result

    # ---- to get a session

    def _ask(self, now_ns: int) -> int:
        """Send the request that is due to the leader, if it is known, else to the first that is connected."""
        if self._asked is not None and self._request is None:
            if not self._publications[self._asked].is_connected:
                self._ask_again(now_ns + ASK_AGAIN_NS)  # its answer, if there was one, went with it
            return 0
        if self._asked is None:
            if now_ns < self._not_before_ns:
                return 0
            self._connect_to(self.leader_member_id if now_ns < self._prefer_until_ns else -1)
            connected = (each for each, found in self._publications.items() if found.is_connected)
            self._asked = next(connected, None)
            if self._asked is None:
                return 0
            self._request = self._connect_request()
        assert self._request is not None
        result = self._publications[self._asked].offer(self._request.encode())
        if result > 0:
            self._request = None
        elif result == Offer.NOT_CONNECTED:
            self._ask_again(now_ns + ASK_AGAIN_NS)
        return result > 0

    def _ask_again(self, not_before_ns: int) -> None:
        self._asked = self._request = None
        self._not_before_ns = not_before_ns

    def _connect_to(self, leader_member_id: int) -> None:
        """Have publications to this member alone, or to all while nobody is known to lead.

        The driver may refuse one for a moment: a name is not known just now, its memory is full. An open
        session bears that; to open one, raises ChannelRefused for that member, or where all are refused.
        """
        wanted = {leader_member_id} & self._endpoints.keys() or self._endpoints.keys()
        for member_id in self._publications.keys() - wanted:
            self._aeron.remove_publication(self._publications.pop(member_id))
        self._refused = {each: refusal for each, refusal in self._refused.items() if each in wanted}
        now_ns = self._now_ns()
        for member_id, endpoint in self._endpoints.items():
            is_refused = member_id in self._refused and now_ns < self._reach_again_ns
            if member_id not in wanted or member_id in self._publications or is_refused:
                continue
            try:
                self._publications[member_id] = self._aeron.add_exclusive_publication(
                    f"aeron:udp?endpoint={endpoint}", streams.INGRESS
                )
                self._refused.pop(member_id, None)
            except ChannelRefused as error:
                self._refused[member_id], self._reach_again_ns = error, now_ns + REACH_AGAIN_NS
                is_none_left = len(self._refused) == len(self._endpoints)
                if self.session_id < 0 and (is_none_left or member_id == leader_member_id):
                    raise

    def _connect_request(self) -> SessionConnectRequest:
        self._correlation_id = self._aeron.next_correlation_id()
        return SessionConnectRequest(
            self._correlation_id,
            self._egress.stream_id,
            CLIENT_PROTOCOL_VERSION,
            self._response_channel,
            self._credentials.encoded_credentials(),
            f"name={self._client_name} version={PACKAGE_VERSION} commit=",
        )

    def _add_egress(self) -> Answers:
        """Where this host is reached from the members: by the first to whom a way leads."""
        refusal: ChannelRefused | None = None
        for endpoint in self._endpoints.values():
            try:
                return Answers(self._aeron, endpoint, streams.EGRESS)
            except ChannelRefused as error:
                refusal = error
        assert refusal is not None, "no ingress endpoint"
        raise refusal

    # ---- what the cluster says

    def _on_run(self, run: np.ndarray) -> None:
        """Whole messages in their frames: those of the service to this session by the run."""
        at = 0
        while at < run.size:
            end = take_egress(run, at, self.session_id) if self.session_id >= 0 else at
            if end > at:
                if self._on_egress is not None:
                    self._on_egress(run[at:end])
                at = end
            else:
                message, at = read_message(run, at, run.size)
                if message is not None:
                    self._on_message(message)

    def _on_message(self, data: bytes) -> None:
        """What does not decode, or is for another session, is passed over: anybody may send here."""
        try:
            _, template_id, schema_id, _ = read_header(data, 0, len(data))
            if (schema_id, template_id) == (CLUSTER.id, SessionMessageHeader.TEMPLATE_ID):
                message: Message | None = SessionMessageHeader.decode(data)
            else:
                message = decode(data)
        except RemoteProtocolError:
            return
        is_ours = self.session_id >= 0 and getattr(message, "cluster_session_id", None) == self.session_id
        match message:
            case Challenge() if message.correlation_id == self._correlation_id:
                self._answer_challenge(message)
            case SessionEvent(code=EventCode.CLOSED) if is_ours:
                if message.leadership_term_id < self.leadership_term_id:
                    return  # of a leader that has slept, and does not know that it is none any more
                self._end(message.detail or "closed by the cluster")
            case SessionEvent() if message.correlation_id == self._correlation_id:
                if self.state is AeronClusterState.CONNECTING:
                    self._on_answer(message)
                return
            case NewLeaderEvent() if is_ours:
                self._endpoints |= _endpoints(message.ingress_endpoints)
                self._on_new_leader(message.leadership_term_id, message.leader_member_id)
        if is_ours and self._on_egress is not None:
            self._on_egress(frame(data, session_id=0, stream_id=streams.EGRESS))

    def _answer_challenge(self, challenge: Challenge) -> None:
        self._correlation_id = self._aeron.next_correlation_id()
        answer = self._credentials.on_challenge(challenge.encoded_challenge)
        self._request = ChallengeResponse(self._correlation_id, challenge.cluster_session_id, answer)

    def _on_answer(self, event: SessionEvent) -> None:
        match event.code:
            case EventCode.OK:
                self.session_id = event.cluster_session_id
                self.leader_heartbeat_timeout_ns = event.leader_heartbeat_timeout_ns
                self._enter(event.leadership_term_id, event.leader_member_id)
            case EventCode.REDIRECT:
                self._endpoints |= _endpoints(event.detail)
                self.leader_member_id, now_ns = event.leader_member_id, self._now_ns()
                self._prefer_until_ns = now_ns + PREFERRED_NS
                is_known = event.leader_member_id in self._endpoints
                self._ask_again(now_ns if is_known else now_ns + ASK_AGAIN_NS)
            case EventCode.CLOSED:  # an election began before the session was open
                self._ask_again(self._now_ns() + ASK_AGAIN_NS)
            case EventCode.AUTHENTICATION_REJECTED:
                raise AuthenticationRejected(f"the cluster refused the session: {event.detail}")
            case _:
                raise ClusterError(f"the cluster refused the session: {event.detail}")

    def _on_new_leader(self, leadership_term_id: int, member_id: int) -> None:
        if leadership_term_id > self.leadership_term_id:
            self._enter(leadership_term_id, member_id)

    def _enter(self, leadership_term_id: int, leader_member_id: int) -> None:
        """The session goes on in this term as soon as its leader is connected."""
        if leader_member_id not in self._endpoints:
            raise RemoteProtocolError(f"the ingress endpoint of leader {leader_member_id} is not known")
        self.leadership_term_id, self.leader_member_id = leadership_term_id, leader_member_id
        self._header = SessionMessageHeader(leadership_term_id, self.session_id, 0).encode()
        self.state, self._awaited_ns, self._is_whole = AeronClusterState.AWAIT_LEADER, self._now_ns(), True
        self._connect_to(leader_member_id)

    def _end(self, why: str, error: ClusterError | None = None) -> None:
        if self.is_closed:
            return
        self.state, self.why_closed, self.refusal = AeronClusterState.CLOSED, why, error
        try:
            self._egress.close()
            for publication in self._publications.values():
                self._aeron.remove_publication(publication)
        except MediaDriverError:
            pass  # with the driver all of it is gone


def _endpoints(text: str) -> dict[int, str]:
    """``0=host:port,…`` as members list them; what is nothing of the kind is passed over."""
    pairs = (part.strip().partition("=") for part in text.split(","))
    return {
        int(member_id): endpoint for member_id, _, endpoint in pairs if member_id.isdecimal() and endpoint
    }
