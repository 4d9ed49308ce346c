"""Snapshots of members that speak TLS and ask who comes, as rows."""

from __future__ import annotations

import pytest

from cluster import ClusterNode
from cluster.errors import AuthenticationRejected, TlsFailed
from cluster.security.principals import put, token_digest
from tests.node.processes import await_that, endpoints_of, keys_of, tool
from tests.spark.readers import snapshot_rows
from tests.transport.authorities import Certificates

TOKENS = {"alice": b"of-alice-a-token", "bob": b"of-bob-another-one"}


@pytest.mark.parametrize("medium", ["grpc", "tcp"])
def test_who_may_read_gets_the_snapshots_of_members_and_nobody_else(tmp_path, medium):
    (tmp_path / "others").mkdir()
    certificates = Certificates(tmp_path)
    files = certificates.member(0)
    for name, token in TOKENS.items():
        put(str(tmp_path / "known"), name, token_digest(token))
        (tmp_path / f"{name}.token").write_bytes(token)
    (tmp_path / "rights").write_text("alice: write, read\nbob: write\n")
    keys = keys_of(
        tmp_path,
        services=["echo"],
        authenticator="token",
        authenticator_file=str(tmp_path / "known"),
        authorisation=str(tmp_path / "rights"),
        tls_ca=files.ca,
        tls_certificate=files.certificate,
        tls_key=files.key,
    )

    def rows(**options):
        return snapshot_rows(endpoints=endpoints, requestTimeoutMs="4000", **options)

    with ClusterNode.launch(**keys) as node:
        await_that(lambda: node.is_leader, "it leads")
        endpoints = endpoints_of(node, medium)
        assert tool(node, "snapshot").returncode == 0
        known = {"tlsCaFile": files.ca, "authTokenFile": str(tmp_path / "alice.token")}
        found = rows(**known)
        assert {row["serviceId"] for row in found} == {-1, 0}
        assert all(row["memberId"] == 0 for row in found)
        for token, says in (
            ({"authTokenFile": str(tmp_path / "bob.token")}, "no right to read"),
            ({}, "reader failed authentication"),
        ):
            with pytest.raises(AuthenticationRejected, match=f"no member answers: .*{says}"):
                rows(tlsCaFile=files.ca, **token)
        with pytest.raises(TlsFailed, match="no member answers: "):
            rows(tlsCaFile=Certificates(tmp_path / "others").member(0).ca)
