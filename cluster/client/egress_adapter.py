"""From frames to what the application hears: a run of messages is one kernel call (Aeron's EgressAdapter).

What is not an application's message (events of the session, acknowledgements) goes to the client, in its
place between them.
"""

from __future__ import annotations

from collections.abc import Callable

from cluster.client.answer_progress import AnswerProgress
from cluster.client.egress_dispatch import EgressBatch, ExtensionMessage
from cluster.client.held_egress import HeldEgress
from cluster.client.ingress_publication import MemberConnection
from cluster.errors import RemoteProtocolError
from cluster.log.frames import DONE, MALFORMED, OUT_FULL
from cluster.log.session_frames import EgressMessages, parse_egress
from cluster.protocol import CLUSTER, Message, decode, link, streams
from cluster.protocol.frame import align
from cluster.protocol.sbe import read_header
from cluster.transport.message_frames import each_frame

EGRESS_ROWS = 16_384
SCHEMA_IDS = (CLUSTER.id, link.LINK_SCHEMA.id)
COMMIT_ACK = link.CommitAck.layout()

OnMessage = Callable[[Message], None]


class EgressAdapter:
    """Reads one session's egress, from whichever connection it comes over."""

    def __init__(
        self, cluster_session_id: int, held: HeldEgress, taken: AnswerProgress | None = None
    ) -> None:
        """``taken``: what has come of a supervised session."""
        self._session_id = cluster_session_id
        self._held = held
        self._taken = taken
        self._messages = EgressMessages(EGRESS_ROWS)

    def poll(self, connection: MemberConnection, on_message: OnMessage) -> None:
        """Hold what the frames of ``connection`` say to the application.

        ``on_message`` gets the others of this session. ``RemoteProtocolError`` for what is no egress.
        """
        while connection.has_frames:
            self._poll_run(connection, on_message)

    def _poll_run(self, connection: MemberConnection, on_message: OnMessage) -> None:
        """Hold the messages up to the next frame of another kind, and take that frame."""
        start = connection.start
        status, consumed = parse_egress(connection.buffer, start, connection.end, self._messages)
        if status == MALFORMED:
            raise RemoteProtocolError(f"malformed egress at byte {consumed - start} of a run")
        count = self._messages.count
        if count:
            self._hold_messages()
        if status in (DONE, OUT_FULL):
            assert count  # frames are whole
            connection.advance(consumed)
            return
        stream_id, offset, length = next(each_frame(connection.buffer, consumed, connection.end))
        payload = connection.buffer.data[offset : offset + length]
        connection.advance(align(offset + length))
        if not connection.is_closed and stream_id in (streams.EGRESS, streams.LINK):
            self._on_frame(payload, on_message)

    def _hold_messages(self) -> None:
        """Copy those of this session out of the receive buffer; another's are passed over, as in Aeron."""
        messages = self._messages
        ours = messages.session_ids == self._session_id
        if self._taken is not None:
            ours[ours] = self._taken.take(messages.answer_ids[ours], messages.lengths[ours])
        if not ours.any():
            return
        offsets, lengths = messages.offsets[ours], messages.lengths[ours]
        begin = int(offsets[0])
        buffer = messages.buffer[begin : int(offsets[-1] + lengths[-1])].copy()
        self._held.hold(
            EgressBatch(self._session_id, messages.timestamps[ours], offsets - begin, lengths, buffer)
        )

    def _on_frame(self, payload: memoryview, on_message: OnMessage) -> None:
        """One message that is not the application's."""
        message: Message | None = None
        if len(payload) == COMMIT_ACK.message.size:  # what comes with every batch is not searched for
            header, *values = COMMIT_ACK.message.unpack(payload)
            if header == COMMIT_ACK.header:
                message = link.CommitAck(*values)
        if message is None:
            _, template_id, schema_id, _ = read_header(payload, 0, len(payload))
            if schema_id not in SCHEMA_IDS:
                self._held.hold(ExtensionMessage(schema_id, template_id, bytes(payload)))
                return
            message = decode(payload)
        if getattr(message, "cluster_session_id", None) == self._session_id:
            assert message is not None
            on_message(message)
