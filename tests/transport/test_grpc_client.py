"""A session's stream over gRPC, from the client's side: whatever ends it is said, and is an end-of-file."""

from types import SimpleNamespace

from cluster.transport import grpc_client
from cluster.transport.endpoint import parse_endpoint
from cluster.transport.tls import TlsFiles

NOWHERE = parse_endpoint("127.0.0.1:1")


def ended(stream):
    stream.sock.settimeout(20)
    assert stream.sock.recv(1) == b""
    stream.sock.close()
    return stream.explain()


def fail(*_, **__):
    raise RuntimeError("there is none")


def test_a_stream_without_its_files_or_its_thread_says_so(tmp_path, monkeypatch):
    missing = tmp_path / "ca.pem"
    why, is_tls = ended(grpc_client.open_session(NOWHERE, TlsFiles(str(missing))))
    assert f"{missing}: cannot be read" in why and not is_tls

    monkeypatch.setattr(grpc_client, "threading", SimpleNamespace(Thread=fail))
    assert ended(grpc_client.open_session(NOWHERE, None)) == ("there is none", None)


def test_what_its_thread_raises_does_not_leave_the_session_waiting(monkeypatch):
    monkeypatch.setattr(grpc_client, "diagnose_call", fail)
    assert ended(grpc_client.open_session(NOWHERE, None)) == ("gRPC has ended the stream", None)
