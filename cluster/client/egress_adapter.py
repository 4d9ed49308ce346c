"""From frames to what the application hears: a run of messages is one kernel call (Aeron's EgressAdapter).

The kernel takes the session's messages and acknowledgements. What else comes (events of the session) goes to
the client, in its place between them.
"""

from collections.abc import Callable

from cluster.client.answer_progress import AnswerProgress
from cluster.client.egress_dispatch import EgressBatch, ExtensionMessage
from cluster.client.ingress_publication import MemberConnection
from cluster.client.requests import Requests
from cluster.client.retained_egress import RetainedEgress
from cluster.errors import RemoteProtocolError
from cluster.log.frames import DONE, MALFORMED, OUT_FULL
from cluster.log.session_frames import EgressMessages, parse_egress
from cluster.protocol import CLUSTER, Message, decode, link, streams
from cluster.protocol.frame import align
from cluster.protocol.sbe import read_header
from cluster.transport.message_frames import each_frame

EGRESS_ROWS = 16_384
SCHEMA_IDS = (CLUSTER.id, link.LINK_SCHEMA.id)

OnAcknowledged = Callable[[int, int], None]  # messages of the session, position after the last


class EgressAdapter:
    """Reads one session's egress, from whichever connection it comes over."""

    def __init__(
        self,
        cluster_session_id: int,
        retained: RetainedEgress,
        requests: Requests,
        taken: AnswerProgress | None = None,
    ) -> None:
        """``taken``: what has come of a supervised session."""
        self._session_id = cluster_session_id
        self._retained = retained
        self._requests = requests
        self._taken = taken
        self._messages = EgressMessages(EGRESS_ROWS)

    def poll(self, connection: MemberConnection, on_acknowledged: OnAcknowledged) -> Message | None:
        """Take messages and acknowledgements up to the next frame of another kind, and that frame.

        Messages are held for the application. Returns what the other frame says to the session, if it does.
        ``RemoteProtocolError`` for what is no egress.
        """
        buffer, start, messages = connection.buffer, connection.start, self._messages
        status, consumed = parse_egress(buffer, start, connection.end, messages, self._session_id)
        if status == MALFORMED:
            raise RemoteProtocolError(f"malformed egress at byte {consumed - start} of a run")
        if messages.count:
            self._hold_messages()
        acknowledged, position = messages.acknowledged.tolist()
        if acknowledged >= 0:
            on_acknowledged(acknowledged, position)
        if status in (DONE, OUT_FULL):
            connection.advance(consumed)
            return None
        stream_id, offset, length = next(each_frame(buffer, consumed, connection.end))
        payload = buffer.data[offset : offset + length]
        connection.advance(align(offset + length))
        if not connection.is_closed and stream_id in (streams.EGRESS, streams.LINK):
            return self._other_message(payload)
        return None

    def _hold_messages(self) -> None:
        """Copy them out of the receive buffer, with their frames."""
        messages = self._messages
        timestamps, offsets, lengths = messages.timestamps, messages.offsets, messages.lengths
        numbers = messages.numbers
        if self._taken is not None:
            fresh = self._taken.take(messages.answer_ids.tolist(), lengths.tolist())
            if not fresh:
                return
            if len(fresh) < messages.count:
                timestamps, offsets, lengths = timestamps[fresh], offsets[fresh], lengths[fresh]
                numbers = numbers[fresh]
        buffer = messages.buffer.copy()
        batch = EgressBatch(self._session_id, timestamps.copy(), offsets.copy(), lengths.copy(), buffer)
        if self._requests:
            batch = self._requests.take(batch, numbers.tolist())
        if len(batch):
            self._retained.hold(batch)

    def _other_message(self, payload: memoryview) -> Message | None:
        """What no application's message says to the session; a message of another schema is kept."""
        _, template_id, schema_id, _ = read_header(payload, 0, len(payload))
        if schema_id not in SCHEMA_IDS:
            self._retained.hold(ExtensionMessage(schema_id, template_id, memoryview(bytes(payload))))
            return None
        message = decode(payload)
        is_ours = getattr(message, "cluster_session_id", None) == self._session_id
        return message if is_ours else None
