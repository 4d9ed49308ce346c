"""A client of our archive: it connects, shows who it is, asks, and is answered (Aeron: ControlSession).

    AuthConnectRequest ──▶ response publication connected ──▶ judged ──▶ OK ──▶ requests, answers
                                    │                           └──▶ rejected, over
                                    └── nobody there, over

A request is read when all before it are answered, so a client that reads no answers holds up itself alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from cluster.aeron.asked_publication import AskedPublication
from cluster.errors import LocalProtocolError
from cluster.media.aeron import Aeron
from cluster.protocol.archive_control import (
    ARCHIVE_CONTROL_VERSION,
    ArchiveErrorCode,
    AuthConnectRequest,
    ControlResponse,
    ControlResponseCode,
    encode_descriptor,
)
from cluster.protocol.catalog import RecordingDescriptor
from cluster.protocol.response_channel import parameter, with_parameter
from cluster.protocol.versions import major, version_text
from cluster.transport.log_server import Judged

_SHAPE = (("term-length", "64k"), ("sparse", "true"))  # ControlSession's of Aeron: short answers


class ControlSession:
    """``do_work`` until ``is_over``, then ``close``."""

    def __init__(
        self,
        aeron: Aeron,
        session_id: int,
        request: AuthConnectRequest,
        host: str,
        judge: Callable[[], Future[Judged]],
        now_ns: int,
    ) -> None:
        """``judge`` is called once the client has answered. Raises LocalProtocolError for no channel."""
        self.session_id = session_id
        self.host = host
        self.is_open = False
        self.is_over = False
        self._request = request
        self._judge = judge
        self._judged: Future[Judged] | None = None
        self._answers: deque[bytes] = deque()
        self._ends = False  # when its answers are sent
        channel = response_channel(request.response_channel)
        self._asked = AskedPublication(aeron, channel, request.response_stream_id, now_ns)

    @property
    def is_blocked(self) -> bool:
        """Whether nothing more is to be asked now."""
        return bool(self._answers)

    def do_work(self, now_ns: int) -> int:
        """Take it as far as it goes; returns how much was done. Raises ClusterError where it is over."""
        publication = self._asked.publication
        if self._judged is None:
            if not self._asked.is_connected(now_ns):
                return 0
            self._judged = self._judge()
            return 1
        assert publication is not None
        if not publication.is_connected:
            self.is_over = True
            return 0
        if not self.is_open and not self._ends:
            if not self._judged.done():
                return 0
            self._decide(self._judged.result())
        work_count = 0
        while self._answers and publication.offer(self._answers[0]) > 0:
            self._answers.popleft()
            work_count += 1
        self.is_over |= self._ends and not self._answers
        return work_count

    def _decide(self, judged: Judged) -> None:
        request, version = self._request, self._request.version
        if major(version) != major(ARCHIVE_CONTROL_VERSION):
            what = f"invalid client version {version_text(version)}"
            own = version_text(ARCHIVE_CONTROL_VERSION)
            self.refuse(request.correlation_id, f"{what}, archive is {own}", self.session_id)
        elif judged.why:
            code = ArchiveErrorCode.AUTHENTICATION_REJECTED
            self.refuse(request.correlation_id, "authentication rejected", code)
        else:
            self.is_open = True
            self.answer(request.correlation_id, self.session_id)
            return
        self._ends = True

    # ---- answers

    def answer(self, correlation_id: int, relevant_id: int = 0) -> None:
        """It was done, or this is what was asked for."""
        self._respond(correlation_id, relevant_id, ControlResponseCode.OK)

    def answer_unknown(self, correlation_id: int, recording_id: int) -> None:
        """There is no such recording, or none after it."""
        self._respond(correlation_id, recording_id, ControlResponseCode.RECORDING_UNKNOWN)

    def refuse(self, correlation_id: int, why: str, code: int = ArchiveErrorCode.GENERIC) -> None:
        """It is not done."""
        self._respond(correlation_id, code, ControlResponseCode.ERROR, why)

    def list(self, correlation_id: int, recordings: Sequence[RecordingDescriptor]) -> None:
        """One answer for each."""
        for recording in recordings:
            self._answers.append(encode_descriptor(recording, self.session_id, correlation_id))

    def _respond(
        self, correlation_id: int, relevant_id: int, code: ControlResponseCode, why: str = ""
    ) -> None:
        response = ControlResponse(
            self.session_id, correlation_id, relevant_id, code, ARCHIVE_CONTROL_VERSION, why
        )
        self._answers.append(response.encode())

    def close(self) -> None:
        """Give its publication back; what was offered is sent."""
        self._asked.close()


def response_channel(asked: str) -> str:
    """Where a client is answered. Raises LocalProtocolError."""
    endpoint = parameter(asked, "endpoint")
    if not asked.startswith("aeron:udp?") or not endpoint:
        raise LocalProtocolError(f"an archive's client cannot be answered at {asked[:64]!r}")
    channel = f"aeron:udp?endpoint={endpoint}"
    if session_id := parameter(asked, "session-id"):
        channel = with_parameter(channel, "session-id", session_id)
    for key, value in _SHAPE:
        channel = with_parameter(channel, key, value)
    return channel
