"""What rots: bits that flip, sectors that cannot be read, files that are lost, writes that land elsewhere.

Only in the log, only below what its member has synced for sure, and never on so many members that no majority
is whole: what nobody has any more nobody can repair. A member counts as whole again when its disk holds again
what it held, and it follows or leads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from cluster.archive.proof import decode_slots, proof_path
from cluster.protocol.frame import HEADER_LENGTH, TYPE_DATA, align
from cluster.protocol.recording_log import SNAPSHOT, TERM, decode_recording_log
from tests.simulation.disk import SECTOR, Inode
from tests.simulation.invariants import find_segment, log_bytes

if TYPE_CHECKING:
    from tests.simulation.nemesis import Nemesis


class _Frame(NamedTuple):
    """A data frame of the committed log, on the disk of one member."""

    member_id: int
    path: str
    inode: Inode
    offset: int  # in the file
    length: int  # with its header


class _Geometry(NamedTuple):
    term_length: int
    segment_length: int


class DiskDamage:
    """The nemesis's faults of what is at rest on a disk, by name."""

    def __init__(self, nemesis: Nemesis) -> None:
        self._nemesis = nemesis
        self._history = nemesis.history
        self.random = nemesis.history.world.random("damage")
        self._held: dict[int, int] = {}  # damaged member: how far the log was committed then

    def by_name(self) -> dict[str, Callable[[], str | None]]:
        settings = self._history.settings
        if len(settings.context.member_ids) == 1 or settings.file_sync_level == 0:
            return {}
        faults: dict[str, Callable[[], str | None]] = {
            "bad sector": self._bad_sector,
            "lost segment": self._lost_segment,
        }
        if settings.checksum is not None:
            faults["bit flip"] = self._bit_flip
            faults["misdirected write"] = self._misdirected_write
        return faults

    def look_after(self) -> None:
        """Count as whole those that are."""
        for member_id in [i for i in self._held if self._is_intact(i)]:
            del self._held[member_id]
            self._nemesis.not_whole.discard(member_id)
            self._history.invariants.damaged.discard(member_id)
            self._nemesis.tell(f"member {member_id} is whole again")

    @property
    def damaged_ids(self) -> list[int]:
        return sorted(self._held)

    # -- faults --

    def _bit_flip(self) -> str | None:
        frame = self._choose_frame()
        if frame is None:
            return None
        offset = frame.offset + self.random.randrange(HEADER_LENGTH, frame.length)
        frame.inode.cache[offset] ^= 1 << self.random.randrange(8)
        self._is_damaged(frame.member_id)
        return f"at offset {offset} of {frame.path}"

    def _bad_sector(self) -> str | None:
        frame = self._choose_frame()
        if frame is None:
            return None
        begin = frame.offset // SECTOR * SECTOR
        frame.inode.bad.append((begin, begin + SECTOR))
        self._is_damaged(frame.member_id)
        return f"at offset {begin} of {frame.path}"

    def _lost_segment(self) -> str | None:
        """Of a member that does not run: one that does has it open."""
        frame = self._choose_frame()
        if frame is None:
            return None
        member = self._history.members[frame.member_id]
        member.kill()
        self._nemesis.bring_down(member)
        member.disk.change_names({frame.path: None})
        self._is_damaged(frame.member_id)
        return frame.path

    def _misdirected_write(self) -> str | None:
        """Of a follower: its leader has shown what is committed before it does."""
        member_id = self._choose_member()
        if member_id is None:
            return None
        member = self._history.members[member_id]
        if not member.is_following or member.dies_by_power:
            return None
        assert member.agent is not None and member.agent.recording is not None
        recording_id = member.agent.recording.recording_id
        member.disk.faults.misdirected_in = f"{member.directory}/archive/{recording_id}-"
        member.disk.faults.misdirected_writes = 1
        self._is_damaged(member_id)
        return f"of member {member_id}, the next"

    # -- what can be damaged --

    def _is_damaged(self, member_id: int) -> None:
        history = self._history
        self._held[member_id] = history.invariants.log.end
        self._nemesis.not_whole.add(member_id)
        history.invariants.damaged.add(member_id)
        history.invariants.ever_damaged.add(member_id)

    def _choose_member(self) -> int | None:
        ids = self._nemesis.expendable_ids()
        return self.random.choice(ids) if ids else None

    def _choose_frame(self) -> _Frame | None:
        """One that its member has synced before its last sync, and needs after a restart."""
        history = self._history
        member_id = self._choose_member()
        if member_id is None:
            return None
        disk = history.disks[member_id]
        directory = f"/member-{member_id}/archive"
        inode = disk.inode(f"/member-{member_id}/cluster/recording.log")
        if inode is None:
            return None
        entries = [entry for entry in decode_recording_log(bytes(inode.cache)) if entry.is_valid]
        terms = [entry for entry in entries if entry.entry_type is TERM]
        if not terms:
            return None
        begin = max((e.log_position for e in entries if e.entry_type is SNAPSHOT), default=0)
        end = history.invariants.log.end
        proof = disk.inode(proof_path(directory, terms[-1].recording_id))
        if proof is not None:
            end = min([end, *(slot.from_position for slot in decode_slots(bytes(proof.cache)))])
        log = history.invariants.log.bytes
        like = _Geometry(history.context.term_length, history.settings.segment_length)
        frames = []
        position = begin
        while position + HEADER_LENGTH <= end:
            length = int.from_bytes(log[position : position + 4], "little")
            is_data = int.from_bytes(log[position + 6 : position + 8], "little") == TYPE_DATA
            if is_data and length > HEADER_LENGTH and position + align(length) <= end:
                frames.append((position, length))
            position += align(length)
        if not frames:
            return None
        position, length = self.random.choice(frames)
        base, segment = find_segment(disk, directory, terms[-1].recording_id, like, position)  # type: ignore[arg-type]
        offset = position - base
        if segment is None or segment.cache[offset : offset + length] != log[position : position + length]:
            return None
        path = f"{directory}/{terms[-1].recording_id}-{base}.rec"
        return _Frame(member_id, path, segment, offset, length)

    def _is_intact(self, member_id: int) -> bool:
        """It holds again all that it held, as far as a restart needs it, and can read it."""
        history = self._history
        member = history.members[member_id]
        if not (member.is_following or member.is_leading) or member.disk.faults.misdirected_writes:
            return False
        assert member.agent is not None
        recording = member.agent.recording
        assert recording is not None
        snapshot = member.recording_log.latest_snapshot()
        begin = max(recording.start_position, 0 if snapshot is None else snapshot.log_position)
        end = max(self._held[member_id], begin)
        if recording.append_position < end:
            return False
        position = begin
        while position < end:
            base, segment = find_segment(
                member.disk, f"{member.directory}/archive", recording.recording_id, recording, position
            )
            if segment is None or any(last > begin - base for _, last in segment.bad):
                return False
            position = base + recording.segment_length
        known = history.invariants.log.bytes[begin:end]
        return log_bytes(member.disk, recording, begin, end)[: len(known)] == known
