"""How the members of a real Aeron Cluster stand, as each answers at its consensus endpoint.

A member answers no query while it is in an election. How far it has committed is in its own counters alone: a
cluster is committed as far as a majority has recorded the leader's term.
"""

from __future__ import annotations

from typing import NamedTuple

from cluster.aeron.aeron_member import AeronMember, ArchiveAccess, answered_members
from cluster.aeron.consensus_endpoints import parse_consensus_endpoints
from cluster.errors import (
    AuthenticationRejected,
    ClusterError,
    MediaDriverError,
    RemoteProtocolError,
    TimedOut,
)
from cluster.media.aeron import Aeron
from cluster.media.client_conductor import IDLE_S, ChannelRefused
from cluster.protocol.backup import BackupResponse
from cluster.transport.clock import monotonic_ns, pause
from cluster.transport.credentials import supplier_of

TIMEOUT_S = 3.0


class AeronStanding(NamedTuple):
    """A member: its answer, and what its archive has of the log, or why that is not known."""

    endpoint: str
    member_id: int | None = None
    response: BackupResponse | None = None
    start_position: int | None = None
    recorded_end: int | None = None
    error: ClusterError | None = None


def survey(
    consensus_endpoints: str, aeron_dir: str | None = None, timeout_s: float = TIMEOUT_S
) -> list[AeronStanding]:
    """All members that are given or named by one that answers, which have ``timeout_s`` for it, by id.

    Raises AuthenticationRejected, MediaDriverError, ConfigurationError.
    """
    access = ArchiveAccess(supplier_of(None), timeout_s)
    found: dict[str, AeronStanding] = {}
    asked: dict[str, AeronMember] = {}
    with Aeron.connect(aeron_dir, timeout_s) as aeron:

        def ask(endpoint: str) -> None:
            try:
                asked[endpoint] = AeronMember(aeron, endpoint, access)
                asked[endpoint].begin_query()
                found[endpoint] = AeronStanding(endpoint, error=TimedOut("it answers no query"))
            except ChannelRefused as error:
                found[endpoint] = AeronStanding(endpoint, error=error)

        for endpoint in parse_consensus_endpoints(consensus_endpoints):
            ask(endpoint)
        deadline_ns = monotonic_ns() + int(timeout_s * 1e9)
        answered: dict[str, AeronMember] = {}
        while asked and monotonic_ns() < deadline_ns:
            aeron.conductor.do_work()
            for endpoint in list(asked):
                try:
                    if not asked[endpoint].poll_response():
                        continue
                except RemoteProtocolError as error:
                    asked.pop(endpoint)
                    found[endpoint] = found[endpoint]._replace(error=error)
                    continue
                member = answered[endpoint] = asked.pop(endpoint)
                assert member.response is not None
                found[endpoint] = AeronStanding(endpoint, member.member_id, member.response)
                known = {standing.member_id for standing in found.values()}
                for member_id, other in answered_members(member.response).items():
                    named = other.consensus_endpoint
                    if member_id not in known and named not in found:
                        ask(named)
                    if member_id not in known:
                        found[named] = found[named]._replace(member_id=member_id)
            pause(IDLE_S)
        for endpoint, member in answered.items():
            found[endpoint] = _with_recording(found[endpoint], member)
    if not answered:
        return list(found.values())
    by_id: dict[int, AeronStanding] = {}
    for standing in sorted(found.values(), key=lambda each: each.response is not None):
        if standing.member_id is not None:
            by_id[standing.member_id] = standing
    return [by_id[member_id] for member_id in sorted(by_id)]


def _with_recording(standing: AeronStanding, member: AeronMember) -> AeronStanding:
    try:
        start, end = member.recording().start_position, member.recorded_end()
        return standing._replace(start_position=start, recorded_end=end)
    except (AuthenticationRejected, MediaDriverError):
        raise
    except ClusterError as error:
        return standing._replace(error=error)


def committed_position(standings: list[AeronStanding], member_count: int) -> int:
    """What a majority of so many members has recorded in the newest term that is known; 0 where none has."""
    term_id = max(
        (s.response.last_leadership_term_id for s in standings if s.response is not None), default=0
    )
    positions = sorted(
        standing.recorded_end or 0
        for standing in standings
        if standing.response is not None and standing.response.last_leadership_term_id == term_id
    )
    quorum = member_count // 2 + 1
    return positions[-quorum] if len(positions) >= quorum else 0
