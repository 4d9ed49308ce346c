"""Sends snapshots and the log to members that fetch them (snapshot_replication.py has their side)."""

from dataclasses import dataclass, field

import numpy as np

from cluster.archive.archive import Archive
from cluster.archive.files import Buffer
from cluster.archive.recording import Recording
from cluster.consensus.context import NULL_POSITION, ConsensusModuleContext
from cluster.member.disk.repair import Repair
from cluster.member.frames import RecordingBlockFrame
from cluster.member.log.member_log import MemberLog
from cluster.member.ports import Links
from cluster.member.turn import Turn
from cluster.protocol.link import (
    LinkError,
    LinkErrorCode,
    OfferedRecording,
    RecordingBlock,
    RecordingFetch,
    SnapshotOffer,
    SnapshotRequest,
    terms_from,
)
from cluster.protocol.recording_log import RecordingLogEntry
from cluster.transport.message_frames import link_frame

CHUNK_BYTES = 124 * 1024  # so that a block fits an envelope of the link
CHUNKS_PER_TURN = 32


@dataclass(eq=False, slots=True)
class _Served:
    """One recording on its way to one member."""

    correlation_id: int
    recording: Recording
    position: int
    end: int


@dataclass(eq=False)
class SnapshotServer:
    """Sends other members what they ask for, whatever this member does besides."""

    _context: ConsensusModuleContext
    _archive: Archive
    _log: MemberLog
    _repair: Repair
    _links: Links
    _turn: Turn
    _served: dict[int, _Served] = field(default_factory=dict)
    _chunk: np.ndarray | None = None
    _frame: RecordingBlockFrame = field(default_factory=RecordingBlockFrame)
    last_request_ns: int | None = None

    def on_request(self, member_id: int, request: SnapshotRequest) -> None:
        self.last_request_ns = self._turn.now_ns
        offer = self._offer(request.correlation_id)
        self._links.send(member_id, link_frame(offer))

    def _offer(self, correlation_id: int) -> SnapshotOffer:
        recording = self._log.recording
        entries = next(self._log.recording_log.snapshot_sets(self._context.service_count), ())
        start_position = 0 if recording is None else recording.start_position
        if recording is None or not entries or entries[0].log_position < start_position:
            nothing = (NULL_POSITION, NULL_POSITION, 0, -1, start_position, 0, 0, 0)
            return SnapshotOffer(correlation_id, *nothing)
        module = entries[0]
        entries_up_to_it = (
            entry
            for entry in self._log.recording_log.entries
            if entry.is_valid and entry.leadership_term_id <= module.leadership_term_id
        )
        *terms, last = terms_from(start_position, entries_up_to_it)
        return SnapshotOffer(
            correlation_id=correlation_id,
            log_position=module.log_position,
            leadership_term_id=module.leadership_term_id,
            timestamp=module.timestamp,
            log_recording_id=recording.recording_id,
            log_start_position=start_position,
            initial_term_id=recording.initial_term_id,
            term_length=recording.term_length,
            mtu=recording.mtu,
            recordings=tuple(self._offered(entry) for entry in entries),
            terms=(*terms, last.replace(log_position=NULL_POSITION)),
            first_frame=recording.first_frame() if start_position > 0 else b"",
        )

    def _offered(self, entry: RecordingLogEntry) -> OfferedRecording:
        recording = self._archive.recording(entry.recording_id)
        return OfferedRecording(
            entry.recording_id,
            recording.append_position,
            entry.service_id,
            recording.session_id,
            recording.initial_term_id,
            recording.term_length,
            recording.mtu,
        )

    def on_fetch(self, member_id: int, fetch: RecordingFetch) -> None:
        """Begin to send, or refuse what is not here (any more). Raises LogDamaged, of the own recording."""
        archive = self._archive
        self.last_request_ns = self._turn.now_ns
        if self._repair.log_repair is not None:
            self._refuse(member_id, fetch, "the log here is being repaired")
            return
        if not archive.has_recording(fetch.recording_id):
            self._refuse(member_id, fetch, f"recording {fetch.recording_id} is not here")
            return
        recording = archive.recording(fetch.recording_id)
        begin, end = fetch.from_position, fetch.to_position
        if not recording.start_position <= begin <= end <= recording.append_position:
            self._refuse(
                member_id,
                fetch,
                f"recording {fetch.recording_id} from {begin} to {end}: here are "
                f"{recording.start_position} to {recording.append_position}",
            )
            return
        if not (recording.is_boundary(begin) and recording.is_boundary(end)):
            text = f"recording {fetch.recording_id} from {begin} to {end}: a frame crosses one of them"
            self._refuse(member_id, fetch, text)
            return
        self._served[member_id] = _Served(fetch.correlation_id, recording, begin, end)

    def _refuse(self, member_id: int, fetch: RecordingFetch, text: str) -> None:
        error = LinkError(fetch.correlation_id, LinkErrorCode.NOT_AVAILABLE, text)
        self._links.send(member_id, link_frame(error))

    def stop(self, member_id: int) -> None:
        """The link broke."""
        self._served.pop(member_id, None)

    @property
    def is_serving(self) -> bool:
        return bool(self._served)

    def do_work(self) -> int:
        """Send the next chunks; returns how many."""
        if not self._served:
            return 0
        self.last_request_ns = self._turn.now_ns
        work_count = 0
        for member_id, served in list(self._served.items()):
            work_count += self._send(member_id, served)
            if served.position >= served.end:
                del self._served[member_id]
        return work_count

    def _send(self, member_id: int, served: _Served) -> int:
        links, recording = self._links, served.recording
        count = 0
        while served.position < served.end and count < CHUNKS_PER_TURN:
            if links.is_full(member_id):
                break
            if served.position < recording.start_position or not self._archive.has_recording(
                recording.recording_id
            ):
                fetch = RecordingFetch(served.correlation_id, recording.recording_id, 0, 0)
                self._refuse(member_id, fetch, f"recording {recording.recording_id} was purged meanwhile")
                served.position = served.end
                break
            if self._chunk is None:
                self._chunk = np.zeros(CHUNK_BYTES, np.uint8)  # reused: links copy what they keep
            wanted = min(served.end - served.position, CHUNK_BYTES)
            data = recording.read_published(served.position, wanted, self._chunk)
            correlation_id, position = served.correlation_id, served.position
            block: tuple[Buffer, ...] = self._frame.around(correlation_id, position, data)
            if len(data) > CHUNK_BYTES:  # one long frame of padding: links take whole frames apart, no others
                block = (link_frame(RecordingBlock(correlation_id, position, data.tobytes())),)
            if links.send(member_id, *block) <= 0:
                break
            served.position += len(data)
            count += 1
        return count
