"""Members that have come apart, found by their snapshots: at one place in the log these must be equal.

    service ── ServiceSnapshot ──▶ module, adds its own ── SnapshotDigest ──▶ leader, compares

A difference is reported and stops nobody. The digests do not say which of the two is wrong; a wrong leader
differs from every other member.
"""

from collections.abc import Callable

from cluster.consensus.context import NULL_VALUE
from cluster.errors import MembersApart
from cluster.member.ports import Links
from cluster.protocol.link import PartDigest, SnapshotDigest
from cluster.protocol.recording_log import CONSENSUS_MODULE_SERVICE_ID
from cluster.transport.message_frames import link_frame


class SnapshotDigests:
    """The newest digests of this member, and of each follower while it leads."""

    def __init__(self, member_id: int, links: Links, on_error: Callable[[Exception], None]) -> None:
        self._member_id = member_id
        self._links = links
        self._on_error = on_error
        self._own: SnapshotDigest | None = None
        self._reported: dict[int, SnapshotDigest] = {}  # by member, not compared yet

    def on_taken(self, log_position: int, parts: tuple[PartDigest, ...], leader_member_id: int) -> None:
        """All snapshots here are taken: report to the leader, or compare; NULL_VALUE: in an election."""
        self._own = SnapshotDigest(log_position, parts)
        if leader_member_id == self._member_id:
            for member_id in sorted(self._reported):
                self._compare(member_id)
        elif leader_member_id != NULL_VALUE:
            self._links.send(leader_member_id, link_frame(self._own))

    def on_reported(self, member_id: int, message: SnapshotDigest) -> None:
        """A follower took its snapshot, maybe before this leader has."""
        self._reported[member_id] = message
        self._compare(member_id)

    def _compare(self, member_id: int) -> None:
        own, other = self._own, self._reported[member_id]
        if own is None or own.log_position != other.log_position:
            return
        del self._reported[member_id]
        digests = {part.service_id: part.digest for part in other.parts}
        for part in own.parts:
            if digests.get(part.service_id, part.digest) != part.digest:
                is_module = part.service_id == CONSENSUS_MODULE_SERVICE_ID
                what = "the consensus module" if is_module else f"service {part.service_id}"
                self._on_error(
                    MembersApart(
                        f"{what} has come apart: its snapshot at position {own.log_position} on member "
                        f"{member_id} is not that of member {self._member_id}, the leader"
                    )
                )
