"""The links between members: who can be reached, who is gone, and their frames in a fixed order.

A link is a pair of connections, one that each side dialled; a member sends on the one it dialled and
receives on the one it accepted (a publication and an image, in Aeron's terms). The two are made and
replaced together, so a frame never comes from before the last ``on_link_down``.

    we dial    -> Hello(member, secret)             they accept
               <- HelloReply(member, incarnation)
    we accept  <- Hello, -> HelloReply              they dial
    both done, their secret is of the incarnation   -> on_link_up

Anybody may say Hello, but only who answers at a member's configured address is that member: the answer has
its incarnation, a hash, and a Hello is believed when it has the secret of that hash. The secret is sent to
configured addresses only. A Hello with another secret may be of the member's next life, or of a stranger: the
address is asked (``LinkClaim``), and until it has answered nothing happens to the link.

Losing a connection is a hint, not a fact:

    lost          -> on_link_down; dialled again at once, every 2 ms at first, then every 50 ms
    same incarnation answers      -> on_link_up: the process lives
    three refusals in a row, or
    another incarnation answers   -> on_member_gone: the process that we knew is dead
    silence                       -> nothing is said; the caller's own time-outs decide

Where its owner has nothing to say for a heartbeat interval, a link carries an empty envelope. One on which
nothing came for a time-out is lost, too: TCP would wait for longer the longer a network was cut.

A member that never answered is only reported as gone after ``FIRST_CONTACT_TIMEOUT_NS`` of refusals: when all
start together, some listen later than others. All bytes of a link travel in envelopes with a checksum
(``envelopes.py``); a mismatch loses the link.

A member on this host whose directory is known is first tried at the Unix socket that it has there beside
its port: a third less time for each hop. Who shares no directories with us is reached over TCP.
"""

import time
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Protocol

import numpy as np

from cluster.errors import ClusterError, RemoteProtocolError, TlsFailed
from cluster.log.connection_table import NOT_SERVED
from cluster.protocol import link
from cluster.protocol.enums import Offer, RefusedCertificate
from cluster.transport.bounds import DEFAULT_BOUNDS, SECOND_NS, Bounds
from cluster.transport.clock import NEVER_NS
from cluster.transport.dial import dial
from cluster.transport.endpoint import Endpoint
from cluster.transport.envelopes import check_header, decode_first_envelope, seal, unseal
from cluster.transport.link_greetings import Greeted, LinkGreetings
from cluster.transport.link_hellos import LinkHellos
from cluster.transport.link_peer import LinkClaim, LinkPeer
from cluster.transport.listener import Listener
from cluster.transport.member_tls import MemberTls
from cluster.transport.poller import Poller
from cluster.transport.published_log import PublishedLog
from cluster.transport.sockets import Buffer, Connection, ReceiveBuffer
from cluster.transport.tls_connection import TlsConnection

MS = 1_000_000
DIAL_INTERVAL_NS = 50 * MS
DIAL_INTERVAL_OF_LOST_NS = 2 * MS  # right after a loss: whether the process is dead, an election waits for
LOST_FOR_NS = 50 * MS
DIAL_TIMEOUT_NS = 1_000 * MS  # a dial without an answer is given up and made again
STABLE_AFTER_NS = 1_000 * MS
FIRST_CONTACT_TIMEOUT_NS = 5_000 * MS
REFUSALS_OF_GONE = 3
QUEUED_BYTES_MAX = 2 * 1024 * 1024  # for a member, before recorded bytes wait


class LinksHandler(Protocol):
    """What is called for the other members, from within ``MemberLinks.poll``."""

    def on_link_up(self, member_id: int, incarnation: int) -> None:
        """The member can be reached; ``incarnation`` is new with each start of its process."""

    def on_link_down(self, member_id: int) -> None:
        """The link broke: a hint. Reports that came over it prove nothing any more."""

    def on_member_gone(self, member_id: int) -> None:
        """The process that was known under this id is dead; called once until it is up again."""

    def on_frames(self, member_id: int, buffer: np.ndarray, start: int, end: int) -> None:
        """Whole frames as they were sent, the caller's for the length of this call."""


class MemberLinks:
    """Keeps a link to every other member; polled and called by one thread."""

    def __init__(
        self,
        member_id: int,
        listen: Endpoint,
        members: Mapping[int, Endpoint],
        *,
        secret: int,
        cluster_id: int,
        poller: Poller,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        on_error: Callable[[ClusterError], None] = lambda error: None,
        bounds: Bounds = DEFAULT_BOUNDS,
        local: Mapping[int, Endpoint] = MappingProxyType({}),
        tls: MemberTls | None = None,
        heartbeat_interval_ns: int = 200 * MS,
        link_timeout_ns: int = 10_000 * MS,
    ) -> None:
        """Listen at ``listen`` (``PortInUse``) and dial all ``members`` but ourselves from the first poll on.

        ``local`` has the Unix sockets of members on this host, ours with them.
        ``secret``, of 63 bits at most, is new with each life of this process. ``on_error`` hears of peers
        that broke the protocol; their connection is dropped. With ``tls`` nothing else is spoken over TCP.
        On a link that is up something goes out each ``heartbeat_interval_ns``; one on which nothing came for
        ``link_timeout_ns`` is closed and dialled again.
        """
        self.member_id = member_id
        self.incarnation = link.incarnation_of(secret)
        self.cluster_id = cluster_id
        self._poller = poller
        self._clock_ns = clock_ns
        self._on_error = on_error
        self._receive_buffer = ReceiveBuffer()
        self._local = local
        self._tls = tls
        self._quiet_ns = heartbeat_interval_ns + heartbeat_interval_ns // 4  # the owner's come first
        self._timeout_ns = link_timeout_ns
        self._listeners = [Listener(listen, poller, self._report)]
        self.endpoint = self._listeners[0].endpoint
        if member_id in local:
            self._listen_locally(local[member_id])
        now_ns = self._polled_ns = clock_ns()
        self._peers = {
            other: LinkPeer(other, endpoint, now_ns)
            for other, endpoint in sorted(members.items())
            if other != member_id
        }
        self._hellos = LinkHellos(member_id, secret, cluster_id, self._peers.keys(), tls)
        self._greetings = LinkGreetings(
            self._listeners, self._hellos, poller, self._receive_buffer, tls, bounds, self._report
        )

    def _listen_locally(self, endpoint: Endpoint) -> None:
        try:
            self._listeners.append(Listener(endpoint, self._poller, self._report))
        except ClusterError:
            self._listeners[0].close()
            raise

    # -- asked by the owner --

    def is_up(self, member_id: int) -> bool:
        """Whether frames can be sent to the member now."""
        return self._peers[member_id].is_up

    def is_stable(self, member_id: int) -> bool:
        """Whether the link has been up for a second: flapping ones must not steer elections."""
        peer = self._peers[member_id]
        return peer.is_up and self._clock_ns() - peer.up_since_ns >= STABLE_AFTER_NS

    def is_gone(self, member_id: int) -> bool:
        """Whether the member was reported as gone and has not come back."""
        return self._peers[member_id].is_gone

    def send(self, member_id: int, *buffers: Buffer) -> int:
        """Send whole frames, all or nothing, without a copy: a position > 0, or a code of ``Offer``."""
        peer = self._peers[member_id]
        if not peer.is_up:
            return Offer.NOT_CONNECTED
        outgoing = peer.outgoing
        assert outgoing is not None
        sealed, crc = seal(buffers, outgoing.crc)
        result = outgoing.offer(*sealed)
        if result > 0:
            outgoing.crc = crc
        return Offer.NOT_CONNECTED if result == Offer.CLOSED else result

    def serve(self, member_id: int) -> int | None:
        """Let kernels take and send frames of the link; the descriptor that sends, None when it is down."""
        peer = self._peers[member_id]
        return peer.serve() if peer.is_up and not peer.is_broken else None

    def withhold(self, member_id: int) -> None:
        """Let kernels take what comes over the link no more."""
        incoming = self._peers[member_id].incoming
        if incoming is not None:
            incoming.serve(NOT_SERVED, member_id)

    @property
    def awaits_events(self) -> bool:
        """Whether another ``poll`` would find nothing but what a socket or time gives it."""
        return self._greetings.awaits_events and all(peer.awaits_events for peer in self._peers.values())

    @property
    def next_dial_ns(self) -> int:
        """When the next of the members that are down is to be dialled; NEVER_NS while there is none."""
        return min((p.next_dial_ns for p in self._peers.values() if p.awaits_dial), default=NEVER_NS)

    def queued_bytes(self, member_id: int) -> int:
        """Bytes accepted for the member that its socket has not taken yet."""
        outgoing = self._peers[member_id].outgoing
        return 0 if outgoing is None else outgoing.queued_bytes

    def silence_ns(self, member_id: int) -> int:
        """For how long nothing had come over a link that is up, when it was polled last."""
        peer = self._peers[member_id]
        heard_ns = peer.incoming.heard_ns if peer.incoming is not None and peer.is_kept_alive else 0
        return self._polled_ns - heard_ns if peer.is_up and heard_ns else 0

    def refused_certificate(self, member_id: int) -> RefusedCertificate:
        """Whose certificate keeps this member without a link to that one."""
        return self._peers[member_id].refused_certificate

    def is_full(self, member_id: int) -> bool:
        """Whether so much is queued for the member that recorded bytes wait."""
        return self.queued_bytes(member_id) > QUEUED_BYTES_MAX

    def publish(self, log: PublishedLog | None) -> None:
        """Nothing: members ask for the log, each for what it lacks."""

    # -- the duty cycle --

    def poll(self, handler: LinksHandler) -> int:
        """Take one turn: members in ascending id, each at most one receive. Returns how much was done."""
        now_ns = self._clock_ns()
        # A pause of ours is not the silence of others.
        paused_ns = now_ns - self._polled_ns
        self._polled_ns = now_ns
        if paused_ns > self._timeout_ns // 2:
            for peer in self._peers.values():
                if peer.incoming is not None:
                    peer.incoming.heard_ns += paused_ns
        work = self._greet(now_ns, handler)
        for peer in self._peers.values():
            if peer.claim is not None:
                work += self._examine(peer, peer.claim, now_ns, handler)
            if peer.is_up:
                work += self._serve(peer, now_ns, handler)
            else:
                work += self._connect(peer, now_ns, handler)
        return work

    def _serve(self, peer: LinkPeer, now_ns: int, handler: LinksHandler) -> int:
        """Read what came over a link that is up, and last of all that it has ended."""
        incoming, outgoing = peer.incoming, peer.outgoing
        assert incoming is not None and outgoing is not None
        is_ended = outgoing.is_closed or (outgoing.is_readable and not self._is_quiet(outgoing))
        work = 0
        if incoming.is_readable or incoming.has_frames or incoming.is_closed:
            incoming.heard_ns = now_ns
            work = self._receive(peer, incoming, now_ns, handler)
        if peer.is_up and peer.is_kept_alive and now_ns - incoming.heard_ns >= self._timeout_ns:
            self._report(f"member {peer.member_id}: nothing came for {self._timeout_ns / SECOND_NS:g} s")
            is_ended = True
        if is_ended and peer.is_up:
            self._lose(peer, now_ns, handler)
            work = 1
        if peer.is_up and peer.is_quiet(now_ns, self._quiet_ns):
            self.send(peer.member_id)
        return work

    def _receive(self, peer: LinkPeer, incoming: Connection, now_ns: int, handler: LinksHandler) -> int:
        work = 0
        try:
            if incoming.receive():
                self._open_envelopes(peer, incoming, handler)
                work = 1
        except RemoteProtocolError as error:
            self._report(f"member {peer.member_id}: {error}")
            incoming.close(str(error))
        if incoming.is_closed and peer.is_up:
            self._lose(peer, now_ns, handler)
            return 1
        return work

    def _open_envelopes(self, peer: LinkPeer, incoming: Connection, handler: LinksHandler) -> None:
        """Hand over the frames that came, an envelope at a time."""
        buffer, start, end = incoming.buffer, incoming.start, incoming.end
        while start < end and incoming is peer.incoming:  # a handler may end the link
            opened = unseal(buffer, start, incoming.crc)
            incoming.crc = opened.crc
            handler.on_frames(peer.member_id, buffer, opened.start, opened.end)
            start = opened.end
        if incoming is peer.incoming:
            incoming.release(start)

    def _lose(self, peer: LinkPeer, now_ns: int, handler: LinksHandler) -> None:
        """An established link broke: drop both connections, so that nothing of it is heard later."""
        assert peer.is_up
        peer.on_lost(now_ns)
        self._drop_outgoing(peer)
        self._drop_incoming(peer)
        handler.on_link_down(peer.member_id)

    def _connect(self, peer: LinkPeer, now_ns: int, handler: LinksHandler) -> int:
        """Take a link that is down one step further."""
        work = 0
        outgoing = peer.outgoing
        if outgoing is None:
            if now_ns < peer.next_dial_ns:
                return 0
            outgoing = peer.outgoing = self._dial(peer)
            peer.outgoing_incarnation = None
            peer.dial_ns = now_ns
            work = 1
        if outgoing.is_connected and outgoing.position == 0:
            outgoing.offer(*self._hellos.hello)
            outgoing.crc = self._hellos.hello_crc
        if outgoing.is_readable and not outgoing.is_closed:
            self._read_reply(peer, outgoing, handler)
            work = 1
        if outgoing.is_closed:
            self._on_dial_failed(peer, outgoing, now_ns, handler)
            return 1
        if peer.outgoing_incarnation is None:
            if now_ns - peer.dial_ns > DIAL_TIMEOUT_NS:
                self._drop_outgoing(peer)
                peer.refusals = 0
                peer.next_dial_ns = now_ns
            return work
        incoming = peer.incoming
        if incoming is not None and (incoming.is_closed or (incoming.is_readable and incoming.is_paused)):
            # Paused until the link is up, so this is an error or a hang-up.
            self._drop_incoming(peer)
            incoming = None
        if incoming is not None and peer.incoming_incarnation == peer.outgoing_incarnation:
            peer.on_up(now_ns)
            incoming.resume()
            handler.on_link_up(peer.member_id, peer.outgoing_incarnation)
            return 1
        return work

    def _dial(self, peer: LinkPeer) -> Connection:
        local = self._local.get(peer.member_id)
        if local is not None:
            connection = self._dial_to(local, Connection)
            if not connection.was_refused:
                return connection
        make: Callable[..., Connection] = Connection
        if self._tls is not None:
            make = partial(TlsConnection, tls=self._tls.dial_member(peer.member_id, peer.endpoint))
        return self._dial_to(peer.endpoint, make)

    def _dial_to(self, endpoint: Endpoint, make: Callable[..., Connection]) -> Connection:
        return dial(endpoint, self._poller, self._receive_buffer, make=make, check_header=check_header)

    def _on_dial_failed(
        self, peer: LinkPeer, outgoing: Connection, now_ns: int, handler: LinksHandler
    ) -> None:
        was_refused = outgoing.was_refused
        self._drop_outgoing(peer)
        is_just_lost = peer.lost_ns is not None and now_ns - peer.lost_ns < LOST_FOR_NS
        interval_ns = DIAL_INTERVAL_OF_LOST_NS if is_just_lost else DIAL_INTERVAL_NS
        peer.next_dial_ns = max(now_ns, peer.dial_ns + interval_ns)
        peer.refusals = peer.refusals + 1 if was_refused else 0
        if was_refused:
            peer.refused_certificate = RefusedCertificate.NONE  # nobody is there
        if peer.refusals >= REFUSALS_OF_GONE * self._poller.names.count(peer.endpoint) and (
            peer.incarnation is not None or now_ns - peer.first_dial_ns >= FIRST_CONTACT_TIMEOUT_NS
        ):
            self._report_gone(peer, handler)

    def _report_gone(self, peer: LinkPeer, handler: LinksHandler) -> None:
        if not peer.is_gone:
            peer.is_gone = True
            handler.on_member_gone(peer.member_id)

    def _read_reply(self, peer: LinkPeer, outgoing: Connection, handler: LinksHandler) -> None:
        incarnation = self._read_incarnation(peer, outgoing)
        if incarnation is None:
            return
        peer.outgoing_incarnation = incarnation
        self._observe(peer, incarnation, handler)
        if peer.incoming is not None and peer.incoming_incarnation != incarnation:
            self._report_stranger(peer)
            self._drop_incoming(peer)

    def _read_incarnation(self, peer: LinkPeer, dialled: Connection) -> int | None:
        """Of the process that answers at the member's address; None when no good answer is there."""
        try:
            if not dialled.receive():
                return None
            reply, _ = decode_first_envelope(dialled)
            if not isinstance(reply, link.HelloReply):
                raise RemoteProtocolError("the first frame is not a HelloReply")
            if reply.code is not link.LinkErrorCode.OK:
                raise RemoteProtocolError(f"refused our Hello: {reply.detail}")
            if reply.member_id != peer.member_id or reply.cluster_id != self.cluster_id:
                raise RemoteProtocolError(f"is member {reply.member_id} of cluster {reply.cluster_id}")
        except RemoteProtocolError as error:
            if isinstance(error, TlsFailed):
                peer.refused_certificate = RefusedCertificate(error.refused)
            self._report(f"member {peer.member_id} at {peer.endpoint}: {error}", type(error))
            dialled.close(str(error))
            return None
        return reply.incarnation

    def _observe(self, peer: LinkPeer, incarnation: int, handler: LinksHandler) -> None:
        """A process answered at the member's address: the one that we knew, or its successor."""
        if peer.incarnation is not None and peer.incarnation != incarnation:
            self._report_gone(peer, handler)
        peer.incarnation = incarnation

    def _is_quiet(self, outgoing: Connection) -> bool:
        """Whether a link's dialled side, on which nothing is to come, is alive."""
        try:
            if outgoing.receive():
                raise RemoteProtocolError("frames came on the side that only sends")
        except RemoteProtocolError as error:
            self._report(str(error))
            outgoing.close(str(error))
        return not outgoing.is_closed

    # -- members that dial us --

    def _greet(self, now_ns: int, handler: LinksHandler) -> int:
        work = 0
        for greeted in self._greetings.poll(now_ns):
            work += 1
            if greeted is not None:
                self._join(greeted, now_ns, handler)
        return work

    def _join(self, greeted: Greeted, now_ns: int, handler: LinksHandler) -> None:
        """Join the connection to its peer, or ask the member's address whether it is there."""
        connection, hello, crc = greeted
        peer = self._peers[hello.member_id]
        incarnation = link.incarnation_of(hello.secret)
        is_kept_alive = hello.protocol_version >= link.KEEPS_ALIVE_VERSION
        if peer.outgoing_incarnation not in (None, incarnation):
            self._drop_claim(peer)
            peer.claim = LinkClaim(
                connection, incarnation, crc, now_ns + DIAL_TIMEOUT_NS, is_kept_alive=is_kept_alive
            )
            return
        if peer.is_up:
            self._lose(peer, now_ns, handler)
        self._take_incoming(peer, connection, incarnation, crc)
        peer.is_kept_alive = is_kept_alive
        if peer.outgoing is None:
            peer.next_dial_ns = now_ns  # it is there: no need to wait out the interval

    def _take_incoming(self, peer: LinkPeer, connection: Connection, incarnation: int, crc: int) -> None:
        self._drop_incoming(peer)
        peer.incoming = connection
        peer.incoming_incarnation = incarnation
        connection.crc = crc

    def _examine(self, peer: LinkPeer, claim: LinkClaim, now_ns: int, handler: LinksHandler) -> int:
        """Ask the member's address who is there, and believe that."""
        question = claim.question
        if question is None:
            if now_ns < peer.next_question_ns:
                return 0
            question = claim.question = self._dial(peer)
            peer.next_question_ns = now_ns + DIAL_INTERVAL_NS
        if question.is_connected and question.position == 0:
            question.offer(*self._hellos.question)
        incarnation = None
        if question.is_readable and not question.is_closed:
            incarnation = self._read_incarnation(peer, question)
        if incarnation is None:
            if question.is_closed or now_ns > claim.deadline_ns:
                self._drop_claim(peer)
            return 1
        if incarnation != peer.outgoing_incarnation:
            # The process that greeted us is gone, maybe without a sign (a power cut).
            if peer.is_up:
                self._lose(peer, now_ns, handler)
            self._drop_outgoing(peer)
            peer.next_dial_ns = now_ns
            self._observe(peer, incarnation, handler)
        if incarnation == claim.incarnation:
            peer.claim = None
            question.close()
            self._take_incoming(peer, claim.connection, incarnation, claim.crc)
            peer.is_kept_alive = claim.is_kept_alive
        else:
            self._report_stranger(peer)
            self._drop_claim(peer)
        return 1

    def _report_stranger(self, peer: LinkPeer) -> None:
        self._report(f"a stranger said that it was member {peer.member_id}, which is at {peer.endpoint}")

    # -- ending --

    def _drop_outgoing(self, peer: LinkPeer) -> None:
        if peer.outgoing is not None:
            peer.outgoing.close()
        peer.outgoing = None
        peer.outgoing_incarnation = None

    def _drop_incoming(self, peer: LinkPeer) -> None:
        if peer.incoming is not None:
            peer.incoming.close()
        peer.incoming = None
        peer.incoming_incarnation = None

    def _drop_claim(self, peer: LinkPeer) -> None:
        if peer.claim is not None:
            peer.claim.connection.close()
            if peer.claim.question is not None:
                peer.claim.question.close()
        peer.claim = None

    def _report(self, what: str, kind: type[RemoteProtocolError] = RemoteProtocolError) -> None:
        self._on_error(kind(what))

    def close(self) -> None:
        """Close every connection and stop listening; the handler hears nothing of it."""
        self._greetings.close()
        for peer in self._peers.values():
            peer.is_up = False
            self._drop_outgoing(peer)
            self._drop_incoming(peer)
            self._drop_claim(peer)
