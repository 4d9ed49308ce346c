"""What a member or a backup shows of itself over TLS, and whom it lets in; read again when files change.

Contexts are made whole and then put in the place of the old ones, so that a handshake has either. Connections
that are open go on with what they began with.
"""

import ssl
from collections.abc import Callable
from datetime import UTC, datetime

from cluster.errors import ClusterError, ConfigurationError, TlsFailed
from cluster.transport.certificates import CertificateFacts, member_name, read_certificate
from cluster.transport.file_look import FileLook, LoadedState
from cluster.transport.named_file import signature
from cluster.transport.tls import TlsFiles, TlsSession, client_context, key_exposure, server_context

SPEAKS_TLS = "this port speaks TLS, and nothing else (clients: --tls-ca, tls=, tlsCaFile)"


class ServerTls:
    """Contexts and credentials of what listens; polled by its own thread, read by the gateway's."""

    def __init__(self, files: TlsFiles, *, asks_clients: bool) -> None:
        """``asks_clients``: they need a certificate of ``files.ca``. Raises ConfigurationError."""
        self._files = files
        self.asks_clients = asks_clients
        self._state = LoadedState(self._look())
        self._load()

    def _load(self) -> None:
        files = self._files
        facts = read_certificate(files.certificate)
        self._check(facts)
        clients = server_context(files, asks_certificate=self.asks_clients)
        pem = {name: files.read(name) or b"" for name in ("ca", "certificate", "key")}
        self._load_others()
        self.clients = clients  # for one that comes now, whoever carries its session
        self.pem = pem
        self.not_after = facts.not_after

    def _load_others(self) -> None:
        """What else is made of the files. Raises ConfigurationError."""

    def _check(self, facts: CertificateFacts) -> None:
        now = datetime.now(UTC)
        if not facts.is_servers or not facts.names:
            raise self._unfit(
                f"is a client's, of {facts.common_name!r}; expected one for both uses, server and client, "
                "with its hosts among its names"
            )
        if not facts.not_before <= now < facts.not_after:
            raise self._unfit(
                f"is valid from {facts.not_before:%Y-%m-%d %H:%M} to {facts.not_after:%Y-%m-%d %H:%M} UTC, "
                f"and it is {now:%Y-%m-%d %H:%M}"
            )

    def _unfit(self, what: str) -> ConfigurationError:
        return ConfigurationError(f"tls_certificate = {self._files.certificate}: {what}")

    def _look(self) -> list[tuple[int, ...]]:
        return [signature(path) for path in (self._files.ca, self._files.certificate, self._files.key)]

    def refresh(self) -> bool:
        """Read files that have changed; whether they are new ones in use.

        Raises ConfigurationError, once, for those that will not do: the old stay in use. They are read again
        each time, as they may do later: a certificate of a host whose clock is ahead, files that could not be
        read for want of descriptors.
        """
        return self._state.take(self._look(), self._load)

    def look(self, on_read: Callable[[str], None], on_error: Callable[[ClusterError], None]) -> FileLook:
        """What refreshes at each ``do_work``; ``on_read`` hears, in its thread, how long they are valid."""

        def refresh() -> None:
            if self.refresh():
                on_read(self.not_after.isoformat())

        return FileLook(refresh, self._files.certificate, on_error)

    @property
    def exposure(self) -> str:
        """A warning for people that others on this host may read the key; empty if nobody may."""
        return key_exposure(self._files.key)

    def accept_client(self) -> TlsSession:
        return TlsSession(self.clients, "the client")


class MemberTls(ServerTls):
    """Of one member: other members come to it, and it goes to them."""

    def __init__(self, files: TlsFiles, member_id: int, cluster_id: int, *, asks_clients: bool) -> None:
        """Raises ConfigurationError, also where the certificate is another member's."""
        self._cluster_id = cluster_id
        self._name = member_name(member_id, cluster_id)
        super().__init__(files, asks_clients=asks_clients)

    def _load_others(self) -> None:
        accepting = server_context(self._files, asks_certificate=True)
        dialling = client_context(self._files)
        self._check_among_equals(accepting, dialling)
        self._dialling, self._accepting = dialling, accepting

    def _check_among_equals(self, accepting: ssl.SSLContext, dialling: ssl.SSLContext) -> None:
        """Whether a member with the same authorities lets this one in, and is dialled by it."""
        accepts = TlsSession(accepting, "this member")
        dials = TlsSession(dialling, "this member", server_name=self._name)
        try:
            while not (dials.shake_hands() & accepts.shake_hands()):
                accepts.feed(dials.take())
                dials.feed(accepts.take())
        except TlsFailed as error:
            raise self._unfit(f"members with tls_ca = {self._files.ca} refuse it: {error}") from None

    def _check(self, facts: CertificateFacts) -> None:
        if facts.common_name != self._name or self._name not in facts.names:
            raise self._unfit(
                f"is of {facts.common_name!r} ({', '.join(facts.names)}); expected {self._name} as its "
                "common name and among its DNS names"
            )
        super()._check(facts)

    def accept_member(self, host: str) -> TlsSession:
        """Of whoever comes from there."""
        return TlsSession(self._accepting, f"the peer at {host}")

    def dial_member(self, member_id: int, endpoint: object) -> TlsSession:
        """To ``endpoint``, where nobody but that member of this cluster will do."""
        peer = f"member {member_id} at {endpoint}"
        return TlsSession(self._dialling, peer, server_name=self.name_of(member_id))

    def name_of(self, member_id: int) -> str:
        """The name in the certificate of a member of this cluster."""
        return member_name(member_id, self._cluster_id)
