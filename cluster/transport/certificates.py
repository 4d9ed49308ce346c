"""The names in certificates, and who checks which.

    its own, when it is loaded    member_tls.py       a member's name, that servers may show it, its dates
    of the side that is dialled   tls.py              chain and name, by ``ssl``
    of a member that dials        link_hellos.py      its name, against the member id in its Hello
    of a client that dials        cluster/security/   its common name is its principal (authenticators.py)

A member's certificate has the name ``member-<id>.cluster-<cluster id>`` as its subject's common name and as
a DNS name, beside the hosts that it is reached at. A client's common name is its principal; a backup's, too,
which has its hosts beside it.

``cryptography`` is loaded when a certificate is read or made, not on import.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.errors import ConfigurationError
from cluster.transport.named_file import read_named_file

if TYPE_CHECKING:
    from cryptography import x509

MEMBER_NAME = re.compile(r"member-[0-9]+\.cluster-[0-9]+")


def member_name(member_id: int, cluster_id: int) -> str:
    """The name in the certificate of a member."""
    return f"member-{member_id}.cluster-{cluster_id}"


@dataclass(frozen=True, slots=True)
class CertificateFacts:
    """What one certificate says. ``names`` are its DNS names and addresses, times are UTC."""

    common_name: str
    names: tuple[str, ...]
    is_servers: bool  # whether one who listens may show it
    not_before: datetime
    not_after: datetime


def read_certificate(path: str | Path) -> CertificateFacts:
    """The first certificate of a PEM file. Raises ConfigurationError with the path and what is wrong."""
    from cryptography import x509

    data = read_named_file(path)
    try:
        return _facts(x509.load_pem_x509_certificate(data))
    except ValueError:
        raise ConfigurationError(f"{path}: expected a certificate in PEM") from None


def _facts(certificate: x509.Certificate) -> CertificateFacts:
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    names = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    alternatives = _extension(certificate, x509.SubjectAlternativeName) or ()
    uses = _extension(certificate, x509.ExtendedKeyUsage)
    return CertificateFacts(
        common_name=str(names[0].value) if names else "",
        names=tuple(str(name.value) for name in alternatives),
        is_servers=uses is None or ExtendedKeyUsageOID.SERVER_AUTH in uses,
        not_before=certificate.not_valid_before_utc,
        not_after=certificate.not_valid_after_utc,
    )


def _extension(certificate: x509.Certificate, kind: Any) -> Any:
    from cryptography import x509

    try:
        return certificate.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None
