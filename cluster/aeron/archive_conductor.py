"""The archive of a member of ours, as Aeron's clients see it: read only (Aeron: ArchiveConductor).

    control image ── AuthConnectRequest ──▶ ControlSession ── answers ──▶ client
                  └─ requests ──▶ listings, positions
                              └─▶ ReplaySession ── frames ──▶ client

Requests that would change anything are refused as to one who has no right to them.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial

from cluster.aeron.control_session import ControlSession
from cluster.aeron.replay_session import (
    BLOCK_BYTES,
    ReplayedArchive,
    ReplayedEnd,
    ReplayRange,
    ReplaySession,
)
from cluster.errors import ClusterError, LocalProtocolError, LogDamaged, MediaDriverError, RemoteProtocolError
from cluster.media.aeron import Aeron
from cluster.media.aeron_archive import CONTROL_STREAM
from cluster.media.client_conductor import ChannelRefused
from cluster.media.image import Image
from cluster.media.message_reader import MessageReader
from cluster.protocol import archive_control as control
from cluster.protocol import link, streams
from cluster.protocol.archive_control import ArchiveErrorCode
from cluster.protocol.catalog import NULL_POSITION, RecordingDescriptor
from cluster.protocol.frame import FRAME_ALIGNMENT
from cluster.protocol.shares import beyond_share, sharer_at
from cluster.transport.bounds import Bounds
from cluster.transport.log_server import Judged, ReaderIdentity

REPLAYS_MAX = 20  # Archive.Configuration.MAX_CONCURRENT_REPLAYS_DEFAULT
_END = 2**63 - 1
_TO_THE_END_NOW = -2  # a length; -1 is the same, and what is recorded later
_ENDED = (ChannelRefused, LocalProtocolError)  # of one client, while the driver goes on


class _Requests:
    """What one publication sends, and the session that it has opened."""

    def __init__(self, image: Image) -> None:
        self.reader = MessageReader(image)
        self.host = image.source_identity.rpartition(":")[0]
        self.session: ControlSession | None = None
        self.is_refused = False  # it sends what is no frame, or no request
        self.waiting: deque[bytes] = deque()  # until what it has asked before is answered

    @property
    def next_request(self) -> bytes | None:
        """The next that is to be answered now. Raises MediaDriverError for what is no frame."""
        if self.is_refused or (self.session is not None and self.session.is_blocked):
            return None
        if not self.waiting:
            self.waiting.extend(self.reader.poll_some() or ())
        return self.waiting.popleft() if self.waiting else None


class _Refusal(Exception):
    """Why a request is not done, and the code that Aeron has for that."""

    def __init__(self, why: str, code: ArchiveErrorCode = ArchiveErrorCode.GENERIC) -> None:
        self.code = code
        super().__init__(why)


class ArchiveConductor:
    """Used by one thread. Methods raise MediaDriverError when the driver is gone."""

    def __init__(
        self,
        aeron: Aeron,
        channel: str,
        archive: ReplayedArchive,
        ask: Callable[[ReaderIdentity, int], Future[Judged]],
        archive_id: int,
        bounds: Bounds,
        on_error: Callable[[ClusterError], None],
    ) -> None:
        """Take requests at ``channel``. ``ask`` says whether a client may read, later."""
        self._aeron = aeron
        self._archive = archive
        self._committed, self._recorded = ReplayedEnd(archive.committed), ReplayedEnd(archive.recorded)
        self._ask = ask
        self._archive_id = archive_id
        self._bounds = bounds
        self._on_error = on_error
        self._subscription = aeron.add_subscription(channel, CONTROL_STREAM)
        self._clients: dict[int, _Requests] = {}  # by the session id of the publication
        self._replays: list[ReplaySession] = []
        self._next_session_id = 0
        self._next_replay = 1
        self.least_position: int | None = None  # of replays of the log: what is before may go

    def do_work(self, now_ns: int) -> int:
        """Take a turn; returns how much was done."""
        work_count = self._aeron.conductor.do_work() + self._poll_images(now_ns)
        for client in self._clients.values():
            if client.session is not None:
                work_count += self._turn_session(client, client.session, now_ns)
        for replay in list(self._replays):
            work_count += self._turn_replay(replay, now_ns)
        ranges = [replay.replayed for replay in self._replays]
        self.least_position = min((each.position for each in ranges if each.is_log), default=None)
        return work_count

    @property
    def replay_count(self) -> int:
        """Replays that are under way. May be asked from any thread."""
        return len(self._replays)

    @property
    def is_sending(self) -> bool:
        """Whether frames wait for room."""
        return any(replay.replayed.has_read for replay in self._replays)

    def close(self) -> None:
        """End all sessions and replays."""
        self.least_position = None
        with suppress(MediaDriverError):
            for client in self._clients.values():
                self._end_session(client)
            while self._replays:
                self._replays.pop().close()
        self._archive.close()

    # ---- clients

    def _poll_images(self, now_ns: int) -> int:
        images, work_count = self._subscription.images, 0
        for session_id in self._clients.keys() - images.keys():
            self._end_session(self._clients.pop(session_id))
        for session_id, image in list(images.items()):
            client = self._clients.get(session_id)
            if client is None or client.reader.image is not image:
                if client is not None:
                    self._end_session(client)
                client = self._clients[session_id] = _Requests(image)
            work_count += self._poll(client, now_ns)
        return work_count

    def _poll(self, client: _Requests, now_ns: int) -> int:
        try:
            message = client.next_request
            if message is None:
                return 0
            self._on_request(client, control.decode_archive_request(message), now_ns)
        except (MediaDriverError, RemoteProtocolError) as error:  # which is about this publication alone
            client.is_refused = True
            self._on_error(error)
        return 1

    def _on_request(self, client: _Requests, request: control.ArchiveRequest, now_ns: int) -> None:
        session = client.session
        if isinstance(request, control.AuthConnectRequest):
            if session is None:
                client.session = self._open_session(client, request, now_ns)
        elif session is not None and session.session_id == getattr(request, "control_session_id", None):
            if isinstance(request, control.CloseSessionRequest):
                self._end_session(client)
            elif session.is_open:
                self._serve(session, request, now_ns)

    def _open_session(
        self, client: _Requests, request: control.AuthConnectRequest, now_ns: int
    ) -> ControlSession | None:
        hosts = [each.session.host for each in self._clients.values() if each.session is not None]
        if why := self._beyond(hosts, client.host, self._bounds.readers_max):
            self._on_error(
                RemoteProtocolError(f"a client of the archive was turned away: {why} (readers_max)")
            )
            return None
        identity = ReaderIdentity(client.host, None, bytes(request.encoded_credentials))
        judge = partial(self._ask, identity, link.RecordingRequest.TEMPLATE_ID)
        session_id, self._next_session_id = self._next_session_id, self._next_session_id + 1
        try:
            return ControlSession(self._aeron, session_id, request, client.host, judge, now_ns)
        except _ENDED as error:
            self._on_error(error)
            return None

    @staticmethod
    def _beyond(hosts: list[str], host: str, maximum: int) -> str:
        """Why a host gets no more of what others hold, too; empty where it does."""
        if (free := maximum - len(hosts)) <= 0:
            return f"{len(hosts)} are served"
        count = Counter(map(sharer_at, hosts))[sharer_at(host)]
        why = beyond_share(count, free)
        return why and f"{host} {why}"

    def _turn_session(self, client: _Requests, session: ControlSession, now_ns: int) -> int:
        try:
            work_count = session.do_work(now_ns)
        except _ENDED as error:
            self._on_error(error)
            session.is_over, work_count = True, 1
        if session.is_over:
            self._end_session(client)
        return work_count

    def _end_session(self, client: _Requests) -> None:
        """Its replays go on while their client takes them."""
        session, client.session = client.session, None
        if session is not None:
            session.is_over = True
            session.close()

    # ---- requests

    def _serve(self, session: ControlSession, request: control.ArchiveRequest, now_ns: int) -> None:
        correlation_id = getattr(request, "correlation_id", -1)
        try:
            self._answer(session, request, correlation_id, now_ns)
        except _Refusal as refusal:
            session.refuse(correlation_id, str(refusal), refusal.code)
        except MediaDriverError:
            raise
        except (ClusterError, OSError) as error:
            session.refuse(correlation_id, str(error))
            self._on_error(RemoteProtocolError(f"the archive cannot answer: {error}"))

    def _answer(
        self, session: ControlSession, request: control.ArchiveRequest, correlation_id: int, now_ns: int
    ) -> None:
        match request:
            case control.ReplayRequest() | control.BoundedReplayRequest():
                self._replay(session, request, now_ns)
            case control.StopReplayRequest(replay_session_id=replay_id):
                self._stop(lambda replay: replay.session_id == replay_id, session)
                session.answer(correlation_id)
            case control.StopAllReplaysRequest(recording_id=recording_id):
                self._stop(
                    lambda replay: recording_id in (-1, replay.replayed.recording.recording_id), session
                )
                session.answer(correlation_id)
            case control.ListRecordingRequest(recording_id=recording_id):
                found = [each for each in self._archive.recordings() if each.recording_id == recording_id]
                session.list(correlation_id, found)
                if not found:
                    session.answer_unknown(correlation_id, recording_id)
            case control.ListRecordingsRequest() | control.ListRecordingsForUriRequest():
                self._list(session, request)
            case control.FindLastMatchingRecordingRequest():
                self._find_last(session, request)
            case (
                control.StartPositionRequest()
                | control.StopPositionRequest()
                | control.RecordingPositionRequest()
                | control.MaxRecordedPositionRequest()
            ):
                session.answer(correlation_id, self._position(request))
            case control.ArchiveIdRequest():
                session.answer(correlation_id, self._archive_id)
            case control.ArchiveKeepAliveRequest():
                pass
            case _:
                raise _Refusal("unauthorised action", ArchiveErrorCode.UNAUTHORISED_ACTION)

    def _recording(self, recording_id: int) -> RecordingDescriptor:
        for recording in self._archive.recordings():
            if recording.recording_id == recording_id:
                return recording
        raise _Refusal(f"unknown recording id: {recording_id}", ArchiveErrorCode.UNKNOWN_RECORDING)

    def _position(
        self,
        request: control.StartPositionRequest
        | control.StopPositionRequest
        | control.RecordingPositionRequest
        | control.MaxRecordedPositionRequest,
    ) -> int:
        recording = self._recording(request.recording_id)
        if isinstance(request, control.StartPositionRequest):
            return recording.start_position
        if isinstance(request, control.StopPositionRequest):
            return recording.stop_position
        committed = self._archive.committed(request.recording_id)
        if committed is not None:
            return committed
        is_active = isinstance(request, control.RecordingPositionRequest)
        return NULL_POSITION if is_active else recording.stop_position

    def _list(
        self,
        session: ControlSession,
        request: control.ListRecordingsRequest | control.ListRecordingsForUriRequest,
    ) -> None:
        found = [
            each for each in self._archive.recordings() if each.recording_id >= request.from_recording_id
        ]
        last_id = found[-1].recording_id + 1 if found else request.from_recording_id
        if isinstance(request, control.ListRecordingsForUriRequest):
            found = [
                each
                for each in found
                if each.stream_id == request.stream_id and request.channel in each.original_channel
            ]
        session.list(request.correlation_id, found[: max(request.record_count, 0)])
        if len(found) < request.record_count:
            session.answer_unknown(request.correlation_id, last_id)

    def _find_last(self, session: ControlSession, request: control.FindLastMatchingRecordingRequest) -> None:
        least = request.min_recording_id
        if least < 0:
            raise _Refusal(f"minRecordingId={least} < 0", ArchiveErrorCode.UNKNOWN_RECORDING)
        wanted = request.session_id, request.stream_id
        found = [
            each.recording_id
            for each in self._archive.recordings()
            if each.recording_id >= least
            and (each.session_id, each.stream_id) == wanted
            and request.channel in each.original_channel
        ]
        session.answer(request.correlation_id, found[-1] if found else -1)

    # ---- replays

    def _replay(
        self,
        session: ControlSession,
        request: control.ReplayRequest | control.BoundedReplayRequest,
        now_ns: int,
    ) -> None:
        hosts = [each.session.host for each in self._replays]
        if why := self._beyond(hosts, session.host, REPLAYS_MAX):
            raise _Refusal(
                f"max concurrent replays reached {REPLAYS_MAX}: {why}", ArchiveErrorCode.MAX_REPLAYS
            )
        replayed = self._range(request, now_ns)
        number, self._next_replay = self._next_replay, self._next_replay % (2**31 - 1) + 1
        replay = ReplaySession(
            self._aeron,
            session,
            request,
            replayed,
            number=number,
            idle_timeout_ns=self._bounds.reader_timeout_ns,
            now_ns=now_ns,
        )
        self._replays.append(replay)

    def _range(
        self, request: control.ReplayRequest | control.BoundedReplayRequest, now_ns: int
    ) -> ReplayRange:
        recording_id, position, length = request.recording_id, request.position, request.length
        recording = self._recording(recording_id)
        led_session_id, log_end = self._archive.led_session_id, self._recorded
        if led_session_id is None or isinstance(request, control.BoundedReplayRequest):
            led_session_id, log_end = None, self._committed
        written = log_end.look(recording_id, now_ns)
        if isinstance(request, control.BoundedReplayRequest):
            counter_id = request.limit_counter_id
            if written is None or not self._archive.is_bounded_by(counter_id):
                raise _Refusal(
                    f"unable to create replay limit counter id= {counter_id} because of: "
                    "it is not the commit position of the log"
                )
        start, mtu = recording.start_position, recording.mtu_length
        end = recording.stop_position if written is None else written
        is_given, position = position != NULL_POSITION, start if position == NULL_POSITION else position
        generic, invalid = ArchiveErrorCode.GENERIC, ArchiveErrorCode.INVALID_POSITION
        named, whose = f"requested replay start position={position}", f"for recording {recording_id}"
        is_beyond = position > end or (is_given and position == end and written is None)
        for is_wrong, why, code in (
            (
                written is None and (end == NULL_POSITION or recording.stream_id == streams.LOG),
                f"recording {recording_id} is written, and nothing of it is known to be committed",
                generic,
            ),
            (
                position % FRAME_ALIGNMENT != 0,
                f"{named} is not a multiple of FRAME_ALIGNMENT ({FRAME_ALIGNMENT}) {whose}",
                generic,
            ),
            (position < start, f"{named} is less than recording start position={start} {whose}", invalid),
            (is_beyond, f"{named} must be less than the limit position={end} {whose}", invalid),
            (
                0 < request.file_io_max_length < mtu,
                f"fileIoMaxLength={request.file_io_max_length} < mtuLength={mtu}",
                generic,
            ),
            (
                length == _TO_THE_END_NOW and position == end,
                f"when replaying and stopping the replay length must be non-zero, recordingId={recording_id}",
                ArchiveErrorCode.EMPTY_RECORDING,
            ),
            (length < _TO_THE_END_NOW, f"replay length must be positive: length={length} {whose}", generic),
        ):
            if is_wrong:
                raise _Refusal(why, code)
        limit = end if written is None or length == _TO_THE_END_NOW else _END
        if length >= 0:
            limit = min(limit, position + length)
        max_bytes = BLOCK_BYTES if request.file_io_max_length <= 0 else request.file_io_max_length
        replayed = ReplayRange(
            self._archive,
            recording,
            position,
            limit,
            None if written is None else log_end,
            min(max_bytes, BLOCK_BYTES),
            led_session_id,
        )
        try:
            replayed.has_frames(now_ns)
        except LogDamaged as error:
            raise _Refusal(
                f"replayPosition={position} does not point to a valid frame: {error}", invalid
            ) from None
        return replayed

    def _turn_replay(self, replay: ReplaySession, now_ns: int) -> int:
        try:
            work_count = replay.do_work(now_ns)
        except (ClusterError, OSError) as error:
            if isinstance(error, MediaDriverError) and not isinstance(error, ChannelRefused):
                raise
            why = f"{error}, recordingId={replay.replayed.recording.recording_id}"
            replay.session.refuse(replay.correlation_id, why)
            self._on_error(RemoteProtocolError(f"a replay to {replay.session.host} has ended: {why}"))
            replay.is_over, work_count = True, 1
        if replay.is_over:
            self._end_replay(replay)
        return work_count

    def _stop(self, is_meant: Callable[[ReplaySession], bool], session: ControlSession) -> None:
        """End replays that this client began: others' are none of its."""
        for replay in list(self._replays):
            if replay.session is session and is_meant(replay):
                self._end_replay(replay)

    def _end_replay(self, replay: ReplaySession) -> None:
        self._replays.remove(replay)
        replay.close()
