"""The log in a backup: frames are appended where they join on, and terms once their first entry is there.

    supplier's log   |== term 0 ==|== term 1 ======|== term 2 ===...
    copied           |== term 0 ==|== term 1 ==|      recording.log: terms 0 and 1

The first entry of a term is written by its leader alone, with its id, time and session. Where two logs have
the same first entry of a term, they are the same up to there, and as far as both have that term (Raft's log
matching). So a supplier is checked by the beginning of the last term here: a cluster that was restored to an
earlier position, or is another one, is refused before a byte of it is taken.
"""

from collections.abc import Iterable
from itertools import zip_longest

import numpy as np

from cluster.archive.archive import Archive
from cluster.archive.catalog_checksum import checksum_named
from cluster.archive.recording import Recording
from cluster.archive.recording_log import RecordingLog
from cluster.consensus.context import NULL_POSITION
from cluster.errors import ConfigurationError, LogDamaged, RemoteProtocolError
from cluster.log.checksum import SESSION_ID_OFFSET
from cluster.log.columns import log_to_record_batch
from cluster.log.runs import headers
from cluster.member.disk.fetched_recording import append_checked
from cluster.member.disk.recovery import create_log_like, replace_log
from cluster.protocol.frame import HEADER_LENGTH, TYPE_PAD
from cluster.protocol.link import RecordingStatus, TermEntry
from cluster.protocol.recording_log import TERM, RecordingLogEntry

OTHER_LOG = "it is of another cluster, or of another history; begin a new backup in an empty directory"
# Of the beginning of a term: more than its first entry, and the header of padding before that.
COMPARED_BYTES = 4096


class CopiedLog:
    """The log's recording here, with its terms; ``is_replacement`` of one that recording.log still names."""

    def __init__(self, archive: Archive, recording_log: RecordingLog) -> None:
        self._archive = archive
        self._recording_log = recording_log
        self._read_terms: list[TermEntry] = []  # in the frames, and not in recording.log yet
        self.recording: Recording | None = None
        self.is_replacement = False
        recording_id = recording_log.find_last_recording_id()
        if recording_id is not None:
            self.recording = archive.recording(recording_id)
            self._drop_terms_after_end()

    def _drop_terms_after_end(self) -> None:
        """A term is named before its first entry is safe: a crash may have left one without."""
        log, last = self._recording_log, self._recording_log.find_last_term()
        while last is not None and last.term_base_log_position >= max(self.position, 1):
            log.remove(last)
            last = log.find_last_term()
        if last is not None:
            log.commit_log_position(last.leadership_term_id, NULL_POSITION)

    @property
    def position(self) -> int:
        """Where the copy ends."""
        return 0 if self.recording is None else self.recording.append_position

    @property
    def synced_position(self) -> int:
        return 0 if self.recording is None else self.recording.synced_position

    # ---- which log it is

    def start(self, status: RecordingStatus) -> None:
        """Go on at the end here, or start over where the supplier's log begins later. Raises StorageError."""
        recording = self.recording
        if recording is None or status.start_position > self.position:
            self.is_replacement = recording is not None
            self.recording = self._create(status)
            self._read_terms = [
                term for term in status.terms if term.term_base_log_position < status.start_position
            ]
        elif not recording.is_active:
            self._archive.extend(recording.recording_id, status.session_id)

    def _create(self, status: RecordingStatus) -> Recording:
        if self.recording is not None:
            self._archive.stop_recording(self.recording.recording_id)
        return create_log_like(self._archive, status)

    def check_terms(self, name: str, terms: Iterable[TermEntry]) -> None:
        """Raise ConfigurationError for other terms than those here; empty ones are not compared."""
        bases = {term.leadership_term_id: term.term_base_log_position for term in terms}
        for entry in self._known_terms():
            own = entry.term_base_log_position
            base = bases.get(entry.leadership_term_id, own)
            if base != own and entry.log_position != own:
                raise ConfigurationError(
                    f"{name}: term {entry.leadership_term_id} begins at {base} there, at {own} in this "
                    f"backup: {OTHER_LOG}"
                )

    def place_to_compare(self, start_position: int, terms: Iterable[TermEntry]) -> int | None:
        """Where frames lie by which two logs are known, in one from ``start_position`` on: the start of
        the newest term that this one, or the other with its ``terms``, has before the end of this one.
        """
        if self.recording is None:
            return None
        bases = [entry.term_base_log_position for entry in self._known_terms()]
        bases += [t.term_base_log_position for t in terms if t.log_position != t.term_base_log_position]
        begin = max(start_position, self.recording.start_position)
        position = max([begin, *(base for base in bases if base < self.position)])
        return position if position < self.position else None

    def check_frames(self, name: str, position: int, theirs: np.ndarray) -> None:
        """Raise ConfigurationError where a member's frames at ``position`` are not those that are here."""
        assert self.recording is not None
        ours = _contents(self.recording.read(position, COMPARED_BYTES))
        if not len(theirs) or any(a != b for a, b in zip(ours, _contents(theirs), strict=False)):
            raise ConfigurationError(
                f"{name}: the log differs from the one in this backup at position {position}: {OTHER_LOG}"
            )

    def _known_terms(self) -> list[RecordingLogEntry]:
        return [e for e in self._recording_log.entries if e.is_valid and e.entry_type is TERM]

    # ---- what is written

    def append(self, name: str, status: RecordingStatus, frames: np.ndarray) -> None:
        """Append whole entries that a supplier has sent. Raises RemoteProtocolError, StorageError."""
        assert self.recording is not None
        position = self.position
        append_checked(name, self.recording, checksum_named(status.checksum), frames)
        try:
            self._read_terms += _terms_in(position, frames)
        except LogDamaged as damage:
            raise RemoteProtocolError(f"{name}: {damage.what}") from None

    def sync(self) -> int:
        """Make durable what was appended, its terms first; returns its end. Raises StorageError."""
        assert self.recording is not None
        if not self.is_replacement:
            for term in self._read_terms:
                self._recording_log.ensure_coherent(
                    recording_id=self.recording.recording_id,
                    leadership_term_id=term.leadership_term_id,
                    term_base_log_position=term.term_base_log_position,
                    timestamp=term.timestamp,
                )
            self._read_terms.clear()
        return self.recording.sync()

    def replace(self, snapshot: tuple[RecordingLogEntry, ...]) -> None:
        """Let recording.log name this log and snapshot (the module first) alone. Raises StorageError."""
        assert self.recording is not None and self.is_replacement
        replace_log(self._archive, self._recording_log, _entries(self._read_terms, self.recording), snapshot)
        self._read_terms.clear()
        self.is_replacement = False


def _terms_in(position: int, frames: np.ndarray) -> list[TermEntry]:
    """The terms that begin in a run of whole entries. Raises LogDamaged."""
    batch = log_to_record_batch(
        frames,
        0,
        len(frames),
        position,
        columns=("leadershipTermId", "termBaseLogPosition", "clusterTime"),
        entry_types=("NEW_LEADERSHIP_TERM",),
    ).record_batch
    return [
        TermEntry(row["leadershipTermId"], row["termBaseLogPosition"], NULL_POSITION, row["clusterTime"])
        for row in batch.to_pylist()
    ]


def _entries(terms: list[TermEntry], recording: Recording) -> list[RecordingLogEntry]:
    """Entries of all terms from the first to the last; the last is open, those that nobody led are empty."""
    entries: list[RecordingLogEntry] = []
    for term, after in zip_longest(terms, terms[1:]):
        begin, end = term.term_base_log_position, NULL_POSITION
        next_id = term.leadership_term_id + 1
        if after is not None:
            end, next_id = after.term_base_log_position, after.leadership_term_id
        for term_id in range(term.leadership_term_id, next_id):
            entries.append(
                RecordingLogEntry(recording.recording_id, term_id, begin, end, term.timestamp, -1, TERM)
            )
            begin = end
    return entries


def _contents(run: np.ndarray) -> list[bytes]:
    """Frames without what their recording keeps in the place of the session id."""
    frames = []
    for offset, header in headers(run):
        length = HEADER_LENGTH if header.type == TYPE_PAD else header.frame_length
        frame = bytearray(run[offset : offset + length].tobytes())
        frame[SESSION_ID_OFFSET : SESSION_ID_OFFSET + 4] = bytes(4)
        frames.append(bytes(frame))
    return frames
