"""How far a member's log may be read now: looked up each time, for it runs, stops and crashes.

    running        up to min(commit-pos, rec-pos) of its counters; a log never shows what may still change
    stopped        up to the stop position in its catalog for a batch; for a stream as if crashed, while its
                   counters are there: a recording also stops with a term, before its tail is committed
    crashed        all that was recorded for a batch; for a stream, of a member of ours, what is known to be
                   committed: the last commit-pos stored, a snapshot
    a backup       up to where its recording is, running or not: it records only what is committed. A real
                   ClusterBackup has no commit-pos

A counters file is believed only when it is this member's: its heartbeat fresh, its
cluster id right, and its recording or its process the same. The host may run another cluster under the same
names.
"""

from collections.abc import Callable
from typing import NamedTuple

from cluster.archive.catalog_file import CatalogFile
from cluster.archive.directory_lock import is_active
from cluster.archive.files import Files
from cluster.archive.frame_walk import FrameWalk, log_params, next_frame_after
from cluster.archive.recording_end import find_end
from cluster.archive.recording_log import RecordingLog
from cluster.archive.segments import Segments, segment_bases
from cluster.archive.sync_proof import read_sync_proof
from cluster.counters import CountersReader, FoundCounter
from cluster.errors import DataLoss, LogDamaged, NotAClusterDirectory, StorageError
from cluster.log.checksum import Checksum
from cluster.protocol.catalog import NULL_POSITION, RecordingDescriptor
from cluster.protocol.counter_types import CounterTypeId
from cluster.protocol.enums import ClusterComponentType, RecordingState
from cluster.protocol.mark_file import ClusterMarkFileHeader
from cluster.protocol.recording_log import SNAPSHOT, TERM, RecordingLogEntry
from cluster.protocol.streams import LOG
from cluster.reader.member_directory import MemberDirectory, counters_paths, read_cluster_mark


class Extent(NamedTuple):
    """Ends, excluded: of what a batch reads, of what is known to be committed, of what is written."""

    end: int
    committed: int
    written: int


class Running(NamedTuple):
    """Of a member that runs; no ``commit`` of a real ClusterBackup, no ``recorded`` between two terms."""

    commit: FoundCounter | None
    recorded: FoundCounter | None


class MemberState:
    """What files say beside the log; ``damage`` is what could not be read while the rest could."""

    def __init__(
        self,
        files: Files,
        member: MemberDirectory,
        aeron_dir: str | None,
        now_ms: Callable[[], int],
        open_counters: Callable[[str], CountersReader],
    ) -> None:
        """Raises NotAClusterDirectory when no log is here, LogDamaged when nothing shows where it is."""
        self.files = files
        self.member = member
        self.warnings: list[str] = []
        self.damage: list[LogDamaged] = []
        self._aeron_dir = aeron_dir
        self._now_ms = now_ms
        self._open_counters = open_counters
        self._counters: CountersReader | None = None
        self._found: Running | None = None  # in ``_counters``
        self._found_for: RecordingDescriptor | None = None
        self._at_rest: Extent | None = None  # since no member runs here
        self.generation = 0  # of the files: the member may have put new ones in the place of some
        self.mark = self._read_mark()
        self.log_entries = self._read_recording_log()
        self.descriptor = self._find_descriptor()

    @property
    def cluster_id(self) -> int:
        return self.mark.cluster_id if self.mark is not None else 0

    def segments(self) -> Segments:
        """Of the log's recording, to be closed by the caller."""
        return Segments(self.files, self.member.archive, self.descriptor)

    def refresh(self) -> None:
        """Read the catalog again. Raises DataLoss when the log is another recording now."""
        descriptor = self._find_descriptor()
        if descriptor == self.descriptor:
            return
        if descriptor.recording_id != self.descriptor.recording_id:
            raise DataLoss(
                f"{self.member.archive}: the log is recording {descriptor.recording_id} now, "
                f"it was {self.descriptor.recording_id}"
            )
        self.descriptor = descriptor
        self.generation += 1
        self._at_rest = None

    def extent(self, checksum: Checksum | None) -> Extent:
        """How far the log goes now; ``checksum`` is what its frames carry, if they do."""
        self.refresh()
        start, stop = self.descriptor.start_position, self.descriptor.stop_position
        live = self.live()
        if live is not None:
            commit, recorded = live
            written = max(self._uncounted_end(checksum) if recorded is None else recorded.get(), start)
            end = written if commit is None else max(min(commit.get(), written), start)
            self._at_rest = None
            return Extent(end, end, written)
        if self._at_rest is None:
            at_rest = self._crashed_extent(checksum) if stop == NULL_POSITION else self._stopped_extent(stop)
            self._at_rest = at_rest
        return self._at_rest

    def read_terms(self) -> None:
        """Read the recording log again: a running member adds terms and snapshots."""
        self.log_entries = self._read_recording_log()

    def close(self) -> None:
        self._found = None
        if self._counters is not None:
            self._counters.close()
            self._counters = None

    # ---- a member that runs

    def live(self) -> Running | None:
        """Commit position and recording position of the member that runs here; None when none does."""
        counters = self._counters
        if counters is not None:
            if counters.is_live(self._now_ms()) and not counters.is_replaced():
                if self._is_current(self._found):
                    return self._found
                self._found = self._match(counters)
                if self._found is not None:
                    return self._found
            self.close()
        self.mark = self._read_mark() or self.mark
        for path in counters_paths(self.files, self.member, self.mark, self._aeron_dir):
            try:
                counters = self._open_counters(path)
            except (NotAClusterDirectory, LogDamaged, StorageError):
                continue
            found = self._match(counters) if counters.is_live(self._now_ms()) else None
            if found is not None:
                self._counters = counters
                self._found = found
                self.generation += 1
                return found
            counters.close()
        return None

    def _is_current(self, found: Running | None) -> bool:
        """Whether what was found before still holds; a recording that begins has a counter to be found."""
        if found is None or self._found_for != self.descriptor:
            return False
        commit, recorded = found
        is_there = recorded is not None and recorded.is_there()
        return is_there and (commit is None or commit.is_there())

    def _match(self, counters: CountersReader) -> Running | None:
        """The two counters, if the file is this member's."""
        cluster_id = self.cluster_id if self.mark else None
        if self._is_backup():
            cluster_id = cluster_id or None  # ClusterBackup of Aeron leaves its mark file's at 0
        commit = counters.find(CounterTypeId.COMMIT_POSITION, cluster_id)
        if commit is None and not (
            self._is_backup() and counters.find(CounterTypeId.BACKUP_STATE, cluster_id)
        ):
            return None
        descriptor = self._found_for = self.descriptor
        recorded = counters.find_recording_position(descriptor.recording_id, descriptor.session_id)
        if recorded is not None:
            return Running(commit, recorded)
        mark = self.mark
        is_its_process = mark is not None and mark.pid == counters.header.pid
        if is_its_process and mark is not None and is_active(mark, self._now_ms()):
            return Running(commit, None)
        return None

    def _uncounted_end(self, checksum: Checksum | None) -> int:
        """Where a recording without a counter stopped; one just extended has neither."""
        stop = self.descriptor.stop_position
        if stop != NULL_POSITION:
            return stop
        return self._recovered_end(checksum, self._stored_commit_position() or 0)

    # ---- a member that does not run

    def _stopped_extent(self, stop: int) -> Extent:
        """Of a recording that ended with its member, or with a term: then its tail may not be committed."""
        stored = self._stored_commit_position()
        return Extent(stop, stop if stored is None else self._proven_end(stop, stored), stop)

    def _crashed_extent(self, checksum: Checksum | None) -> Extent:
        stored = self._stored_commit_position() or 0
        end = self._recovered_end(checksum, stored)
        proven = self._proven_end(end, stored)
        if proven == end:
            return Extent(end, end, end)
        unproven = f"what lies after position {proven}, up to {end}, is recorded"
        if self._is_ours():
            self.warn(f"the member did not stop in order: {unproven} but not known to be committed")
            return Extent(end, proven, end)
        self.warn(
            f"the member did not stop in order and its counters are gone: {unproven} but may not be committed"
        )
        return Extent(end, end, end)

    def _recovered_end(self, checksum: Checksum | None, whole_to: int) -> int:
        """Where recovery would end it; where its last readable frame ends, if it would refuse."""
        descriptor = self.descriptor
        proof = read_sync_proof(
            self.files, self.member.archive, descriptor.recording_id, descriptor.session_id
        )
        segments = self.segments()
        try:
            found = find_end(segments, descriptor, proof, checksum, file_sync_level=0, whole_to=whole_to)
            return found.stop_position
        except LogDamaged:
            return self._last_readable_end(segments)
        finally:
            segments.close()

    def _last_readable_end(self, segments: Segments) -> int:
        params = log_params(self.descriptor)
        start, bases = self.descriptor.start_position, segments.bases()
        if not bases:
            return start
        begin = max(start, bases[-1])
        end = segments.base_of(begin) + segments.segment_length
        last = begin
        position: int | None = begin
        while position is not None:
            walk = FrameWalk(segments, params, position, end)
            for _ in walk:
                last = walk.position
            position = next_frame_after(segments, params, max(walk.position, position), end)
        return last

    def _proven_end(self, end: int, stored: int) -> int:
        """End of what is known to be committed of a recording that ends at ``end``."""
        if self._is_backup():
            return end
        proven = max(self.descriptor.start_position, stored)
        snapshots = (entry.log_position for entry in self.log_entries if entry.entry_type is SNAPSHOT)
        return min(max(proven, *snapshots, 0), end)

    def _stored_commit_position(self) -> int | None:
        """What was stored last, 0 after a failed start; None where its counters are gone."""
        stored = None
        for path in counters_paths(self.files, self.member, None, self._aeron_dir):
            try:
                with self._open_counters(path) as counters:
                    commit = counters.find(CounterTypeId.COMMIT_POSITION, self.cluster_id)
                    if commit is not None:
                        stored = max(stored or 0, commit.get())
                    elif self._is_ours():
                        stored = stored or 0
            except (NotAClusterDirectory, LogDamaged, StorageError):
                continue
        return stored

    def _is_backup(self) -> bool:
        """Whether a backup recorded the log, which copies only what a member has committed."""
        return self.mark is not None and self.mark.component_type is ClusterComponentType.BACKUP

    def _is_ours(self) -> bool:
        """Whether a member of ours wrote here: its lock files stay."""
        member = self.member
        return self.files.exists(f"{member.archive}/archive-mark.lock") or (
            member.cluster is not None and self.files.exists(f"{member.cluster}/cluster-mark.lock")
        )

    # ---- files

    def warn(self, text: str) -> None:
        """Keep a warning about this archive, once."""
        line = f"{self.member.archive}: {text}"
        if line not in self.warnings:
            self.warnings.append(line)

    def _read_mark(self) -> ClusterMarkFileHeader | None:
        if self.member.cluster is None:
            return None
        try:
            return read_cluster_mark(self.files, self.member.cluster)
        except LogDamaged as damage:
            self._keep(damage)
            return None

    def _read_recording_log(self) -> list[RecordingLogEntry]:
        if self.member.cluster is None:
            return []
        try:
            recording_log = RecordingLog.open(
                self.member.cluster, files=self.files, write=False, readable_part=True
            )
        except NotAClusterDirectory:
            return []
        recording_log.close()
        if recording_log.damage is not None:
            self._keep(recording_log.damage)
        return [entry for entry in recording_log.entries if entry.is_valid]

    def _find_descriptor(self) -> RecordingDescriptor:
        """Of the recording that the last valid term names; without terms, of the newest log stream."""
        catalog = CatalogFile.open(self.files, self.member.archive, readable_part=True)
        catalog.close()
        if catalog.damage is not None:
            self._keep(catalog.damage)
        entries = {
            entry.descriptor.recording_id: entry
            for entry in catalog.entries
            if entry.header.state is not RecordingState.DELETED
        }
        terms = [entry for entry in self.log_entries if entry.entry_type is TERM]
        logs = [entry for entry in entries.values() if entry.descriptor.stream_id == LOG]
        found = entries.get(terms[-1].recording_id) if terms else (logs[-1] if logs else None)
        if found is not None:
            recording_id = found.descriptor.recording_id
            catalog.check_entry(found, segment_bases(self.files, self.member.archive, recording_id))
            if not found.is_valid:
                self.warn(f"recording {found.descriptor.recording_id} is marked invalid in the catalog")
            return found.descriptor
        if catalog.damage is not None:
            raise catalog.damage
        if terms:
            what = f"recording {terms[-1].recording_id}, which holds the log, is not in it"
            raise LogDamaged(catalog.path, None, what)
        raise NotAClusterDirectory(f"{self.member.archive}: no recording of a cluster's log is in it")

    def _keep(self, damage: LogDamaged) -> None:
        if str(damage) not in map(str, self.damage):
            self.damage.append(damage)
