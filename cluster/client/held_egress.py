"""What came for the application and is not dispatched yet, in its order.

Whoever takes bytes from the socket, a poll or the client's own thread, holds here what they say. Only the
application takes it out: a listener is called in the application's thread, and may take its time.
"""

from __future__ import annotations

from collections import deque

from cluster.client.egress_dispatch import EgressBatch, EgressDispatch, Event

HELD_BYTES_MAX = 16 * 1024 * 1024  # of payloads; more stays in the socket, and pushes back on the leader


class HeldEgress:
    """A queue of two ends: one thread at a time holds, one at a time takes, and neither waits."""

    def __init__(self) -> None:
        self._items: deque[EgressBatch | Event] = deque()
        self._bytes_held = 0  # ever, counted by who holds
        self._bytes_taken = 0  # ever, counted by who takes

    def __len__(self) -> int:
        return len(self._items)

    @property
    def is_full(self) -> bool:
        return self._bytes_held - self._bytes_taken >= HELD_BYTES_MAX

    def hold(self, item: EgressBatch | Event) -> None:
        """Add a batch, whose buffer nobody else changes, or an event."""
        if isinstance(item, EgressBatch):
            self._bytes_held += item.payload_bytes
        self._items.append(item)

    def take(self, rows_max: int) -> EgressBatch | Event | None:
        """The oldest event, or the oldest messages up to ``rows_max``; None when there is nothing."""
        if not self._items:
            return None
        item = self._items.popleft()
        if isinstance(item, EgressBatch):
            if len(item) > rows_max:
                self._items.appendleft(item.rows(rows_max, len(item)))
                item = item.rows(0, rows_max)
            self._bytes_taken += item.payload_bytes
        return item

    def put_back(self, batch: EgressBatch) -> None:
        """Undo the ``take`` of these messages, the last that were taken."""
        self._bytes_taken -= batch.payload_bytes
        self._items.appendleft(batch)

    def deliver(self, dispatch: EgressDispatch, limit: int) -> int:
        """Tell a listener of at most ``limit`` messages and events; returns of how many.

        It ends early where the listener broke off. What a listener raises comes out, with its message taken
        and the next ones held.
        """
        taken = 0
        while taken < limit and (item := self.take(limit - taken)) is not None:
            if not isinstance(item, EgressBatch):
                taken += 1
                dispatch.event(item)
                continue
            try:
                dispatch.messages(item)
            finally:
                done = dispatch.rows_done
                if done < len(item):
                    self.put_back(item.rows(done, len(item)))
            taken += done
            if done < len(item):
                break
        return taken
