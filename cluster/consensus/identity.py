"""Whether two members are of one cluster, by what they report of it."""

from collections.abc import Mapping

from cluster.protocol.identity import ClusterIdentity


def cluster_difference(reported: ClusterIdentity, own: ClusterIdentity) -> str | None:
    """Why they are of two clusters; None when they may be of one. What one does not know fits everything."""
    if reported.generation != own.generation:
        return f"it is of generation {reported.generation}, expected {own.generation}"
    if reported.member_ids and own.member_ids and reported.member_ids != own.member_ids:
        return f"its cluster has members {_list(reported)}, expected {_list(own)}"
    logs = [(of.first_log_session_id, of.first_term_timestamp) for of in (reported, own)]
    if None not in (*logs[0], *logs[1]) and logs[0] != logs[1]:
        (session_id, timestamp), (own_session_id, own_timestamp) = logs
        return (
            f"its log began with session {session_id} at {timestamp}, "
            f"expected session {own_session_id} at {own_timestamp}"
        )
    return None


def _list(identity: ClusterIdentity) -> str:
    return ", ".join(map(str, identity.member_ids))


def agreement(
    reported: Mapping[int, ClusterIdentity | None], needed: int
) -> tuple[list[int], ClusterIdentity | None]:
    """The ``needed`` members that agree on a cluster, and what they say of it; none where they do not."""
    identities = [identity for identity in reported.values() if identity is not None]
    if not identities:
        return sorted(reported), None
    groups = []
    for identity in identities:
        agreeing = [
            i for i, other in reported.items() if other is None or cluster_difference(other, identity) is None
        ]
        if len(agreeing) >= needed:
            groups.append((identity, sorted(agreeing)))
    if not groups or any(cluster_difference(one, other) for one, _ in groups for other, _ in groups):
        return [], None
    # Whoever knows where the log began says most.
    identity, agreeing = max(groups, key=lambda group: group[0].first_term_timestamp is not None)
    return agreeing, identity
