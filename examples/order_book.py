"""A limit order book: best price first, then who came first.

    buy QUANTITY PRICE [gtc|ioc|fok]    sell QUANTITY PRICE [gtc|ioc|fok]    cancel ORDER

Quantities and prices are positive whole numbers. ``gtc`` (good till cancelled, the default) rests with what
is left of it; ``ioc`` (immediate or cancel) does not rest; ``fok`` (fill or kill) trades whole or not at all.

The one who sent an order is answered ``order ID``, or ``killed ID``. Then both sides of a trade are sent
``trade ID QUANTITY PRICE``, at the price of the order that rested, and an ``ioc`` what is left of it:
``rest ID QUANTITY``. A session that closes takes its orders with it.

Run it: ``cluster up --service examples.order_book:OrderBook``
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

from cluster import ClientSession, CloseReason, Cluster, ClusteredService, ExclusivePublication

BUY, SELL = b"buy", b"sell"
TIMES_IN_FORCE = (b"gtc", b"ioc", b"fok")


@dataclass(slots=True)
class Order:
    """``quantity`` is what is left of it; 0 of one that has traded whole or was cancelled."""

    order_id: int
    session_id: int
    side: bytes
    quantity: int
    price: int

    @property
    def rank(self) -> tuple[int, int]:
        """Lowest is best: the highest price of buyers, the lowest of sellers; then the earliest."""
        return (-self.price if self.side == BUY else self.price, self.order_id)

    def takes(self, other: Order) -> bool:
        """Whether the prices of a new order and of a resting one meet."""
        return self.price >= other.price if self.side == BUY else self.price <= other.price


class OrderBook(ClusteredService):
    """Orders by id, and a heap of ranks a side; what is gone leaves its heap when it comes to the top."""

    def on_start(self, cluster: Cluster, snapshot_image: Iterable[bytes] | None) -> None:
        self._cluster = cluster
        self._orders: dict[int, Order] = {}
        self._heaps: dict[bytes, list[tuple[int, int]]] = {BUY: [], SELL: []}
        self._next_id = 1
        for record in snapshot_image or ():
            self._restore(record.split())

    # -- requests --

    def on_session_message(self, session: ClientSession | None, timestamp: int, buffer: memoryview) -> None:
        assert session is not None  # no service sends to this one
        words = bytes(buffer).split()
        numbers = [int(word) for word in words[1:] if word.isdigit() and len(word) <= 18]
        match words:
            case [(b"buy" | b"sell") as side, _, _, *force] if len(numbers) == 2 and min(numbers) > 0:
                force = force or [b"gtc"]
                if len(force) == 1 and force[0] in TIMES_IN_FORCE:
                    quantity, price = numbers
                    self._enter(session, side, quantity, price, force[0])
                    return
            case [b"cancel", _] if len(numbers) == 1:
                self._cancel(session, numbers[0])
                return
            case _:
                pass
        session.offer(b"error: expected buy|sell QUANTITY PRICE [gtc|ioc|fok] or cancel ORDER")

    def _enter(self, session: ClientSession, side: bytes, quantity: int, price: int, force: bytes) -> None:
        order = Order(self._next_id, session.id, side, quantity, price)
        self._next_id += 1
        if force == b"fok" and self._available(order) < quantity:
            session.offer(b"killed %d" % order.order_id)
            return
        session.offer(b"order %d" % order.order_id)
        while (
            order.quantity and (resting := self._best(SELL if side == BUY else BUY)) and order.takes(resting)
        ):
            self._trade(order, resting)
        if order.quantity and force == b"ioc":
            session.offer(b"rest %d %d" % (order.order_id, order.quantity))
        elif order.quantity:
            self._rest(order)

    def _cancel(self, session: ClientSession, order_id: int) -> None:
        order = self._orders.get(order_id)
        if order is None or order.session_id != session.id:
            session.offer(b"error: %d is no resting order of yours" % order_id)
            return
        del self._orders[order_id]
        session.offer(b"cancelled %d %d" % (order_id, order.quantity))

    def on_session_close(self, session: ClientSession, timestamp: int, close_reason: CloseReason) -> None:
        for order in [order for order in self._orders.values() if order.session_id == session.id]:
            del self._orders[order.order_id]

    # -- the book --

    def _best(self, side: bytes) -> Order | None:
        heap = self._heaps[side]
        while heap and heap[0][1] not in self._orders:
            heapq.heappop(heap)
        return self._orders[heap[0][1]] if heap else None

    def _available(self, order: Order) -> int:
        """How much of the other side an order could take."""
        return sum(
            resting.quantity
            for resting in self._orders.values()
            if resting.side != order.side and order.takes(resting)
        )

    def _rest(self, order: Order) -> None:
        self._orders[order.order_id] = order
        heapq.heappush(self._heaps[order.side], order.rank)

    def _trade(self, order: Order, resting: Order) -> None:
        quantity = min(order.quantity, resting.quantity)
        order.quantity -= quantity
        resting.quantity -= quantity
        if not resting.quantity:
            del self._orders[resting.order_id]
        for side in (order, resting):
            session = self._cluster.get_client_session(side.session_id)
            if session is not None:
                session.offer(b"trade %d %d %d" % (side.order_id, quantity, resting.price))

    # -- snapshots --

    def on_take_snapshot(self, snapshot_publication: ExclusivePublication) -> None:
        snapshot_publication.offer(b"next %d" % self._next_id)
        for order in self._orders.values():  # in the order of their ids
            numbers = order.order_id, order.session_id, order.quantity, order.price
            snapshot_publication.offer(order.side, b" %d %d %d %d" % numbers)

    def _restore(self, words: list[bytes]) -> None:
        kind, *numbers = words
        if kind == b"next":
            self._next_id = int(numbers[0])
        else:
            order_id, session_id, quantity, price = map(int, numbers)
            self._rest(Order(order_id, session_id, kind, quantity, price))
