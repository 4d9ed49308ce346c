"""What rots: bits that flip, sectors that cannot be read, files that are lost, writes that land elsewhere.

In the log only below what its member has synced for sure, in the files beside it so that it can be seen, and
so that somebody whole has all that any other has reported: a majority of the others at any time, or, when all
stop at once, a member that is as good as any. What nobody has any more nobody can repair. A member counts as
whole again when its disk holds again what it held, and it follows or leads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from itertools import pairwise, permutations
from typing import TYPE_CHECKING, NamedTuple

from cluster.archive.sync_proof import decode_slots, sync_proof_path
from cluster.protocol.catalog import CATALOG_FILE_NAME
from cluster.protocol.frame import HEADER_LENGTH, TYPE_DATA, align
from cluster.protocol.node_state import NODE_STATE_FILE_NAME
from cluster.protocol.recording_log import RECORDING_LOG_FILE_NAME, TERM
from cluster.testing.disk import SECTOR
from cluster.testing.world import SECOND
from tests.simulation.disk import FaultyInode
from tests.simulation.disk_log import find_segment, log_bytes, recorded_entries, snapshot_position

if TYPE_CHECKING:
    from tests.simulation.nemesis import Nemesis


ANYWHERE = 1 << 62  # a write to come may go astray at any position
APART = 16 * 1024  # sectors, so that who cannot read near one can read near the other


class _Frame(NamedTuple):
    """A data frame of the committed log, on the disk of one member."""

    member_id: int
    position: int
    path: str
    inode: FaultyInode
    offset: int  # in the file
    length: int  # with its header

    @property
    def end(self) -> int:
        return self.position + align(self.length)

    @property
    def is_readable(self) -> bool:
        end = self.offset + self.length
        return not any(begin < end and self.offset < last for begin, last in self.inode.bad)


class _Geometry(NamedTuple):
    term_length: int
    segment_length: int


class DiskDamage:
    """The nemesis's faults of what is at rest on a disk, by name."""

    def __init__(self, nemesis: Nemesis) -> None:
        self._nemesis = nemesis
        self._history = nemesis.history
        self.random = nemesis.history.world.random("damage")
        self._random_of_all = nemesis.history.world.random("damage of all but one")
        self._held: dict[int, int] = {}  # damaged member: how far the log was committed then
        self._to_come: set[int] = set()  # members whose next write goes astray

    def by_name(self) -> dict[str, Callable[[], str | None]]:
        settings = self._history.settings
        if len(settings.context.member_ids) == 1 or settings.file_sync_level == 0:
            return {}
        faults: dict[str, Callable[[], str | None]] = {
            "bad sector": self._bad_sector,
            "lost segment": self._lost_segment,
        }
        if any(settings.checksums):
            faults["bit flip"] = self._bit_flip
            faults["misdirected write"] = self._misdirected_write
        faults["damaged file"] = self._damaged_file
        return faults

    def of_many(self) -> dict[str, Callable[[], str | None]]:
        """Those that no majority survives."""
        return {"all but one damaged": self._all_but_one} if self.by_name() else {}

    @property
    def is_of_many(self) -> bool:
        """Whether a seed that draws its faults has these."""
        return self._random_of_all.random() < 0.2

    def look_after(self) -> None:
        """Count as whole those that are."""
        for member_id in sorted(self._to_come):
            if self._history.disks[member_id].faults.misdirected_writes:
                continue
            self._to_come.discard(member_id)  # only now it is known up to where it may be damaged
            recording = self._history.members[member_id].recording
            if recording is not None:
                end = recording.append_position
                self._held[member_id] = max(self._held[member_id], end)
                self._history.invariants.on_damaged(member_id, end)
        for member_id in [i for i in self._held if self._is_intact(i)]:
            del self._held[member_id]
            self._nemesis.not_whole.discard(member_id)
            self._history.invariants.on_whole(member_id)
            self._nemesis.say(f"member {member_id} is whole again")

    @property
    def damaged_ids(self) -> list[int]:
        return sorted(self._held)

    def is_lost_among(self, member_ids: Collection[int]) -> bool:
        """Whether one of these may ask another for a frame that has rotted there, and none of them holds it.

        Before a snapshot no restart misses it. A member that lags does, unless it lags so far that it takes
        the snapshot instead.
        """
        invariants = self._history.invariants
        if not invariants.ever_damaged.intersection(member_ids):
            return False
        frames = list(self._frames(0, invariants.log.end))
        held = [self._held_positions(member_id, frames) for member_id in member_ids]
        known = set().union(*held)
        return any(
            own[0] < position < own[-1] and position not in known
            for own, other in permutations(held, 2)
            if own and own[0] <= max(other, default=0)
            for position, _ in frames
        )

    def _held_positions(self, member_id: int, frames: list[tuple[int, int]]) -> list[int]:
        """Of these, those that a member has and can read; what it has not reported a restart may not keep."""
        entries = recorded_entries(self._history.disks[member_id], member_id)
        ids = [entry.recording_id for entry in entries if entry.entry_type is TERM]
        found = (self._find_frame(member_id, ids[-1], *frame) for frame in frames if ids)
        end = self._history.invariants.spoken.get(member_id, 0)
        return [f.position for f in found if f is not None and f.is_readable and f.end <= end]

    # -- faults --

    def _bit_flip(self) -> str | None:
        member_id = self._choose_member()
        frame = self._choose_frame(member_id) if self._has_checksums(member_id) else None
        return None if frame is None else self._flip_bit(frame)

    def _flip_bit(self, frame: _Frame) -> str:
        offset = frame.offset + self.random.randrange(HEADER_LENGTH, frame.length)
        frame.inode.cache[offset] ^= 1 << self.random.randrange(8)
        self._is_damaged(frame.member_id)
        return f"at offset {offset} of {frame.path}"

    def _bad_sector(self) -> str | None:
        frame = self._choose_frame(self._choose_member())
        return None if frame is None else self._spoil_sector(frame)

    def _spoil_sector(self, frame: _Frame) -> str:
        begin = frame.offset // SECTOR * SECTOR
        frame.inode.bad.append((begin, begin + SECTOR))
        self._is_damaged(frame.member_id)
        return f"at offset {begin} of {frame.path}"

    def _lost_segment(self) -> str | None:
        """Of a member that does not run: one that does has it open."""
        frame = self._choose_frame(self._choose_member())
        if frame is None:
            return None
        member = self._history.members[frame.member_id]
        member.kill()
        self._nemesis.bring_down(member)
        return self._lose_segment(frame)

    def _lose_segment(self, frame: _Frame) -> str:
        self._history.disks[frame.member_id].change_names({frame.path: None})
        self._is_damaged(frame.member_id)
        return frame.path

    def _all_but_one(self) -> str | None:
        """All stop, one of them with the best log: each of the others is damaged when it comes back."""
        nemesis, random = self._nemesis, self._random_of_all
        whole_id = self._choose_as_good_as_any()
        if whole_id is None:
            return None
        frames = [self._choose_frame(i) for i in self._history.context.member_ids if i != whole_id]
        found = [frame for frame in frames if frame is not None]
        if len(found) < len(frames):
            return None
        for member in self._history.alive():
            if random.random() < 0.5:
                member.lose_power()
            else:
                member.kill()
            nemesis.bring_down(member)
        if random.random() < 0.5:  # the others have all the time to do without it
            nemesis.down_until_ns[whole_id] += random.randrange(15 * SECOND)
        told = []
        for frame in found:
            kinds = [self._spoil_sector, self._lose_segment]
            if self._has_checksums(frame.member_id):
                kinds.append(self._flip_bit)
            told.append(random.choice(kinds)(frame))
        return f"whole is member {whole_id}; " + ", ".join(told)

    def of_all(self) -> str | None:
        """Every member is damaged, each where others are whole, and all are there to mend each other."""
        history, nemesis, random = self._history, self._nemesis, self._random_of_all
        is_possible = self.by_name() and history.settings.is_mended and not nemesis.not_whole
        if not is_possible or history.invariants.ever_damaged or random.random() < 0.3:
            return None
        frames = [self._choose_frame(i) for i in history.context.member_ids]
        found = sorted((frame for frame in frames if frame is not None), key=lambda frame: frame.position)
        apart = 1 if all(history.settings.checksums) else APART
        is_apart = all(b.position - a.position >= apart for a, b in pairwise(found))
        if len(found) < len(frames) or not is_apart:
            return None
        for member in history.alive():
            member.kill()
        return ", ".join(
            self._flip_bit(frame) if self._has_checksums(frame.member_id) else self._spoil_sector(frame)
            for frame in found
        )

    def _choose_as_good_as_any(self) -> int | None:
        """A member that has synced all that any has, in the term that all of them know."""
        members = self._history.members.values()
        established = [member for member in members if member.is_leading or member.is_following]
        if len(established) < len(self._history.context.member_ids) or self._nemesis.not_whole:
            return None
        if len({member.leadership_term_id for member in established}) != 1:
            return None
        end = max(member.append_position for member in established)
        best = [member.member_id for member in established if member.synced_position >= end]
        best = [i for i in best if i not in self._history.invariants.ever_damaged]
        return self._random_of_all.choice(best) if best else None

    def _damaged_file(self) -> str | None:
        """A file beside the log, of a member that does not run."""
        member_id = self._choose_member()
        if member_id is None:
            return None
        folder, name = self.random.choice(
            [
                ("cluster", NODE_STATE_FILE_NAME),
                ("cluster", RECORDING_LOG_FILE_NAME),
                ("archive", CATALOG_FILE_NAME),
            ]
        )
        path = f"/member-{member_id}/{folder}/{name}"
        member = self._history.members[member_id]
        inode = member.disk.inode(path)
        if inode is None or not self._has_begun(member_id):
            return None
        member.kill()
        self._nemesis.bring_down(member)
        how = self.random.choice(["lost", "unreadable", "overwritten"])
        if how == "lost":
            member.disk.change_names({path: None})
        elif how == "unreadable":
            inode.bad.append((0, SECTOR))
        else:
            inode.cache[:SECTOR] = self.random.randbytes(min(SECTOR, len(inode.cache)))
        self._is_damaged(member_id)
        if name == NODE_STATE_FILE_NAME:
            self._history.invariants.on_votes_lost(member_id)
        return f"{path} is {how}"

    def _misdirected_write(self) -> str | None:
        """Of a follower: its leader has shown what is committed before it does."""
        member_id = self._choose_member()
        if member_id is None or not self._has_checksums(member_id):
            return None
        member = self._history.members[member_id]
        if not member.is_following or member.dies_by_power:
            return None
        assert member.recording is not None
        recording_id = member.recording.recording_id
        member.disk.faults.misdirected_in = f"{member.directory}/archive/{recording_id}-"
        member.disk.faults.misdirected_writes = 1
        self._is_damaged(member_id, ANYWHERE)
        self._to_come.add(member_id)
        return f"of member {member_id}, the next"

    # -- what can be damaged --

    def _is_damaged(self, member_id: int, end: int = 0) -> None:
        history = self._history
        self._held[member_id] = history.invariants.log.end
        self._nemesis.not_whole.add(member_id)
        history.invariants.on_damaged(member_id, end)
        history.recorder.forget(member_id)

    def _has_checksums(self, member_id: int | None) -> bool:
        """Whether a member sees that a bit of its log is another one."""
        return member_id is not None and self._history.invariants.frames.has_checksums(member_id)

    def _choose_member(self) -> int | None:
        ids = self._nemesis.expendable_ids()
        return self.random.choice(ids) if ids else None

    def _has_begun(self, member_id: int) -> bool:
        """Whether it has a log of its own: nobody misses the files of an empty one."""
        entries = recorded_entries(self._history.disks[member_id], member_id)
        return any(entry.entry_type is TERM for entry in entries)

    def _choose_frame(self, member_id: int | None) -> _Frame | None:
        """One that the member has synced before its last sync, and needs after a restart."""
        history = self._history
        if member_id is None:
            return None
        disk = history.disks[member_id]
        directory = f"/member-{member_id}/archive"
        entries = recorded_entries(disk, member_id)
        terms = [entry for entry in entries if entry.entry_type is TERM]
        if not terms:
            return None
        begin = snapshot_position(entries)
        end = history.invariants.log.end
        proof = disk.inode(sync_proof_path(directory, terms[-1].recording_id))
        if proof is not None:
            end = min([end, *(slot.from_position for slot in decode_slots(bytes(proof.cache)))])
        log = history.invariants.log.bytes
        frames = [
            (position, length)
            for position, length in self._frames(begin, end)
            if int.from_bytes(log[position + 6 : position + 8], "little") == TYPE_DATA
            and length > HEADER_LENGTH
        ]
        if not frames:
            return None
        return self._find_frame(member_id, terms[-1].recording_id, *self.random.choice(frames))

    def _frames(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """Position and length of each whole frame of the committed log from one position to another."""
        log = self._history.invariants.log.bytes
        while begin + HEADER_LENGTH <= end:
            length = int.from_bytes(log[begin : begin + 4], "little")
            if begin + align(length) <= end:
                yield begin, length
            begin += align(length)

    def _find_frame(self, member_id: int, recording_id: int, position: int, length: int) -> _Frame | None:
        """It on the disk of a member, if it is there as it was written."""
        history = self._history
        like = _Geometry(history.context.log_term_length, history.settings.segment_length)
        directory = f"/member-{member_id}/archive"
        disk, log = history.disks[member_id], history.invariants.log.bytes
        base, segment = find_segment(disk, directory, recording_id, like, position)  # type: ignore[arg-type]
        offset = position - base
        if segment is None:
            return None
        held = history.invariants.frames.comparable(
            member_id, bytes(segment.cache[offset : offset + align(length)])
        )
        if held != log[position : position + align(length)]:
            return None
        path = f"{directory}/{recording_id}-{base}.rec"
        return _Frame(member_id, position, path, segment, offset, length)

    def _is_intact(self, member_id: int) -> bool:
        """It holds again all that it held, as far as a restart needs it, and can read it."""
        history = self._history
        member = history.members[member_id]
        if not (member.is_following or member.is_leading) or member.disk.faults.misdirected_writes:
            return False
        recording = member.recording
        assert recording is not None
        snapshot = member.recording_log.latest_snapshot()
        begin = max(recording.start_position, 0 if snapshot is None else snapshot.log_position)
        end = max(self._held[member_id], begin)
        if min(recording.append_position, history.invariants.log.end) < end:
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
        held = log_bytes(member.disk, recording, begin, end)
        return history.invariants.frames.comparable(member_id, held)[: len(known)] == known
