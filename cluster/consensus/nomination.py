"""When a candidate stands: at once where all know that it comes first, else after a random delay."""

from collections.abc import Collection, Iterable
from random import Random

from cluster.consensus.cluster_member import ClusterMember


def comes_first(
    candidate: ClusterMember, others: Iterable[ClusterMember], exempt: Collection[int], appointed_id: int
) -> bool:
    """Whether it is the appointed leader, or of the best logs, all known, has the lowest id."""
    equals = (o.id for o in others if o.id not in exempt and o.standing == candidate.standing)
    return candidate.id == appointed_id or all(candidate.id < id_ for id_ in equals)


def nomination_delay_ns(random: Random, election_timeout_ns: int, *, is_first: bool | None) -> int:
    """Below half of the timeout, and random (C-64) but for the one that comes first: it need not wait.

    The others leave it a quarter of the timeout. ``is_first`` is None where nobody knows who that is, or it
    has not come to lead: what kept it from that may keep it again, so that chance decides.
    """
    end_ns = election_timeout_ns // 2
    if is_first:
        return 0
    return random.randrange(0 if is_first is None else end_ns // 2, end_ns)
