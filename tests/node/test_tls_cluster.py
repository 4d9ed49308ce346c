"""``cluster up --tls``: a whole cluster of processes that speaks nothing but TLS, from nothing."""

from __future__ import annotations

import json

from cluster import ClusterClient, LogReader, TlsFiles
from tests.node.processes import Up, run


def test_a_cluster_makes_its_certificates_and_takes_who_checks_them(tmp_path):
    directory = tmp_path / "c"
    with Up(directory, "--tls") as up:
        ca = up.described["tlsCa"]
        assert ca == str(directory / "certs" / "ca.pem")
        for endpoints in (up.endpoints, up.tcp):
            sent = run("send", "--endpoints", endpoints, "--tls-ca", ca, text="over TLS\n")
            assert (sent.returncode, sent.stdout) == (0, "over TLS\n"), sent.stderr
            refused = run("send", "--endpoints", endpoints, text="in the clear\n")
            assert refused.returncode == 1
            assert "speaks TLS" in refused.stderr and refused.stderr.count("\n") == 1
        by_variable = run(
            "log", "dump", "--endpoints", up.tcp, "--payload", "utf8", "--json", CLUSTER_TLS_CA=ca
        )
        assert by_variable.returncode == 0, by_variable.stderr
        texts = [entry.get("payload") for entry in map(json.loads, by_variable.stdout.splitlines())]
        assert [text for text in texts if text] == ["over TLS", "over TLS"]
        asked = run("top", "--endpoints", up.endpoints, "--once", "--json", "--tls-ca", ca)
        members = json.loads(asked.stdout)["members"]
        assert [member["isAlive"] for member in members] == [True] * 3
        files = TlsFiles(ca, up.described["tlsCertificate"], up.described["tlsKey"])
        with ClusterClient.connect(up.tcp, tls=files) as client:
            assert client.offer(b"third") > 0
        assert up.stop() == (0, "", "")
    before = (directory / "certs" / "member-0.pem").read_bytes()
    with Up(directory, "--tls", base_port=up.base_port) as up:
        with LogReader.open(endpoints=up.endpoints, tls=TlsFiles(ca)) as reader:
            assert reader.commit_position() > 0
        assert up.stop() == (0, "", "")
    assert (directory / "certs" / "member-0.pem").read_bytes() == before
