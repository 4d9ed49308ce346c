"""A running member under all that a stranger may send to its ports: it lives, and nobody else notices."""

import contextlib
import os
import random
import socket
import ssl
import struct
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from cluster.client import ClusterClient
from cluster.protocol import link, session
from cluster.protocol.frame import frame
from cluster.transport.endpoint import parse_endpoints
from cluster.transport.message_frames import link_frame, message_frame
from cluster.transport.tls import TlsFiles
from tests.node.processes import Up

DEADLINE_S = 30
CUT_OFF = "reset by peer|Broken pipe|EOF occurred"
HELLO = link_frame(link.Hello(-1, -1, 0, link.LINK_PROTOCOL_VERSION, link.ConnectionKind.CLIENT))
MEMBER_HELLO = link_frame(link.Hello(0, 0, 99, link.LINK_PROTOCOL_VERSION, link.ConnectionKind.MEMBER))


@pytest.fixture(scope="module", params=["in the clear", "through TLS"])
def member(request, tmp_path_factory):
    """What ``cluster up`` told of a cluster of one."""
    tls = ["--tls"] if request.param == "through TLS" else []
    with Up(tmp_path_factory.mktemp("one"), *tls, members=1) as up:
        yield up.described | {"base_port": up.base_port}
        assert up.stop()[0] == 0, "the member did not live to be stopped"


@pytest.fixture
def client(member):
    """A client that is there all the time."""
    heard = []
    with ClusterClient.connect(
        member["tcpEndpoints"],
        lambda session_id, timestamp, payload: heard.append(bytes(payload)),
        tls=TlsFiles(member["tlsCa"]) if "tlsCa" in member else None,
    ) as client:
        client.heard = heard
        yield client


def assert_is_served(client):
    """It neither lost its connection nor waits for anyone."""
    payload = os.urandom(8)
    client.heard.clear()
    assert client.offer(payload) > 0
    deadline = time.monotonic() + DEADLINE_S
    while client.heard != [payload]:
        assert time.monotonic() < deadline
        client.wait(0.1)
        client.poll_egress()
    assert not client.is_closed


def connect(member, port_name):
    if port_name == "ipc":
        sock = socket.socket(socket.AF_UNIX)
        with parse_endpoints(member["ipcEndpoints"])[0].address() as address:
            sock.connect(address)
        return sock
    offset = {"grpc": 0, "tcp": 1, "link": 2}[port_name]
    sock = socket.create_connection(("127.0.0.1", member["base_port"] + offset), timeout=DEADLINE_S)
    if "tlsCa" not in member:
        return sock
    context = ssl.create_default_context(cafile=member["tlsCa"])
    context.set_alpn_protocols(["h2"] if port_name == "grpc" else [])
    return context.wrap_socket(sock, server_hostname="127.0.0.1")


def oversized(stream_id=101):
    return struct.pack("<iBBHiiiiq", 2**30, 0, 0xC0, 1, 0, 0, stream_id, 0, 0)


# (leadership term, session) of clients that may be there.
OF_OTHERS = [(term, session_id) for term in range(3) for session_id in range(1, 300)]

STRANGERS = {
    "nothing at all": b"",
    "text": b"GET / HTTP/1.1\r\nHost: cluster\r\n\r\n",
    "zeros": bytes(10_000),
    "ones": b"\xff" * 10_000,
    "16 MiB of zeros": bytes(2**24),
    "16 MiB of ones": b"\xff" * 2**24,
    "half a header": HELLO[:16],
    "an oversized first frame": oversized(),
    "a client's Hello, then text": HELLO + b"and now something different entirely",
    "a client's Hello, then an oversized frame": HELLO + oversized(),
    "a client's Hello, then half a message": HELLO + frame(bytes(5000), session_id=0, stream_id=101)[:3000],
    "a client's Hello, then a message of no session": HELLO
    + message_frame(session.SessionMessageHeader(1, 999, 0), 101),
    "a client's Hello, then an unknown template": HELLO
    + frame(struct.pack("<HHHH", 16, 999, 111, 17) + bytes(16), session_id=0, stream_id=101),
    "a client's Hello, then a foreign schema": HELLO
    + frame(struct.pack("<HHHH", 16, 3, 999, 1) + bytes(16), session_id=0, stream_id=101),
    "a client's Hello, then a connect request cut short": HELLO
    + frame(struct.pack("<HHHH", 16, 3, 111, 17) + bytes(4), session_id=0, stream_id=101),
    "a client's Hello, then var data beyond the message": HELLO
    + frame(
        struct.pack("<HHHHqii", 16, 3, 111, 17, 1, 102, 768) + struct.pack("<I", 2**31 - 1),
        session_id=0,
        stream_id=101,
    ),
    "a client's Hello, then a group of 65,535 without one": HELLO
    + frame(
        struct.pack("<HHHHqii", 16, 81, 111, 17, 1, 768, 102) + struct.pack("<HH", 44, 65_535),
        session_id=0,
        stream_id=101,
    ),
    "a client's Hello, then a connect request of a later version": HELLO
    + frame(
        struct.pack("<HHHHqii", 48, 3, 111, 99, 1, 102, 768) + bytes(32) + struct.pack("<III", 0, 0, 0),
        session_id=0,
        stream_id=101,
    ),
    "a client's Hello, then another version": HELLO
    + message_frame(session.SessionConnectRequest(1, 102, 9 << 16, "aeron:ipc"), 101),
    "a client's Hello, then no response channel": HELLO
    + message_frame(session.SessionConnectRequest(1, 102, 768, ""), 101),
    "a client's Hello, then a response channel of 1 MiB": HELLO
    + frame(
        struct.pack("<HHHHqii", 16, 3, 111, 17, 1, 102, 768)
        + struct.pack("<I", 2**20)
        + b"x" * 2**20
        + struct.pack("<II", 0, 0),
        session_id=0,
        stream_id=101,
    ),
    "a client's Hello, then answers to no challenge": HELLO
    + message_frame(session.ChallengeResponse(1, 1, b"secret"), 101) * 2,
    "a client's Hello, then keep-alives of no session": HELLO
    + message_frame(session.SessionKeepAlive(0, 999), 101) * 10_000,
    "a client's Hello, then messages of others' sessions": HELLO
    + b"".join(message_frame(session.SessionMessageHeader(term, n, 0), 101) for term, n in OF_OTHERS),
    "a client's Hello, then closes of others' sessions": HELLO
    + b"".join(message_frame(session.SessionCloseRequest(term, n), 101) for term, n in OF_OTHERS),
    "a client's Hello, then orders in others' sessions": HELLO
    + b"".join(message_frame(session.AdminRequest(term, n, 1, 0), 101) for term, n in OF_OTHERS),
    **{
        f"a client's Hello, then a frame of {length} bytes": HELLO
        + struct.pack("<iBBHiiiiq", length, 0, 0xC0, 1, 0, 0, 101, 0, 0)
        for length in (-1, -(2**31), 0, 1, 31, 2**31 - 1)
    },
    **{
        f"a client's Hello, then {what}": HELLO
        + struct.pack("<iBBHiiiiq", 64, 0, flags, type_, 0, 0, 101, 0, 0)
        + bytes(32)
        for what, flags, type_ in (
            ("padding", 0xC0, 0),
            ("a frame of no known type", 0xC0, 0x77),
            ("a fragment that begins a message", 0x80, 1),
            ("a fragment that ends none", 0x40, 1),
            ("a fragment of the middle", 0, 1),
        )
    },
    "a client's Hello, then consensus messages": HELLO + frame(bytes(100), session_id=0, stream_id=108),
    "a member's Hello under our own id": MEMBER_HELLO,
    "a member's Hello of another cluster": link_frame(
        link.Hello(7, 1, 1, link.LINK_PROTOCOL_VERSION, link.ConnectionKind.MEMBER)
    ),
}


@pytest.mark.parametrize("stranger", STRANGERS.values(), ids=STRANGERS.keys())
@pytest.mark.parametrize("port_name", ["grpc", "tcp", "link", "ipc"])
def test_a_stranger_disturbs_nobody(member, client, port_name, stranger):
    with connect(member, port_name) as sock:
        with contextlib.suppress(OSError):  # the member has cut it off
            sock.sendall(stranger)
        assert_is_served(client)
    assert_is_served(client)


@pytest.mark.parametrize("port_name", ["grpc", "tcp", "link", "ipc"])
def test_who_closes_his_half_and_waits_is_let_go(member, client, port_name):
    """After a whole message, and in the middle of one. Over TLS that is the end of the connection."""
    request = HELLO + message_frame(session.SessionConnectRequest(1, 102, 768, "aeron:ipc"), 101)
    for data in (request, request[:-8]):
        with connect(member, port_name) as sock:
            sock.settimeout(DEADLINE_S)
            with contextlib.suppress(OSError):
                sock.sendall(data)
                sock.shutdown(socket.SHUT_WR)
                while sock.recv(4096):  # the member answers what was whole, and closes its own half
                    pass
    assert_is_served(client)


def test_a_message_without_a_byte_is_one(member, client):
    client.heard.clear()
    assert client.offer(b"") > 0
    deadline = time.monotonic() + DEADLINE_S
    while client.heard != [b""]:
        assert time.monotonic() < deadline
        client.wait(0.1)
        client.poll_egress()
    assert_is_served(client)


@pytest.mark.parametrize("port_name", ["tcp", "link", "ipc"])
def test_random_bytes_in_place_of_frames_disturb_nobody(member, client, port_name):
    chance = random.Random(port_name)
    whole = HELLO + message_frame(session.SessionConnectRequest(1, 102, 768, "aeron:ipc"), 101) * 3
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(chance.randrange(1, 6)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        with connect(member, port_name) as sock, contextlib.suppress(OSError):
            sock.sendall(data)
    assert_is_served(client)


def send_without_reading(member, port_name):
    """Open a session by hand, send a lot, and read only until the session is open."""
    with connect(member, port_name) as slow:
        slow.settimeout(DEADLINE_S)
        request = session.SessionConnectRequest(1, 102, 768, "aeron:ipc")
        slow.sendall(HELLO + message_frame(request, 101))
        received = b""
        while b"\x02\x00\x6f\x00" not in received:  # a SessionEvent of schema 111
            received += slow.recv(4096)
        at = received.index(b"\x02\x00\x6f\x00") - 2
        event = session.SessionEvent.decode(received, at)
        header = session.SessionMessageHeader(event.leadership_term_id, event.cluster_session_id, 0)
        message = frame(header.encode() + bytes(50_000), session_id=0, stream_id=101)
        with pytest.raises(OSError, match=CUT_OFF):
            for _ in range(1000):
                slow.sendall(message * 20)


def test_a_client_that_does_not_read_its_answers_is_cut_off(member, client):
    """First it is not heard further, then it has taken nothing for ten seconds; both ports wait at once."""
    with ThreadPoolExecutor() as threads:
        ends = [threads.submit(send_without_reading, member, port_name) for port_name in ("tcp", "ipc")]
        assert_is_served(client)
        for end in ends:
            end.result()
    assert_is_served(client)
