"""How much of its log a member keeps: what a snapshot stands for goes, unless somebody still needs it.

    start             export watermark      n-th last snapshot           end
      |--- dropped, whole segments ---|- kept -|--------- kept -----------|

A member drops only what its own snapshots stand for, in whole segments, and never what it sends to another
member, what a reader of its own is at, or what nobody has exported yet (S-186). Snapshots older than the log
go with it. Consumer groups keep what they have not read, of the last ``consumer_hold_bytes`` before the
commit position. Aeron leaves all of this to its operator.
"""

from collections.abc import Callable
from dataclasses import dataclass

from cluster.archive.archive import Archive
from cluster.archive.recording import Recording
from cluster.archive.snapshot_archive import drop_snapshots_before
from cluster.consensus.context import SECOND, ConsensusModuleContext
from cluster.member.log.member_log import MemberLog
from cluster.member.log.room import LogRoom, RoomState
from cluster.member.log.streams import LogStreams
from cluster.protocol.consumer import Consumer

INTERVAL_NS = 1 * SECOND
SHORT_INTERVAL_NS = SECOND // 10  # where room is short, and somebody may wait for it
FETCH_GRACE_NS = 10 * SECOND  # after a request for a snapshot and its log: more may be asked for

# The least position that somebody outside still needs; None when nobody needs any.
NeededPosition = Callable[[], int | None]
# The consumer group that lags most, of those that are kept; None without one.
SlowestConsumer = Callable[[], Consumer | None]


@dataclass(eq=False)
class Retention:
    """Looked after by the slow tick of an established member."""

    _context: ConsensusModuleContext
    _archive: Archive
    _log: MemberLog
    _streams: LogStreams
    _room: LogRoom
    _needed_positions: tuple[NeededPosition, ...]
    _slowest_consumer: SlowestConsumer
    _say: Callable[[str], None]  # gets a line when the log begins elsewhere, or a group begins to keep some
    _holder: str | None = None  # the consumer group that keeps some of the log
    _next_ns: int = 0

    def do_work(self, now_ns: int, last_request_ns: int | None) -> int:
        """Drop what is not needed, once a second; ``last_request_ns``: of a snapshot. Raises StorageError."""
        if now_ns < self._next_ns:
            return 0
        self._room.look()
        self._next_ns = now_ns + (SHORT_INTERVAL_NS if self._room.state >= RoomState.SHORT else INTERVAL_NS)
        if self._room.kept_snapshots == 0:
            return 0
        if last_request_ns is not None and now_ns - last_request_ns < FETCH_GRACE_NS:
            return 0
        recording = self._log.recording
        limit = self._limit()
        if recording is None or limit is None:
            return 0
        limit = self._bound_by_groups(limit, recording)
        before = recording.start_position
        if limit > before and recording.purge_to(limit) > before:
            self._say(f"the log begins at {recording.start_position} now, {before} before")
        return self._drop_snapshots()

    def _limit(self) -> int | None:
        """Nothing before this position is needed; None when that cannot be said."""
        sets = list(self._log.recording_log.snapshot_sets(self._context.service_count))
        if len(sets) < self._room.kept_snapshots:
            return None
        positions = [sets[self._room.kept_snapshots - 1][0].log_position, self._log.commit_position]
        positions += [position for needed in self._needed_positions if (position := needed()) is not None]
        if (position := self._streams.least_position) is not None:
            positions.append(position)
        return min(positions)

    def _bound_by_groups(self, limit: int, recording: Recording) -> int:
        """``limit``, or as much less as the slowest consumer group needs."""
        slowest = self._slowest_consumer()
        if slowest is None:
            self._holder = None
            return limit
        hold_bytes = min(self._context.consumer_hold_bytes, self._room.hold_bytes)
        position = max(slowest.position, self._log.commit_position - hold_bytes)
        if position >= limit or recording.base_of(position) == recording.base_of(limit):
            self._holder = None
            return min(limit, position)
        if self._holder != slowest.group:
            self._holder = slowest.group
            self._say(
                f"the log is kept from {position} on, not from {limit} on: consumer group {slowest.group} "
                f"is at {slowest.position} (consumer_hold_bytes {hold_bytes})"
            )
        return position

    def _drop_snapshots(self) -> int:
        """Remove the snapshots that are older than those to be kept."""
        recording_log = self._log.recording_log
        sets = list(recording_log.snapshot_sets(self._context.service_count))
        oldest = sets[self._room.kept_snapshots - 1][0].log_position
        return drop_snapshots_before(self._archive, recording_log, oldest)
