"""A connection through TLS beside compiled turns, which read and write its session, too."""

import socket
from contextlib import suppress

import numpy as np
import pytest

from cluster.errors import TlsFailed
from cluster.log.connection_table import IS_WRAPPED, STATE, TLS
from cluster.protocol.enums import Offer
from cluster.transport.poller import Poller
from cluster.transport.sockets import ReceiveBuffer
from cluster.transport.tls import TlsSession, server_context
from cluster.transport.tls_connection import TlsConnection
from tests.transport.authorities import Certificates
from tests.transport.tls_peer import TlsPeer


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("certs"))


@pytest.fixture
def connected(certificates):
    """A function: our session and its connection, established, and the peer."""
    poller, opened = Poller(), []

    def connect():
        context = server_context(certificates.member(0, "127.0.0.1"), asks_certificate=False)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            there = socket.create_connection(listener.getsockname())
            here, _ = listener.accept()
        session = TlsSession(context, "the peer")
        connection = TlsConnection(here, poller, ReceiveBuffer(), session)
        peer = TlsPeer(there, certificates.trust, lambda: (poller.wait(1), connection.receive()))
        opened.extend((connection, peer))
        return session, connection, peer

    yield connect
    for end in opened:
        end.close()
    poller.close()


def damage(session, peer):
    """Feed the session a record that was changed on its way, as a compiled turn does."""
    peer._tls.seal(b"x" * 100)
    session.feed(peer._tls.take()[:-1] + b"\0")


def test_compiled_turns_have_its_session_once_it_is_established(connected):
    session, connection, _ = connected()
    assert connection._table.get(connection.descriptor, TLS) == session.address != 0
    assert connection._table.get(connection.descriptor, STATE) == 0


def test_it_is_pythons_alone_where_the_session_cannot_be_called(connected, monkeypatch):
    monkeypatch.setattr("cluster.log.openssl.LIBRARY", object())
    _, connection, _ = connected()
    assert connection._table.get(connection.descriptor, TLS) == 0
    assert connection._table.get(connection.descriptor, STATE) == IS_WRAPPED


def test_what_a_turn_could_not_open_closes_it_with_the_reason(connected):
    session, connection, peer = connected()
    damage(session, peer)
    connection.adopt(np.zeros(0, np.uint8))
    assert connection.is_readable
    with pytest.raises(TlsFailed, match="TLS with the peer"):
        connection.receive()
    assert connection.is_closed and "TLS with the peer" in connection.why_closed


def test_nothing_is_sent_over_a_session_that_failed_in_a_turn(connected):
    session, connection, peer = connected()
    damage(session, peer)
    with pytest.raises(TlsFailed):
        session.read_into(memoryview(bytearray(10)))
    assert connection.offer(b"egress") == Offer.CLOSED
    assert connection.is_closed


def test_what_a_turn_left_in_the_session_goes_out_before_what_is_offered(connected):
    session, connection, peer = connected()
    session.seal(b"of the turn, ")
    assert connection.offer(np.zeros(0, np.uint8)) >= 0
    assert connection.offer(b"and then") > 0
    received = b""
    while len(received) < 21:
        received += peer.recv(100)
    assert received == b"of the turn, and then"


def test_a_peer_that_leaves_while_egress_is_queued_for_it_closes_the_connection_and_no_more(connected):
    _, connection, peer = connected()
    while connection.queued_bytes < 200_000:
        connection.offer(bytes(100_000))
    peer.setblocking(False)
    with suppress(BlockingIOError):  # else its end would be a reset, before anything is sent
        while True:
            peer._sock.recv(100_000)
    peer.close()
    while not connection.is_closed:
        connection._poller.wait(1)
        connection.receive()
    assert connection.queued_bytes == 0
