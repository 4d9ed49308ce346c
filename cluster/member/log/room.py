"""How much log a member still takes: ``log_bytes_max``, ``disk_free_min``.

    bytes of log   0 ------------- a half ------------------ nine tenths -------------- log_bytes_max
                    as configured    snapshots are taken, and   node.log says so          the leader takes
                                     one set of them is enough  whose room is used up     no more input

``disk_free_min`` is the same for the file system: below four times as much log is dropped as early, below
twice as much it is said, below that no more input is taken. Where it is "auto" nobody asked for that, so more
care is taken: as many snapshots stay as are configured, and the leader asks for none before somebody has had
one taken, because a service that writes none would lose its state. Aeron leaves all of this to its operator.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from cluster.archive.files import DiskSpace
from cluster.consensus.context import NULL_VALUE, ConsensusModuleContext
from cluster.counters import Counter
from cluster.member.log.member_log import MemberLog
from cluster.member.reporter import Reporter
from cluster.protocol.session import NO_ROOM

ANY = 1 << 62  # bytes that may still come where nothing bounds them


class RoomState(IntEnum):
    """How the log stands with what it may take."""

    AMPLE = 0
    SHORT = 1
    NEARLY_FULL = 2
    FULL = 3


@dataclass(eq=False)
class LogRoom:
    """Looked at by ``Retention``; what is found holds until its next look."""

    _context: ConsensusModuleContext
    _log: MemberLog
    _space: Callable[[], DiskSpace]  # of the archive's disk
    _counter: Counter  # of the bytes that may still come
    _reporter: Reporter
    state: RoomState = RoomState.AMPLE
    _of_log: RoomState = RoomState.AMPLE  # by its own bytes
    _of_disk: RoomState = RoomState.AMPLE

    @property
    def is_full(self) -> bool:
        """Whether a leader takes no more input. What the log has taken is known in every turn."""
        return self.state is RoomState.FULL or self._is_used

    @property
    def refusal(self) -> str:
        """What clients of a leader hear while it ``is_full``."""
        return f"{NO_ROOM} ({'log_bytes_max' if self._is_used else 'disk_free_min'})"

    @property
    def input_limit(self) -> int:
        """The position from which on ``log_bytes_max`` is used up."""
        recording, limit = self._log.recording, self._context.log_bytes_max
        return ANY if recording is None or not limit else recording.start_position + limit

    @property
    def _is_used(self) -> bool:
        return self._log.append_position >= self.input_limit

    @property
    def _taken(self) -> int:
        """Bytes of log that are kept."""
        recording = self._log.recording
        return 0 if recording is None else recording.append_position - recording.start_position

    @property
    def hold_bytes(self) -> int:
        """What consumer groups may keep of it at most, so that they never fill it."""
        return self._context.log_bytes_max // 2 or ANY

    @property
    def snapshot_bytes(self) -> int:
        """After how many bytes of log a snapshot is wanted, so that what is older can go; 0: none is."""
        recording = self._log.recording
        if self._of_disk >= RoomState.SHORT and recording is not None and not self._awaits_first_snapshot:
            return recording.segment_length
        return self._context.log_bytes_max // 4

    @property
    def _awaits_first_snapshot(self) -> bool:
        return self._context.disk_free_min == "auto" and self._log.recording_log.latest_snapshot() is None

    @property
    def kept_snapshots(self) -> int:
        """How many sets of snapshots stay; 0: all of them, and all of the log."""
        configured = self._context.log_retained_snapshots
        if self.state is RoomState.AMPLE:
            return configured
        is_by_default = self._context.disk_free_min == "auto" and self._of_log is RoomState.AMPLE
        return max(configured, 1) if is_by_default else 1

    @property
    def misses_snapshots(self) -> bool:
        """Whether it is full, and two of those that the leader asks for were not taken here."""
        recording = self._log.recording
        if recording is None or not self.is_full:
            return False
        newest = self._log.recording_log.latest_snapshot()
        begin = recording.start_position if newest is None else newest.log_position
        return recording.append_position - begin >= 2 * (self.snapshot_bytes or recording.segment_length)

    def look(self) -> None:
        """Find out how much room there is. Raises OSError where the file system does not say so."""
        if self._log.recording is None:
            return
        left, why = ANY, []
        self._of_log = self._of_disk = RoomState.AMPLE
        if limit := self._context.log_bytes_max:
            taken = self._taken
            self._of_log = _state(taken * 2 >= limit, taken * 10 >= limit * 9, taken >= limit)
            left = min(left, max(limit - taken, 0))
            snapshot = self._log.recording_log.latest_snapshot()
            newest = "no snapshot" if snapshot is None else f"a snapshot at {snapshot.log_position}"
            why.append(f"the log has {taken} bytes and {newest} (log_bytes_max {limit})")
        if configured := self._context.disk_free_min:
            space = self._space()
            free, least = space.free, space.reserve if configured == "auto" else configured
            self._of_disk = _state(free < 4 * least, free < 2 * least, free < least)
            left = min(left, max(free - least, 0))
            why.append(f"{free} bytes are free (disk_free_min {least})")
        self._change(max(self._of_log, self._of_disk), " and ".join(why) or "nothing bounds the log")
        self._counter.set(NULL_VALUE if left == ANY else left)

    def _change(self, state: RoomState, why: str) -> None:
        before, self.state = self.state, state
        if state is before or max(state, before) < RoomState.NEARLY_FULL:
            return
        if state is RoomState.FULL:
            self._reporter.warning(f"{why}: as leader this member takes no more input until there is room")
        elif state is RoomState.NEARLY_FULL:
            again = "input is taken again" if before is RoomState.FULL else "there is little room left"
            self._reporter.warning(f"{why}: {again}")
        else:
            self._reporter.event(f"{why}: there is room again")


def _state(is_short: bool, is_nearly_full: bool, is_full: bool) -> RoomState:
    return RoomState(sum((is_short, is_nearly_full, is_full)))
