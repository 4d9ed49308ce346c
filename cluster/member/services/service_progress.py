"""How far a service in a process of its own has come, so that the next process goes on where one has died.

               snapshot                 position R                         killed here
    log   ─────────●════════════════════════┃───── n requests, m answers ──────▶
    the next one   └─ replays as a follower ┘└─ the first n and m are passed over

A service sends requests and answers in the order of the log, so all that it sent before it reported R came
from entries up to R. The next process is given the log up to R as a replay, in which it answers nobody and
its requests are dropped. After R it sends the same as the process before it, and as many requests and answers
are dropped as were taken already. This relies on requests and answers that follow from the log alone, as they
must. Answers to supervised sessions are numbered and repeated in every replay: none of this applies to them.
"""

from collections import deque
from collections.abc import Iterator

from cluster.archive.log_cursor import LogSource
from cluster.protocol import streams
from cluster.protocol.enums import Role
from cluster.protocol.service import JoinLog
from cluster.service.channel import LogClosed, LogJoined


class TakenFromService:
    """What the module has of a service in all its processes: all of ``position``, and so much beyond."""

    def __init__(self, position: int) -> None:
        self.position = position
        self._requests = self.answers = 0  # taken beyond the position
        self._requests_again = self._answers_again = 0  # of them, what the present process has yet to say

    def on_position(self, position: int) -> None:
        """Everything up to ``position`` is taken; a process that catches up reports what is known."""
        if position > self.position:
            self.position = position
            self._requests = self.answers = self._requests_again = self._answers_again = 0

    @property
    def is_said_again(self) -> bool:
        """Whether the present process has yet to say what the one before it had said."""
        return bool(self._requests_again or self._answers_again)

    def on_process_lost(self) -> None:
        """The next process says again what was taken beyond the position."""
        self._requests_again, self._answers_again = self._requests, self.answers

    def is_new_request(self, log_position: int) -> bool:
        """Whether a request that was offered at ``log_position`` was not taken before; it is now."""
        if log_position <= self.position:
            return False
        if self._requests_again:
            self._requests_again -= 1
            return False
        self._requests += 1
        return True

    def known_answers(self, count: int) -> int:
        """How many of the next ``count`` answers were taken before; the others are now."""
        known = min(count, self._answers_again)
        self._answers_again -= known
        self.answers += count - known
        return known


class LogScript:
    """The logs that a service reads and is to read next, and the messages to it between them."""

    def __init__(self) -> None:
        self._items: deque[LogJoined | LogClosed | bytes] = deque()

    def add(self, item: LogJoined | LogClosed | bytes) -> None:
        """The module has sent the service this."""
        self._items.append(item)

    def prune(self, position: int) -> None:
        """Forget the logs that a service at ``position`` has read to their ends."""
        items = self._items
        while items and not isinstance(items[0], bytes) and self._end_of_first() <= position:
            if isinstance(items.popleft(), LogJoined) and items and isinstance(items[0], LogClosed):
                items.popleft()

    def _end_of_first(self) -> int:
        first, *others = self._items
        if isinstance(first, LogClosed):
            return first.position
        assert isinstance(first, LogJoined)
        ends = [JoinLog.decode(first.message).max_log_position]
        match others[:1]:
            case [LogClosed(position)]:
                ends.append(position)
            case [LogJoined(message)]:
                ends.append(JoinLog.decode(message).log_position)
        return min(ends)

    def resumed(self, position: int) -> Iterator[LogJoined | LogClosed | bytes]:
        """What a process that has come to ``position`` goes on with: no start of the cluster any more."""
        for item in self._items:
            if isinstance(item, LogJoined):
                join = JoinLog.decode(item.message)
                if join.log_position < position:
                    resumed = join.replace(log_position=position, is_startup=False)
                    item = LogJoined(resumed.encode(), item.log)
            yield item


def replay(log: LogSource, begin: int, end: int, member_id: int) -> LogJoined:
    """The log that takes a service from a snapshot at ``begin`` to ``end``."""
    join = JoinLog(
        log_position=begin,
        max_log_position=end,
        member_id=member_id,
        log_session_id=0,
        log_stream_id=streams.REPLAY,
        is_startup=True,
        role=Role.FOLLOWER,  # it answers nobody
        is_standby=False,
        log_channel="aeron:ipc",
    )
    return LogJoined(join.encode(), log)
