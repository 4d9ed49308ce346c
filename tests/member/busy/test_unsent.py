"""What a busy turn could not send: Python offers it, in order, and closes who cannot be given all of it."""

from types import SimpleNamespace

import numpy as np
import pytest

from cluster.errors import StorageError
from cluster.log import calls
from cluster.log.connection_table import CLIENT, IS_CUT, IS_QUEUED, KIND, LINK_OUT, STATE, ConnectionTable
from cluster.member.busy import envelopes, words
from cluster.member.busy.lend import BusyTurns
from cluster.testing.python_calls import put_call
from tests.member.busy.tables import tables_of

A, B, LINK = 7, 8, 9  # descriptors; a client's connection id is ten times its own


class Peers:
    """Clients, and the poller that knows the connections that are open."""

    def __init__(self):
        self.table = ConnectionTable()
        self.sent, self.closed = [], []
        self.is_link_full = False
        self.ends_with_the_first = {}  # connections that end while something is sent to another
        for descriptor, kind in ((A, CLIENT), (B, CLIENT), (LINK, LINK_OUT)):
            self.table.serve(descriptor, kind, 10 * descriptor, 1 << 20)

    def send(self, connection_id, piece):
        if (other := self.ends_with_the_first.pop(connection_id, None)) is not None:
            self.table.clear(other)
        self.sent.append((connection_id, piece.tobytes()))

    def close(self, connection_id, why):
        self.closed.append(connection_id)

    def target(self, descriptor):
        if not self.table.get(descriptor, KIND):
            raise KeyError(descriptor)
        return SimpleNamespace(
            offer=lambda piece: (
                0 if self.is_link_full else self.sent.append((descriptor, piece.tobytes())) or 1
            ),
            close=lambda why: self.closed.append(descriptor),
        )


@pytest.fixture
def peers():
    return Peers()


@pytest.fixture
def turns(peers):
    made = BusyTurns.__new__(BusyTurns)
    made._poller = peers
    made._agent = SimpleNamespace(parts=SimpleNamespace(clients=peers), on_busy_turns=lambda *times: None)
    made._table_words = np.zeros(words.WORDS, np.int64)
    made._words = made._table_words.data
    made._idle = made._vain = 0
    unsent = np.zeros(4096 + len(peers.table.words), np.uint8)
    made._tables = tables_of(words=made._table_words, connections=peers.table.words, unsent=unsent)
    return made


def offer(turns, descriptor, data):
    """As a turn does to a socket that takes nothing."""
    turns._poller.table.mark(descriptor, IS_QUEUED, True)
    piece = np.frombuffer(data, np.uint8)
    return envelopes.offer(turns._tables, descriptor, piece, 0, len(piece), piece, 0, 0)


def test_each_gets_its_pieces_in_order(turns, peers):
    for descriptor, data in ((A, b"one"), (LINK, b"log"), (A, b"two"), (B, b"three")):
        assert offer(turns, descriptor, data)
    turns._offer_unsent()
    assert peers.sent == [(70, b"one"), (70, b"two"), (LINK, b"log"), (80, b"three")]
    assert not peers.closed
    assert [peers.table.get(descriptor, STATE) for descriptor in (A, B, LINK)] == [0, 0, 0]


def test_what_a_socket_takes_in_part_is_followed_by_its_rest_before_all_else(turns, peers):
    table, asked = np.zeros(calls.CALLS, np.int64), []
    call = put_call(table, calls.SEND, lambda descriptor, pieces, count: asked.append(descriptor) or 3, 3)
    turns._tables = turns._tables._replace(calls=table, scratch=np.zeros(words.SCRATCH, np.uint8))
    data = np.frombuffer(b"onetwo", np.uint8)
    assert envelopes.offer(turns._tables, A, data, 0, 2, data, 2, 4)
    assert envelopes.offer(turns._tables, A, data, 0, 3, data, 3, 2)
    turns._offer_unsent()

    assert peers.sent == [(70, b"two"), (70, b"onetw")]
    assert asked == [A], f"{call} is not asked again before that"


def test_a_client_that_another_ones_egress_ended_keeps_nobody_from_theirs(turns, peers):
    peers.ends_with_the_first[70] = B
    for descriptor in (A, B, LINK):
        offer(turns, descriptor, b"x")
    turns._offer_unsent()
    assert [to for to, _ in peers.sent if to in (70, LINK)] == [70, LINK]


def test_a_link_that_does_not_take_all_is_closed_and_clients_get_theirs(turns, peers):
    peers.is_link_full = True
    offer(turns, LINK, b"log")
    offer(turns, A, b"answer")
    turns._offer_unsent()
    assert peers.sent == [(70, b"answer")]
    assert peers.closed == [LINK]


def test_who_would_have_a_gap_is_closed_and_the_others_are_not(turns, peers):
    assert offer(turns, A, b"a" * 3000)
    assert not offer(turns, B, b"b" * 3000)
    assert not offer(turns, B, b"b"), "it would come behind the gap"
    assert not offer(turns, LINK, b"l" * 3000)
    assert offer(turns, A, b"a")
    turns._offer_unsent()
    assert peers.sent == [(70, b"a" * 3000), (70, b"a")]
    assert sorted(peers.closed) == [LINK, 80]
    assert not any(peers.table.get(descriptor, STATE) & IS_CUT for descriptor in (A, B, LINK))


@pytest.mark.parametrize(("length", "fits"), [(4096 - 24, True), (4096 - 23, False)])
def test_for_the_end_of_each_connection_there_is_room_behind_what_waits(turns, length, fits):
    assert offer(turns, A, b"a" * length) == fits


def test_a_disk_that_failed_is_told_first_of_all(turns, peers):
    offer(turns, A, b"x")
    turns._table_words[words.REASON] |= words.FAILED
    turns._table_words[words.ERROR] = 5
    recording = SimpleNamespace(fail_by=lambda number: StorageError("log", number, "writing failed"))
    with pytest.raises(StorageError):
        turns._end(recording)
    assert not peers.sent
