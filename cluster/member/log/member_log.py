"""The Log of one member: where it is recorded, which terms it has, and how far it is processed.

    start_position          commit_position            append_position
     |------ processed -----------|------ recorded -----------|
             shown to services and readers

Whoever leads appends to the recording by its ``publication``, whoever follows by its ``subscription``. An
election may cut it: nothing that is processed is ever cut.
"""

import numpy as np

from cluster.archive.archive import Archive
from cluster.archive.recording import Recording
from cluster.archive.recording_log import RecordingLog
from cluster.consensus.context import NULL_POSITION, ConsensusModuleContext
from cluster.counters import CountersFile
from cluster.log.frames import LogParams
from cluster.log.words import Word
from cluster.member.counters import MemberCounters
from cluster.member.log import log_words
from cluster.member.log.publication import LogPublication
from cluster.member.log.subscription import LogSubscription
from cluster.protocol import streams
from cluster.protocol.link import LogGeometry


class MemberLog:
    """``recording`` is None until there is a log; ``commit_position`` is what ``commit-pos`` shows."""

    commit_position = Word(log_words.COMMIT_POSITION)

    def __init__(
        self,
        context: ConsensusModuleContext,
        archive: Archive,
        recording_log: RecordingLog,
        counters: MemberCounters,
    ) -> None:
        self.recording_log = recording_log
        self.recording: Recording | None = None
        self.publication: LogPublication | None = None  # from the join as a leader to the next election
        self.subscription: LogSubscription | None = None  # to the leader that is followed, or fetched from
        self.words = np.zeros(1, np.int64)  # for kernels
        self._words = self.words.data
        self._archive = archive
        self._counters = counters
        self._own_geometry = LogGeometry(0, context.log_term_length, context.log_mtu)

    def start(self, recording: Recording | None, log_position: int) -> None:
        """The state of ``log_position`` is loaded: the log is processed from there on."""
        self.recording = recording
        self.commit(log_position)

    @property
    def append_position(self) -> int:
        """Where the recording ends."""
        return self.commit_position if self.recording is None else self.recording.append_position

    def commit(self, position: int) -> None:
        """The log is processed up to here, and the bytes are written: services and readers may go on."""
        assert position >= self.commit_position, "a commit position never falls (I-2)"
        self.commit_position = position
        self._counters.commit_position.set(position)

    # ---- recording

    def create(self, session_id: int, geometry: LogGeometry | None) -> Recording:
        """Begin the log in the shape of its leader's, or the configured one. Raises StorageError."""
        assert self.recording is None
        shape = geometry or self._own_geometry
        self.recording = self._archive.create_recording(
            stream_id=streams.LOG,
            session_id=session_id,
            initial_term_id=shape.initial_term_id,
            term_length=shape.term_length,
            mtu=shape.mtu,
        )
        self._show(self.recording)
        return self.recording

    def extend(self, session_id: int) -> Recording:
        """Have the recording written under this session. Raises StorageError."""
        recording = self.recording
        assert recording is not None
        if not recording.is_active:
            self._archive.extend(recording.recording_id, session_id)
            self._show(recording)
        elif recording.session_id != session_id:
            recording.change_session(session_id)
            self._show(recording)
        return recording

    def _show(self, recording: Recording) -> None:
        show_recording(self._counters.file, recording)
        recording.sync_time = self._counters.sync_time

    def stop(self, now_ms: int) -> None:
        """Write no more; what is written is synced. Raises StorageError."""
        if self.recording is not None:
            self.recording.stop(now_ms)

    def leave(self) -> None:
        """Nobody is led or followed: what is written is synced, and rests. Raises StorageError."""
        self.publication = None
        self.subscription = None
        if self.recording is not None and self.recording.is_active:
            self.recording.sync()

    # ---- terms

    def record_term(
        self, leadership_term_id: int, term_base_log_position: int, log_position: int, timestamp: int
    ) -> None:
        """Make a term's entry durable, and empty ones before it. Raises StorageError."""
        recording, log = self.recording, self.recording_log
        assert recording is not None
        known = log.find_term(leadership_term_id)
        is_reopened = (
            known is not None
            and log_position == NULL_POSITION
            and known == log.find_last_term()
            and known.log_position != NULL_POSITION
        )
        if is_reopened:
            log.commit_log_position(leadership_term_id, NULL_POSITION)
            return
        log.ensure_coherent(
            recording_id=recording.recording_id,
            leadership_term_id=leadership_term_id,
            term_base_log_position=term_base_log_position,
            log_position=log_position,
            timestamp=timestamp,
        )

    def truncate(self, log_position: int, first_removed_term_id: int) -> None:
        """Cut the log, its entries first: a restart finishes that. Raises StorageError."""
        assert log_position >= self.commit_position, "what is committed is never cut (I-3)"
        log = self.recording_log
        while (last := log.find_last_term()) is not None and (
            last.leadership_term_id >= first_removed_term_id or last.term_base_log_position > log_position
        ):
            log.remove(last)
        if last is not None:
            log.commit_log_position(last.leadership_term_id, log_position)
        if self.recording is not None:
            self.recording.truncate(log_position)

    def close_term(self, leadership_term_id: int, log_position: int) -> None:
        """The log ends here in order: its last term, too, if all of it is recorded. Raises StorageError."""
        recording = self.recording
        if recording is not None and recording.append_position == log_position:
            self.recording_log.commit_log_position(leadership_term_id, log_position)

    def params(self, session_id: int) -> LogParams:
        """What kernels have to know of frames of this session."""
        recording = self.recording
        assert recording is not None
        return LogParams(
            recording.term_length, recording.mtu, recording.initial_term_id, session_id, streams.LOG
        )


def show_recording(file: CountersFile, recording: Recording) -> None:
    """Give the recording the counter that tools read its position from, in place of the one it has."""
    if recording.position_counter is not None:
        file.free(recording.position_counter)  # type: ignore[arg-type]
    recording.position_counter = file.allocate_recording_position(
        recording.recording_id,
        recording.session_id,
        recording.stream_id,
        position=recording.append_position,
    )
