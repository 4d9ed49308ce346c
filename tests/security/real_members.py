"""What the tests of who may do what at a real member have in common."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cluster import ClusterNode
from tests.node.processes import keys_of
from tests.transport.authorities import Certificates

NETWORK = ["grpc", "tcp"]


def audited(node: ClusterNode) -> list[dict[str, Any]]:
    """The lines of a member's audit.log."""
    return [json.loads(line) for line in (node.config.path / "audit.log").read_text().splitlines()]


def keys_by_certificate(tmp_path: Path, certificates: Certificates, rights: str) -> dict[str, Any]:
    """The configuration of a member that knows its principals by certificates, with these rights."""
    (tmp_path / "rights").write_text(rights)
    files = certificates.member(0)
    return keys_of(
        tmp_path,
        tls_ca=files.ca,
        tls_certificate=files.certificate,
        tls_key=files.key,
        tls_client_certificates="required",
        authenticator="certificate",
        authorisation=f"{tmp_path}/rights",
    )
