"""Authorities and certificates for tests: good ones, and those that will not do."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from unittest import mock

from cluster.node import authority
from cluster.node.authority import CertificateAuthority, CertificateRequest
from cluster.transport.member_tls import MemberTls
from cluster.transport.tls import TlsFiles

CLUSTER_ID = 0


class Certificates:
    """One authority in a folder, and what it issues when it is asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._authority = CertificateAuthority.make(folder, days=30)

    @property
    def trust(self) -> TlsFiles:
        """Of a client without a certificate of its own."""
        return TlsFiles(str(self._authority.path))

    def member(self, member_id: int, *hosts: str, cluster_id: int = CLUSTER_ID) -> TlsFiles:
        return self.issue(CertificateRequest.of_member(member_id, cluster_id, hosts))

    def client(self, principal: str) -> TlsFiles:
        return self.issue(CertificateRequest.of_client(principal))

    def expired(self, request: CertificateRequest) -> TlsFiles:
        """A certificate whose day was yesterday."""
        with mock.patch.object(authority, "CLOCK_SKEW", timedelta(days=3)):
            return self.issue(request, days=-1)

    def issue(self, request: CertificateRequest, days: int = 30) -> TlsFiles:
        certificate = self.folder / f"{request.file_name}.pem"
        if not certificate.exists():
            self._authority.issue(request, days)
        return TlsFiles(self.trust.ca, str(certificate), str(certificate.with_suffix(".key")))

    def tls_of(self, member_id: int, *, asks_clients: bool = False) -> MemberTls:
        """What a member of this authority shows and checks."""
        return MemberTls(self.member(member_id), member_id, CLUSTER_ID, asks_clients=asks_clients)
