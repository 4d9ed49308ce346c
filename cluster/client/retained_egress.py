"""What came for the application and is not dispatched yet, in its order.

Whoever takes bytes from the socket, a poll or the client's own thread, holds here what they say. Only the
application takes it out: a listener is called in the application's thread, and may take its time.
"""

from collections import deque

from cluster.client.egress_dispatch import Answer, EgressBatch, EgressDispatch, Event, ExtensionMessage
from cluster.errors import ClusterError

RETAINED_BYTES_MAX = 16 * 1024 * 1024  # of payloads; more stays in the socket, and pushes back on the leader


class AnswerQueue:
    """The application's messages where no listener takes them. One thread at a time uses it.

    Nobody may ever ask for them, so they do not hold up the leader: the oldest are dropped, and counted.
    Those of a supervised session are not.
    """

    def __init__(self, *, is_dropping: bool) -> None:
        self._is_dropping = is_dropping
        self._batches: deque[EgressBatch] = deque()
        self._rows_taken = 0  # of the oldest
        self._bytes = 0
        self._dropped = 0  # since somebody was notified

    def __len__(self) -> int:
        return len(self._batches)

    def hold(self, batch: EgressBatch) -> None:
        self._batches.append(batch)
        self._bytes += batch.payload_bytes
        while self._is_dropping and self._bytes > RETAINED_BYTES_MAX and len(self._batches) > 1:
            self._dropped += len(self._batches[0]) - self._rows_taken
            self._drop_oldest()

    @property
    def is_full(self) -> bool:
        """Whether no more is to come before some is taken."""
        return self._bytes >= RETAINED_BYTES_MAX and not self._is_dropping

    def take_batch(self) -> EgressBatch | None:
        """The rest of the oldest run, or None. Raises ClusterError, once, after some were dropped."""
        self._check_dropped()
        if not self._batches:
            return None
        batch, row = self._batches.popleft(), self._rows_taken
        self._bytes -= batch.payload_bytes
        self._rows_taken = 0
        return batch.rows(row, len(batch)) if row else batch

    def take_one(self) -> Answer | None:
        """The oldest alone; else as ``take_batch``."""
        self._check_dropped()
        if not self._batches:
            return None
        batch = self._batches[0]
        answer = batch.answer(self._rows_taken)
        self._rows_taken += 1
        if self._rows_taken == len(batch):
            self._drop_oldest()
        return answer

    def _drop_oldest(self) -> None:
        self._bytes -= self._batches.popleft().payload_bytes
        self._rows_taken = 0

    def _check_dropped(self) -> None:
        dropped, self._dropped = self._dropped, 0
        if dropped:
            raise ClusterError(
                f"{dropped} answers were dropped: more than {RETAINED_BYTES_MAX} bytes waited to be taken"
            )


class RetainedEgress:
    """A queue of two ends: one thread at a time holds, one at a time takes, and neither waits."""

    def __init__(self, *, is_for_listener: bool, is_supervised: bool = False) -> None:
        """``is_for_listener``: messages are delivered as well, and not only kept as ``answers``."""
        self._items: deque[EgressBatch | Event] = deque()
        self.answers = None if is_for_listener else AnswerQueue(is_dropping=not is_supervised)
        self._bytes_retained = 0  # ever, counted by who holds
        self._bytes_taken = 0  # ever, counted by who takes

    def __len__(self) -> int:
        return len(self._items)

    @property
    def is_full(self) -> bool:
        if self.answers is not None and self.answers.is_full:
            return True
        return self._bytes_retained - self._bytes_taken >= RETAINED_BYTES_MAX

    def hold(self, item: EgressBatch | Event) -> None:
        """Add a batch, whose buffer nobody else changes, or an event."""
        if self.answers is not None and isinstance(item, EgressBatch):
            self.answers.hold(item)
            return
        self._bytes_retained += _length(item)
        self._items.append(item)

    def take(self, rows_max: int) -> EgressBatch | Event:
        """The oldest event, or the oldest messages up to ``rows_max``; there is something."""
        item = self._items.popleft()
        if isinstance(item, EgressBatch) and len(item) > rows_max:
            self._items.appendleft(item.rows(rows_max, len(item)))
            item = item.rows(0, rows_max)
        self._bytes_taken += _length(item)
        return item

    def put_back(self, batch: EgressBatch) -> None:
        """Undo the ``take`` of these messages, the last that were taken."""
        self._bytes_taken -= batch.payload_bytes
        self._items.appendleft(batch)

    def deliver(self, dispatch: EgressDispatch, limit: int) -> int:
        """Give a listener at most ``limit`` messages and events; returns how many.

        It ends early where the listener broke off. What a listener raises comes out, with its message taken
        and the next ones held.
        """
        taken = 0
        while taken < limit and self._items:
            item = self.take(limit - taken)
            if not isinstance(item, EgressBatch):
                taken += 1
                dispatch.event(item)
                continue
            rows = len(item)
            try:
                dispatch.messages(item)
            finally:
                done = dispatch.rows_done
                if done < rows:
                    self.put_back(item.rows(done, rows))
            taken += done
            if done < rows:
                break
        return taken


def _length(item: EgressBatch | Event) -> int:
    """Of what the cluster does not bound: a service's messages."""
    if isinstance(item, EgressBatch):
        return item.payload_bytes
    return len(item.message) if isinstance(item, ExtensionMessage) else 0
