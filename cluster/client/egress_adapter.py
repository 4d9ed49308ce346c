"""From frames to listener: a run of application messages is one kernel call (Aeron's EgressAdapter).

What is not an application's message (events of the session, acknowledgements) goes to the client, in its
place between them.
"""

from __future__ import annotations

from collections.abc import Callable

from cluster.client.egress_dispatch import EgressBatch, EgressDispatch
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

    def __init__(self, cluster_session_id: int, dispatch: EgressDispatch) -> None:
        self._session_id = cluster_session_id
        self._dispatch = dispatch
        self._messages = EgressMessages(EGRESS_ROWS)
        self._is_interrupted = False  # by a listener that wants no more for now
        self.is_dispatching = False  # the receive buffer is the listener's: nothing else may be received

    def poll(self, connection: MemberConnection, fragment_limit: int | None, on_message: OnMessage) -> int:
        """Dispatch the frames that ``connection`` holds, at most ``fragment_limit``; returns how many.

        ``on_message`` gets the others of this session. ``RemoteProtocolError`` for what is no egress. What
        a listener raises comes out, with its message done and the next ones kept.
        """
        dispatched = 0
        self._is_interrupted = False
        while connection.has_frames and not self._is_interrupted:
            limit = EGRESS_ROWS if fragment_limit is None else fragment_limit - dispatched
            if limit <= 0:
                break
            dispatched += self._poll_run(connection, limit, on_message)
        return dispatched

    def _poll_run(self, connection: MemberConnection, limit: int, on_message: OnMessage) -> int:
        """Dispatch the messages up to the next frame of another kind, and that frame."""
        messages = self._messages if limit >= EGRESS_ROWS else EgressMessages(limit)
        start = connection.start
        status, consumed = parse_egress(connection.buffer, start, connection.end, messages)
        if status == MALFORMED:
            raise RemoteProtocolError(f"malformed egress at byte {consumed - start} of a run")
        count = messages.count
        if count and not self._dispatch_messages(connection, messages, consumed):
            self._is_interrupted = True
            return self._dispatch.rows_done
        if status in (DONE, OUT_FULL):
            assert count  # frames are whole
            return count
        stream_id, offset, length = next(each_frame(connection.buffer, consumed, connection.end))
        payload = connection.buffer.data[offset : offset + length]
        connection.advance(align(offset + length))
        if not connection.is_closed and stream_id in (streams.EGRESS, streams.LINK):
            self._on_frame(payload, on_message)
        return count + 1

    def _dispatch_messages(
        self, connection: MemberConnection, messages: EgressMessages, consumed: int
    ) -> bool:
        """Tell the listener; False when it wants no more for now. What it has had is released."""
        batch = self._batch_of(messages)
        rows_done = 0
        self.is_dispatching = True
        try:
            self._dispatch.messages(batch)
        finally:
            self.is_dispatching = False
            rows_done = self._dispatch.rows_done
            if rows_done < len(batch):
                # The frame of the next row begins right after the last one's payload.
                consumed = connection.start
                if rows_done:
                    consumed = align(int(batch.offsets[rows_done - 1] + batch.lengths[rows_done - 1]))
            connection.advance(consumed)
        return rows_done == len(batch)

    def _batch_of(self, messages: EgressMessages) -> EgressBatch:
        """The rows of this session; another's are passed over, as in Aeron."""
        timestamps, offsets, lengths = messages.timestamps, messages.offsets, messages.lengths
        ours = messages.session_ids == self._session_id
        if not (ours[0] if len(ours) == 1 else ours.all()):
            timestamps, offsets, lengths = timestamps[ours], offsets[ours], lengths[ours]
        return EgressBatch(self._session_id, timestamps, offsets, lengths, messages.buffer)

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
                self._dispatch.extension_message(schema_id, template_id, memoryview(bytes(payload)))
                return
            message = decode(payload)
        if getattr(message, "cluster_session_id", None) == self._session_id:
            assert message is not None
            on_message(message)
