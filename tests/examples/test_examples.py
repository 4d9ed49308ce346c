"""The services of ``examples/``: what they answer, and that they are deterministic."""

from __future__ import annotations

from random import Random

import pytest

from cluster.testing import SimulatedCluster
from cluster.testing.storm import play
from examples.auction import Auctions
from examples.key_value_store import KeyValueStore
from examples.order_book import OrderBook
from examples.rate_limiter import RateLimiter

MESSAGES = {
    KeyValueStore: lambda r: r.choice(
        [b"set %d %d" % (r.randrange(9), r.randrange(9)), b"get %d" % r.randrange(9)]
    ),
    OrderBook: lambda r: r.choice(
        [
            b"%s %d %d %s"
            % (
                r.choice([b"buy", b"sell"]),
                r.randint(1, 9),
                r.randint(1, 9),
                r.choice([b"", b"ioc", b"fok"]),
            ),
            b"cancel %d" % r.randint(1, 99),
        ]
    ),
    Auctions: lambda r: r.choice(
        [
            b"open %d %d" % (r.randrange(5), r.randint(1, 20)),
            b"bid %d %d" % (r.randrange(5), r.randint(1, 99)),
        ]
    ),
    RateLimiter: lambda r: b"%d %d" % (r.randrange(3), r.randrange(30)),
}


@pytest.mark.parametrize("service", MESSAGES, ids=lambda service: service.__name__)
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 7))])
def test_every_member_has_the_same_state_through_kills_and_snapshots(service, seed):
    outcome = play([service], MESSAGES[service], seed)

    assert (outcome.failure, outcome.raised) == ("", 0)
    assert outcome.answers > 0


@pytest.mark.parametrize("service", MESSAGES, ids=lambda service: service.__name__)
def test_no_message_raises(service):
    def anything(random: Random) -> bytes:
        words = (
            b"set",
            b"get",
            b"buy",
            b"sell",
            b"cancel",
            b"open",
            b"bid",
            b"keys",
            b"",
            b"x",
            b"\xff",
            b"-1",
            b"9" * 30,
            b"3",
            b"=",
        )
        return b" ".join(random.choice(words) for _ in range(random.randint(1, 5)))

    outcome = play([service], anything, 1)

    assert (outcome.failure, outcome.raised, outcome.first_error) == ("", 0, "")


class Session:
    """One client's requests, one after the other."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self.client = cluster.connect()

    def ask(self, *requests: bytes) -> list[bytes]:
        for request in requests:
            self.client.offer(request)
        self.cluster.settle()
        return self.client.take_answers()


def test_the_store_keeps_what_it_is_given():
    ask = Session(SimulatedCluster(KeyValueStore)).ask

    assert ask(b"set a 1 and 2", b"get a", b"get b") == [b"ok", b"1 and 2", b"nothing"]
    assert ask(b"set b 2", b"keys", b"delete a", b"keys", b"set c= 1")[1:4] == [b"a\nb", b"ok", b"b"]


def test_orders_trade_at_the_best_price_and_the_earliest_first():
    cluster = SimulatedCluster(OrderBook)
    alice, bob = Session(cluster), Session(cluster)

    assert alice.ask(b"sell 5 10", b"sell 5 9", b"sell 5 9") == [b"order 1", b"order 2", b"order 3"]
    assert bob.ask(b"buy 7 9") == [b"order 4", b"trade 4 5 9", b"trade 4 2 9"]
    assert alice.client.take_answers() == [b"trade 2 5 9", b"trade 3 2 9"]
    assert alice.ask(b"cancel 3", b"cancel 3") == [b"cancelled 3 3", b"error: 3 is no resting order of yours"]


def test_times_in_force():
    cluster = SimulatedCluster(OrderBook)
    alice, bob = Session(cluster), Session(cluster)
    alice.ask(b"sell 5 10")

    assert bob.ask(b"buy 6 10 fok") == [b"killed 2"]
    assert bob.ask(b"buy 6 10 ioc") == [b"order 3", b"trade 3 5 10", b"rest 3 1"]
    assert bob.ask(b"cancel 3") == [b"error: 3 is no resting order of yours"]
    assert bob.ask(b"buy 1 10 day")[0].startswith(b"error: ")


def test_a_session_takes_its_orders_with_it():
    cluster = SimulatedCluster(OrderBook)
    alice, bob = Session(cluster), Session(cluster)
    alice.ask(b"sell 5 10")
    alice.client.close()
    cluster.run(1)

    assert bob.ask(b"buy 5 10") == [b"order 2"]


def test_an_auction_ends_by_time_and_a_late_bid_prolongs_it():
    cluster = SimulatedCluster(Auctions)
    alice, bob = Session(cluster), Session(cluster)
    assert alice.ask(b"open clock 10") == [b"opened clock"]
    cluster.run(8)
    assert bob.ask(b"bid clock 7", b"bid clock 7") == [b"bid clock 7", b"error: 7 is bid already"]
    cluster.run(4)
    assert bob.client.take_answers() == []
    cluster.run(1)

    assert bob.client.take_answers() == [b"sold clock 7"] == alice.client.take_answers()


@pytest.mark.slow
def test_an_auction_ends_although_every_member_was_killed_meanwhile():
    cluster = SimulatedCluster(Auctions)
    Session(cluster).ask(b"open clock 60")
    for member_id in range(3):
        cluster.kill(member_id)
    for member_id in range(3):
        cluster.start(member_id)
    alice = Session(cluster)
    assert alice.ask(b"open clock 1") == [b"error: clock is being sold"]
    cluster.run(60)

    assert alice.ask(b"open clock 1") == [b"opened clock"]


def test_a_bucket_is_emptied_and_fills_again():
    cluster = SimulatedCluster(RateLimiter)
    alice = Session(cluster)

    assert alice.ask(b"k 60", b"k 60", b"other 60") == [b"yes", b"no", b"yes"]
    cluster.run(2.5)
    assert alice.ask(b"k 60") == [b"yes"]
