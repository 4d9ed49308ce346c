"""Strings that name the members of a cluster and their endpoints.

    members            0,ingress,consensus,log,catchup,archive[,archiveResponse[,egressResponse]]|1,...
    ingress endpoints  0=host:port,1=host:port

Source: ClusterMember of Aeron Cluster. What an endpoint means is the transport's affair.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from cluster.errors import ConfigurationError

MEMBER_SHAPE: Final = "id,ingress,consensus,log,catchup,archive[,archiveResponse[,egressResponse]]"


class MemberEndpoints(NamedTuple):
    """One member of a members string; the last two are empty when they are not given."""

    member_id: int
    ingress_endpoint: str
    consensus_endpoint: str
    log_endpoint: str
    catchup_endpoint: str
    archive_endpoint: str
    archive_response_endpoint: str = ""
    egress_response_endpoint: str = ""

    def __str__(self) -> str:
        parts = [str(part) for part in self]
        while parts[-1] == "":
            parts.pop()
        return ",".join(parts)


def parse_members(members: str) -> tuple[MemberEndpoints, ...]:
    """Members of a members string, in its order. Raises ConfigurationError for one that is none."""
    found: dict[int, MemberEndpoints] = {}
    for text in members.split("|") if members else ():
        member = parse_member(text)
        if member.member_id in found:
            raise ConfigurationError(f"cluster members: id {member.member_id} is given twice in {members!r}")
        found[member.member_id] = member
    return tuple(found.values())


def parse_member(text: str) -> MemberEndpoints:
    """One member of a members string."""
    member_id, *endpoints = text.split(",")
    if not 5 <= len(endpoints) <= 7:
        raise ConfigurationError(
            f"cluster member {text!r} has {len(endpoints) + 1} parts, expected {MEMBER_SHAPE}"
        )
    number = _member_id(member_id, f"cluster member {text!r}")
    if not all(endpoint.strip() for endpoint in endpoints):
        raise ConfigurationError(f"cluster member {text!r} has an empty part, expected {MEMBER_SHAPE}")
    return MemberEndpoints(number, *(endpoint.strip() for endpoint in endpoints))


def ingress_endpoints(members: Iterable[MemberEndpoints]) -> str:
    """The list that clients are given, in member order."""
    return ",".join(f"{member.member_id}={member.ingress_endpoint}" for member in members)


def _member_id(text: str, where: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise ConfigurationError(f"{where}: member id {text!r} is not a whole number") from None
    if not 0 <= number < 2**31:
        raise ConfigurationError(f"{where}: member id {number} is not between 0 and {2**31 - 1}")
    return number
