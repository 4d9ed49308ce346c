"""A control session with the archive of another process, over Aeron's media (Aeron: AeronArchive).

    with Aeron.connect() as aeron, AeronArchive.connect(aeron, "archive.host:8010") as archive:
        replay = archive.replay(recording_id, position, length, limit_counter_id=counter_id)

One request is under way at a time. A replay is read while the archive sends it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from typing import Any, Self, TypeVar

import numpy as np

from cluster.errors import (
    AuthenticationRejected,
    ClusterError,
    MediaDriverError,
    RemoteProtocolError,
    TimedOut,
)
from cluster.media.aeron import Aeron
from cluster.media.frame_wait import await_frames
from cluster.media.image import Image
from cluster.media.publication import BACK_PRESSURED, Publication
from cluster.media.response_channel import Answers
from cluster.protocol.archive_control import (
    ARCHIVE_CONTROL_VERSION,
    ArchiveAnswer,
    ArchiveChallenge,
    ArchiveChallengeResponse,
    AuthConnectRequest,
    BoundedReplayRequest,
    CloseSessionRequest,
    ControlResponse,
    ControlResponseCode,
    ListRecordingRequest,
    ListRecordingsRequest,
    RecordingPositionRequest,
    ReplayRequest,
    StopReplayRequest,
    decode_archive_answer,
)
from cluster.protocol.catalog import NULL_POSITION, RecordingDescriptor
from cluster.protocol.sbe import NULL_I32, Message
from cluster.protocol.versions import major, version_text
from cluster.transport.credentials import CredentialsSupplier, FixedCredentials

CONTROL_STREAM = 10
CONTROL_RESPONSE_STREAM = 20
REPLAY_STREAM = 100
NOBODY = FixedCredentials(b"")
CLIENT_INFO = "name=cluster reader"
LIST_COUNT = 100  # recordings, in one request
REJECTED = (10, 13)  # error codes of who does not come in, and who may not do it
T = TypeVar("T")


class ArchiveRefusal(RemoteProtocolError):
    """The archive says no to a request, and goes on."""


class BoundedReplay:
    """What the archive sends of a recording, from the position on that was asked for."""

    def __init__(self, archive: AeronArchive, replay_session_id: int, image: Image) -> None:
        self._archive = archive
        self._replay_session_id = replay_session_id
        self._image = image

    @property
    def position(self) -> int:
        """Up to where it was read."""
        return self._image.position

    @property
    def is_over(self) -> bool:
        """Whether nothing comes any more: all was sent, its bound is gone, or its archive."""
        return self._image.is_closed

    @property
    def needed(self) -> int:
        """As ``Image.needed``."""
        return self._image.needed

    def poll(self, out: np.ndarray, at: int = 0) -> int:
        """As ``Image.poll``, after what the driver has to say."""
        self._archive.aeron.conductor.do_work()
        return self._image.poll(out, at)

    def wait(self, timeout_s: float, *, is_due: bool) -> None:
        """Until there is something to poll, at most so long; ``is_due`` if something is."""
        await_frames((self._image,), timeout_s, is_due=is_due)

    def stop(self) -> None:
        """Let the archive send no more."""
        if not self._image.is_closed:
            self._archive.stop_replay(self._replay_session_id)


class AeronArchive:
    """Raises MediaDriverError, TimedOut where nobody answers, ArchiveRefusal where the archive says no."""

    def __init__(self, aeron: Aeron, endpoint: str, timeout_s: float) -> None:
        self.aeron = aeron
        self.endpoint = endpoint
        self._timeout_s = timeout_s
        with ExitStack() as made:
            self._replays = made.enter_context(closing(Answers(aeron, endpoint, REPLAY_STREAM)))
            self._answers = made.enter_context(closing(Answers(aeron, endpoint, CONTROL_RESPONSE_STREAM)))
            self._requests: Publication = aeron.add_exclusive_publication(
                f"aeron:udp?endpoint={endpoint}", CONTROL_STREAM
            )
            made.pop_all()
        self._session_id = -1
        self._unread: deque[bytes] = deque()
        self._answer: ArchiveAnswer  # the last

    @classmethod
    def connect(
        cls, aeron: Aeron, endpoint: str, timeout_s: float = 5.0, credentials: CredentialsSupplier = NOBODY
    ) -> Self:
        """Open a control session at ``host:port``; ``credentials`` say who comes.

        Raises AuthenticationRejected where the archive does not let them in.
        """
        archive = cls(aeron, endpoint, timeout_s)
        try:
            archive._open_session(credentials)
        except BaseException:
            archive.close()
            raise
        return archive

    def _open_session(self, credentials: CredentialsSupplier) -> None:
        correlation_id = self.aeron.next_correlation_id()
        self._send(
            AuthConnectRequest(
                correlation_id,
                CONTROL_RESPONSE_STREAM,
                ARCHIVE_CONTROL_VERSION,
                self._answers.channel,
                credentials.encoded_credentials(),
                CLIENT_INFO,
            )
        )
        answer = self._await_answer(correlation_id)
        if isinstance(answer, ArchiveChallenge):
            shown = credentials.on_challenge(answer.encoded_challenge)
            if not shown:
                what = "asks for credentials, and none are given"
                raise AuthenticationRejected(f"archive {self.endpoint} {what}")
            correlation_id = self.aeron.next_correlation_id()
            self._send(ArchiveChallengeResponse(answer.control_session_id, correlation_id, shown))
            answer = self._await_answer(correlation_id)
        response = self._checked(answer)
        if response.version is not None and major(response.version) != major(ARCHIVE_CONTROL_VERSION):
            raise RemoteProtocolError(
                f"archive {self.endpoint} speaks version {version_text(response.version)}, expected 1.x"
            )
        self._session_id = response.control_session_id

    # ---- requests

    def list_recordings(self) -> list[RecordingDescriptor]:
        """All recordings of the archive, by id."""
        found: list[RecordingDescriptor] = []
        while True:
            first = found[-1].recording_id + 1 if found else 0
            correlation_id = self._ask(ListRecordingsRequest, first, LIST_COUNT)
            listed = 0
            while listed < LIST_COUNT:
                answer = self._await_answer(correlation_id)
                if not isinstance(answer, RecordingDescriptor):
                    return found
                found.append(answer)
                listed += 1

    def recording(self, recording_id: int) -> RecordingDescriptor:
        """What the recording is like now. Raises ArchiveRefusal for one that there is not."""
        correlation_id = self._ask(ListRecordingRequest, recording_id)
        answer = self._await_answer(correlation_id)
        if isinstance(answer, RecordingDescriptor):
            return answer
        raise ArchiveRefusal(f"archive {self.endpoint} has no recording {recording_id}")

    def recorded_position(self, recording_id: int) -> int | None:
        """How far the recording is that is written now; None where it is not."""
        correlation_id = self._ask(RecordingPositionRequest, recording_id)
        position = self._await_response(correlation_id).relevant_id
        return None if position < 0 else position

    def recorded_end(self, recording_id: int) -> int:
        """How far the recording is now, or was when it was stopped."""
        position = self.recorded_position(recording_id)
        if position is not None:
            return position
        recording = self.recording(recording_id)
        stop = recording.stop_position
        return recording.start_position if stop == NULL_POSITION else stop

    def replay(
        self,
        recording_id: int,
        position: int,
        length: int,
        file_io_max_length: int | None = None,
        limit_counter_id: int | None = None,
    ) -> BoundedReplay:
        """Replay ``length`` bytes from ``position`` on, the beginning of a frame, as they are recorded.

        ``file_io_max_length`` is how much the archive reads at once. A counter of its own driver may say how
        far it goes. Raises ArchiveRefusal for a position that is not there, or beyond that counter.
        """
        is_bounded = limit_counter_id is not None
        correlation_id = self._ask(
            BoundedReplayRequest if is_bounded else ReplayRequest,
            recording_id,
            position,
            length,
            *((limit_counter_id,) if is_bounded else ()),
            REPLAY_STREAM,
            NULL_I32 if file_io_max_length is None else file_io_max_length,
            replay_channel=self._replays.channel,
        )
        replay_session_id = self._await_response(correlation_id).relevant_id
        session_id = ((replay_session_id & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000
        image = self._await(lambda: self._replays.subscription.image_of(session_id), "the replay's image")
        if image.position != position:
            where = f"{image.position}, asked for {position}"
            raise RemoteProtocolError(f"archive {self.endpoint} replays from {where}")
        return BoundedReplay(self, replay_session_id, image)

    def stop_replay(self, replay_session_id: int) -> None:
        """End a replay; one that has ended by itself is none of an error."""
        correlation_id = self._ask(StopReplayRequest, replay_session_id)
        self._await_answer(correlation_id, is_checked=False)

    # ---- the control session

    def _ask(self, kind: Callable[..., Message], *fields: Any, **more: Any) -> int:
        """Send a request of this session; by what its answer is known."""
        correlation_id = self.aeron.next_correlation_id()
        self._send(kind(self._session_id, correlation_id, *fields, **more))
        return correlation_id

    def _send(self, message: Message) -> None:
        data = message.encode()

        def is_sent() -> bool:
            result = self._requests.offer(data)
            if result == BACK_PRESSURED or result >= 0:
                return result >= 0
            if self._session_id >= 0:
                raise TimedOut(f"archive {self.endpoint} has gone")
            return False  # it may be on its way

        self._await(is_sent, "a connection")

    def _await_response(self, correlation_id: int) -> ControlResponse:
        return self._checked(self._await_answer(correlation_id))

    def _checked(self, answer: ArchiveAnswer) -> ControlResponse:
        if not isinstance(answer, ControlResponse):
            raise RemoteProtocolError(f"archive {self.endpoint} answers with a {type(answer).__name__}")
        if answer.code is not ControlResponseCode.OK:
            raise self._refused(answer)
        return answer

    def _await_answer(self, correlation_id: int, *, is_checked: bool = True) -> ArchiveAnswer:
        self._await(partial(self._poll, correlation_id), "an answer")
        answer = self._answer
        if isinstance(answer, ControlResponse) and answer.code is ControlResponseCode.ERROR and is_checked:
            raise self._refused(answer)
        return answer

    def _refused(self, answer: ControlResponse) -> ClusterError:
        what = f"archive {self.endpoint} refuses: {answer.error_message or answer.code.name}"
        if answer.code is ControlResponseCode.ERROR and answer.relevant_id in REJECTED:
            return AuthenticationRejected(what)
        return ArchiveRefusal(what)

    def _poll(self, correlation_id: int) -> bool:
        """Whether the next answer to this request is there; others were given up."""
        self._unread += self._answers.poll()
        while self._unread:
            answer = decode_archive_answer(self._unread.popleft())
            if answer is not None and answer.correlation_id == correlation_id:
                self._answer = answer
                return True
        return False

    def _await(self, found: Callable[[], T | None], what: str) -> T:
        return self.aeron.conductor.await_value(found, self._timeout_s, f"archive {self.endpoint}: {what}")

    def close(self) -> None:
        """End the session, and give back to the driver what it had."""
        try:
            self.aeron.conductor.do_work()  # which fails in a process that was forked off
            if self._session_id >= 0:
                self._requests.offer(CloseSessionRequest(self._session_id).encode())
            self.aeron.remove_publication(self._requests)
            self._answers.close()
            self.aeron.remove_subscription(self._replays.subscription)
        except MediaDriverError:
            pass  # with the driver all of it is gone

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
