"""At a wrong port the error says what the other side speaks, and where nobody listens, why it failed."""

import contextlib
import re
import socket
import threading

import pytest

from cluster import ClusterClient, LogReader
from cluster.errors import ClusterError, RemoteProtocolError, TimedOut
from cluster.protocol import link
from cluster.transport import tls_socket
from cluster.transport.endpoint import parse_endpoint
from cluster.transport.grpc_client import open_session
from cluster.transport.log_client import open_log_client
from cluster.transport.message_frames import link_frame
from cluster.transport.other_protocols import spoken_by
from tests.transport.echo_port import DEADLINE_S
from tests.transport.linked_members import sealed

HELLO_REPLY = link_frame(
    link.HelloReply(0, 1, 0, link.LINK_PROTOCOL_VERSION, link.LinkErrorCode.OK, 1024, "")
)
SETTINGS = bytes.fromhex("00001e0400000000000003000004400004004000000005004000000006000040")
SIDE = "the other side speaks"
TCP, GRPC, HTTP = f"{SIDE} tcp:", f"{SIDE} gRPC (HTTP/2)", f"{SIDE} HTTP/1"
MEMBERS = f"{SIDE} as members do"


@pytest.fixture
def port():
    """Makes a port that answers each connection with the same bytes, once it was sent something."""
    listeners = []

    def accept(listener, *how):
        with contextlib.suppress(OSError):  # closed
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0], *how), daemon=True).start()

    def serve(sock, answer, end):
        with sock, contextlib.suppress(OSError):
            sent = b""
            while (data := sock.recv(4096)) and end not in (sent := sent + data):
                pass
            sock.sendall(answer)

    def make(answer, end=b""):
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)
        threading.Thread(target=accept, args=(listener, answer, end), daemon=True).start()
        return f"127.0.0.1:{listener.getsockname()[1]}"

    yield make
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


@pytest.mark.parametrize(
    ("answer", "end", "says"),
    [
        (HELLO_REPLY, b"", TCP),
        (sealed(HELLO_REPLY), b"", MEMBERS),
        (b"HTTP/1.1 400 Bad Request\r\nServer: of files\r\n\r\n", b"\r\n\r\n", HTTP),
        (b"", b"", "closed the connection"),
    ],
)
def test_over_grpc_both_a_session_and_a_reader_say_what_else_is_spoken_there(port, answer, end, says):
    endpoint = parse_endpoint(port(answer, end))
    stream = open_session(endpoint, None)
    stream.sock.settimeout(DEADLINE_S)
    with stream.sock:
        assert stream.sock.recv(1) == b""
    client = open_log_client(endpoint, DEADLINE_S)
    with pytest.raises(ClusterError) as raised:
        client.status()
    client.close()
    for text in (stream.explain()[0], str(raised.value)):
        assert says in text and "UNAVAILABLE" not in text
    assert (f"use tcp:{endpoint}" in str(raised.value)) is (says is TCP)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (SETTINGS, GRPC),
        (b"HTTP/1.1 400 Bad Request\r\nServer: of files\r\n\r\n", HTTP),
        (sealed(HELLO_REPLY), MEMBERS),
    ],
)
def test_over_tcp_a_reader_says_what_else_is_spoken_there(port, answer, says):
    where = f"tcp:{port(answer)}"
    with pytest.raises(ClusterError, match=f"{where}: ") as raised:
        open_log_client(parse_endpoint(where), DEADLINE_S).status()
    assert says in str(raised.value)


def test_where_nobody_listens_or_no_host_is_the_reason_is_no_status_of_grpc(monkeypatch):
    for where, says in (("127.0.0.1:1", "Connection refused"), ("nowhere.invalid:1", "does not resolve")):
        client = open_log_client(parse_endpoint(where), DEADLINE_S)
        with pytest.raises(ClusterError, match=f"{where}: .*{says}"):
            client.status()
        client.close()


def test_requests_of_other_protocols_are_known_too():
    assert spoken_by(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").startswith(GRPC)
    assert spoken_by(b"GET / HTTP/1.1\r\n").startswith(HTTP) and spoken_by(b"\0\0\0") == ""
    assert tls_socket.who_listens(parse_endpoint("127.0.0.1:1")) == ("Connection refused", None)


@pytest.mark.parametrize(
    ("medium", "answer", "says"),
    [
        ("", HELLO_REPLY, TCP),
        ("tcp:", SETTINGS, GRPC),
        ("", sealed(HELLO_REPLY), MEMBERS),
        ("tcp:", sealed(HELLO_REPLY), MEMBERS),
    ],
    ids=["grpc to tcp", "tcp to grpc", "grpc to members", "tcp to members"],
)
def test_nobody_tries_any_longer_where_something_else_is_spoken_at_all_endpoints(port, medium, answer, says):
    where = f"{medium}{port(answer)}"
    with pytest.raises(RemoteProtocolError, match=f"no member answers: {where}: .*{re.escape(says)}"):
        LogReader.open(endpoints=where)
    with pytest.raises(RemoteProtocolError, match=f"no session: {where}: ") as raised:
        ClusterClient.connect(where, message_timeout_s=60 * DEADLINE_S)
    assert says in str(raised.value)
    with pytest.raises(TimedOut):
        ClusterClient.connect(f"{where},{medium}127.0.0.1:1", message_timeout_s=1.5)
