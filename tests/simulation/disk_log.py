"""A member's log as its disk has it, read without the code that wrote it.

Members may keep the same frames with checksums of different kinds, or none: they stand in place of the
session id of each data frame, and nothing else differs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cluster.archive.catalog_checksum import checksum_named
from cluster.errors import LogDamaged
from cluster.log.checksum import restore_session_ids, verify_checksums
from cluster.log.deliver import read_message
from cluster.protocol.recording_log import (
    CONSENSUS_MODULE_SERVICE_ID,
    RECORDING_LOG_FILE_NAME,
    SNAPSHOT,
    RecordingLogEntry,
    decode_recording_log,
)
from cluster.protocol.sbe import kind_at
from cluster.protocol.snapshot import SnapshotAnswer, SnapshotAnswered, SnapshotChecksum
from tests.simulation.disk import FaultyDisk, FaultyInode
from tests.simulation.violation import require

# Records of which members may have kept some for different times, and the checksum over them.
NOT_OF_THE_LOG = (SnapshotAnswer.KIND, SnapshotAnswered.KIND, SnapshotChecksum.KIND)

if TYPE_CHECKING:
    from cluster.archive.recording import Recording


class HeldFrames:
    """How members keep the frames of recordings, by the names of their checksums; None for session ids."""

    def __init__(self, checksums: tuple[str | None, ...]) -> None:
        self._kinds = [checksum_named(name) for name in checksums]
        self._are_mixed = len(set(self._kinds)) > 1

    def has_checksums(self, member_id: int) -> bool:
        return self._kinds[member_id] is not None

    def comparable(self, member_id: int, data: bytes) -> bytes:
        """What a member's disk has of a recording, from the begin of a frame on, as all others have it.

        Where all keep frames alike that is every byte, else all but the session ids; what stands in their
        place must be right then.
        """
        kind = self._kinds[member_id]
        if not self._are_mixed:
            return data
        frames = np.frombuffer(data, np.uint8).copy()
        if kind is not None and verify_checksums(kind, frames, 0, len(frames)) < len(frames):
            return data  # has session ids that nobody has
        restore_session_ids(frames, 0, len(frames), 0)
        return frames.tobytes()


def without_kept_answers(data: bytes) -> bytes:
    """The messages of a module's snapshot but for those that members may have kept for different times."""
    frames, offset, messages = np.frombuffer(data, np.uint8), 0, []
    while offset < len(frames):
        message, offset = read_message(frames, offset, len(frames))
        if message is not None and kind_at(message) not in NOT_OF_THE_LOG:
            messages.append(message)
    return b"|".join(messages)


def recorded_entries(disk: FaultyDisk, member_id: int) -> list[RecordingLogEntry]:
    """The valid entries of a member's recording.log; none where there is none that can be read."""
    inode = disk.inode(f"/member-{member_id}/cluster/{RECORDING_LOG_FILE_NAME}")
    try:
        entries = [] if inode is None else list(decode_recording_log(bytes(inode.cache)))
    except LogDamaged:
        entries = []
    return [entry for entry in entries if entry.is_valid]


def snapshot_position(entries: list[RecordingLogEntry]) -> int:
    """Where the newest snapshot stands that is whole: the module's entry is written last; 0 for none."""
    modules = (e for e in entries if e.entry_type is SNAPSHOT and e.service_id == CONSENSUS_MODULE_SERVICE_ID)
    return max((entry.log_position for entry in modules), default=0)


def find_segment(
    disk: FaultyDisk, directory: str, recording_id: int, like: Recording, position: int
) -> tuple[int, FaultyInode | None]:
    """The segment file that holds a position, and its base; recordings begin at different terms."""
    term_base = position // like.term_length * like.term_length
    for base in range(term_base, term_base - like.segment_length, -like.term_length):
        inode = disk.inode(f"{directory}/{recording_id}-{base}.rec")
        if inode is not None:
            return base, inode
    return term_base, None


def log_bytes(disk: FaultyDisk, recording: Recording, begin: int, end: int) -> bytes:
    """The bytes of a recording as its process reads them, not through its own code."""
    data = bytearray()
    while begin < end:
        base, inode = find_segment(disk, recording._directory, recording.recording_id, recording, begin)
        require(inode is not None, "I-12", f"the segment that holds {begin} is not there")
        assert inode is not None
        data += inode.cache[begin - base : min(end - base, recording.segment_length)]
        begin = base + recording.segment_length
    return bytes(data)


def is_durable(disk: FaultyDisk, recording: Recording, begin: int, end: int) -> bool:
    """Whether a power cut now would keep these bytes."""
    while begin < end:
        base, inode = find_segment(disk, recording._directory, recording.recording_id, recording, begin)
        if inode is None or not inode.is_durable(begin - base, min(end - base, recording.segment_length)):
            return False
        begin = base + recording.segment_length
    return True
