"""What a member shows of itself over TLS, and whom it lets in; read again when the files change.

Contexts are made whole and then put in the place of the old ones, so that a handshake has either. Connections
that are open go on with what they began with.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime

from cluster.errors import ConfigurationError
from cluster.transport.certificates import CertificateFacts, member_name, read_certificate
from cluster.transport.tls import TlsFiles, TlsSession, client_context, server_context

SPEAKS_TLS = "this port speaks TLS, and nothing else (clients: --tls-ca, tls=, tlsCaFile)"


class MemberTls:
    """Contexts and credentials of one member; polled by its thread, read by the gateway's."""

    def __init__(self, files: TlsFiles, member_id: int, cluster_id: int, *, asks_clients: bool) -> None:
        """``asks_clients``: only those come in that show a certificate of ``files.ca``.

        Raises ConfigurationError where a file will not do, has expired, or is another member's.
        """
        self._files = files
        self._cluster_id = cluster_id
        self._name = member_name(member_id, cluster_id)
        self.asks_clients = asks_clients
        self._changes = self._look()
        self._load()

    def _load(self) -> None:
        files = self._files
        facts = read_certificate(files.certificate)
        self._check(facts)
        clients = server_context(files, asks_certificate=self.asks_clients)
        accepting = server_context(files, asks_certificate=True)
        dialling = client_context(files)
        pem = {name: files.read(name) or b"" for name in ("ca", "certificate", "key")}
        self._clients, self._accepting, self._dialling = clients, accepting, dialling
        self.pem = pem
        self.not_after = facts.not_after

    def _check(self, facts: CertificateFacts) -> None:
        path, now = self._files.certificate, datetime.now(UTC)
        if facts.common_name != self._name or self._name not in facts.names:
            raise ConfigurationError(
                f"tls_certificate = {path}: is of {facts.common_name!r} ({', '.join(facts.names)}); "
                f"expected {self._name} as its common name and among its DNS names"
            )
        if not facts.not_before <= now < facts.not_after:
            raise ConfigurationError(
                f"tls_certificate = {path}: is valid from {facts.not_before:%Y-%m-%d %H:%M} to "
                f"{facts.not_after:%Y-%m-%d %H:%M} UTC, and it is {now:%Y-%m-%d %H:%M}"
            )

    def _look(self) -> tuple[tuple[int, int], ...]:
        """What changes when a file does: when it was written, and which it is."""
        found = []
        for path in (self._files.ca, self._files.certificate, self._files.key):
            try:
                stat = os.stat(path)
            except OSError:
                found.append((0, 0))
                continue
            found.append((stat.st_mtime_ns, stat.st_ino))
        return tuple(found)

    def refresh(self) -> bool:
        """Read the files again where one has changed since the last look; whether that was so.

        Raises ConfigurationError for files that will not do: what was there before stays in use.
        """
        changes = self._look()
        if changes == self._changes:
            return False
        self._changes = changes
        self._load()
        return True

    # -- sessions --

    def accept_client(self) -> TlsSession:
        return TlsSession(self._clients, "the client")

    def accept_member(self) -> TlsSession:
        return TlsSession(self._accepting, "the peer")

    def dial_member(self, member_id: int, endpoint: object) -> TlsSession:
        """To ``endpoint``, where nobody but that member of this cluster will do."""
        peer = f"member {member_id} at {endpoint}"
        return TlsSession(self._dialling, peer, server_name=self.name_of(member_id))

    def name_of(self, member_id: int) -> str:
        """The name in the certificate of a member of this cluster."""
        return member_name(member_id, self._cluster_id)
