"""Turns over connections with TLS: they do what they do without, and Python can go on with each session."""

import ssl
from types import SimpleNamespace

import numpy as np
import pytest

from cluster.errors import TlsFailed
from cluster.log import calls
from cluster.log.connection_table import IS_QUEUED, STATE, TLS
from cluster.log.openssl import session_address
from cluster.member.busy import words as at
from cluster.member.busy.system import send
from cluster.protocol.link import CommitAck
from cluster.transport.tls import TlsSession, client_context, server_context
from tests.member.busy.one_member import (
    BEGIN,
    CLIENT_A,
    CLIENT_B,
    END,
    FROM,
    STAMP,
    TERM,
    TERM_BEFORE,
    TO,
    OneMember,
    ingress,
    messages,
)
from tests.transport.authorities import Certificates

ALL = 1 << 20
ONE, TWO = (1, STAMP, b"one"), (1, STAMP, b"two")
ANSWERS = [(TERM_BEFORE, 1, STAMP, 1, b"one"), (TERM_BEFORE, 1, STAMP, 2, b"two"), CommitAck(1, TERM, 2, END)]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("certs"))


@pytest.fixture
def over_tls(certificates):
    """A function: put a session of the member's beneath a descriptor, and return it with the peer's."""
    accepting = server_context(certificates.member(0, "127.0.0.1"), asks_certificate=False)
    dialling = client_context(certificates.trust)
    sessions = []  # as long as the member calls them

    def secure(member, descriptor):
        ours = TlsSession(accepting, "the peer")
        theirs = TlsSession(dialling, "the member", server_name="127.0.0.1")
        while not (theirs.shake_hands() & ours.shake_hands()):
            ours.feed(theirs.take())
            theirs.feed(ours.take())
        member.table.set(descriptor, TLS, ours.address)
        member.takes[descriptor] = ALL
        sessions.append(ours)
        return ours, theirs

    yield secure
    del sessions[:]


@pytest.fixture
def leader():
    made = OneMember(leads=True)
    for place in range(calls.TLS_READ, calls.CALLS):
        made.calls.table[place] = calls.SYSTEM_CALLS.table[place]
    made.tables = made.tables._replace(sealed=np.zeros(at.SEALED_BYTES, np.uint8))
    return made


def sealed(session, *data):
    for piece in data:
        session.seal(piece)
    return session.take()


def opened(session, data):
    session.feed(data)
    buffer = bytearray(ALL)
    return bytes(buffer[: session.read_into(memoryview(buffer))])


def sent_to(member, descriptor):
    return [
        data for call, to, data in (done for done in member.done if done[0] == "send") if to == descriptor
    ]


def test_what_a_client_sends_is_opened_and_what_it_gets_is_sealed(leader, over_tls):
    _, client = over_tls(leader, CLIENT_A)
    assert leader.turn((CLIENT_A, sealed(client, ingress(1, [b"one"]), ingress(1, [b"two"])))) == 0
    assert leader.told[0] == ("write", BEGIN, [ONE, TWO])
    leader.turn(leader.report(1, END))
    (data,) = sent_to(leader, CLIENT_A)
    assert messages(np.frombuffer(opened(client, data), np.uint8)) == ANSWERS
    assert leader.table.get(CLIENT_A, STATE) == 0


def test_a_record_that_comes_in_two_is_taken_when_it_is_whole(leader, over_tls):
    _, client = over_tls(leader, CLIENT_A)
    record = sealed(client, ingress(1, [b"one", b"two"]))
    assert leader.turn((CLIENT_A, record[:50])) == 0 and leader.told == []
    assert leader.turn((CLIENT_A, record[50:])) == 0
    assert leader.told[0] == ("write", BEGIN, [ONE, TWO])


def test_links_carry_the_same_envelopes(leader, over_tls):
    (_, from_1), (_, to_2) = over_tls(leader, FROM[1]), over_tls(leader, TO[2])
    leader.turn((CLIENT_A, ingress(1, [b"one", b"two"])))
    data = opened(to_2, b"".join(sent_to(leader, TO[2])))
    del leader.takes[TO[2]]
    assert leader._frames(TO[2], data) == [ONE, TWO]

    descriptor, envelope = leader.report(1, END)
    leader.takes[TO[2]] = ALL
    leader.turn((descriptor, sealed(from_1, envelope)))
    assert leader.committed == END


@pytest.mark.parametrize("taken", [0, 10])
def test_what_the_socket_does_not_take_is_python_s_to_send_before_all_else(leader, over_tls, taken):
    ours, client = over_tls(leader, CLIENT_A)
    leader.turn((CLIENT_A, sealed(client, ingress(1, [b"one", b"two"]))))
    leader.takes[CLIENT_A] = taken
    assert leader.turn(leader.report(1, END)) == at.UNSENT
    assert leader.table.get(CLIENT_A, STATE) == IS_QUEUED
    assert leader.tables.unsent[: leader.word(at.UNSENT_END)].view(np.int64).tolist() == [CLIENT_A, 0]

    ours.seal(b"and then")
    data = opened(client, b"".join([*sent_to(leader, CLIENT_A), ours.take()]))
    assert messages(np.frombuffer(data[:-8], np.uint8)) == ANSWERS and data[-8:] == b"and then"


def test_no_more_is_sealed_than_a_piece_that_the_socket_does_not_take(leader, over_tls):
    ours, client = over_tls(leader, CLIENT_A)
    data = np.arange(5 * at.SEALED_BYTES, dtype=np.uint8)
    leader.takes[CLIENT_A] = 100
    first, second = data[:-10], data[-10:]
    taken = send(leader.tables, CLIENT_A, first.ctypes.data, len(first), second.ctypes.data, len(second))
    assert taken == at.SEALED_BYTES, "more of it would be in nobody's bound"
    assert leader.table.get(CLIENT_A, STATE) == IS_QUEUED
    received = opened(client, b"".join([*sent_to(leader, CLIENT_A), ours.take()]))
    assert received == data[:taken].tobytes()


def test_a_damaged_record_is_python_s_to_refuse_and_nothing_of_it_is_taken(leader, over_tls):
    (ours, client), (others, _) = over_tls(leader, CLIENT_A), over_tls(leader, CLIENT_B)
    good, bad = sealed(client, ingress(1, [b"one"])), bytearray(sealed(client, ingress(1, [b"two"])))
    bad[-1] ^= 1
    assert leader.turn((CLIENT_A, good + bad)) == at.FRAMES
    assert [leader.word(place) for place in (at.GIVEN, at.GIVEN_BEGIN, at.GIVEN_END)] == [CLIENT_A, 0, 0]
    assert leader.told[0] == ("write", BEGIN, [ONE])
    buffer = memoryview(bytearray(10))
    assert others.read_into(buffer) == 0, "it was not theirs"
    with pytest.raises(TlsFailed, match="TLS with the peer: what came is no record of this session"):
        ours.read_into(buffer)
    with pytest.raises(TlsFailed, match="is no record of this session"):
        ours.seal(b"more")
    assert leader.turn(leader.report(1, BEGIN + 96)) == at.UNSENT, "nor is anything sent past it"
    assert others.read_into(buffer) == 0


def test_the_end_of_a_session_is_pythons(leader, over_tls):
    ours, client = over_tls(leader, CLIENT_A)
    client.end()
    assert leader.turn((CLIENT_A, client.take())) == at.FRAMES
    assert ours.read_into(memoryview(bytearray(10))) is None


def test_a_session_that_takes_nothing_more_leaves_no_error_to_another(leader, over_tls):
    (ours, _), (others, _) = over_tls(leader, CLIENT_A), over_tls(leader, CLIENT_B)
    data = np.zeros(10, np.uint8)
    ours.end()
    assert send(leader.tables, CLIENT_A, data.ctypes.data, len(data), 0, 0) == 0
    assert others.read_into(memoryview(bytearray(10))) == 0


def test_what_has_no_room_waits_in_the_session_for_python(leader, over_tls):
    ours, client = over_tls(leader, CLIENT_A)
    ours.feed(sealed(client, b"\0" * leader.tables.received.size))
    leader.turn((CLIENT_A, sealed(client, b"\0" * 100)))
    assert leader.word(at.REASON) & at.FRAMES and ours.has_unread


def test_the_address_of_a_session_is_had_only_where_it_is_certain(certificates, monkeypatch):
    context = client_context(certificates.trust)
    session = context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="x")
    assert session_address(session) != 0

    of_another_python = SimpleNamespace(_sslobj=[0] * 100, context=context)
    assert session_address(of_another_python) == 0
    monkeypatch.setattr("cluster.log.openssl.LIBRARY", object())
    assert session_address(session) == 0
