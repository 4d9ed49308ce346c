"""recording.log as a file: a member's leadership terms and snapshots, changed in place and synced.

    entries are appended            term T, base B                  closes term T-1 at B
    one field of an entry changes   the end of a term; valid to invalid; anything to removed

What is changed under one sync lies in one sector, so that a power cut leaves it whole or not at all, but for
a term that closes the one before it, elsewhere in the file: an open term ends where the next one begins.
Several entries at once replace the file.

In memory entries stand in Aeron's order (``sort_key``), whatever their order in the file. Source:
RecordingLog of Aeron Cluster; layout in protocol/recording_log.py.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from cluster.archive.files import File, Files, read_at_rest, replace
from cluster.errors import LocalProtocolError, LogDamaged, NotAClusterDirectory, StorageErrors
from cluster.protocol.catalog import RecordingDescriptor
from cluster.protocol.frame import FRAME_ALIGNMENT, align
from cluster.protocol.recording_log import (
    CONSENSUS_MODULE_SERVICE_ID,
    ENTRY_ALIGNMENT,
    ENTRY_TYPE_OFFSET,
    NULL_POSITION,
    RECORDING_LOG_FILE_NAME,
    REMOVED,
    SNAPSHOT,
    STANDBY_SNAPSHOT,
    TERM,
    RecordingLogEntry,
    Seal,
    decode_recording_log,
    seal_entry,
    seal_of,
    sort_entries,
)

FindRecording: TypeAlias = Callable[[int], RecordingDescriptor | None]
_REMOVED = REMOVED.to_bytes(4, "little", signed=True)


class Log(NamedTuple):
    """Extent of the log's recording, and the term it ends in; of a recovery plan."""

    recording_id: int
    leadership_term_id: int
    term_base_log_position: int
    log_position: int  # end of the last term, -1 while it is open
    start_position: int
    stop_position: int
    initial_term_id: int
    term_buffer_length: int
    mtu_length: int
    session_id: int


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """What a start has to load and to replay (RecordingLog.RecoveryPlan).

    ``snapshots``: the consensus module's, then those of services 0, 1, …; empty without a snapshot. ``log``
    is None when nothing was recorded yet.
    """

    last_leadership_term_id: int
    last_term_base_log_position: int
    appended_log_position: int
    committed_log_position: int
    snapshots: tuple[RecordingLogEntry, ...]
    log: Log | None


class RecordingLog:
    """The entries of a cluster directory. Every change is durable when it returns, by the sync level.

    ``damage`` says where the readable part of the file ends when it was opened with ``readable_part``.
    ``changed_by_others``: one of Aeron's programs has changed these entries since they got their checksum;
    they get a new one when a member opens the log.
    """

    def __init__(self, files: Files, directory: str, file: File, file_sync_level: int) -> None:
        self._files = files
        self._directory = directory
        self._file = file
        self._sync_level = file_sync_level
        self.entries: list[RecordingLogEntry] = []
        self.damage: LogDamaged | None = None
        self.reload()

    @classmethod
    def open(
        cls,
        directory: str,
        *,
        files: Files,
        file_sync_level: int = 1,
        write: bool = True,
        readable_part: bool = False,
        find_recording: FindRecording | None = None,
    ) -> "RecordingLog":
        """The log of a cluster directory; made when missing and to be written.

        A member says by ``find_recording`` what its archive has: the terms must be those of its log, and
        entries without a checksum get one.
        Raises NotAClusterDirectory (nothing there to read), LogDamaged (unless ``readable_part``),
        StorageError.
        """
        path = f"{directory}/{RECORDING_LOG_FILE_NAME}"
        with StorageErrors(path, "opening failed"):
            if not files.exists(path):
                if not write:
                    raise NotAClusterDirectory(f"{directory}: {RECORDING_LOG_FILE_NAME} is missing")
                files.make_directory(directory)
                file = files.open(path, create=True)
                file.fullsync()
                files.sync_directory(directory)
            else:
                file = files.open(path, write=write)
                if write and (rest := file.size() % ENTRY_ALIGNMENT):
                    # A part of an entry that a crash left. Followed by another it would read as a whole one.
                    file.resize(file.size() - rest)
        recording_log = cls(files, directory, file, file_sync_level)
        try:
            if recording_log.damage is not None and not readable_part:
                raise recording_log.damage
            if write and not readable_part:
                recording_log._check_terms()
            if find_recording is not None:
                recording_log._check_zeros(find_recording)
            if write and recording_log.damage is None:
                recording_log._settle(with_checksums=find_recording is not None)
        except BaseException:
            file.close()
            raise
        return recording_log

    def reload(self) -> None:
        """Read the file again."""
        self.damage = None
        self._unwritten: list[RecordingLogEntry] = []
        self.changed_by_others: list[RecordingLogEntry] = []
        found: list[RecordingLogEntry] = []
        data = b""
        try:
            data = read_at_rest(self._file, self._file.size())
            for entry in decode_recording_log(data):
                if _is_unwritten(entry):
                    self._unwritten.append(entry)
                    continue
                if seal_of(data, entry) is Seal.OUTDATED:
                    self.changed_by_others.append(entry)
                found.append(entry)
        except LogDamaged as damage:
            self.damage = damage.at(self._file.path)
        self.entries = _with_ends(sort_entries(found))
        # Removed entries count for the index, those after the last one too.
        last = max((*found, *self._unwritten), key=lambda entry: entry.entry_index, default=None)
        end = 0 if last is None else last.offset + last.length
        self._index_end = (0 if last is None else last.entry_index + 1) + (len(data) - end) // ENTRY_ALIGNMENT

    def _check_terms(self) -> None:
        """Raise LogDamaged where terms do not follow each other."""
        terms = self._terms()
        for term in terms:
            base, end = term.term_base_log_position, term.log_position
            is_extent = base >= 0 and (end == NULL_POSITION or (end >= base and end % FRAME_ALIGNMENT == 0))
            if term.leadership_term_id < 0 or not is_extent:
                what = f"term {term.leadership_term_id} from {base} to {end} cannot be"
                raise LogDamaged(self.path, term.offset, what)
        for before, term in pairwise(terms):
            follows = (before.recording_id, before.leadership_term_id + 1, before.log_position)
            if (term.recording_id, term.leadership_term_id, term.term_base_log_position) != follows:
                what = (
                    f"term {term.leadership_term_id} from {term.term_base_log_position} on does not follow "
                    f"term {before.leadership_term_id}, which ends at {before.log_position}"
                )
                raise LogDamaged(self.path, term.offset, what)

    def _check_zeros(self, find_recording: FindRecording) -> None:
        """Raise LogDamaged for zeros in the place of entries of terms that the log has bytes of."""
        terms = self._terms()
        log = find_recording(terms[-1].recording_id) if terms else None
        if log is None or not self._unwritten:
            return
        begin, end = terms[0].term_base_log_position, terms[-1].log_position
        if begin > log.start_position or end not in (NULL_POSITION, log.stop_position):
            what = f"zeros, but the log has bytes of other terms than those from {begin} to {end}"
            raise LogDamaged(self.path, self._unwritten[0].offset, what)

    def _settle(self, *, with_checksums: bool) -> None:
        """Write down, durably, what was made of the file, also what the cache alone may have."""
        data = self._file.pread(self._file.size(), 0)
        settled = bytearray(data)
        for entry in self._unwritten:
            begin = entry.offset + ENTRY_TYPE_OFFSET
            settled[begin : begin + len(_REMOVED)] = _REMOVED
        for entry in self.entries if with_checksums else ():
            settled[entry.offset : entry.offset + entry.length] = seal_entry(entry)
        if settled and (settled != data or self._sync_level > 0):
            self._write(bytes(settled), 0)
            self._sync()

    def close(self) -> None:
        self._file.close()

    @property
    def path(self) -> str:
        return self._file.path

    # ---- finding

    def find_term(self, leadership_term_id: int) -> RecordingLogEntry | None:
        """The valid entry of a term."""
        for entry in reversed(self.entries):  # there may be thousands, and the last are asked for
            if entry.is_valid and entry.entry_type is TERM and entry.leadership_term_id == leadership_term_id:
                return entry
        return None

    def find_last_term(self) -> RecordingLogEntry | None:
        """The valid term entry that sorts last: the term the log ends in."""
        return next((e for e in reversed(self.entries) if e.is_valid and e.entry_type is TERM), None)

    def _terms(self) -> list[RecordingLogEntry]:
        return [entry for entry in self.entries if entry.is_valid and entry.entry_type is TERM]

    def find_last_recording_id(self) -> int | None:
        """Id of the log's recording; None before the first term."""
        term = self.find_last_term()
        return None if term is None else term.recording_id

    def latest_snapshot(self, service_id: int = CONSENSUS_MODULE_SERVICE_ID) -> RecordingLogEntry | None:
        """The valid snapshot entry of the consensus module, or of a service, that sorts last."""
        for entry in reversed(self.entries):
            if entry.is_valid and entry.entry_type is SNAPSHOT and entry.service_id == service_id:
                return entry
        return None

    def snapshot_sets(self, service_count: int) -> Iterator[tuple[RecordingLogEntry, ...]]:
        """The valid snapshots, newest first: the consensus module's entry, then services 0, 1, ….

        The services' entries stand right before the module's, of its term and position; a snapshot that
        lacks one, or has one that was made invalid, is none. Standby snapshots are never recovered from.
        """
        valid = [entry for entry in self.entries if entry.is_valid and entry.entry_type is SNAPSHOT]
        for index in range(len(valid) - 1, -1, -1):
            module = valid[index]
            if module.service_id != CONSENSUS_MODULE_SERVICE_ID:
                continue
            services = valid[max(index - service_count, 0) : index][::-1]
            wanted = [(service_id, *_place(module)) for service_id in range(service_count)]
            if [(entry.service_id, *_place(entry)) for entry in services] == wanted:
                yield (module, *services)

    def recovery_plan(self, service_count: int, find_recording: FindRecording) -> RecoveryPlan:
        """What a start loads and replays. Raises LogDamaged when the archive does not know the recording."""
        snapshots = next(self.snapshot_sets(service_count), ())
        last_term_id, last_base, appended, committed = -1, 0, 0, 0
        if snapshots:
            module = snapshots[0]
            last_term_id, last_base = module.leadership_term_id, module.term_base_log_position
            appended = committed = module.log_position
        log = None
        if (term := self.find_last_term()) is not None:
            descriptor = find_recording(term.recording_id)
            if descriptor is None:
                raise LogDamaged(
                    self.path, max(term.offset, 0), f"the archive has no recording {term.recording_id}"
                )
            log = Log(
                term.recording_id,
                term.leadership_term_id,
                term.term_base_log_position,
                term.log_position,
                descriptor.start_position,
                descriptor.stop_position,
                descriptor.initial_term_id,
                descriptor.term_buffer_length,
                descriptor.mtu_length,
                descriptor.session_id,
            )
            last_term_id, last_base = log.leadership_term_id, log.term_base_log_position
            appended = log.stop_position
            if log.log_position != NULL_POSITION:
                committed = log.log_position
        return RecoveryPlan(last_term_id, last_base, appended, committed, snapshots, log)

    # ---- changing

    def commit_log_position(self, leadership_term_id: int, log_position: int) -> None:
        """Set the end of a term, known to be there."""
        self._commit_log_position(leadership_term_id, log_position)
        self._sync()

    def ensure_coherent(
        self,
        *,
        recording_id: int,
        leadership_term_id: int,
        term_base_log_position: int,
        log_position: int = NULL_POSITION,
        timestamp: int,
    ) -> None:
        """Add a term and, empty, the terms missing before it; with a ``log_position``, set its end.

        Before the first term none is missing where a snapshot stands for the log before it. Raises
        LocalProtocolError when an open term before it cannot be closed, for want of a base.
        """
        last = self.find_last_term()
        if last is None or last.leadership_term_id < leadership_term_id:
            if last is None:
                first, base = 0 if term_base_log_position == 0 else leadership_term_id, 0
            else:
                first, base = last.leadership_term_id + 1, last.log_position
                if base == NULL_POSITION:
                    base = term_base_log_position
                if base == NULL_POSITION:
                    raise LocalProtocolError(
                        f"term {last.leadership_term_id} is open and the base of term {leadership_term_id} "
                        "is not known"
                    )
            missing = [(term_id, base) for term_id in range(first, leadership_term_id)]
            term = (leadership_term_id, term_base_log_position)
            self._append_terms(recording_id, [*missing, term], timestamp, log_position)
        elif log_position != NULL_POSITION:
            self._commit_log_position(leadership_term_id, log_position)
        self._sync()

    def append_snapshot(
        self,
        recording_id: int,
        leadership_term_id: int,
        term_base_log_position: int,
        log_position: int,
        timestamp: int,
        service_id: int,
        archive_endpoint: str = "",
    ) -> None:
        """Add one recording of a snapshot, a standby's by ``archive_endpoint``; the module's comes last."""
        entry = RecordingLogEntry(
            recording_id,
            leadership_term_id,
            term_base_log_position,
            log_position,
            timestamp,
            service_id,
            STANDBY_SNAPSHOT if archive_endpoint else SNAPSHOT,
            archive_endpoint,
        )
        for old in self.entries:
            if (
                not old.is_valid
                and (old.entry_type, old.service_id, *_place(old))
                == (entry.entry_type, service_id, *_place(entry))
                and old.length == entry.length
            ):
                entry = entry._replace(entry_index=old.entry_index, offset=old.offset)
                self._overwrite(old, entry)
                break
        else:
            self._append([entry])
        self._sync()

    def invalidate(self, entry: RecordingLogEntry) -> None:
        """Make a snapshot's entry invalid: it stays, and is not recovered from."""
        self._invalidate(entry)
        self._sync()

    def invalidate_latest_snapshot(self) -> bool:
        """Make all entries of the newest snapshots invalid; False without. Raises LocalProtocolError."""
        kinds = (SNAPSHOT, STANDBY_SNAPSHOT)
        valid = [entry for entry in self.entries if entry.is_valid and entry.entry_type in kinds]
        modules = [entry for entry in valid if entry.service_id == CONSENSUS_MODULE_SERVICE_ID]
        if not modules:
            return False
        highest = max(entry.log_position for entry in modules)
        for module in [entry for entry in modules if entry.log_position == highest]:
            if self.find_term(module.leadership_term_id) is None:
                raise LocalProtocolError(
                    f"the snapshot at {highest} is of term {module.leadership_term_id}, which is not in "
                    f"{self.path}"
                )
            for entry in valid:
                if entry.entry_type is module.entry_type and _place(entry) == _place(module):
                    self._invalidate(entry)
        self._sync()
        return True

    def remove(self, entry: RecordingLogEntry) -> None:
        """Take an entry out for good; its place in the file stays."""
        self._write(_REMOVED, entry.offset + ENTRY_TYPE_OFFSET)
        self._sync()
        self.entries.remove(entry)

    def rewrite(self, entries: list[RecordingLogEntry]) -> None:
        """Replace the file by these entries in one step; then close this log. Raises StorageError."""
        data = b""
        for entry in entries:
            data += seal_entry(entry._replace(offset=len(data)))
        self._replace_file(data)
        self.reload()

    # ---- writes, synced by the caller

    def _append_terms(
        self,
        recording_id: int,
        bases: list[tuple[int, int]],
        timestamp: int,
        log_position: int = NULL_POSITION,
    ) -> None:
        """Append terms by id and base, ascending without a gap; the last of them ends at ``log_position``."""
        if (last := self.find_last_recording_id()) is not None and last != recording_id:
            raise LocalProtocolError(
                f"term {bases[-1][0]} of recording {recording_id}: the log is recording {last}"
            )
        known = {entry.leadership_term_id for entry in self._terms()} & {term_id for term_id, _ in bases}
        if known:
            raise LocalProtocolError(f"term {min(known)} is already in {self.path}")
        first_id, first_base = bases[0]
        if self.find_term(first_id - 1) is not None:
            self._commit_log_position(first_id - 1, first_base)
        following = self.find_term(bases[-1][0] + 1)
        if following is not None and log_position == NULL_POSITION:
            log_position = following.term_base_log_position
        ends = [*(base for _, base in bases[1:]), log_position]
        self._append(
            [
                RecordingLogEntry(
                    recording_id, term_id, base, end, timestamp, CONSENSUS_MODULE_SERVICE_ID, TERM
                )
                for (term_id, base), end in zip(bases, ends, strict=True)
            ]
        )

    def _commit_log_position(self, leadership_term_id: int, log_position: int) -> None:
        entry = self.find_term(leadership_term_id)
        assert entry is not None, leadership_term_id
        if entry.log_position != log_position:
            self._overwrite(entry, entry._replace(log_position=log_position))

    def _invalidate(self, entry: RecordingLogEntry) -> None:
        self._overwrite(entry, entry._replace(is_valid=False))

    def _append(self, entries: list[RecordingLogEntry]) -> None:
        """Append entries: several by replacing the file, since a power cut may keep any of them."""
        size = self._file.size()
        end = align(size, ENTRY_ALIGNMENT)
        data = bytearray()
        for index, entry in enumerate(entries):
            entries[index] = entry._replace(entry_index=self._index_end + index, offset=end + len(data))
            data += seal_entry(entries[index])
        if len(entries) == 1:
            self._write(bytes(data), end)
        else:
            self._replace_file(self._file.pread(size, 0).ljust(end, b"\0") + data)
        self._index_end += len(entries)
        self.entries = sort_entries([*self.entries, *entries])

    def _overwrite(self, old: RecordingLogEntry, new: RecordingLogEntry) -> None:
        self._write(seal_entry(new), new.offset)
        self.entries[self.entries.index(old)] = new
        self.entries = sort_entries(self.entries)

    def _replace_file(self, data: bytes) -> None:
        path = self.path
        replace(self._files, path, data)
        with StorageErrors(path, "opening failed"):
            file = self._files.open(path, write=True)
        self._file.close()
        self._file = file

    def _write(self, data: bytes, offset: int) -> None:
        with StorageErrors(self.path, "writing failed"):
            self._file.pwrite(data, offset)

    def _sync(self) -> None:
        with StorageErrors(self.path, "syncing failed"):
            if self._sync_level == 1:
                self._file.datasync()
            elif self._sync_level == 2:
                self._file.fullsync()


def _is_unwritten(entry: RecordingLogEntry) -> bool:
    """Whether a power cut kept the length of an entry, and zeros: they would read as a term of service 0."""
    return entry[:7] == (0, 0, 0, 0, 0, 0, TERM)


def _with_ends(entries: list[RecordingLogEntry]) -> list[RecordingLogEntry]:
    """Sorted entries; open terms before others get the ends that a power cut may have taken."""
    closed = list(entries)
    places = [i for i, entry in enumerate(entries) if entry.is_valid and entry.entry_type is TERM]
    for place, place_after in pairwise(places):
        term, after = entries[place], entries[place_after]
        if term.log_position == NULL_POSITION and after.leadership_term_id == term.leadership_term_id + 1:
            closed[place] = term._replace(log_position=after.term_base_log_position)
    return closed


def _place(entry: RecordingLogEntry) -> tuple[int, int, int]:
    return entry.leadership_term_id, entry.term_base_log_position, entry.log_position
