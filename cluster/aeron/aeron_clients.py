"""All clients of Aeron's that a member serves by one client of a media driver: who sent what is whose.

ingress images ── SessionConnectRequest ──▶ a new AeronClientLink
consensus images ── BackupQuery ──────────▶ the same, of a backup
               └─ by session id ──────────▶ the link of that session

Who has opened its session at another member may know before it is dialled that this one leads. Its messages
wait for that: were they passed over, later ones would be taken without them.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping

from cluster.aeron.aeron_client_link import AeronClient, AeronClientLink, egress_channel
from cluster.aeron.asked_publication import AskedPublication
from cluster.errors import LocalProtocolError, MediaDriverError, RemoteProtocolError
from cluster.media.aeron import Aeron
from cluster.media.client_conductor import ChannelRefused
from cluster.media.image import Image
from cluster.media.message_reader import MessageReader
from cluster.protocol import decode, sbe, streams
from cluster.protocol.backup import BackupQuery
from cluster.protocol.session import (
    AdminRequest,
    ChallengeResponse,
    SessionCloseRequest,
    SessionConnectRequest,
    SessionKeepAlive,
    SessionMessageHeader,
)
from cluster.protocol.shares import sharer_at
from cluster.transport.bounds import Bounds

IDLE_S, ALONE_IDLE_S = 0.001, 0.01  # between two looks at the driver, with and without clients
_OF_A_SESSION = frozenset(
    {
        SessionMessageHeader.KIND,
        SessionKeepAlive.KIND,
        SessionCloseRequest.KIND,
        ChallengeResponse.KIND,
        AdminRequest.KIND,
    }
)
_OPENING: dict[int, type[sbe.Message]] = {  # first of who comes by the stream
    streams.INGRESS: SessionConnectRequest,
    streams.CONSENSUS: BackupQuery,
}
DIALLED_WITHIN_NS = 3_000_000_000  # of the first message of a session that was opened elsewhere
PASSED_OVER_NS = 30_000_000_000  # what comes of one that was not: then it is waited for again
_TWO_IDS = struct.Struct("<qq")  # of each, after its header: of a term or request, and of its session


class _IngressImage:
    """What one publication sends, of a client or of several that share it."""

    def __init__(self, stream_id: int, image: Image) -> None:
        self.stream_id = stream_id
        self.reader = MessageReader(image)
        self.host = image.source_identity.rpartition(":")[0]
        self.links: set[AeronClientLink] = set()  # for which something was read last
        self.waiting: deque[bytes] = deque()  # what was read
        self.strangers: dict[int, int] = {}  # until when messages of a session wait that has no link
        self.is_refused = False  # it sends what is no frame

    @property
    def is_blocked(self) -> bool:
        """Whether nothing is to be read now: the member has not taken what was read before."""
        return self.is_refused or any(link.is_blocked for link in self.links)


class AeronClients:
    """Their links; used by one thread. Methods raise MediaDriverError when the driver is gone."""

    def __init__(
        self,
        aeron: Aeron,
        channels: Mapping[int, str],
        member_id: int,
        connect: Callable[[None, str, int | None], socket.socket],
        message_length_max: int,
        bounds: Bounds,
        on_error: Callable[[Exception], None],
    ) -> None:
        """Take what comes at ``channels``, by stream. The rest is as for ``AeronIngress``."""
        self._aeron = aeron
        self._member_id = member_id
        self._connect = connect
        self._message_length_max = message_length_max
        self._bounds = bounds
        self._on_error = on_error
        self._subscriptions = [
            aeron.add_subscription(channel, stream_id) for stream_id, channel in channels.items()
        ]
        self._selector = selectors.DefaultSelector()
        self._images: dict[tuple[int, int], _IngressImage] = {}  # by stream, and session of its publication
        self._links: list[AeronClientLink] = []
        self._hosts: Counter[str] = Counter()  # links of each
        self._sessions: dict[int, AeronClientLink] = {}

    def do_work(self) -> None:
        """Take a turn; rests for a moment where there is nothing to do."""
        work_count = self._aeron.conductor.do_work() + self._poll_images()
        now_ns = time.monotonic_ns()
        for link in list(self._links):
            try:
                work_count += link.do_work(now_ns)
            except (ChannelRefused, LocalProtocolError, OSError) as error:  # this client is not to be reached
                self._on_error(error)
                link.is_over = True
            if link.is_over:
                self._close(link)
        idle_s = IDLE_S if self._links or self._images else ALONE_IDLE_S
        for key, _ in self._selector.select(0 if work_count else idle_s):
            key.data.on_readable()

    def open(self, client: AeronClient, request: bytes = b"") -> None:
        """Reach a client, and then pass its request on, if it came with one."""
        sharer = sharer_at(client.host)
        if self._hosts[sharer] >= self._bounds.address_connections_max:
            why = f"{self._hosts[sharer]} connections of {client.host} (address_connections_max)"
            self._on_error(RemoteProtocolError(f"a client of Aeron's was turned away: {why}"))
            return
        now_ns, timeout_ns = time.monotonic_ns(), self._bounds.session_open_timeout_ns
        try:
            asked = AskedPublication(self._aeron, client.channel, client.stream_id, now_ns, timeout_ns)
        except LocalProtocolError as error:  # of a channel that is too long
            self._on_error(error)
            return
        link = AeronClientLink(client, asked, self._connect, self._sessions, self._selector, self._member_id)
        if request:
            link.take(request)
        self._links.append(link)
        self._hosts[sharer] += 1

    def served(self) -> list[AeronClient]:
        """Who is served now, by open sessions."""
        return [
            link.client._replace(session_id=session_id)
            for session_id, link in self._sessions.items()
            if session_id >= 0  # not those of backups
        ]

    def close(self) -> None:
        """End all links."""
        with contextlib.suppress(MediaDriverError):
            for link in list(self._links):
                self._close(link)
        self._selector.close()

    def _close(self, link: AeronClientLink) -> None:
        self._links.remove(link)
        sharer = sharer_at(link.client.host)
        self._hosts[sharer] -= 1
        if not self._hosts[sharer]:
            del self._hosts[sharer]
        link.close()

    # -- ingress --

    def _poll_images(self) -> int:
        images = {
            (subscription.stream_id, session_id): image
            for subscription in self._subscriptions
            for session_id, image in subscription.images.items()
        }
        work_count = 0
        for source in self._images.keys() - images.keys():
            gone = self._images.pop(source)
            while not gone.is_refused and self._poll(gone):  # a client closes its session, and then this
                work_count += 1
        for source, image in images.items():
            known = self._images.get(source)
            if known is None or known.reader.image is not image:
                known = self._images[source] = _IngressImage(source[0], image)
            if not known.is_blocked:
                work_count += self._poll(known)
        return work_count

    def _poll(self, image: _IngressImage) -> bool:
        """Whether there was something to read."""
        try:
            messages = None if image.waiting else image.reader.poll_some()
        except MediaDriverError as error:  # which is about this publication alone
            image.is_refused = True
            self._on_error(error)
            return False
        image.links.clear()
        image.waiting.extend(messages or ())
        work_count = len(image.waiting)
        while image.waiting:
            message = image.waiting[0]
            try:
                link = self._link_of(message, image)
            except RemoteProtocolError as error:
                self._on_error(error)
            else:
                if link is not None:
                    link.take(message)
                    image.links.add(link)
                elif self._is_awaited(message, image):
                    break
            image.waiting.popleft()
        return work_count > len(image.waiting)

    @staticmethod
    def _is_awaited(message: bytes, image: _IngressImage) -> bool:
        """Whether whose message this is may still be dialled."""
        if len(message) < sbe.HEADER_LENGTH + _TWO_IDS.size or sbe.kind_at(message) not in _OF_A_SESSION:
            return False
        _, session_id = _TWO_IDS.unpack_from(message, sbe.HEADER_LENGTH)
        now_ns, strangers = time.monotonic_ns(), image.strangers
        for known in [id_ for id_, until_ns in strangers.items() if now_ns > until_ns + PASSED_OVER_NS]:
            del strangers[known]
        return now_ns < strangers.setdefault(session_id, now_ns + DIALLED_WITHIN_NS)

    def _link_of(self, message: bytes, image: _IngressImage) -> AeronClientLink | None:
        """To whom a message goes; None where that is nobody. Raises RemoteProtocolError."""
        if len(message) < sbe.HEADER_LENGTH + _TWO_IDS.size:
            return None
        kind = sbe.kind_at(message)
        if kind == _OPENING[image.stream_id].KIND:
            self._on_request(message, image.host)
        if kind not in _OF_A_SESSION:
            return None
        _, session_id = _TWO_IDS.unpack_from(message, sbe.HEADER_LENGTH)
        link = self._sessions.get(session_id)
        if link is not None and image.strangers:
            image.strangers.pop(session_id, None)
        if link is not None and len(message) > self._message_length_max:
            link.is_over = True
            raise RemoteProtocolError(
                f"a message of {len(message)} bytes in session {session_id}, expected at most "
                f"{self._message_length_max} (log_term_length)"
            )
        return link

    def _on_request(self, message: bytes, host: str) -> None:
        request = decode(message)
        assert isinstance(request, SessionConnectRequest | BackupQuery)
        channel = egress_channel(request.response_channel)
        if not channel:
            detail = f"{request.response_channel[:64]!r}, expected aeron:udp?endpoint=host:port"
            raise RemoteProtocolError(f"a client of Aeron's cannot be answered at {detail}")
        self.open(AeronClient(channel, request.response_stream_id, host), message)
