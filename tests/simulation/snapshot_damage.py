"""A bit of a snapshot that flips while its member does not run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.protocol.frame import HEADER_LENGTH, align
from cluster.protocol.recording_log import SNAPSHOT, TERM
from tests.simulation.disk_log import recorded_entries

if TYPE_CHECKING:
    from tests.simulation.nemesis import Nemesis


class SnapshotDamage:
    """The nemesis's fault of snapshots: of a member that has all of its log, and so can do without."""

    def __init__(self, nemesis: Nemesis) -> None:
        self._nemesis = nemesis
        self._history = nemesis.history
        self.random = nemesis.history.world.random("snapshot damage")

    def strike(self) -> str | None:
        """Kill a member, and flip a bit of a payload in one of its newest snapshot's recordings."""
        ids = [i for i in self._history.context.member_ids if i not in self._nemesis.not_whole]
        member = self._history.members.get(self.random.choice(ids)) if ids else None
        if member is None or not (member.is_following or member.is_leading):
            return None
        assert member.recording is not None
        directory = f"/member-{member.member_id}"
        if member.start_position > 0:
            return None
        entries = recorded_entries(member.disk, member.member_id)
        snapshots = [entry for entry in entries if entry.entry_type is SNAPSHOT]
        if not snapshots or not any(entry.entry_type is TERM for entry in entries):
            return None
        newest = max(entry.log_position for entry in snapshots)
        chosen = self.random.choice([entry for entry in snapshots if entry.log_position == newest])
        path = f"{directory}/archive/{chosen.recording_id}-0.rec"
        segment = member.disk.inode(path)
        offsets = [] if segment is None else _payload_offsets(bytes(segment.cache))
        if segment is None or not offsets:
            return None
        member.kill()
        self._nemesis.bring_down(member)
        offset = self.random.choice(offsets)
        segment.cache[offset] ^= 1 << self.random.randrange(8)
        return f"at offset {offset} of {path}, of member {member.member_id} at {newest}"


def _payload_offsets(data: bytes) -> list[int]:
    """Where the first bytes of frames' payloads stand, and their last."""
    offsets, begin = [], 0
    while begin + HEADER_LENGTH <= len(data):
        length = int.from_bytes(data[begin : begin + 4], "little", signed=True)
        if length <= HEADER_LENGTH:
            break
        offsets += [begin + HEADER_LENGTH, begin + length - 1]
        begin += align(length)
    return offsets
