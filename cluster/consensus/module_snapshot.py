"""What a consensus module's snapshot says, as messages: made from a member's state, and read back into it.

    SnapshotMarker BEGIN │ ConsensusModule │ ClusterSession … │ Timer …
    │ per service: PendingMessageTracker, its SessionMessageHeader messages … │ SnapshotMarker END
    │ ours, which Aeron's readers do not read: SnapshotSession … │ SnapshotLane … │ SnapshotConsumer …
    │ SnapshotAnswered, SnapshotAnswer … │ SnapshotRecording … │ SnapshotChecksum

It is captured when every service has reached the position of the snapshot, so what services have asked for is
in it, and all of it follows from the log: at one position the records are the same on every member, but for
the answers that are kept, of which one member may have more than another. What only the member that led knew
is left out: a session that it was about to close is open, as it is elsewhere.
Source: ConsensusModuleSnapshotTaker, ConsensusModuleSnapshotAdapter. Nothing here does I/O.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from cluster.consensus.context import NULL_POSITION
from cluster.consensus.kept_answers import KeptAnswers
from cluster.consensus.service_messages import PendingServiceMessageTracker, service_id_of
from cluster.consensus.sessions import SessionManager
from cluster.consensus.timers import PriorityHeapTimerService
from cluster.errors import LogDamaged
from cluster.protocol import decode
from cluster.protocol.enums import CloseReason, ClusterTimeUnit, SnapshotMark
from cluster.protocol.frame import align
from cluster.protocol.session import SessionMessageHeader
from cluster.protocol.snapshot import (
    CONSENSUS_MODULE_TYPE_ID,
    ClusterSession,
    ConsensusModule,
    PendingMessageTracker,
    SnapshotAnswer,
    SnapshotAnswered,
    SnapshotChecksum,
    SnapshotConsumer,
    SnapshotLane,
    SnapshotMarker,
    SnapshotRecording,
    SnapshotSession,
    Timer,
)

MAX_I64 = 2**63 - 1
RING_RECORD_HEADER = 8  # of Aeron's ring buffer, in which messages are pending
HEADER_LENGTH = len(SessionMessageHeader(0, 0, 0).encode())


class SnapshotPlace(NamedTuple):
    """Where in the log a snapshot was taken, and by what."""

    log_position: int
    leadership_term_id: int
    time_unit: ClusterTimeUnit
    app_version: int

    def marker(self, type_id: int, mark: SnapshotMark) -> bytes:
        """The first or last record of a snapshot."""
        return SnapshotMarker(
            type_id=type_id,
            log_position=self.log_position,
            leadership_term_id=self.leadership_term_id,
            index=0,
            mark=mark,
            time_unit=self.time_unit,
            app_version=self.app_version,
        ).encode()


# ---- taking


class CapturedModule:
    """A member's state at a position, to be written when there is time; timers are copied as arrays."""

    def __init__(
        self,
        place: SnapshotPlace,
        sessions: SessionManager,
        timers: PriorityHeapTimerService,
        trackers: Sequence[PendingServiceMessageTracker],
        answers: KeptAnswers,
    ) -> None:
        self._place = place
        self._before_timers = list(_session_records(sessions, trackers))
        self._timers = timers.capture()
        self._after_timers = list(_service_message_records(trackers))
        self._additions = list(_additions(sessions))
        self._answers = answers.records()

    @property
    def begin(self) -> bytes:
        """The first record."""
        return self._place.marker(CONSENSUS_MODULE_TYPE_ID, SnapshotMark.BEGIN)

    def sort(self) -> Iterator[None]:
        """What comes before ``state``, a little a step."""
        return self._timers.sort()

    def state(self) -> Iterator[bytes]:
        """What stands between the markers, in order, once: it follows from the log alone."""
        yield from self._before_timers
        for deadline, correlation_id in self._timers:
            yield Timer(correlation_id, deadline).encode()
        yield from self._after_timers

    def end(self) -> Iterator[bytes]:
        """The last record that is the reference's, and once what we add."""
        yield self._place.marker(CONSENSUS_MODULE_TYPE_ID, SnapshotMark.END)
        yield from self._additions
        yield from self._answers


def _additions(sessions: SessionManager) -> Iterator[bytes]:
    slots = sessions.table.slots
    for session in sessions:
        row = slots[sessions.table.slot_of(session.id)]
        yield SnapshotSession(
            session.id, int(row["committed"]), int(row["committed_position"]), session.encoded_principal
        ).encode()
    yield from (record.encode() for record in sessions.lanes.records())
    yield from (record.encode() for record in sessions.consumers.records())


def _session_records(
    sessions: SessionManager, trackers: Sequence[PendingServiceMessageTracker]
) -> Iterator[bytes]:
    yield ConsensusModule(
        sessions.next_committed_session_id,
        *((_next_id(trackers[0]), trackers[0].log_service_session_id) if trackers else (0, 0)),
        _ring_bytes(trackers[0]) if trackers else 0,
    ).encode()
    for session in sessions:
        yield ClusterSession(
            cluster_session_id=session.id,
            correlation_id=session.correlation_id,
            opened_log_position=session.opened_log_position,
            time_of_last_activity=-1,
            close_reason=CloseReason.SERVICE_ACTION if session.is_closed_by_service else None,
            response_stream_id=session.response_stream_id,
            response_channel=session.response_channel,
        ).encode()


def _service_message_records(trackers: Sequence[PendingServiceMessageTracker]) -> Iterator[bytes]:
    for tracker in trackers:
        yield PendingMessageTracker(
            _next_id(tracker), tracker.log_service_session_id, _ring_bytes(tracker), tracker.service_id
        ).encode()
        for service_session_id, append_position, message in tracker.pending_messages():
            sent = SessionMessageHeader.decode(message)
            timestamp = MAX_I64 if append_position == NULL_POSITION else append_position
            header = SessionMessageHeader(sent.leadership_term_id, service_session_id, timestamp).encode()
            yield header + message[HEADER_LENGTH:]


def _next_id(tracker: PendingServiceMessageTracker) -> int:
    return tracker.next_service_session_id if len(tracker) else tracker.log_service_session_id + 1


def _ring_bytes(tracker: PendingServiceMessageTracker) -> int:
    return sum(
        align(RING_RECORD_HEADER + len(message), RING_RECORD_HEADER)
        for _, _, message in tracker.pending_messages()
    )


# ---- loading


class _Tracker(NamedTuple):
    next_service_session_id: int
    log_service_session_id: int


class ModuleSnapshot:
    """Records of a snapshot, judged by ``check``, then loaded; Aeron's have no recordings and checksum."""

    def __init__(self) -> None:
        self.place: SnapshotPlace | None = None
        self.is_whole = False
        self.next_session_id = 1
        self.recordings: dict[int, SnapshotRecording] = {}
        self.answers: list[SnapshotAnswer | SnapshotAnswered] = []
        self.lanes: list[SnapshotLane] = []
        self.consumers: list[SnapshotConsumer] = []
        self.checksum: int | None = None
        self._sessions: list[ClusterSession] = []
        self._details: dict[int, SnapshotSession] = {}
        self._timers: list[Timer] = []
        self._trackers: dict[int, _Tracker] = {}
        self._messages: dict[int, list[tuple[int, bytes]]] = {}

    def on_record(self, record: bytes) -> None:
        """Take one message of the recording. Raises LogDamaged, RemoteProtocolError."""
        message = decode(record)
        if self.is_whole:
            self._on_record_of_ours(message)
            return
        if self.place is None and not _is_marker(message, SnapshotMark.BEGIN):
            raise LogDamaged(None, None, f"a snapshot begins with {type(message).__name__}, not with BEGIN")
        match message:
            case SnapshotMarker():
                self._on_marker(message)
            case ConsensusModule():
                self.next_session_id = message.next_session_id
                # Snapshots of old versions have no trackers; service 0's stands here.
                self._trackers[0] = _Tracker(message.next_service_session_id, message.log_service_session_id)
            case ClusterSession():
                self._sessions.append(message)
            case Timer():
                self._timers.append(message)
            case PendingMessageTracker():
                self._trackers[message.service_id] = _Tracker(
                    message.next_service_session_id, message.log_service_session_id
                )
            case SessionMessageHeader():
                service_id = service_id_of(message.cluster_session_id)
                self._messages.setdefault(service_id, []).append((message.cluster_session_id, record))

    def _on_marker(self, marker: SnapshotMarker) -> None:
        if marker.type_id != CONSENSUS_MODULE_TYPE_ID:
            raise LogDamaged(None, None, f"a snapshot of type {marker.type_id}, expected 1")
        if marker.mark is SnapshotMark.BEGIN:
            if self.place is not None:
                raise LogDamaged(None, None, "a snapshot begins twice")
            self.place = SnapshotPlace(
                marker.log_position,
                marker.leadership_term_id,
                marker.time_unit or ClusterTimeUnit.MILLIS,
                marker.app_version,
            )
        elif marker.mark is SnapshotMark.END:
            self.is_whole = True

    def _on_record_of_ours(self, message: object) -> None:
        match message:
            case SnapshotSession():
                self._details[message.cluster_session_id] = message
            case SnapshotRecording():
                self.recordings[message.service_id] = message
            case SnapshotAnswer() | SnapshotAnswered():
                self.answers.append(message)
            case SnapshotLane():
                self.lanes.append(message)
            case SnapshotConsumer():
                self.consumers.append(message)
            case SnapshotChecksum():
                self.checksum = message.checksum

    def load(
        self,
        sessions: SessionManager,
        timers: PriorityHeapTimerService,
        trackers: list[PendingServiceMessageTracker],
        log_position: int = MAX_I64,
    ) -> None:
        """Make a new member's state that of the snapshot (C-320). Raises LogDamaged.

        ``log_position`` is where it stands in the log: what is said of later positions was said of
        another log, from which this one was seeded.
        """
        assert self.is_whole
        sessions.load(self.next_session_id)
        for record in self._sessions:
            if record.opened_log_position > log_position:
                record = record.replace(opened_log_position=log_position)
            details = self._details.get(record.cluster_session_id)
            if details is not None and details.committed_position > log_position:
                details = details.replace(committed_position=log_position)
            sessions.load_session(record, details)
        sessions.lanes.load(self.lanes, log_position)
        sessions.consumers.load(self.consumers, log_position)
        for timer in self._timers:
            timers.schedule(timer.correlation_id, timer.deadline)
        for service_id in self._messages.keys() | self._trackers.keys():
            if service_id >= len(trackers) and not (service_id == 0 and not self._messages.get(0)):
                raise LogDamaged(
                    None, None, f"a snapshot with messages of service {service_id}, here are {len(trackers)}"
                )
        for tracker in trackers:
            known = self._trackers.get(tracker.service_id)
            if known is not None and known != (0, 0):
                tracker.load(*known)
            for service_session_id, message in self._messages.get(tracker.service_id, []):
                tracker.load_message(service_session_id, message)
            tracker.verify()


def _is_marker(message: object, mark: SnapshotMark) -> bool:
    return isinstance(message, SnapshotMarker) and message.mark is mark
