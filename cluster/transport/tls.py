"""TLS beneath the frames: the files that a side shows and checks, and one session without any I/O.

A session is fed what came from the peer and gives what is to go to it, so that the member's poller, the
gateway's event loop and a test can all carry it (``ssl.SSLObject`` over two ``ssl.MemoryBIO``):

    socket -> feed -> shake_hands, read_into -> frames
    frames -> seal -> take -> socket

TLS 1.3 alone. Who dials checks chain and name; who accepts asks for a certificate where it needs one, and has
the common name in it from then on.
"""

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.errors import ConfigurationError, TlsFailed
from cluster.protocol.enums import RefusedCertificate
from cluster.transport.named_file import read_named_file

# The clients' variables.
TLS_VARIABLES = {"ca": "CLUSTER_TLS_CA", "certificate": "CLUSTER_TLS_CERTIFICATE", "key": "CLUSTER_TLS_KEY"}

TLS_HANDSHAKE = 0x16  # the first byte of a client that speaks TLS; no Hello in the clear begins with it

# Of X509_V_ERR_...: what is wrong with a certificate that is of a known authority, or of none.
_NOT_YET_VALID, _HAS_EXPIRED = 9, 10
_ISSUER_UNKNOWN = frozenset({2, 18, 19, 20, 21})
_OTHER_NAME = frozenset({62, 63, 64})
_ALERTS = {
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "{peer} asks for a client's certificate, and none was given",
    "TLSV1_ALERT_UNKNOWN_CA": "{peer} does not know the authority that issued our certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "{peer} says that our certificate has expired",
    "SSLV3_ALERT_BAD_CERTIFICATE": "{peer} does not accept our certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "{peer} does not accept our certificate",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "{peer} does not accept our certificate for this use",
    "TLSV1_ALERT_PROTOCOL_VERSION": "{peer} does not speak TLS 1.3",
    "UNSUPPORTED_PROTOCOL": "{peer} does not speak TLS 1.3",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "{peer} showed no certificate",
    "WRONG_VERSION_NUMBER": "{peer} does not speak TLS",
}


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Paths of PEM files: authorities, and the own certificate with its key, which a client may lack."""

    ca: str
    certificate: str = ""
    key: str = ""

    def __post_init__(self) -> None:
        """ConfigurationError where a file is missing that another one needs."""
        if not self.ca:
            raise ConfigurationError(
                "tls: ca is not given; expected a file of certificate authorities to verify others with"
            )
        if bool(self.certificate) != bool(self.key):
            has, lacks = ("certificate", "key") if self.certificate else ("key", "certificate")
            raise ConfigurationError(f"tls: {has} is given without {lacks}; expected both or neither")

    def read(self, name: str) -> bytes | None:
        """The content of ``ca``, ``certificate`` or ``key``, or None. Raises ConfigurationError."""
        path = getattr(self, name)
        try:
            return read_named_file(path) if path else None
        except ConfigurationError as error:
            raise ConfigurationError(f"tls: {name} = {error}") from None


def key_exposure(path: str | Path) -> str:
    """A warning for people that others on this host may read a key; empty if nobody may."""
    mode = os.stat(path).st_mode & 0o777
    if not mode & 0o077:
        return ""
    return f"{path} has mode {mode:04o}: others on this host may read this key, expected 0600"


def tls_in(environment: Mapping[str, str]) -> TlsFiles | None:
    """What the clients' variables name; None where none of them is set. Raises ConfigurationError."""
    paths = {name: environment.get(variable, "") for name, variable in TLS_VARIABLES.items()}
    return TlsFiles(**paths) if any(paths.values()) else None


def client_context(files: TlsFiles) -> ssl.SSLContext:
    """Of a side that dials, and checks chain and name. Raises ConfigurationError for files that do not do."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _load(context, files)
    return context


def server_context(files: TlsFiles, *, asks_certificate: bool) -> ssl.SSLContext:
    """Of a side that accepts. Raises ConfigurationError for files that do not do."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED if asks_certificate else ssl.CERT_NONE
    context.num_tickets = 0  # nobody resumes
    _load(context, files)
    return context


def _load(context: ssl.SSLContext, files: TlsFiles) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    for name in TLS_VARIABLES:
        files.read(name)  # names the file that cannot be read
    try:
        context.load_verify_locations(files.ca)
    except ssl.SSLError:
        raise ConfigurationError(f"tls: ca = {files.ca}: expected certificates in PEM") from None
    if not files.certificate:
        return
    try:
        context.load_cert_chain(files.certificate, files.key, password="")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            what = f"expected the key of the certificate {files.certificate}"
        else:
            what = f"expected a key in PEM without a passphrase, and certificates in {files.certificate}"
        raise ConfigurationError(f"tls: key = {files.key}: {what}") from None


class TlsSession:
    """One side of one connection. ``peer`` is how errors call the other one."""

    def __init__(self, context: ssl.SSLContext, peer: str, *, server_name: str | None = None) -> None:
        """``server_name`` must be in the certificate of the side that is dialled; None: this side accepts."""
        self.peer = peer
        self.is_accepting = server_name is None
        self.certificate_name: str | None = None  # once established, where the peer was asked for one
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(
            self._incoming, self._outgoing, server_side=self.is_accepting, server_hostname=server_name
        )

    @property
    def address(self) -> int:
        """Of OpenSSL's session (``SSL *``), for compiled code to call; 0 where it cannot be had."""
        from cluster.log.openssl import session_address  # ctypes: not for each import of a client

        return session_address(self._object)

    def feed(self, data: bytes) -> None:
        """Take what came from the peer."""
        self._incoming.write(data)

    def take(self) -> bytes:
        """What is to go to the peer."""
        return self._outgoing.read()

    def shake_hands(self) -> bool:
        """Go on; True once it is done. Raises TlsFailed; ``take`` may still have what informs the peer."""
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            raise tls_failure(error, self.peer, self._object) from None
        certificate = self._object.getpeercert() or {}
        self.certificate_name = dict(_flat(certificate.get("subject", ()))).get("commonName")
        return True

    @property
    def has_unread(self) -> bool:
        """Whether ``read_into`` may have more without being fed."""
        return self._object.pending() > 0 or self._incoming.pending > 0

    def read_into(self, view: memoryview) -> int | None:
        """Bytes put into ``view``: 0 for none now, None after the peer's end. Raises TlsFailed."""
        count = 0
        while count < len(view):
            try:
                received: Any = self._object.read(len(view) - count, view[count:])  # type: ignore[arg-type]
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:
                return count or None
            except ssl.SSLError as error:
                raise self._failure(error) from None
            if not received:
                return count or None
            count += received
        return count

    def seal(self, data: memoryview | bytes) -> None:
        """Encrypt; ``take`` has it then. Only once the session is established. Raises TlsFailed."""
        try:
            self._object.write(data)
        except ssl.SSLError as error:
            raise self._failure(error) from None

    def _failure(self, error: ssl.SSLError) -> TlsFailed:
        """Of an established session, whose error compiled code may have seen first."""
        if isinstance(error, ssl.SSLEOFError):
            return TlsFailed(f"TLS with {self.peer}: what came is no record of this session")
        return tls_failure(error, self.peer, self._object)

    def end(self) -> None:
        """Say that nothing more comes from this side; ``take`` has it then."""
        try:
            self._object.unwrap()
        except ssl.SSLError:
            return  # the peer has not said so yet, and need not


def tls_failure(error: ssl.SSLError, peer: str, session: ssl.SSLObject) -> TlsFailed:
    """Why TLS with ``peer`` failed, and whose certificate is refused, if one is."""
    failure = TlsFailed(describe_failure(error, peer, session))
    if isinstance(error, ssl.SSLCertVerificationError):
        failure.refused = RefusedCertificate.THEIRS
    elif "our certificate" in str(failure):
        failure.refused = RefusedCertificate.OURS
    return failure


def describe_failure(error: OSError, peer: str, session: Any) -> str:
    """One line of why TLS with ``peer`` failed; ``session`` is the SSLObject or SSLSocket."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _describe_certificate(error, peer, session)
    if not isinstance(error, ssl.SSLError) or isinstance(error, ssl.SSLZeroReturnError | ssl.SSLEOFError):
        return broken_off(peer)
    known = _ALERTS.get(error.reason or "")
    return known.format(peer=peer) if known else f"TLS with {peer}: {_plain(error)}"


def broken_off(peer: str) -> str:
    """What a connection that ends in the midst of a handshake means."""
    return f"{peer} ended the connection in the TLS handshake; expected a port that speaks TLS"


def _describe_certificate(error: ssl.SSLCertVerificationError, peer: str, session: Any) -> str:
    # Public as get_unverified_chain from Python 3.13 on; there is no other way to a refused certificate.
    # The accepting side has none, as OpenSSL keeps no certificate of a client that it refuses.
    chain = session._sslobj.get_unverified_chain() or ()
    shown = chain[0].get_info() if chain else {}
    match error.verify_code:
        case code if code in _ISSUER_UNKNOWN:
            issuer = dict(_flat(shown.get("issuer", ()))).get("commonName")
            by = "" if issuer is None else f"{issuer!r}, which is "
            what = f"was issued by {by}none of the authorities that are believed here"
        case code if code in _OTHER_NAME:
            names = ", ".join(name for _, name in shown.get("subjectAltName", ()))
            what = f"is for {names or 'no host'}, not for {session.server_hostname}"
        case code if code == _HAS_EXPIRED:
            what = f"has expired on {shown['notAfter']}" if shown else "has expired"
        case code if code == _NOT_YET_VALID:
            what = f"is not valid before {shown['notBefore']}" if shown else "is not valid yet"
        case _:
            what = f"is not accepted: {error.verify_message}"
    if error.verify_code not in _OTHER_NAME and (subject := dict(_flat(shown.get("subject", ())))):
        what += f"; it is of {subject.get('commonName')!r}"
    return f"the certificate of {peer} {what}"


def _flat(names: Any) -> list[tuple[str, str]]:
    """The pairs in a distinguished name as ``ssl`` has it."""
    return [pair for relative in names for pair in relative]


def _plain(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()
