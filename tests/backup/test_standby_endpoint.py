"""Who is served at the endpoint of a standby: readers and members, with TLS and without."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from pathlib import Path

import pytest

from cluster import ClusterClient, LogReader, TokenCredentials
from cluster.errors import AuthenticationRejected, ClusterError, ConfigurationError
from cluster.node import machine
from cluster.node.authority import CertificateRequest
from cluster.node.backup_config import BackupConfig, load_backup_config
from cluster.protocol.backup import StandbySnapshot, StandbySnapshotRecording
from cluster.protocol.streams import CONSENSUS
from cluster.protocol.versions import CLIENT_PROTOCOL_VERSION
from cluster.reader.member_request import MemberRequest
from cluster.security.principals import put, token_digest
from cluster.transport.credentials import as_supplier
from cluster.transport.dialler import Dialler
from cluster.transport.endpoint import parse_endpoints
from cluster.transport.log_client import Unreachable
from tests.backup.running_standby import member, standby, take_snapshot
from tests.node.processes import await_that, endpoints_of, free_base_port, run, tool
from tests.transport.authorities import Certificates


@pytest.fixture
def certificates(tmp_path):
    (tmp_path / "certs").mkdir()
    return Certificates(tmp_path / "certs")


def fetch(node):
    """Have the member fetch the snapshot; its status and what it says."""
    done = tool(node, "replicate-standby-snapshot")
    return done.returncode, done.stderr


def payloads(config, **who):
    with LogReader.open(endpoints=config.endpoint, **who) as log:
        return [bytes(entry["payload"]) for entry in log.entries(entry_types=["SESSION_MESSAGE"])]


def audited(config):
    lines = (config.path / "audit.log").read_text().splitlines()
    return [(line["principal"], line["what"], line["why"]) for line in map(json.loads, lines)]


@pytest.mark.slow
def test_over_tls_a_member_comes_with_its_certificate_and_readers_by_their_rights(tmp_path, certificates):
    files = certificates.issue(CertificateRequest.of_backup("east", ()))
    keys = {"authenticator": "certificate", "authorisation": str(tmp_path / "rights")}
    alice, bob = certificates.client("alice"), certificates.client("bob")
    with (
        member(tmp_path, certificates.member(0)) as node,
        standby(tmp_path, node, files, tls_client_certificates="required", **keys) as config,
    ):
        take_snapshot(node, certificates.trust)
        assert fetch(node) == (0, "")
        assert b"1" in payloads(config, tls=alice)
        with pytest.raises(AuthenticationRejected, match="no right to read"):
            payloads(config, tls=bob)
        assert ("bob", "to read", "no right to read") in audited(config)
        for refused in (certificates.trust, None):
            with pytest.raises(ClusterError, match=r"certificate|TLS"):
                payloads(config, tls=refused)
        assert b"1" in payloads(config, tls=alice), "strangers changed nothing"


def test_without_tls_a_member_comes_with_its_token_and_is_refused_with_another(tmp_path):
    put(str(tmp_path / "tokens"), "alice", token_digest(b"of alice"))
    (tmp_path / "token").write_text("of nobody\n")
    keys = {"authenticator": "token", "authenticator_file": f"{tmp_path}/tokens"}
    with (
        member(tmp_path, standby_token_file=f"{tmp_path}/token") as node,
        standby(tmp_path, node, authorisation=f"{tmp_path}/rights", **keys) as config,
    ):
        take_snapshot(node)
        status, _ = fetch(node)
        assert status == 1
        assert "reader failed authentication" in (node.config.path / "node.log").read_text()
        assert ("", "to read", "an unknown token") in audited(config)
        (tmp_path / "token").write_text("of alice\n")
        assert fetch(node) == (0, ""), "the token is read when it is shown"
        with pytest.raises(AuthenticationRejected):
            payloads(config)
        assert b"1" in payloads(config, credentials=TokenCredentials(tmp_path / "token"))


def test_an_administrator_has_it_fetched_over_the_network_and_nobody_else(tmp_path):
    for name in ("operator", "reader"):
        put(str(tmp_path / "tokens"), name, token_digest(f"of {name}".encode()))
        (tmp_path / f"{name}.token").write_text(f"of {name}\n")
    (tmp_path / "members-rights").write_text("operator: admin, write, read\nreader: read\n")
    asks = {
        "authenticator": "token",
        "authenticator_file": f"{tmp_path}/tokens",
        "authorisation": f"{tmp_path}/members-rights",
    }
    with (
        member(tmp_path, **asks) as node,
        standby(tmp_path, node, token_file=f"{tmp_path}/reader.token"),
    ):
        take_snapshot(node, credentials=TokenCredentials(tmp_path / "operator.token"))
        at = ("--endpoints", endpoints_of(node, "grpc"), "--token-file")
        refused = run("tool", "replicate-standby-snapshot", *at, f"{tmp_path}/reader.token")
        assert refused.returncode == 1 and "no right to" in refused.stderr
        done = run("tool", "replicate-standby-snapshot", *at, f"{tmp_path}/operator.token", "--json")
        assert json.loads(done.stdout)["outcome"] == "completed", done.stderr
        assert "type=SNAPSHOT" in tool(node, "recording-log", "--raw").stdout


def test_a_renewed_certificate_is_shown_without_a_restart(tmp_path, certificates):
    request = CertificateRequest.of_backup("east", ())
    files = certificates.issue(request)
    with (
        member(tmp_path, certificates.member(0)) as node,
        standby(tmp_path, node, files) as config,
    ):
        take_snapshot(node, certificates.trust)
        assert b"1" in payloads(config, tls=certificates.trust)
        (tmp_path / "other").mkdir()
        other = Certificates(tmp_path / "other")
        renewed = other.issue(request)
        for name in ("ca", "certificate", "key"):
            Path(getattr(files, name)).write_bytes(Path(getattr(renewed, name)).read_bytes())
        await_that(
            lambda: "read again" in (config.path / "backup.log").read_text(), "the files are read again"
        )
        assert b"1" in payloads(config, tls=other.trust)


STRANGERS = {
    "nothing": b"",
    "text": b"GET / HTTP/1.1\r\nHost: standby\r\n\r\n",
    "zeros": bytes(10_000),
    "ones": b"\xff" * 10_000,
    "a TLS record without an end": b"\x16\x03\x01\xff\xff" + bytes(100),
    "the preface of HTTP/2, then ones": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 1_000,
}


@pytest.mark.parametrize("is_tls", [False, True], ids=["in the clear", "through TLS"])
def test_strangers_at_its_port_disturb_nobody(tmp_path, certificates, is_tls):
    trust = certificates.trust if is_tls else None
    files = certificates.issue(CertificateRequest.of_backup("east", ())) if is_tls else None
    with (
        member(tmp_path, certificates.member(0) if is_tls else None) as node,
        standby(tmp_path, node, files) as config,
        contextlib.ExitStack() as connections,
    ):
        host, _, port = config.endpoint.rpartition(":")
        for data in list(STRANGERS.values()) * 5:
            stranger = socket.create_connection((host, int(port)))
            connections.callback(stranger.close)
            with contextlib.suppress(OSError):
                stranger.sendall(data)
        with pytest.raises(ClusterError, match="a backup, which serves the log to readers alone"):
            ClusterClient.connect(config.endpoint, tls=trust, message_timeout_s=2)
        take_snapshot(node, trust)
        assert fetch(node) == (0, "")
        assert b"1" in payloads(config, tls=trust)


def announce(node, endpoint, position=64):
    """Say in the name of a standby that it has a snapshot."""
    request = StandbySnapshot(
        1,
        CLIENT_PROTOCOL_VERSION,
        CONSENSUS,
        tuple(StandbySnapshotRecording(7, 0, 0, position, 0, i, endpoint) for i in (-1, 0)),
        "standby",
    )
    world = Dialler()
    [at] = parse_endpoints(endpoints_of(node, "tcp")).values()
    said = MemberRequest(at, world, as_supplier(b""), 0, request)

    def is_taken():
        try:
            assert said.poll() is None
        except Unreachable:
            return said.is_sent
        return False

    await_that(is_taken, "the member takes it")
    world.close()


def test_a_standby_that_is_gone_stalls_or_talks_nonsense_costs_a_member_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "STANDBY_TIMEOUT_S", 1.0)
    with (
        member(tmp_path) as node,
        socket.create_server(("127.0.0.1", 0)) as silent,
        socket.create_server(("127.0.0.1", 0)) as babbling,
    ):
        await_that(lambda: node.is_leader, "a leader")
        with ClusterClient.connect(endpoints_of(node, "ipc")) as client:
            assert client.offer(b"1") > 0
            client.await_committed()
            thread = threading.Thread(target=_babble, args=(babbling,), daemon=True)
            thread.start()
            gone = free_base_port(1)
            ports = [gone, silent.getsockname()[1], babbling.getsockname()[1]]
            for port in ports:
                announce(node, f"127.0.0.1:{port}")
                announce(node, f"tcp:127.0.0.1:{port}")
            status, _ = fetch(node)
            assert status == 1
            told = (node.config.path / "node.log").read_text()
            for port in ports:
                assert told.count(f"127.0.0.1:{port}") >= 3, "each was tried, and failed"
            assert "no snapshot of a standby was replicated" in told
            assert client.offer(b"2") > 0
            client.await_committed()
        assert "type=SNAPSHOT" not in tool(node, "recording-log", "--raw").stdout


def _babble(server):
    with contextlib.suppress(OSError):
        while True:
            peer, _ = server.accept()
            with peer:
                peer.sendall(b"\x00\xff" * 5_000)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('endpoint = "nowhere"', "endpoint"),
        ('endpoint = "tcp:127.0.0.1:9100"', "expected host:port"),
        ('endpoint = "127.0.0.1:0"', "expected host:port"),
        ('endpoint = "0.0.0.0:9100"', "not on loopback"),
        ('endpoint = "0.0.0.0:9100"\nauthenticator = "token"', "not on loopback"),
        ('endpoint = "127.0.0.1:9100"\ntls_client_certificates = "required"', "without tls_certificate"),
        ('authenticator = "token"', "expected an endpoint"),
    ],
)
def test_an_endpoint_that_will_not_do_is_named(tmp_path, text, what):
    path = tmp_path / "standby.toml"
    path.write_text(f'endpoints = "127.0.0.1:9000"\n{text}\n')
    with pytest.raises(ConfigurationError, match=what):
        load_backup_config(path, {})


def test_beyond_loopback_it_takes_tls_and_an_authenticator_or_a_word(tmp_path):
    guarded = {"tls_ca": "ca.pem", "tls_certificate": "b.pem", "tls_key": "b.key", "authenticator": "token"}
    for keys in (guarded, {"insecure_network": True}):
        assert BackupConfig(endpoints="h:1", endpoint="0.0.0.0:9100", **keys).endpoint == "0.0.0.0:9100"


def test_a_clients_certificate_is_refused_with_what_makes_another(tmp_path, certificates):
    files = certificates.client("alice")
    config = tmp_path / "standby.toml"
    config.write_text(
        f'endpoints = "127.0.0.1:1"\ndir = "{tmp_path}/standby"\nendpoint = "127.0.0.1:{free_base_port(1)}"\n'
        f'tls_ca = "{files.ca}"\ntls_certificate = "{files.certificate}"\ntls_key = "{files.key}"\n'
    )
    refused = run("backup", "--config", str(config))
    assert refused.returncode == 2
    assert f"tls_certificate = {files.certificate}: is a client's, of 'alice'" in refused.stderr
