"""How a client gets its session: AeronCluster's AsyncConnect as one state machine.

    CREATE_INGRESS_PUBLICATIONS
     -> AWAIT_PUBLICATION_CONNECTED -> SEND_MESSAGE -> POLL_RESPONSE -> CONCLUDE_CONNECT -> DONE
                 ^                          ^                |
                 |-------- redirect, lost connection --------|
                                            |--- challenge --|

Each ``poll`` takes at most one step and never waits. Egress comes back over the connection that ingress
goes out on, so there is no egress subscription to make first. The deadline is fixed at the start; nothing
extends it. Where Aeron's client would only find out by its time-out (a connection lost before the reply,
a leader that is none), this one asks again: first for the session that the lost request may have opened, so
that it does not open a second one. A leader that is cut off from the others leads on for a while and opens no
session: where it does not answer, the others are asked who leads.
"""

from enum import IntEnum
from itertools import count

from cluster.client.context import ClientContext
from cluster.client.ingress_publication import IngressPublication, IngressPublications, World
from cluster.errors import (
    ApplicationUnknown,
    AuthenticationRejected,
    BatchRegistered,
    ClusterError,
    TimedOut,
)
from cluster.protocol import Message, link, streams
from cluster.protocol.consumer import group_position, with_consumer
from cluster.protocol.enums import EventCode
from cluster.protocol.lane import LaneStanding, is_registered, is_unknown, standing_of, with_lane
from cluster.protocol.response_channel import as_supervised
from cluster.protocol.resume import with_resume_hash
from cluster.protocol.session import Challenge, ChallengeResponse, SessionConnectRequest, SessionEvent
from cluster.protocol.versions import CLIENT_PROTOCOL_VERSION, PACKAGE_VERSION
from cluster.transport.endpoint import describe_member, format_endpoints

SAY_AFTER_NS = 1_500_000_000  # of an attempt that nobody answers
PREFERRED_TIMEOUT_NS = 500_000_000  # how long to hold out for the leader that a redirect named
ASK_AGAIN_NS = 50_000_000  # after a redirect to nobody, or to whom we asked
ASK_OTHERS_NS = 1_000_000_000  # without an answer: who leads, once in so long


class ConnectState(IntEnum):
    """Steps of ``SessionOpening``, with Aeron's numbers."""

    CREATE_INGRESS_PUBLICATIONS = 0
    AWAIT_PUBLICATION_CONNECTED = 1
    SEND_MESSAGE = 2
    POLL_RESPONSE = 3
    CONCLUDE_CONNECT = 4
    DONE = 5


class SessionOpening:
    """One attempt to open a session; ``event`` and ``publication`` are its outcome once it is done."""

    def __init__(self, context: ClientContext, world: World) -> None:
        self._context = context
        self._world = world
        now_ns = world.now_ns()
        self._deadline_ns = now_ns + context.message_timeout_ns
        self._say_ns = now_ns + SAY_AFTER_NS  # why there is none yet, once
        self._first_correlation_id = now_ns
        self._correlation_ids = count(now_ns)
        self.correlation_id = 0  # of the request that is out
        self._request: Message | None = None
        self._leader_member_id = -1  # whom a redirect named
        self._prefer_until_ns = 0
        self._leader_term_id = -1  # the highest in which somebody was named
        self._not_before_ns = self._asked_ns = 0
        self._redirects = 0
        self._redirected_to = -1  # by the last one, whether we can reach it or not
        self._may_be_open = False  # a request went out, and its OK may have been lost with its leader
        self.resume_token = world.resume_token()
        self.publications = IngressPublications(world, context.endpoints, context.cluster_id)
        self.publication: IngressPublication | None = None
        self.event: SessionEvent | None = None
        self.lane_standing: LaneStanding | None = None  # once it is done, of a session with a lane
        self.state = ConnectState.CREATE_INGRESS_PUBLICATIONS

    def poll(self) -> bool:
        """Take one step; True once the session is open.

        ``TimedOut`` names the state reached and what failed at each member; ``AuthenticationRejected``,
        ``BatchRegistered`` and ``ClusterError`` hold the cluster's own words; ``TlsFailed``, or another
        ``RemoteProtocolError``, says why no member will do. After any of them the attempt is closed.
        """
        now_ns = self._world.now_ns()
        try:
            if now_ns > self._deadline_ns:
                raise TimedOut(self._describe())
            if now_ns > self._say_ns:
                self._say_ns = self._deadline_ns
                left_s = (self._deadline_ns - now_ns) / 1e9
                self._world.warn(f"no session yet: {self._why_none()}; trying for another {left_s:.2g} s")
            match self.state:
                case ConnectState.CREATE_INGRESS_PUBLICATIONS:
                    self.publications.do_work(now_ns)
                    self.state = ConnectState.AWAIT_PUBLICATION_CONNECTED
                case ConnectState.AWAIT_PUBLICATION_CONNECTED:
                    self.publications.do_work(now_ns)
                    if (error := self.publications.incompatibility) is not None:
                        raise error(f"no session: {self.publications.describe_failures()}")
                    self._choose(now_ns)
                case ConnectState.SEND_MESSAGE:
                    self._send()
                case ConnectState.POLL_RESPONSE:
                    self._poll_response(now_ns)
                case ConnectState.CONCLUDE_CONNECT:
                    assert self.publication is not None
                    self.publications.keep(self.publication)
                    self.state = ConnectState.DONE
        except Exception:
            self.close()
            raise
        return self.state is ConnectState.DONE

    def _choose(self, now_ns: int) -> None:
        """Take the leader's publication if we know of one, else the first that is connected."""
        if now_ns < self._not_before_ns:
            return
        publication = self.publications.find(self._leader_member_id)
        if publication is None:
            connected = self.publications.connected()
            if not connected or now_ns < self._prefer_until_ns:
                return
            publication = connected[self._redirects % len(connected)]
        self.publication = publication
        self.correlation_id = next(self._correlation_ids)
        self._request = self._resume_request() if self._may_be_open else self._connect_request(publication)
        self.state = ConnectState.SEND_MESSAGE

    def _connect_request(self, publication: IngressPublication) -> SessionConnectRequest:
        context, credentials = self._context, self._context.credentials_supplier.encoded_credentials()
        if context.lane is not None:
            credentials = with_lane(credentials, context.lane)
        elif context.consumer is not None:
            credentials = with_consumer(credentials, context.consumer)
        channel = self._world.response_channel(publication.connection, publication.endpoint)
        channel = with_resume_hash(channel, self.resume_token)
        return SessionConnectRequest(
            correlation_id=self.correlation_id,
            response_stream_id=streams.EGRESS,
            version=CLIENT_PROTOCOL_VERSION,
            response_channel=as_supervised(channel) if context.supervised else channel,
            encoded_credentials=credentials,
            client_info=f"name={context.client_name} version={PACKAGE_VERSION} commit=",
        )

    def _resume_request(self) -> link.SessionResume:
        """For the session that an earlier request of ours has opened, if one has."""
        return link.SessionResume(
            correlation_id=self.correlation_id,
            cluster_session_id=-1,
            leadership_term_id=-1,
            encoded_credentials=self._context.credentials_supplier.encoded_credentials(),
            resume_token=self.resume_token,
        )

    def _send(self) -> None:
        assert self.publication is not None and self._request is not None
        if self.publication.is_closed:
            self._ask_again(0)
            return
        stream_id = streams.LINK if isinstance(self._request, link.SessionResume) else streams.INGRESS
        if self.publication.offer(self._request, stream_id) > 0:
            self._asked_ns = self._world.now_ns()
            self.state = ConnectState.POLL_RESPONSE

    def _poll_response(self, now_ns: int) -> None:
        publication = self.publication
        assert publication is not None
        for message in publication.receive():
            if isinstance(message, Challenge) and message.correlation_id == self.correlation_id:
                self._answer_challenge(message)
                return
            if isinstance(message, SessionEvent) and self._is_answer(message):
                self._on_event(message, now_ns)
                return
        if publication.is_closed:
            self._may_be_open = True
            self._ask_again(now_ns + ASK_AGAIN_NS)
        elif now_ns - self._asked_ns >= ASK_OTHERS_NS and not self._context.is_aeron:
            self._ask_others(publication, now_ns)

    def _ask_others(self, publication: IngressPublication, now_ns: int) -> None:
        """Ask them for the session, which may be open by now; leave the silent member for a later leader."""
        self.publications.do_work(now_ns)
        for other in self.publications.connected():
            if other is publication:
                continue
            if now_ns - other.asked_ns >= ASK_OTHERS_NS:
                other.asked_ns = now_ns
                other.offer(self._resume_request(), streams.LINK)
            for message in other.receive():
                if not isinstance(message, SessionEvent):
                    continue
                if message.code is EventCode.OK and self._is_answer(message):
                    self.publication = other
                    self._on_event(message, now_ns)
                    return
                is_later = message.leadership_term_id > self._leader_term_id
                if is_later and message.leader_member_id not in (-1, publication.member_id):
                    # After the end of the connection it forgets a request that is not in its log.
                    publication.connection.close(f"member {message.leader_member_id} leads instead")
                    self._may_be_open = True
                    self._go_to(message, now_ns)
                    return

    def _is_answer(self, event: SessionEvent) -> bool:
        """Whether it answers the request that is out, or names the session that an earlier one opened."""
        if event.code is EventCode.OK:
            return self._first_correlation_id <= event.correlation_id <= self.correlation_id
        return event.correlation_id == self.correlation_id

    def _answer_challenge(self, challenge: Challenge) -> None:
        self.correlation_id = next(self._correlation_ids)
        self._request = ChallengeResponse(
            correlation_id=self.correlation_id,
            cluster_session_id=challenge.cluster_session_id,
            encoded_credentials=self._context.credentials_supplier.on_challenge(challenge.encoded_challenge),
        )
        self.state = ConnectState.SEND_MESSAGE

    def _on_event(self, event: SessionEvent, now_ns: int) -> None:
        match event.code:
            case EventCode.OK:
                self._check_lane(event)
                self._check_consumer(event)
                self.event = event
                self.state = ConnectState.CONCLUDE_CONNECT
            case EventCode.ERROR if self._context.lane is not None and is_registered(event.detail):
                raise BatchRegistered(event.detail)
            case EventCode.ERROR if self._context.lane is not None and is_unknown(event.detail):
                raise ApplicationUnknown(event.detail)
            case EventCode.ERROR:
                raise ClusterError(f"the cluster refused the session: {event.detail}")
            case EventCode.AUTHENTICATION_REJECTED:
                raise AuthenticationRejected(f"the cluster refused the session: {event.detail}")
            case EventCode.REDIRECT:
                self.publications.adopt(event.detail)
                self._go_to(event, now_ns)
            case EventCode.CLOSED:
                # Dropped by an election, but maybe not by the leader that it elects; or no, it is not open.
                self._may_be_open = not isinstance(self._request, link.SessionResume)
                self._ask_again(now_ns + ASK_AGAIN_NS if self._may_be_open else now_ns)

    def _go_to(self, event: SessionEvent, now_ns: int) -> None:
        """Ask whom the event names next; whoever is there where it names nobody, or whom we asked."""
        assert self.publication is not None
        leader = self._redirected_to = event.leader_member_id
        self._redirects += 1
        self._leader_term_id = max(self._leader_term_id, event.leadership_term_id if leader >= 0 else -1)
        is_known = leader in self.publications.endpoints and leader != self.publication.member_id
        self._leader_member_id = leader if is_known else -1
        self._prefer_until_ns = now_ns + PREFERRED_TIMEOUT_NS if is_known else 0
        self._ask_again(0 if is_known else now_ns + ASK_AGAIN_NS)

    def _check_lane(self, event: SessionEvent) -> None:
        if self._context.lane is not None:
            self.lane_standing = standing_of(event.detail)
            if self.lane_standing is None:
                raise ClusterError(
                    f"member {event.leader_member_id} has opened the session without lane "
                    f"{self._context.lane}: lanes need release 0.2.0 on every member"
                )

    def _check_consumer(self, event: SessionEvent) -> None:
        consumer = self._context.consumer
        if consumer is not None and group_position(event.detail) is None:
            raise ClusterError(
                f"member {event.leader_member_id} does not know where consumer group {consumer.group} is: "
                "consumer groups need release 0.2.0 on every member"
            )

    def _ask_again(self, not_before_ns: int) -> None:
        self._not_before_ns = not_before_ns
        self.publication = None
        self._request = None
        self.state = ConnectState.AWAIT_PUBLICATION_CONNECTED

    def _describe(self) -> str:
        endpoints = format_endpoints(self.publications.endpoints)
        return (
            f"no session within {self._context.message_timeout_s:g} s: {self._why_none()} "
            f"({self.state.name}, ingress endpoints {endpoints})"
        )

    def _why_none(self) -> str:
        parts = []
        if self.state is ConnectState.POLL_RESPONSE and self.publication is not None:
            asked = describe_member(self.publication.member_id, self.publication.endpoint)
            parts.append(f"{asked} opens none; the cluster may be suspended, or lack a majority")
        if self._redirects:
            parts.append(f"redirected {self._redirects} times, last to {self._describe_leader()}")
        if failures := self.publications.describe_failures():
            parts.append(failures)
            if self.publications.why_failed and len(self.publications.endpoints) == 1:
                parts.append("name other members, too, if only this one is down")
        return "; ".join(parts) or "no member answers"

    def _describe_leader(self) -> str:
        """Who leads by the last redirect. Not every member knows where the others take this medium."""
        leader = self._redirected_to
        if leader < 0:
            return "nobody: there was no leader"
        if leader in self.publications.endpoints:
            return f"member {leader}"
        media = "/".join(sorted({e.medium.value for e in self.publications.endpoints.values()}))
        return f"member {leader}, which leads, but whose {media} endpoint was not given"

    def close(self) -> None:
        """Close every connection of the attempt, unless it is done: then they are the client's."""
        if self.state is not ConnectState.DONE:
            self.publications.close()
