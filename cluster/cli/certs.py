"""``cluster certs``: a certificate authority for a trial or a small deployment, and what it issues."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cluster.cli.members import own_directory
from cluster.cli.verbs import json_option, print_result
from cluster.errors import ConfigurationError

if TYPE_CHECKING:
    from cluster.node.authority import CertificateRequest, IssuedCertificate


class CertsAction(StrEnum):
    """Other than to make certificates that are not there."""

    RENEW = "renew"


app = typer.Typer(rich_markup_mode=None, add_completion=False)

EPILOG = """\b
Examples:
  cluster certs --dir certs --member 0 --member 1 --member 2 --client alice
  cluster certs --dir certs --member 3=db3.example.com,10.0.0.3
  cluster certs --dir certs --backup east=backup.example.com
  cluster certs --dir certs --client bob --days 30 --json
  cluster certs renew --dir certs

The first call makes the authority: DIR/ca.pem and DIR/ca.key. Each member gets DIR/member-N.pem and .key,
each client DIR/client-NAME.pem and .key, each backup DIR/backup-NAME.pem and .key. Later calls use the same
authority. Only `renew` overwrites files: each certificate in DIR gets a new key and expiry date, and keeps
its name, hosts and uses. Copy its two files over the old ones on the member's host; the member loads them
within seconds. Anyone who has ca.key can pose as any member and any client: keep it away from the members'
hosts.

--json prints one object: {"authority", "made": [{"name", "certificate", "key", "notAfter"}]}.
"""


@app.command(epilog=EPILOG)
def certs(
    *,
    action: Annotated[
        CertsAction | None, typer.Argument(help="Renew all certificates in DIR.", metavar="ACTION")
    ] = None,
    directory: Annotated[
        Path, own_directory("Folder of the authority and of the certificates that it issues.")
    ],
    member: Annotated[
        list[str],
        typer.Option(
            metavar="ID[=HOST,...]",
            help="A member, and its host names or addresses; by default only localhost. May be repeated.",
        ),
    ] = [],  # noqa: B006 - never changed
    client: Annotated[
        list[str], typer.Option(metavar="NAME", help="A client, by its principal. May be repeated.")
    ] = [],  # noqa: B006 - never changed
    backup: Annotated[
        list[str],
        typer.Option(
            metavar="NAME[=HOST,...]",
            help="A backup or standby, by its principal, and the hosts for its readers. May be repeated.",
        ),
    ] = [],  # noqa: B006 - never changed
    cluster_id: Annotated[int, typer.Option(help="The cluster_id of the members.", min=0)] = 0,
    days: Annotated[
        int, typer.Option(help="How many days the certificates are valid.", min=1, max=36_500)
    ] = 365,
    as_json: Annotated[bool, json_option("Print one JSON object instead of lines.")] = False,
) -> None:
    """Make a certificate authority, and certificates for members, clients and backups."""
    from cluster.node.authority import CertificateRequest

    requests = [
        *[_member(text, cluster_id) for text in member],
        *map(CertificateRequest.of_client, client),
        *[CertificateRequest.of_backup(*_name_and_hosts(text)) for text in backup],
    ]
    if action is CertsAction.RENEW:
        if requests:
            raise typer.BadParameter("it renews all that DIR has; leave out --member, --client and --backup")
        authority, made = renew(directory, days)
    else:
        authority, made = issue(directory, requests, days)
    lines = [f"{one.name}: {one.certificate}, valid to {one.not_after:%Y-%m-%d}" for one in made]
    result = {"authority": str(authority), "made": list(map(_fields, made))}
    print_result(as_json, result, "\n".join([f"authority: {authority}", *lines]))


def issue(
    directory: Path, requests: list[CertificateRequest], days: int
) -> tuple[Path, list[IssuedCertificate]]:
    """All or nothing; the authority's path, made when missing, and what was made. Raises ClusterError."""
    from cluster.node.authority import CertificateAuthority, check_absent

    authority = CertificateAuthority.open(directory)
    check_absent(directory, requests)
    authority = authority or CertificateAuthority.make(directory, days)
    return authority.path, [authority.issue(request, days) for request in requests]


def renew(directory: Path, days: int) -> tuple[Path, list[IssuedCertificate]]:
    """The same of an authority that is there, for all that it has issued. Raises ClusterError."""
    from cluster.node.authority import CertificateAuthority

    authority = CertificateAuthority.open(directory)
    if authority is None:
        raise ConfigurationError(f"{directory}: no authority is here, expected ca.pem and ca.key")
    return authority.path, authority.renew(days)


def _member(text: str, cluster_id: int) -> CertificateRequest:
    from cluster.node.authority import CertificateRequest

    id_text, hosts = _name_and_hosts(text)
    if not (id_text.isascii() and id_text.isdigit()):
        raise ConfigurationError(f"--member {text!r}: expected ID or ID=HOST,..., as in 0=db0.example.com")
    return CertificateRequest.of_member(int(id_text), cluster_id, hosts)


def _name_and_hosts(text: str) -> tuple[str, list[str]]:
    name, _, hosts = text.partition("=")
    return name, [host.strip() for host in hosts.split(",") if host.strip()]


def _fields(issued: IssuedCertificate) -> dict[str, Any]:
    return {
        "name": issued.name,
        "certificate": str(issued.certificate),
        "key": str(issued.key),
        "notAfter": issued.not_after.isoformat(),
    }
