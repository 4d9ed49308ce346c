"""A certificate authority in a folder, for a trial or a deployment that has none of its own.

    ca.pem, ca.key                        the authority
    member-0.pem, member-0.key            a member's certificate, for both ends of its links and for clients
    client-alice.pem, client-alice.key    a client's, whose principal is alice
    backup-east.pem, backup-east.key      a backup's or standby's, for its endpoint and as a client

Keys are on P-256, readable by their owner alone. No file is overwritten but by a renewal. Whoever holds
ca.key can be any member and any client: it belongs on no member's host.
"""

import ipaddress
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from cluster.errors import ClusterError, ConfigurationError, StorageErrors
from cluster.transport.certificates import MEMBER_NAME, member_name

AUTHORITY_DAYS = 3_650  # or as long as what it issues
TRIAL_HOSTS = ("localhost", "127.0.0.1", "::1")
CLOCK_SKEW = timedelta(minutes=5)  # of hosts that look at a certificate just made

# A common name has at most 64 characters; the name of a file is made of it, too.
_PRINCIPAL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@-]{0,63}")


@dataclass(frozen=True, slots=True)
class IssuedCertificate:
    """A certificate and its key, as files."""

    name: str
    certificate: Path
    key: Path
    not_after: datetime


@dataclass(frozen=True, slots=True)
class CertificateRequest:
    """What is asked of an authority: the name of the files, the common name and the names beside it."""

    file_name: str
    common_name: str
    names: Sequence[x509.GeneralName]
    is_server: bool

    @classmethod
    def of_member(cls, member_id: int, cluster_id: int, hosts: Sequence[str]) -> Self:
        """``hosts`` are where it is reached; none: this host alone. Raises ConfigurationError."""
        name = member_name(member_id, cluster_id)
        names = tuple(map(_alternative, (name, *(hosts or TRIAL_HOSTS))))
        return cls(f"member-{member_id}", name, names, is_server=True)

    @classmethod
    def of_client(cls, principal: str) -> Self:
        """Raises ConfigurationError for a principal that cannot be one."""
        _check_principal("client", principal)
        return cls(f"client-{principal}", principal, (), is_server=False)

    @classmethod
    def of_backup(cls, principal: str, hosts: Sequence[str]) -> Self:
        """Of a backup or standby that serves others: ``hosts`` as of a member. Raises ConfigurationError."""
        _check_principal("backup", principal)
        names = tuple(map(_alternative, hosts or TRIAL_HOSTS))
        return cls(f"backup-{principal}", principal, names, is_server=True)

    @classmethod
    def of_issued(cls, path: Path) -> Self:
        """What asks again for the certificate that the file has. Raises ClusterError."""
        try:
            certificate = x509.load_pem_x509_certificate(path.read_bytes())
            extensions = certificate.extensions
            uses = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
            [name] = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        except OSError as error:
            raise ClusterError(f"{path}: {error.strerror}") from None
        except (ValueError, x509.ExtensionNotFound) as error:
            raise ConfigurationError(f"{path}: no certificate of an authority like this: {error}") from None
        is_server = ExtendedKeyUsageOID.SERVER_AUTH in uses
        names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value if is_server else ()
        return cls(path.stem, str(name.value), tuple(names), is_server)


def _check_principal(what: str, principal: str) -> None:
    if not _PRINCIPAL.fullmatch(principal):
        raise ConfigurationError(
            f"{what} {principal!r}: expected 1 to 64 letters, digits and . _ @ -, not . @ - at first"
        )
    if MEMBER_NAME.fullmatch(principal):
        raise ConfigurationError(f"{what} {principal!r}: a member's name; expected another")


@dataclass(frozen=True, slots=True)
class CertificateAuthority:
    """Issues certificates into its folder."""

    _folder: Path
    _certificate: x509.Certificate
    _key: ec.EllipticCurvePrivateKey

    @classmethod
    def open(cls, folder: Path) -> Self | None:
        """The authority that the folder has, None when it has none. Raises ClusterError."""
        paths = _paths(folder, "ca")
        if not any(path.exists() for path in paths):
            return None
        try:
            certificate = x509.load_pem_x509_certificate(paths[0].read_bytes())
            key = serialization.load_pem_private_key(paths[1].read_bytes(), password=None)
        except OSError as error:
            raise ClusterError(f"{error.filename}: {error.strerror}") from None
        except (ValueError, TypeError) as error:
            raise ConfigurationError(f"{folder}: ca.pem and ca.key are no authority: {error}") from None
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
            raise ConfigurationError(f"{paths[1]}: expected the key of {paths[0]}, on an elliptic curve")
        return cls(folder, certificate, key)

    @classmethod
    def make(cls, folder: Path, days: int) -> Self:
        """A new one, into a folder that is made when missing. Raises StorageError."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = _subject(f"cluster certificate authority {os.urandom(4).hex()}")
        builder = (
            _builder(name, name, key, max(days, AUTHORITY_DAYS))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(is_authority=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )
        certificate = builder.sign(key, hashes.SHA256())
        _write_pair(folder, "ca", certificate, key)
        return cls(folder, certificate, key)

    @property
    def path(self) -> Path:
        """Of its certificate, which all others are checked against."""
        return _paths(self._folder, "ca")[0]

    def renew(self, days: int) -> list[IssuedCertificate]:
        """Put new keys and certificates in the place of all that the folder has. Raises ClusterError."""
        end = self._certificate.not_valid_after_utc
        if end < datetime.now(UTC) + timedelta(days=days):
            raise ConfigurationError(
                f"{self.path}: the authority itself ends on {end:%Y-%m-%d}, expected {days} days or more: "
                "renew for fewer days, or change the authority"
            )
        paths = sorted(path for path in self._folder.glob("*.pem") if path.with_suffix(".key").exists())
        requests = [CertificateRequest.of_issued(path) for path in paths if path != self.path]
        return [self.issue(request, days, overwrites=True) for request in requests]

    def issue(self, request: CertificateRequest, days: int, *, overwrites: bool = False) -> IssuedCertificate:
        """Make a key and its certificate.

        Raises StorageError; without ``overwrites`` also when either file exists.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        uses = [ExtendedKeyUsageOID.CLIENT_AUTH]
        uses += [ExtendedKeyUsageOID.SERVER_AUTH] if request.is_server else []
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = (
            _builder(_subject(request.common_name), self._certificate.subject, key, days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(is_authority=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
            .add_extension(issuer, critical=False)
        )
        if request.names:
            builder = builder.add_extension(x509.SubjectAlternativeName(request.names), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        paths = _write_pair(self._folder, request.file_name, certificate, key, overwrites=overwrites)
        return IssuedCertificate(request.common_name, *paths, certificate.not_valid_after_utc)


def check_absent(folder: Path, requests: Sequence[CertificateRequest]) -> None:
    """Raise ClusterError for the first file that one of the requests would overwrite."""
    for request in requests:
        for path in _paths(folder, request.file_name):
            if path.exists():
                raise ClusterError(f"{path}: exists already, and is not overwritten; nothing was made")


def _paths(folder: Path, name: str) -> tuple[Path, Path]:
    return folder / f"{name}.pem", folder / f"{name}.key"


def _subject(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + timedelta(days=days))
    )


def _usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative(name: str) -> x509.GeneralName:
    """An address or a host. Raises ConfigurationError."""
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        pass
    try:
        return x509.DNSName(name.encode("idna").decode())
    except UnicodeError:
        raise ConfigurationError(f"host {name!r}: expected a host name or an address") from None


def _write_pair(
    folder: Path,
    name: str,
    certificate: x509.Certificate,
    key: ec.EllipticCurvePrivateKey,
    *,
    overwrites: bool = False,
) -> tuple[Path, Path]:
    certificate_path, key_path = _paths(folder, name)
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    with StorageErrors(folder, "the folder cannot be made"):
        folder.mkdir(mode=0o750, parents=True, exist_ok=True)
    _write(key_path, private, 0o600, overwrites=overwrites)
    _write(certificate_path, certificate.public_bytes(pem), 0o644, overwrites=overwrites)
    return certificate_path, key_path


def _write(path: Path, data: bytes, mode: int, *, overwrites: bool) -> None:
    """Make the file, which nobody else may read meanwhile, or another in its place. Raises StorageError."""
    made = path.with_name(f"{path.name}.new") if overwrites else path
    with StorageErrors(path, "cannot be made"):
        if overwrites:
            made.unlink(missing_ok=True)
        with open(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(data)
        made.replace(path)
