"""A connection to a member of a cluster in memory, over which something is asked."""

from cluster.protocol import streams
from cluster.protocol.frame import frame
from tests.member.answers import messages_in


class Asker:
    """A connection to a member: what was answered over it, and whether the member has closed it."""

    def __init__(self, member):
        self.answers = []
        self.is_closed = False
        self._connection = member.dial(self._on_frames, self._on_closed)

    def asks(self, message):
        self._connection.send(frame(message.encode(), session_id=0, stream_id=streams.INGRESS))
        return self

    def _on_frames(self, data):
        self.answers.extend(messages_in(data))

    def _on_closed(self):
        self.is_closed = True
