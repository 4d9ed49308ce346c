"""Auctions that a timer ends.

    open ITEM SECONDS    bid ITEM AMOUNT

A bid must be higher than the one before. When time is up the highest bidder and who opened the auction hear
``sold ITEM AMOUNT``, or ``unsold ITEM``. A bid in the last five seconds makes it last five seconds more.

Run it: ``cluster up --service examples.auction:Auctions``
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cluster import ClientSession, Cluster, ClusteredService, ExclusivePublication

EXTENSION_MS = 5_000
SECONDS_MAX = 7 * 24 * 3600


@dataclass(slots=True)
class Auction:
    """``auction_id`` is the correlation id of its timer; ``ends`` is cluster time, in milliseconds."""

    auction_id: int
    item: bytes
    owner: int  # session ids
    ends: int
    bidder: int = 0
    amount: int = 0


class Auctions(ClusteredService):
    """Timers are state of the cluster, which outlives leaders and restarts: only ``ends`` is kept here."""

    def on_start(self, cluster: Cluster, snapshot_image: Iterable[bytes] | None) -> None:
        self._cluster = cluster
        self._auctions: dict[bytes, Auction] = {}
        self._next_id = 1
        for record in snapshot_image or ():
            if record.startswith(b"next "):
                self._next_id = int(record[5:])
                continue
            *numbers, item = record.split(b" ", 5)
            auction_id, owner, ends, bidder, amount = map(int, numbers)
            self._auctions[item] = Auction(auction_id, item, owner, ends, bidder, amount)

    def on_session_message(self, session: ClientSession | None, timestamp: int, buffer: memoryview) -> None:
        assert session is not None  # no service sends to this one
        match bytes(buffer).split():
            case [b"open", item, seconds] if seconds.isdigit() and 0 < int(seconds[:9]) <= SECONDS_MAX:
                session.offer(self._open(session.id, item, timestamp + 1_000 * int(seconds[:9])))
            case [b"bid", item, amount] if amount.isdigit() and len(amount) <= 18:
                session.offer(self._bid(session.id, item, int(amount), timestamp))
            case _:
                session.offer(b"error: expected open ITEM SECONDS or bid ITEM AMOUNT")

    def _open(self, owner: int, item: bytes, ends: int) -> bytes:
        if item in self._auctions:
            return b"error: %s is being sold" % item
        auction = self._auctions[item] = Auction(self._next_id, item, owner, ends)
        self._next_id += 1
        self._schedule(auction)
        return b"opened %s" % item

    def _bid(self, bidder: int, item: bytes, amount: int, now: int) -> bytes:
        auction = self._auctions.get(item)
        if auction is None:
            return b"error: %s is not being sold" % item
        if amount <= auction.amount:
            return b"error: %d is bid already" % auction.amount
        auction.bidder, auction.amount = bidder, amount
        if now + EXTENSION_MS > auction.ends:
            auction.ends = now + EXTENSION_MS
            self._schedule(auction)  # the same correlation id: the timer moves
        return b"bid %s %d" % (item, amount)

    def _schedule(self, auction: Auction) -> None:
        while not self._cluster.schedule_timer(auction.auction_id, auction.ends):
            self._cluster.idle_strategy().idle()

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        ended = [auction for auction in self._auctions.values() if auction.auction_id == correlation_id]
        for auction in ended:
            del self._auctions[auction.item]
            told = (
                b"sold %s %d" % (auction.item, auction.amount)
                if auction.bidder
                else b"unsold " + auction.item
            )
            for session_id in sorted({auction.owner, auction.bidder} - {0}):
                session = self._cluster.get_client_session(session_id)
                if session is not None:
                    session.offer(told)

    def on_take_snapshot(self, snapshot_publication: ExclusivePublication) -> None:
        snapshot_publication.offer(b"next %d" % self._next_id)
        for a in self._auctions.values():  # in the order in which they were opened
            numbers = a.auction_id, a.owner, a.ends, a.bidder, a.amount
            snapshot_publication.offer(b"%d %d %d %d %d " % numbers, a.item)
