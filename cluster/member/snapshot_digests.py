"""Members that have come apart, found by their snapshots: at one place in the log these must be equal.

    service ── ServiceSnapshotDigest ──▶ module, adds its own ── SnapshotDigest ──▶ leader, compares

A difference is told and stops nobody. Which of the two is wrong the digests do not say; that of a leader
shows against every other member.
"""

from typing import TYPE_CHECKING

from cluster.errors import MembersApart
from cluster.protocol.link import PartDigest, ServiceSnapshotDigest, SnapshotDigest
from cluster.protocol.recording_log import CONSENSUS_MODULE_SERVICE_ID
from cluster.transport.frames import link_frame

if TYPE_CHECKING:
    from cluster.member.agent import ConsensusModuleAgent


class SnapshotDigests:
    """The newest digests of this member, and of each follower while it leads."""

    def __init__(self, agent: "ConsensusModuleAgent") -> None:
        self._agent = agent
        self._of_services: dict[int, ServiceSnapshotDigest] = {}
        self._own: SnapshotDigest | None = None
        self._reported: dict[int, SnapshotDigest] = {}  # by member, not compared yet

    def on_service(self, message: ServiceSnapshotDigest) -> None:
        """A service of this member took its snapshot."""
        self._of_services[message.service_id] = message

    def on_taken(self, log_position: int, module_digest: int) -> None:
        """All snapshots of this member at the position are taken: tell the leader, or compare."""
        agent = self._agent
        parts = [PartDigest(CONSENSUS_MODULE_SERVICE_ID, module_digest)]
        for service_id, taken in sorted(self._of_services.items()):
            if taken.log_position == log_position:
                parts.append(PartDigest(service_id, taken.digest))
        self._own = SnapshotDigest(log_position, tuple(parts))
        if agent.leading is not None:
            for member_id in sorted(self._reported):
                self._compare(member_id)
        elif agent.following is not None:
            agent.links.send(agent.leader_member_id, link_frame(self._own))

    def on_reported(self, member_id: int, message: SnapshotDigest) -> None:
        """A follower took its snapshot, maybe before this leader has."""
        if self._agent.leading is not None:
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
                self._agent.on_error(
                    MembersApart(
                        f"{what} has come apart: its snapshot at position {own.log_position} on member "
                        f"{member_id} is not that of member {self._agent.context.member_id}, the leader"
                    )
                )
