"""The Log of one member: where it is recorded, which terms it has, and how far it is processed.

    start_position          commit_position            append_position
     |------ processed -----------|------ recorded -----------|
             shown to services and readers

Whoever leads appends to the recording by a LogPublication, whoever follows by a LogSubscription; both get it
from here. A cut is theirs, too: nothing that is processed is ever cut.
"""

from cluster.archive.recording import Recording
from cluster.consensus.context import ConsensusModuleContext
from cluster.consensus.replica import ReplicatedState
from cluster.log.frames import LogParams
from cluster.member.counters import MemberCounters
from cluster.member.log_adapter import LogAdapter, LogHandler
from cluster.member.member_files import MemberFiles
from cluster.protocol import streams
from cluster.protocol.link import LogGeometry


class MemberLog:
    """``recording`` is None until there is a log; ``commit_position`` is what ``commit-pos`` shows."""

    def __init__(
        self,
        context: ConsensusModuleContext,
        files: MemberFiles,
        counters: MemberCounters,
        replica: ReplicatedState,
        entries: LogHandler,
    ) -> None:
        """``entries`` is given what is no session message, on members that do not lead."""
        self.recording_log = files.recording_log
        self.recording: Recording | None = None
        self.commit_position = 0
        self.adapter = LogAdapter(entries, replica.sessions.table)
        self._archive = files.archive
        self._counters = counters
        self._replica = replica
        self._own_geometry = LogGeometry(0, context.log_term_length, context.log_mtu)

    def start(self, recording: Recording | None, log_position: int) -> None:
        """The state of ``log_position`` is loaded: the log is processed from there on."""
        self.recording = recording
        self.adapter.start(log_position)
        self.commit(log_position)

    @property
    def append_position(self) -> int:
        """Where the recording ends."""
        return self.commit_position if self.recording is None else self.recording.append_position

    # ---- processing

    def commit(self, position: int) -> None:
        """The log is processed up to here, and the bytes are written: services and readers may go on."""
        assert position >= self.commit_position
        self.commit_position = position
        self._counters.commit_position.set(position)

    def process(self, limit: int, length: int = 1) -> int:
        """Process the recorded log up to ``limit``, about ``length`` bytes of it, and show it as committed.

        Returns the bytes; not less than a chunk, unless the limit or an action ends it. Raises LogDamaged,
        AgentTermination.
        """
        recording, adapter = self.recording, self.adapter
        if recording is None or not self._replica.module.reads_log:
            return 0
        limit = min(limit, recording.append_position)
        if adapter.position >= limit:
            return 0
        moved = adapter.poll(recording, limit)
        while moved < length and adapter.position < limit and not adapter.is_stopped:
            moved += adapter.poll(recording, limit)
        self._replica.drop_logged_service_messages()
        self.commit(adapter.position)
        return moved

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

    def extend(self, session_id: int, now_ms: int) -> Recording:
        """Have the recording written under this session. Raises StorageError."""
        recording = self.recording
        assert recording is not None
        if not recording.is_active or recording.session_id != session_id:
            recording.stop(now_ms)
            self._archive.extend(recording.recording_id, session_id)
            self._show(recording)
        return recording

    def stop(self, now_ms: int) -> None:
        """Write no more; what is written is synced. Raises StorageError."""
        if self.recording is not None:
            self.recording.stop(now_ms)

    def params(self, session_id: int) -> LogParams:
        """What kernels have to know of frames of this session."""
        recording = self.recording
        assert recording is not None
        return LogParams(
            recording.term_length, recording.mtu, recording.initial_term_id, session_id, streams.LOG
        )

    def _show(self, recording: Recording) -> None:
        """Give the recording the counter that tools read its position from."""
        file = self._counters.file
        if recording.position_counter is not None:
            file.free(recording.position_counter)  # type: ignore[arg-type]
        recording.position_counter = file.allocate_recording_position(
            recording.recording_id,
            recording.session_id,
            recording.stream_id,
            position=recording.append_position,
        )
