"""Strings that name the members of a cluster and their endpoints.

    members            0,ingress,consensus,log,catchup,archive[,archiveResponse[,egressResponse]]|1,...
    member endpoints   ingress,consensus,log,catchup,archive
    ingress endpoints  0=host:port,1=host:port

Source: ClusterMember of Aeron Cluster. What an endpoint means is the transport's affair.
"""

from collections.abc import Iterable, Mapping
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

    @property
    def endpoints(self) -> str:
        """The member-endpoints string: five parts, without the id."""
        return ",".join(self[1:6])


def parse_members(members: str) -> tuple[MemberEndpoints, ...]:
    """Members of a members string, in its order; an empty string has none.

    Raises ConfigurationError for a member without 6 to 8 parts, an id that is no number or comes twice, and
    an empty part.
    """
    found: dict[int, MemberEndpoints] = {}
    for text in members.split("|") if members else ():
        member = parse_member(text)
        if member.member_id in found:
            raise ConfigurationError(f"cluster members: id {member.member_id} comes twice in {members!r}")
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


def format_members(members: Iterable[MemberEndpoints]) -> str:
    """The members string."""
    return "|".join(str(member) for member in members)


def find_member(members: Iterable[MemberEndpoints], member_id: int) -> MemberEndpoints:
    """The member with this id, or ConfigurationError."""
    known = {member.member_id: member for member in members}
    if member_id not in known:
        raise ConfigurationError(
            f"member id {member_id} is not in the cluster members, which are {sorted(known)}"
        )
    return known[member_id]


def check_member_endpoints(endpoints: str, member: MemberEndpoints) -> None:
    """Raise ConfigurationError unless a member-endpoints string tells the same as the members string."""
    parts = endpoints.split(",")
    if len(parts) != 5:
        raise ConfigurationError(
            f"member endpoints {endpoints!r} have {len(parts)} parts, "
            "expected ingress,consensus,log,catchup,archive"
        )
    if endpoints != member.endpoints:
        raise ConfigurationError(
            f"member endpoints {endpoints!r} differ from the cluster members, "
            f"which say {member.endpoints!r} for member {member.member_id}"
        )


def ingress_endpoints(members: Iterable[MemberEndpoints]) -> str:
    """The list that clients are given, in member order."""
    return format_ingress_endpoints({member.member_id: member.ingress_endpoint for member in members})


def format_ingress_endpoints(endpoints: Mapping[int, str]) -> str:
    """``id=endpoint`` joined by commas, in the mapping's order."""
    return ",".join(f"{member_id}={endpoint}" for member_id, endpoint in endpoints.items())


def parse_ingress_endpoints(text: str) -> dict[int, str]:
    """Endpoint by member id, in the order of ``text``.

    Raises ConfigurationError for an empty list, an item without ``=``, an id that is no number or comes
    twice, and an empty endpoint.
    """
    found: dict[int, str] = {}
    for item in text.split(","):
        member_id, equals, endpoint = (part.strip() for part in item.partition("="))
        if not equals:
            raise ConfigurationError(
                f"endpoints {text!r}: {item.strip()!r} has no '=', expected memberId=endpoint, as 0=host:9000"
            )
        number = _member_id(member_id, f"endpoints {text!r}")
        if not endpoint:
            raise ConfigurationError(f"endpoints {text!r}: member {number} has no endpoint")
        if number in found:
            raise ConfigurationError(f"endpoints {text!r}: member {number} comes twice")
        found[number] = endpoint
    return found


def _member_id(text: str, where: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise ConfigurationError(f"{where}: member id {text!r} is not a whole number") from None
    if not 0 <= number < 2**31:
        raise ConfigurationError(f"{where}: member id {number} is not between 0 and {2**31 - 1}")
    return number
