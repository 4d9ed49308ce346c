"""Clients and readers over TLS, on real ports: who gets in, who does not, and what each is told."""

import shutil
import socket
import ssl
import time
from datetime import datetime, timedelta

import pytest

from cluster.client.cluster_client import ClusterClient
from cluster.errors import ConfigurationError, TlsFailed
from cluster.node.authority import CertificateRequest
from cluster.transport import member_tls
from cluster.transport.certificates import member_name
from cluster.transport.endpoint import Endpoint, Medium
from cluster.transport.log_client import open_log_client
from cluster.transport.member_tls import MemberTls
from cluster.transport.tls import TlsFiles
from tests.client.leader import Leader
from tests.transport.authorities import Certificates
from tests.transport.echo_port import servers
from tests.transport.tls_peer import TlsPeer

DEADLINE_S = 20


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("certs"))


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    """Another authority, which nobody here believes."""
    return Certificates(tmp_path_factory.mktemp("others"))


@pytest.fixture
def lead(tmp_path):
    """A function: a leader that echoes, with the TLS that it is given."""
    leaders = []

    def start(tls):
        leaders.append(Leader(tmp_path, tls))
        return leaders[-1]

    yield start
    for leader in leaders:
        leader.stop()


def roundtrip(endpoints, tls, payload=b"hello"):
    got = []
    with ClusterClient.connect(
        endpoints, lambda _id, _time, echoed: got.append(bytes(echoed)), tls=tls
    ) as client:
        assert client.offer(payload) > 0
        deadline = time.monotonic() + DEADLINE_S
        while not got:
            assert time.monotonic() < deadline
            client.poll_egress()
            time.sleep(0.001)
    return got


@pytest.mark.parametrize("medium", ["tcp", "grpc"])
@pytest.mark.parametrize("asks_clients", [False, True], ids=["chain", "mutual"])
def test_messages_go_there_and_back(certificates, lead, medium, asks_clients):
    leader = lead(certificates.tls_of(0, asks_clients=asks_clients))
    tls = certificates.client("alice") if asks_clients else certificates.trust
    assert roundtrip(leader.endpoints[medium], tls) == [b"hello"]
    assert leader.certificate_names == ["alice" if asks_clients else None]


def test_a_message_longer_than_all_buffers_goes_there_and_back(certificates, lead):
    leader = lead(certificates.tls_of(0))
    payload = bytes(range(256)) * 700
    assert roundtrip(leader.endpoints["tcp"], certificates.trust, payload) == [payload]


@pytest.mark.parametrize("medium", ["tcp", "grpc"])
class TestWhoDoesNotGetIn:
    """Each is told in one line, at once."""

    @pytest.fixture(autouse=True)
    def _at_once(self):
        began = time.monotonic()
        yield
        assert time.monotonic() - began < 4

    def refusal(self, leader, medium, tls):
        with pytest.raises(TlsFailed) as refused:
            ClusterClient.connect(leader.endpoints[medium], tls=tls, message_timeout_s=DEADLINE_S)
        text = str(refused.value)
        assert "\n" not in text
        assert "ssl.c" not in text
        return text

    def test_a_client_that_does_not_know_the_authority(self, certificates, others, lead, medium):
        text = self.refusal(lead(certificates.tls_of(0)), medium, others.trust)
        assert "the certificate of" in text
        assert "was issued by 'cluster certificate authority" in text

    def test_a_client_that_meant_another_host(self, certificates, lead, medium, tmp_path):
        elsewhere = Certificates(tmp_path / "elsewhere")
        tls = MemberTls(elsewhere.member(0, "db.example.com"), 0, 0, asks_clients=False)
        text = self.refusal(lead(tls), medium, elsewhere.trust)
        assert "is for member-0.cluster-0, db.example.com, not for 127.0.0.1" in text

    def test_a_client_without_the_certificate_that_is_asked_for(self, certificates, lead, medium):
        leader = lead(certificates.tls_of(0, asks_clients=True))
        text = self.refusal(leader, medium, certificates.trust)
        assert "asks for a client's certificate" in text

    def test_a_client_with_a_certificate_of_another_authority(self, certificates, others, lead, medium):
        leader = lead(certificates.tls_of(0, asks_clients=True))
        stranger = others.client("alice")
        tls = TlsFiles(certificates.trust.ca, stranger.certificate, stranger.key)
        expected = {
            "tcp": "does not know the authority that issued our certificate",
            "grpc": f"does not accept our certificate {stranger.certificate}",
        }
        assert expected[medium] in self.refusal(leader, medium, tls)

    def test_a_client_whose_certificate_has_expired(self, certificates, lead, medium):
        leader = lead(certificates.tls_of(0, asks_clients=True))
        tls = certificates.expired(CertificateRequest.of_client("late"))
        expected = {"tcp": "says that our certificate has expired", "grpc": "does not accept our certificate"}
        assert expected[medium] in self.refusal(leader, medium, tls)

    def test_a_client_without_tls(self, certificates, lead, medium):
        assert "speaks TLS" in self.refusal(lead(certificates.tls_of(0)), medium, None)

    def test_a_client_with_tls_where_there_is_none(self, certificates, lead, medium):
        text = self.refusal(lead(None), medium, certificates.trust)
        assert "expected a port that speaks TLS" in text or "does not speak TLS" in text


@pytest.mark.parametrize("name", ["ca", "certificate", "key"])
def test_a_file_that_will_not_do_is_named_before_anything_is_sent(certificates, tmp_path, name):
    good = certificates.client("alice")
    bad = tmp_path / "bad.pem"
    paths = {"ca": good.ca, "certificate": good.certificate, "key": good.key, name: str(bad)}
    for content in (None, b"no PEM"):
        if content is not None:
            bad.write_bytes(content)
        with pytest.raises(ConfigurationError, match=str(bad)):
            ClusterClient.connect("0=tcp:127.0.0.1:1", tls=TlsFiles(**paths))


def test_the_key_of_another_certificate_is_named(certificates):
    alice, bob = certificates.client("alice"), certificates.client("bob")
    with pytest.raises(ConfigurationError, match=f"expected the key of the certificate {alice.certificate}"):
        ClusterClient.connect("0=tcp:127.0.0.1:1", tls=TlsFiles(alice.ca, alice.certificate, bob.key))


def test_a_certificate_without_its_key_is_refused(certificates):
    with pytest.raises(ConfigurationError, match="certificate is given without key"):
        TlsFiles(certificates.trust.ca, "alice.pem")


def test_sockets_speak_tls_13_alone_and_grpc_12_too(certificates, lead):
    leader = lead(certificates.tls_of(0))
    spoken = {}
    for medium in ("tcp", "grpc"):
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context = ssl.create_default_context(cafile=certificates.trust.ca)
            context.minimum_version = context.maximum_version = version
            context.set_alpn_protocols(["h2"])
            port = int(leader.endpoints[medium].rpartition(":")[2])
            with socket.create_connection(("127.0.0.1", port), DEADLINE_S) as sock:
                try:
                    with context.wrap_socket(sock, server_hostname="localhost") as wrapped:
                        spoken[medium, wrapped.version()] = wrapped.cipher()[0]
                except OSError:
                    spoken[medium, version.name] = None
    assert spoken["tcp", "TLSv1_2"] is None
    assert spoken["tcp", "TLSv1.3"].startswith("TLS_")
    assert spoken["grpc", "TLSv1.2"].startswith("ECDHE-ECDSA-")
    assert spoken["grpc", "TLSv1.3"].startswith("TLS_")


def _own(files):
    return files.certificate, files.key


def test_what_a_member_shows_is_its_own_and_valid(certificates, others, tmp_path):
    wrong = {
        "expected member-1.cluster-0 as its common name": certificates.member(0),
        "and it is 20": others.expired(CertificateRequest.of_member(1, 0, ())),
        "refuse it: the certificate of this member was issued by 'cluster cert": TlsFiles(
            certificates.trust.ca, *_own(Certificates(tmp_path / "third").member(1))
        ),
        "nowhere.pem: cannot be read": TlsFiles(certificates.trust.ca, "nowhere.pem", "nowhere.key"),
    }
    for text, files in wrong.items():
        with pytest.raises(ConfigurationError, match=text):
            MemberTls(files, 1, 0, asks_clients=False)


def test_new_files_are_taken_and_broken_ones_are_not(certificates, tmp_path, lead):
    mine = Certificates(tmp_path / "mine")
    tls = mine.tls_of(0)
    leader = lead(tls)
    assert not tls.refresh()
    for name in ("member-0.pem", "member-0.key"):
        (mine.folder / name).write_bytes(b"broken")
    with pytest.raises(ConfigurationError, match="expected a certificate in PEM"):
        tls.refresh()
    assert roundtrip(leader.endpoints["tcp"], mine.trust) == [b"hello"]
    new = Certificates(tmp_path / "new")
    issued = new.member(0)
    old = TlsFiles(shutil.copy(mine.trust.ca, tmp_path / "old.pem"))
    shutil.copy(new.trust.ca, mine.trust.ca)
    shutil.copy(issued.certificate, mine.folder / "member-0.pem")
    shutil.copy(issued.key, mine.folder / "member-0.key")
    assert tls.refresh()
    for medium in ("tcp", "grpc"):
        leader.log.clear()
        assert roundtrip(leader.endpoints[medium], new.trust) == [b"hello"]
        with pytest.raises(TlsFailed):
            ClusterClient.connect(leader.endpoints[medium], tls=old)


def test_what_fails_for_a_moment_is_reported_once_and_looked_at_again(tmp_path, monkeypatch):
    mine = Certificates(tmp_path)
    tls, shown = mine.tls_of(0), mine.folder / "member-0.pem"
    before = tls.pem["certificate"]

    class Yesterday(datetime):  # what a certificate of now is too early for
        @classmethod
        def now(cls, tz=None):
            return super().now(tz) - timedelta(days=1)

    shown.unlink()
    shown.with_suffix(".key").unlink()
    mine.member(0)  # issued again
    with monkeypatch.context() as early:
        early.setattr(member_tls, "datetime", Yesterday)
        with pytest.raises(ConfigurationError, match="is valid from"):
            tls.refresh()
        assert not tls.refresh()
    assert tls.pem["certificate"] == before
    assert tls.refresh() and not tls.refresh()
    assert tls.pem["certificate"] == shown.read_bytes() != before


def test_the_name_of_a_member_is_that_of_its_cluster():
    assert member_name(2, 7) == "member-2.cluster-7"


@pytest.mark.parametrize("medium", [Medium.TCP, Medium.GRPC])
def test_a_reader_is_told_what_a_client_is(certificates, others, lead, medium):
    leader = lead(certificates.tls_of(0))
    port = int(leader.endpoints[medium.value].rpartition(":")[2])
    for tls, text in ((others.trust, "was issued by"), (None, "speaks TLS")):
        client = open_log_client(Endpoint(medium, "127.0.0.1", port), 5.0, tls)
        with pytest.raises(TlsFailed, match=text):
            client.status()
        client.close()


def test_who_fails_at_its_certificate_is_named_by_address_and_as_a_failure_of_tls(certificates):
    with servers() as make:
        server = make(Endpoint(Medium.TCP, "127.0.0.1", 0), tls=certificates.tls_of(2, asks_clients=True))
        files = certificates.expired(CertificateRequest.of_client("late"))
        sock = socket.create_connection(("127.0.0.1", server.port.endpoints[0].port))
        with TlsPeer(sock, files, server.turn, "127.0.0.1"):
            server.turn_until(lambda: server.errors)
        [error] = server.errors
        assert str(error) == "client 1 at 127.0.0.1 was cut off: the certificate of the client has expired"
        assert server.kinds == [TlsFailed]
