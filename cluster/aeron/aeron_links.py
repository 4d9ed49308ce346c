"""Links of a member to members of Java's, over Aeron's own medium: ``Links`` of cluster/member/ports.py.

consensus messages   as they are, on stream 108: a publication to the consensus endpoint of each other,
                     and a subscription at the own
the leader's log     what members ask each other for becomes what Aeron's Election does with its driver and
                     the leader's archive (leader_log.py); LogGeometry, LogImage and EndOfStream
                     are made here
the own log          to all of them, and to those that catch up, as LogPublisher of Aeron's (log_publisher.py)
all else of ours     is not sent: Java's members would not know it

A link is up while the other's driver acknowledges the publication to it. UDP refuses nothing, so nobody is
known to be gone. Its messages say whose a publication is: as in Aeron, who reaches the port is believed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

import numpy as np

from cluster.aeron.leader_log import RETRY_NS, FollowedLog, LeaderLog, LogWish, ReplicatedLog
from cluster.aeron.log_publisher import LogPublisher
from cluster.errors import ClusterError, LocalProtocolError, MediaDriverError, RemoteProtocolError
from cluster.media.aeron import Aeron, default_aeron_dir
from cluster.media.client_conductor import ChannelRefused
from cluster.media.image import Image
from cluster.media.message_reader import MessageReader
from cluster.media.publication import Publication
from cluster.protocol import consensus, decode, streams
from cluster.protocol.catalog import NULL_POSITION
from cluster.protocol.consensus import (
    AppendPosition,
    CanvassPosition,
    CatchupPosition,
    CommitPosition,
    NewLeadershipTerm,
    StopCatchup,
    sender_of,
)
from cluster.protocol.enums import Offer, RefusedCertificate
from cluster.protocol.link import EndOfStream, LinkErrorCode, ReplicationRequest
from cluster.protocol.members import MemberEndpoints
from cluster.protocol.response_channel import with_parameter
from cluster.protocol.sbe import HEADER_LENGTH, Message, kind_at
from cluster.transport.links import STABLE_AFTER_NS, LinksHandler
from cluster.transport.message_frames import each_frame, link_frame, message_frame
from cluster.transport.published_log import PublishedLog
from cluster.transport.sockets import Buffer

POLL_INTERVAL_NS = 1_000_000  # of memory, which no socket announces
_KINDS = frozenset(
    kind.KIND
    for kind in (
        CanvassPosition,
        consensus.RequestVote,
        consensus.Vote,
        NewLeadershipTerm,
        AppendPosition,
        CommitPosition,
        CatchupPosition,
        StopCatchup,
        consensus.TerminationPosition,
        consensus.TerminationAck,
    )
)


class _Peer:
    """Another member."""

    def __init__(self, endpoints: MemberEndpoints) -> None:
        self.endpoints = endpoints
        self.up_since_ns: int | None = None
        self.term: NewLeadershipTerm | None = None  # the last term that it leads
        self.position = 0  # the end of its log, as far as it has reported in that term
        self.lose()

    def lose(self) -> None:
        """The driver has no publication to it."""
        self.registration_id = -1
        self.publication: Publication | None = None
        self.ask_at_ns = 0


class _Sender:
    """A publication that reaches us, and whose it is."""

    def __init__(self, image: Image) -> None:
        self.reader = MessageReader(image)
        self.member_id: int | None = None
        self.is_refused = False  # it sends what is no frame


class AeronLinks:
    """Polled and called by one thread; its driver may end and be started again."""

    awaits_events = False

    def __init__(
        self,
        member: MemberEndpoints,
        others: Mapping[int, MemberEndpoints],
        channel: str,
        aeron_dir: str,
        *,
        listens_at: Callable[[str], str],
        incarnation: int,
        clock_ns: Callable[[], int],
        on_error: Callable[[ClusterError], None],
    ) -> None:
        """Reach the ``others`` by the driver of ``aeron_dir``, the user's where that is empty.

        ``channel`` has what all consensus publications share, such as ``aeron:udp?term-length=64k``.
        ``listens_at``: where this host listens for an endpoint that others are told. ``on_error`` hears of a
        driver that does not run, of channels that it refuses, and of what does not decode.
        """
        self.incarnation = incarnation
        self._member = member
        self._channel = channel
        self._aeron_dir = aeron_dir or default_aeron_dir()
        self._listens_at = listens_at
        self._clock_ns = clock_ns
        self._on_error = on_error
        self._peers = {id_: _Peer(endpoints) for id_, endpoints in sorted(others.items())}
        self._aeron: Aeron | None = None
        self._open_at_ns = 0
        self._polled_ns = 0
        self._failure: MediaDriverError | None = None  # of a send, for the next poll
        self._senders: dict[int, _Sender] = {}  # by the session id of the publication
        self._log: LeaderLog | None = None
        self._has_log_image = False  # and the member knows
        self._closing_id: int | None = None  # of a subscription whose sockets may not be closed yet
        self._publisher: LogPublisher | None = None  # of the log that this member leads

    # -- asked by the owner --

    def is_up(self, member_id: int) -> bool:
        """Whether the member's driver acknowledges what is sent to it."""
        return self._peers[member_id].up_since_ns is not None

    def is_stable(self, member_id: int) -> bool:
        """Whether it has done so for a second."""
        since_ns = self._peers[member_id].up_since_ns
        return since_ns is not None and self._clock_ns() - since_ns >= STABLE_AFTER_NS

    def queued_bytes(self, member_id: int) -> int:
        """None: what a publication takes is the driver's."""
        return 0

    def is_full(self, member_id: int) -> bool:
        return False

    def refused_certificate(self, member_id: int) -> RefusedCertificate:
        """None: a media driver speaks no TLS."""
        return RefusedCertificate.NONE

    def silence_ns(self, member_id: int) -> int:
        """0: images of a media driver end by themselves."""
        return 0

    def serve(self, member_id: int) -> None:
        """No kernel receives here."""
        return None

    def withhold(self, member_id: int) -> None:
        """No kernel did."""

    def publish(self, log: PublishedLog | None) -> None:
        """Begin to publish the log that this member leads; None: it ends."""
        try:
            self._end_publication()
            if log is not None and self._aeron is not None:
                endpoints = [peer.endpoints.log_endpoint for peer in self._peers.values()]
                self._publisher = LogPublisher(self._aeron, log, endpoints)
        except MediaDriverError as error:
            self._failure = error

    @property
    def led_session_id(self) -> int | None:
        """Of the log that is published now; None while this member does not lead. For any thread."""
        publisher = self._publisher
        return None if publisher is None else publisher.session_id

    def _end_publication(self) -> None:
        publisher, self._publisher = self._publisher, None
        if publisher is not None:
            publisher.close()

    @property
    def next_dial_ns(self) -> int:
        """When the driver's memory is to be looked at again."""
        return self._polled_ns + POLL_INTERVAL_NS

    def send(self, member_id: int, *buffers: Buffer) -> int:
        """Send what Aeron's members know of whole frames, and see to what is wished of a leader's log."""
        peer = self._peers[member_id]
        publication = peer.publication
        if peer.up_since_ns is None or publication is None or self._failure is not None:
            return Offer.NOT_CONNECTED
        frames = b"".join(map(bytes, buffers))
        try:
            for stream_id, offset, length in each_frame(np.frombuffer(frames, np.uint8), 0, len(frames)):
                message = frames[offset : offset + length]
                if stream_id == streams.CONSENSUS:
                    if kind_at(message) == CatchupPosition.KIND:
                        message = self._catch_up(peer, message)
                    elif kind_at(message) == CanvassPosition.KIND:
                        self._close_log()  # who looks for a leader follows none
                    if (result := publication.offer(message)) < 0:
                        return result
                elif kind_at(message) == ReplicationRequest.KIND:
                    self._replicate(peer, message)
        except MediaDriverError as error:
            self._failure = error
            return Offer.NOT_CONNECTED
        return 1

    # -- the duty cycle --

    def poll(self, handler: LinksHandler) -> int:
        """Take one turn: links, messages, the leader's log. Returns how much was done."""
        self._polled_ns = now_ns = self._clock_ns()
        try:
            if self._failure is not None:
                raise self._failure
            if self._aeron is None:
                if now_ns < self._open_at_ns:
                    return 0
                self._open()
            assert self._aeron is not None
            work_count = self._aeron.conductor.do_work()
            self._aeron.conductor.answer(self._subscription.registration_id)  # raises where it is refused
            for peer in self._peers.values():
                work_count += self._connect(self._aeron, peer, now_ns, handler)
            work_count += self._receive(handler) + self._receive_log(handler)
            return work_count + self._publish()
        except MediaDriverError as error:
            self._on_error(error)
            self._lose(now_ns, handler)
            return 1

    def _open(self) -> None:
        self._aeron = Aeron.connect(self._aeron_dir, 0)
        endpoint = self._listens_at(self._member.consensus_endpoint)
        channel = with_parameter(self._channel, "endpoint", endpoint)
        self._subscription = self._aeron.ask_for_subscription(channel, streams.CONSENSUS)

    def _lose(self, now_ns: int, handler: LinksHandler) -> None:
        """The driver, or this client of it, is gone, and all that it had."""
        self.close()
        self._failure = None
        self._open_at_ns = now_ns + RETRY_NS
        self._senders.clear()
        self._closing_id = None
        for member_id, peer in self._peers.items():
            peer.lose()
            self._take_down(member_id, handler)

    def _take_down(self, member_id: int, handler: LinksHandler) -> None:
        if self.is_up(member_id):
            self._peers[member_id].up_since_ns = None
            handler.on_link_down(member_id)

    def _connect(self, aeron: Aeron, peer: _Peer, now_ns: int, handler: LinksHandler) -> int:
        member_id = peer.endpoints.member_id
        if peer.publication is None:
            self._ask_for_publication(aeron, peer, now_ns)
        is_connected = peer.publication is not None and peer.publication.is_connected
        if is_connected == self.is_up(member_id):
            return 0
        if is_connected:
            peer.up_since_ns = now_ns
            handler.on_link_up(member_id, self.incarnation)
        else:
            self._take_down(member_id, handler)
        return 1

    def _ask_for_publication(self, aeron: Aeron, peer: _Peer, now_ns: int) -> None:
        try:
            if peer.registration_id >= 0:
                peer.publication = aeron.publication_of(peer.registration_id)
            elif now_ns >= peer.ask_at_ns:
                channel = with_parameter(self._channel, "endpoint", peer.endpoints.consensus_endpoint)
                peer.registration_id = aeron.ask_for_exclusive_publication(channel, streams.CONSENSUS)
        except ChannelRefused as error:  # a name that is not known, as a rule
            self._on_error(error)
            peer.registration_id, peer.ask_at_ns = -1, now_ns + RETRY_NS

    # -- messages --

    def _receive(self, handler: LinksHandler) -> int:
        images, count = self._subscription.images, 0
        for session_id in self._senders.keys() - images.keys():
            del self._senders[session_id]
        for session_id, image in list(images.items()):
            sender = self._senders.get(session_id)
            if sender is None or sender.reader.image is not image:
                sender = self._senders[session_id] = _Sender(image)
            for data in self._messages_of(sender):
                count += 1
                self._on_message(sender, data, handler)
        return count

    def _messages_of(self, sender: _Sender) -> list[bytes]:
        try:
            return [] if sender.is_refused else sender.reader.poll()
        except MediaDriverError as error:  # which is about this publication alone
            sender.is_refused = True
            self._on_error(error)
            return []

    def _on_message(self, sender: _Sender, data: bytes, handler: LinksHandler) -> None:
        if len(data) < HEADER_LENGTH or kind_at(data) not in _KINDS:
            return  # of clients and backups
        try:
            message = decode(data)
        except RemoteProtocolError as error:
            self._on_error(error)
            return
        assert message is not None
        member_id = sender_of(message)
        if member_id in self._peers:
            sender.member_id = member_id
        if sender.member_id is None:
            return
        self._note(self._peers[sender.member_id], message)
        if self._publisher is not None:
            self._serve_follower(self._publisher, self._peers[sender.member_id], message)
        if not isinstance(message, CatchupPosition):  # the member would send log over a link of ours
            _give(handler, sender.member_id, message_frame(message, streams.CONSENSUS))

    def _note(self, peer: _Peer, message: Message) -> None:
        """What is needed later to get at the sender's log."""
        match message:
            case NewLeadershipTerm():
                peer.term, peer.position = message, message.log_position
            case CommitPosition() if peer.term and message.leadership_term_id == peer.term.leadership_term_id:
                peer.position = max(peer.position, message.log_position)
            case StopCatchup(follower_member_id=member_id) if member_id == self._member.member_id:
                if self._log is not None and self._log.wish.leader_member_id == peer.endpoints.member_id:
                    self._log.stop_catchup()

    # -- the own log --

    def _serve_follower(self, publisher: LogPublisher, peer: _Peer, message: Message) -> None:
        member_id = peer.endpoints.member_id
        match message:
            case CanvassPosition():
                publisher.end_catchup(member_id)
            case CatchupPosition(follower_member_id=follower_id) if follower_id == member_id:
                try:
                    publisher.begin_catchup(message, self._polled_ns)
                except (LocalProtocolError, RemoteProtocolError) as error:
                    self._on_error(error)
            case AppendPosition() if (stop := publisher.stop_of(message)) is not None:
                if peer.publication is not None and peer.publication.offer(stop.encode()) > 0:
                    publisher.end_catchup(member_id)

    def _publish(self) -> int:
        try:
            return 0 if self._publisher is None else self._publisher.do_work(self._polled_ns)
        except (ChannelRefused, LocalProtocolError) as error:
            self._on_error(error)
            return 1

    # -- the leader's log --

    def _catch_up(self, peer: _Peer, data: bytes) -> bytes:
        """Listen for the leader's archive; returns the message with the endpoint to which it is to replay."""
        message = decode(data)
        assert isinstance(message, CatchupPosition)
        wish = self._wish(peer, message.log_position, message.leadership_term_id, message.log_position)
        self._follow(wish, self._listens_at(self._member.catchup_endpoint))
        return message.replace(catchup_endpoint=self._member.catchup_endpoint).encode()

    def _replicate(self, peer: _Peer, data: bytes) -> None:
        request = decode(data)
        assert isinstance(request, ReplicationRequest)
        wish = self._wish(peer, request.correlation_id, request.leadership_term_id, request.from_position)
        if request.to_position == NULL_POSITION:
            self._follow(wish, "")
            return
        assert peer.term is not None
        self._close_log()
        self._log = ReplicatedLog(
            self._aeron_dir,
            wish,
            peer.endpoints.archive_endpoint,
            peer.term.leader_recording_id,
            request.to_position,
            self._closing_id,
        )

    def _wish(self, peer: _Peer, correlation_id: int, leadership_term_id: int, position: int) -> LogWish:
        assert peer.term is not None, "a leader is followed by what it has told"
        session_id = peer.term.log_session_id
        return LogWish(peer.endpoints.member_id, correlation_id, leadership_term_id, session_id, position)

    def _follow(self, wish: LogWish, catchup_endpoint: str) -> None:
        assert self._aeron is not None
        self._close_log()
        log_endpoint = self._listens_at(self._member.log_endpoint)
        self._log = FollowedLog(self._aeron, wish, log_endpoint, catchup_endpoint, self._closing_id)

    def _close_log(self) -> None:
        log, self._log = self._log, None
        self._has_log_image = False
        if log is not None:
            self._closing_id = log.close()

    def _receive_log(self, handler: LinksHandler) -> int:
        log = self._log
        if log is None:
            return 0
        leader_id = log.wish.leader_member_id
        try:
            log.do_work(self._polled_ns, self._peers[leader_id].position)
            join_position = log.join_position
            if join_position is None:
                return 0
            if not self._has_log_image:
                self._has_log_image = True
                _give(
                    handler,
                    leader_id,
                    link_frame(log.geometry) + link_frame(log.wish.image_at(join_position)),
                )
                return 1
            run = log.read()
        except ClusterError as error:
            self._on_error(error)
            if isinstance(log, FollowedLog) and isinstance(error, ChannelRefused):
                return 1  # it tries again by itself
            self._close_log()
            self._take_down(leader_id, handler)
            return 1
        if len(run):
            handler.on_frames(leader_id, run, 0, len(run))
        elif log.is_over:
            self._end_log(log, handler)
        return len(run)

    def _end_log(self, log: LeaderLog, handler: LinksHandler) -> None:
        """Nothing more comes: the leader has closed its log, or is not heard any more."""
        self._close_log()
        if log.is_end_of_stream:
            end = EndOfStream(log.wish.correlation_id, log.wish.position, LinkErrorCode.OK)
            _give(handler, log.wish.leader_member_id, link_frame(end))
        else:
            self._take_down(log.wish.leader_member_id, handler)

    def close(self) -> None:
        """Give back to the driver what it has."""
        with suppress(MediaDriverError):
            self._close_log()
        with suppress(MediaDriverError):
            self._end_publication()
        if self._aeron is not None:
            self._aeron.close()
        self._aeron = None


def _give(handler: LinksHandler, member_id: int, frames: bytes) -> None:
    handler.on_frames(member_id, np.frombuffer(frames, np.uint8), 0, len(frames))
