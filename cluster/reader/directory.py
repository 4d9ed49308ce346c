"""Reads the log from a member's directory, of ours or of a real Aeron Cluster, closed or running.

What is read is the segment files, with plain reads, so that neither a truncation nor a purge hurts; how far
is ``extent.py``'s to say. Where frames carry checksums they are verified. What is damaged is named with
file and offset, and the log goes on at the next frame that is in its place.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property

import numpy as np

from cluster.archive.files import Files, OsFiles
from cluster.archive.first_frame import read_first_frame
from cluster.archive.frame_checksum import checksum_kinds, checksum_kinds_in
from cluster.archive.frame_walk import FrameWalk, log_params, next_frame_after
from cluster.counters import CountersReader
from cluster.errors import DataLoss, LogDamaged, LogPurged, NotAClusterDirectory, StorageError
from cluster.log.checksum import Checksum, verify_checksums
from cluster.log.scan import last_message_end, split
from cluster.log.term_event import first_term_event, term_event_in, time_unit_by
from cluster.protocol.catalog import RecordingDescriptor
from cluster.protocol.enums import ClusterTimeUnit
from cluster.protocol.frame import header_at
from cluster.protocol.log import NewLeadershipTermEvent
from cluster.protocol.recording_log import TERM
from cluster.protocol.token import LogIdentity, identity_text, is_one_log, term_text
from cluster.reader.extent import Extent, MemberState
from cluster.reader.member_directory import find_member
from cluster.reader.snapshots import newest_module_records
from cluster.transport.clock import epoch_ms
from cluster.transport.committed_log import AS_READ, BlockOptions, OnDamage


class DirectoryLog:
    """The log in a member's directory. ``now_ms`` is the clock by which counters are fresh or not."""

    def __init__(
        self,
        dir: str | None,
        *,
        archive_dir: str | None = None,
        cluster_dir: str | None = None,
        aeron_dir: str | None = None,
        files: Files | None = None,
        now_ms: Callable[[], int] = epoch_ms,
        open_counters: Callable[[str], CountersReader] = CountersReader,
    ) -> None:
        """Raises NotAClusterDirectory, LogDamaged (nothing shows where the log is), StorageError."""
        files = files or OsFiles()
        member = find_member(files, dir, archive_dir, cluster_dir)
        self.state = MemberState(files, member, aeron_dir, now_ms, open_counters)
        self.warnings = self.state.warnings
        self._params = log_params(self.state.descriptor)
        self._segments = self.state.segments()
        self._generation = 0
        self._identity: LogIdentity | None = None

    @property
    def identity(self) -> LogIdentity | None:
        if self._identity is None:
            first = self._first_term_event()
            if first is not None:
                self._identity = LogIdentity(self.state.cluster_id, first.timestamp, first.log_session_id)
            elif self.start_position >= self.term_length:
                return LogIdentity(self.state.cluster_id, None, None)
        return self._identity

    @property
    def recording(self) -> RecordingDescriptor:
        """The catalog's entry of the log, as last read."""
        return self.state.descriptor

    @cached_property
    def _kinds(self) -> set[Checksum | None]:
        """What frames hold in place of session ids; empty until one shows it."""
        return checksum_kinds(self._segments, self.state.descriptor)

    @property
    def checksum(self) -> Checksum | None:
        """What the frames hold in place of session ids, by which they are verified."""
        return next((kind for kind in self._kinds if kind is not None), None)

    @property
    def damage(self) -> list[LogDamaged]:
        """What could not be read of the files beside the log, while the rest could."""
        return self.state.damage

    @property
    def start_position(self) -> int:
        return self.state.descriptor.start_position

    def await_start(self) -> int:
        self.state.refresh()
        return self.start_position

    def term_before(self, position: int) -> str | None:
        if position > self.extent().end:
            return None
        self.state.read_terms()
        for entry in sorted(self.state.log_entries, key=lambda e: e.leadership_term_id, reverse=True):
            base = entry.term_base_log_position
            if entry.entry_type is not TERM or base >= position or entry.log_position == base:
                continue
            event = self._first_term_event() if base == 0 else self._term_event_at(base)
            return term_text(event) if event is not None else f"{entry.leadership_term_id}:{base}:?:?"
        return None

    @property
    def term_length(self) -> int:
        return self.state.descriptor.term_buffer_length

    @cached_property
    def time_unit(self) -> ClusterTimeUnit:
        """From the event of any term that is still there, or from how large timestamps are."""
        events = [self._first_term_event()]
        if events[0] is None:
            events = [self._term_event_at(base) for base in self._term_bases()]
        for event in events:
            if event is not None:
                return event.time_unit or ClusterTimeUnit.MILLIS
        timestamp = max((entry.timestamp for entry in self.state.log_entries), default=0)
        return time_unit_by(timestamp)

    @property
    def is_live(self) -> bool:
        self.state.refresh()
        return self.state.live() is not None

    def commit_position(self) -> int:
        return self.extent().committed

    def end_position(self) -> int:
        return self.extent().end

    def close(self) -> None:
        self._segments.close()
        self.state.close()

    def locate(self, damage: LogDamaged, position: int) -> LogDamaged:
        return self._segments.damage_at(position, f"{damage.what} (log position {position})")

    def blocks(
        self, from_position: int | None = None, to_position: int | None = None, how: BlockOptions = AS_READ
    ) -> Iterator[tuple[int, np.ndarray]]:
        extent = self.extent()
        position = self.start_position if from_position is None else from_position
        limit = extent.written if how.is_committed and to_position is not None else extent.end
        end = limit if to_position is None else min(to_position, limit)
        self._check_start(position)
        if how.is_committed and to_position is not None and limit < to_position:
            raise DataLoss(f"the log ends at position {limit} here, up to {to_position} was asked for")
        wanted, tried = how.max_bytes, 0
        while position < end:
            run, damage = self._read_run(position, limit, wanted)
            if run is None:
                self.state.refresh()
                self._check_start(position)  # purged while it was read?
                assert damage is not None
                position = self._skip(damage, position, limit, how.on_damage)
                continue
            cut = last_message_end(run, 0, len(run))
            if position + cut > end:  # up to the message that begins last in the range, and no more
                cut = int(split(run, 0, len(run), [end - position])[0])
            if cut > 0:
                found, run = [run[:cut]], None
                yield position, found.pop()  # whoever takes it has it alone
                position += cut
                wanted, tried = how.max_bytes, 0
            elif position + len(run) == limit:
                return  # the rest of the message is not there yet
            elif len(run) == tried:
                position += len(run)  # more room gave no more: damage cuts the message off
            else:
                tried = len(run)
                wanted = 2 * max(wanted, tried)
        with suppress(NotAClusterDirectory, LogDamaged, OSError):  # it is gone, and all was read
            self.state.refresh()
            self._check_files()

    def extent(self) -> Extent:
        """How far the log goes now. Raises DataLoss where another log lies here now."""
        try:
            extent = self.state.extent(self.checksum)
        except OSError as error:
            raise StorageError(error.filename, error.errno, "reading failed") from error
        self._check_files()
        return extent

    def _check_files(self) -> None:
        """Open files again where others may have their names. Raises DataLoss for those of another log."""
        if self.state.generation == self._generation:
            return
        self._segments.close()  # a repaired or recovered log may lie in new files of the same names
        known, self._identity = self._identity, None
        now = self.identity
        self._identity = known or now
        if known is not None and now is not None:
            was, is_now = identity_text(*known), identity_text(*now)
            if not is_one_log(was, is_now):
                raise DataLoss(
                    f"{self.state.member.archive} holds the log of cluster {is_now} now, "
                    f"it was opened with that of {was}"
                )
        self._generation = self.state.generation

    # ---- reading

    def _check_start(self, position: int) -> None:
        """Raise LogPurged when ``position`` is not in the log any more."""
        start = self.start_position
        if position < start:
            raise LogPurged(f"position {position} was purged, the log begins at {start} now", start)

    def _read_run(
        self, position: int, limit: int, wanted: int
    ) -> tuple[np.ndarray, None] | tuple[None, LogDamaged]:
        """Whole frames in their places from ``position`` on, or what is wrong with the first."""
        walk = FrameWalk(self._segments, self._params, position, limit, chunk_length=wanted)
        try:
            first = next(iter(walk), None)
            if first is None:
                return None, self._damage_of(walk)
        except LogDamaged as damage:
            return None, damage
        except OSError as error:
            path = self._segments.path(self._segments.base_of(position))
            raise StorageError(path, error.errno, "reading failed") from error
        run = first[1]
        good = self._verify(position, run)
        if good == 0:
            return None, self.locate(LogDamaged(None, None, "checksum mismatch"), position)
        return run[:good], None

    def _damage_of(self, walk: FrameWalk) -> LogDamaged:
        base = self._segments.base_of(walk.position)
        size = self._segments.file(base).size()
        if size <= walk.position - base:
            what = f"the file ends here, the log goes on (log position {walk.position})"
            return LogDamaged(self._segments.path(base), size, what)
        return walk.damage()

    def _skip(self, damage: LogDamaged, position: int, limit: int, on_damage: OnDamage | None) -> int:
        """Report the damage at ``position``; return where frames are in their places again."""
        if on_damage is None:
            raise damage
        resumed = next_frame_after(self._segments, self._params, position, limit) or limit
        what = f"{damage.what}; nothing is readable from position {position} to {resumed}"
        on_damage(LogDamaged(damage.path, damage.offset, what))
        return resumed

    def frame_around(self, position: int) -> int | None:
        """Begin of the frame that ``position`` lies within; None when one begins there, or none is found."""
        begin = max(position - position % self.term_length, self.start_position)
        walk = FrameWalk(self._segments, self._params, begin, position)
        for _ in walk:
            pass
        begin = walk.position
        _, run = next(iter(FrameWalk(self._segments, self._params, begin, self.end_position())), (0, None))
        if run is None:
            return None
        return begin if begin < position < begin + header_at(run).aligned_length else None

    def module_snapshot(self) -> tuple[int, Iterator[bytes]] | None:
        """Log position and records of the consensus module's newest snapshot, or None."""
        return newest_module_records(self.state.files, self.state.member)

    # ---- checksums

    def _verify(self, position: int, run: np.ndarray) -> int:
        """End of the frames whose checksums are right.

        A frame that holds the session id of a term's log was recorded without a checksum, and from there on
        nothing can be verified. What does not show what it holds is damaged, or such a frame.
        """
        self._kinds = self._kinds or checksum_kinds_in(run, self.recording.session_id)
        if self._kinds == {None}:
            return len(run)
        good = verify_checksums(self.checksum or Checksum.CRC_32C, run, 0, len(run))
        if good < len(run) and header_at(run, good).session_id in self._log_session_ids():
            self.state.warn(f"frames from position {position + good} on carry no checksum")
            self._kinds = {None}
            return len(run)
        return good

    def _log_session_ids(self) -> set[int]:
        events = (self._term_event_at(base) for base in self._term_bases())
        return {event.log_session_id for event in events if event is not None}

    # ---- what the log itself says

    def _term_bases(self) -> list[int]:
        """Positions of the first frames of the terms that are still there."""
        return [
            entry.term_base_log_position
            for entry in self.state.log_entries
            if entry.entry_type is TERM and entry.term_base_log_position >= self.start_position
        ]

    def _first_term_event(self) -> NewLeadershipTermEvent | None:
        """The log's very first entry: from its head, or as kept beside a log whose head was purged."""
        if self.start_position == 0:
            return self._term_event_at(0)
        state = self.state
        frame = read_first_frame(state.files, state.member.archive, state.descriptor.recording_id)
        return term_event_in(frame) if frame is not None else None

    def _term_event_at(self, position: int) -> NewLeadershipTermEvent | None:
        """That of the term whose base it is; None if it cannot be read, or its checksum is wrong."""
        end = position + 2 * self.term_length  # padding may be before it

        def read(at: int) -> np.ndarray:
            walk = FrameWalk(self._segments, self._params, at, end, chunk_length=4096)
            frames = next((run for _, run in walk), np.zeros(0, np.uint8))
            if self.checksum is None:
                return frames
            good = verify_checksums(self.checksum, frames, 0, len(frames))
            event = term_event_in(frames[good:])
            if event is not None and event.log_session_id == header_at(frames, good).session_id:
                return frames  # it was recorded without a checksum
            return frames[:good]

        return first_term_event(read, position, end)
