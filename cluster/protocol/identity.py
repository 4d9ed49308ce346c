"""Which cluster a member is of: written in two files of its directory, and stated on its links.

What is stated of a cluster is its members' ids, its generation and the identity of its log. The generation is
0 until restore or promotion begin a new cluster with the log of an old one.
"""

import hashlib
from typing import Final

from cluster.protocol.sbe import Composite, i32, i64

GENERATION_BITS: Final = 62
ANY_MEMBER_ID: Final = -1


class IdOfMember(Composite):
    """One member of a cluster."""

    member_id: i32


class ClusterIdentity(Composite):
    """``members`` are ascending. None or empty is what is not known yet.

    That is the log's first term until it is known to be committed, and of a directory that was restored or
    promoted what its first start says: cluster id and members, of which ANY_MEMBER_ID alone is one.
    """

    generation: i64
    first_term_timestamp: i64 | None = None  # of the log's first NewLeadershipTermEvent, as in LogStatus
    first_log_session_id: i32 | None = None
    cluster_id: i32 | None = None
    members: tuple[IdOfMember, ...] = ()

    @property
    def member_ids(self) -> tuple[int, ...]:
        return tuple(member.member_id for member in self.members)

    def with_members(self, cluster_id: int | None, member_ids: tuple[int, ...]) -> "ClusterIdentity":
        """The same, of these members, ascending."""
        return self.replace(cluster_id=cluster_id, members=tuple(map(IdOfMember, member_ids)))


def generation_of(what: str, *facts: int) -> int:
    """The generation that something makes, the same wherever it is made of the same facts; above 0."""
    digest = hashlib.sha256(f"{what} {facts}".encode()).digest()
    return 1 + int.from_bytes(digest[:8], "little") % (1 << GENERATION_BITS)
