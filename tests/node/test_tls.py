"""A member that speaks TLS: its doors, its start with files that will not do, and new files while it runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from cluster import AuthenticationRejected, ClusterNode, LogReader, TlsFailed, TlsFiles
from cluster.cli.main import main
from cluster.errors import ClusterError
from cluster.node.authority import CertificateRequest
from cluster.node.config_text import write
from cluster.transport.certificates import read_certificate
from tests.node.processes import ask, await_that, free_base_port, keys_of, run
from tests.transport.authorities import Certificates


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("certs"))


def tls_keys(files, **others):
    return {"tls_ca": files.ca, "tls_certificate": files.certificate, "tls_key": files.key, **others}


@pytest.fixture
def keys(tmp_path, certificates):
    """Of a member that lets in whoever shows a certificate of the authority."""
    files = certificates.member(0)
    return keys_of(tmp_path, **tls_keys(files, tls_client_certificates="required"))


def doors(node):
    """Its endpoints, by medium."""
    grpc = node.config.member.ingress_endpoint
    return {"grpc": f"0={grpc}", "tcp": f"0=tcp:{node.config.tcp_ingress_of(node.config.member)}"}


def test_clients_and_readers_come_in_by_their_certificates(keys, certificates):
    alice = certificates.client("alice")
    with ClusterNode.launch(**keys) as node:
        for medium, endpoints in doors(node).items():
            assert ask(endpoints, 2, alice) == [b"?", b"?"], medium
            with LogReader.open(endpoints=endpoints, tls=alice) as reader:
                payloads = [
                    bytes(e["payload"]) for e in reader.entries() if e["entryType"] == "SESSION_MESSAGE"
                ]
            assert payloads[-2:] == [b"?", b"?"]
            for tls in (None, certificates.trust):
                with pytest.raises(TlsFailed):
                    LogReader.open(endpoints=endpoints, tls=tls)
        assert ask(f"0=ipc:{node.config.ipc_path}", 1) == [b"?"], "no TLS on a socket of the host"


def test_a_key_that_others_may_read_is_told(keys):
    log = Path(keys["dir"].replace("{member_id}", "0")) / "node.log"
    with ClusterNode.launch(**keys):
        assert "may read this key" not in log.read_text()
    Path(keys["tls_key"]).chmod(0o640)
    with ClusterNode.launch(**keys):
        assert f"{keys['tls_key']} has mode 0640: others on this host may read this key" in log.read_text()
    Path(keys["tls_key"]).chmod(0o600)


def test_top_says_when_the_certificate_ends(keys, certificates, capsys):
    alice = certificates.client("alice")
    files = ["--tls-ca", alice.ca, "--tls-certificate", alice.certificate, "--tls-key", alice.key]
    end = read_certificate(keys["tls_certificate"]).not_after
    with ClusterNode.launch(**keys) as node:
        await_that(lambda: node.is_leader, "it leads")
        for source in (
            ["--dir", str(node.config.path)],
            ["--endpoints", doors(node)["grpc"], *files],
            ["--endpoints", doors(node)["tcp"], *files],
        ):
            assert main(["top", "--once", "--json", *source]) == 0
            (member,) = json.loads(capsys.readouterr().out)["members"]
            assert member["certificateEnds"] == end.isoformat(timespec="minutes")
            assert main(["top", "--once", *source]) == 0
            assert f"{end:%Y-%m-%d}" in capsys.readouterr().out


def test_a_member_does_not_start_with_files_that_will_not_do(tmp_path, certificates, capsys):
    late = certificates.expired(CertificateRequest.of_client("late"))
    other = certificates.member(1)
    wrong = {
        "expected member-0.cluster-0 as its common name": other,
        "is of 'late'": late,
        "nowhere.pem: cannot be read: No such file": TlsFiles(other.ca, "nowhere.pem", "nowhere.key"),
    }
    for text, files in wrong.items():
        write(tmp_path / "node.toml", keys_of(tmp_path, **tls_keys(files)))
        assert main(["node", "--config", str(tmp_path / "node.toml")]) == 2
        err = capsys.readouterr().err
        assert text in err
        assert err.count("\n") == 1
        log = Path(keys_of(tmp_path)["dir"].replace("{member_id}", "0")) / "node.log"
        last = json.loads(log.read_text().splitlines()[-1])
        assert (last["level"], last["event"]) == ("error", err.removesuffix("\n"))


def test_new_certificates_are_used_without_a_restart_and_broken_ones_are_told(tmp_path, certificates):
    mine, new = Certificates(tmp_path / "mine"), Certificates(tmp_path / "new")
    files = mine.member(0)
    with ClusterNode.launch(**keys_of(tmp_path, **tls_keys(files))) as node:
        tcp = doors(node)["tcp"]
        assert ask(tcp, 1, mine.trust) == [b"?"]
        broken = tmp_path / "broken.pem"
        broken.write_text("broken")
        broken.replace(files.certificate)
        log = node.config.path / "node.log"
        await_that(lambda: "expected a certificate in PEM" in log.read_text(), "it is told")
        assert ask(tcp, 1, mine.trust) == [b"?"]
        new.issue(CertificateRequest.of_member(0, 0, ()), days=5)
        old = TlsFiles(shutil.copy(files.ca, tmp_path / "old.pem"))
        for name in ("ca", "key", "certificate"):
            shutil.copy(getattr(new.member(0), name), getattr(files, name))

        def is_new():
            try:
                return ask(tcp, 1, new.trust) == [b"?"]
            except TlsFailed:
                return False

        await_that(is_new, "the new certificate is shown")
        events = [json.loads(line) for line in log.read_text().splitlines()]
        assert any("certificates were read again" in json.dumps(event) for event in events)
        assert sum("its certificate ends soon" in json.dumps(event) for event in events) <= 1
        await_that(lambda: "its certificate ends soon" in log.read_text(), "14 days before")
        with pytest.raises(ClusterError):
            ask(tcp, 1, old)


def test_the_principal_of_a_session_is_the_name_in_its_certificate_over_each_medium(
    keys, certificates, tmp_path
):
    rights = tmp_path / "rights"
    rights.write_text("alice: write, read\n")
    more = {"authenticator": "certificate", "authorisation": str(rights)}
    alice, mallory = certificates.client("alice"), certificates.client("mallory")
    with ClusterNode.launch(**keys, **more) as node:
        await_that(lambda: node.is_leader, "it leads")
        for endpoints in doors(node).values():
            assert ask(endpoints, 1, alice) == [b"?"]
            with pytest.raises(AuthenticationRejected):
                ask(endpoints, 1, mallory)
        with pytest.raises(AuthenticationRejected):
            ask(f"0=ipc:{node.config.ipc_path}", 1)
    with LogReader.open(dir=str(node.config.path)) as reader:
        opened = [entry for entry in reader.entries() if entry["entryType"] == "SESSION_OPEN"]
    assert [bytes(entry["encodedPrincipal"]) for entry in opened] == [b"alice", b"alice"]


@pytest.mark.slow
def test_of_a_member_without_links_it_is_said_that_the_others_refuse_its_certificate(
    tmp_path, certificates, opened
):
    """Its authority is not one that the other believes."""
    (tmp_path / "others").mkdir()
    files = [certificates.member(0), Certificates(tmp_path / "others").member(1)]
    authorities = [Path(each.ca).read_text() for each in files]
    (tmp_path / "both.pem").write_text("".join(authorities))
    trusted = [files[0].ca, str(tmp_path / "both.pem")]
    port = free_base_port(ports=20)
    members = [f"{i},127.0.0.1:{port + 10 * i}" + f",127.0.0.1:{port + 10 * i + 2}" * 4 for i in (0, 1)]
    for i in (0, 1):
        where = {"members": members, "member_id": i, "dir": str(tmp_path / f"cluster/member-{i}")}
        opened.enter_context(ClusterNode.launch(**where, **tls_keys(files[i]) | {"tls_ca": trusted[i]}))

    def finding():
        said = json.loads(run("status", "--dir", str(tmp_path / "cluster"), "--json").stdout)["messages"]
        return next((each for each in said if each["name"] == "certificate-refused"), None)

    assert await_that(finding, "the message")["text"] == (
        "member 1 has no link to member 0: its certificate is refused there"
    )
    warned = run("events", "--dir", str(tmp_path / "cluster"), "--level", "warning").stdout
    assert "WARNING: a peer was cut off why=member 1 at tcp:127.0.0.1" in warned
    assert "it is of 'member-1.cluster-0'" in warned
