"""The log of a member that leads, for those that ask for it: in its election, and afterwards.

follower   ReplicationRequest, CatchupPosition ──▶  checked, LogStreams.start
           ◀── LogImage, then the log's bytes
           AppendPosition, CatchupProgress ──▶      has all that there was: StopCatchup
"""

from typing import NamedTuple

from cluster.consensus.context import NULL_POSITION
from cluster.errors import RemoteProtocolError
from cluster.member.frames import consensus_frame
from cluster.member.log.member_log import MemberLog
from cluster.member.log.streams import LogStreams
from cluster.member.ports import Links
from cluster.member.reporter import Reporter
from cluster.protocol.consensus import CatchupPosition, StopCatchup
from cluster.protocol.link import (
    CatchupProgress,
    LinkError,
    LinkErrorCode,
    LogGeometry,
    LogImage,
    ReplicationRequest,
)
from cluster.protocol.sbe import Message
from cluster.transport.message_frames import link_frame


class LedLog(NamedTuple):
    """The log that this member leads."""

    leadership_term_id: int
    log_session_id: int


class LogSender:
    """Answers requests for the log; ``streams`` sends it."""

    def __init__(self, log: MemberLog, streams: LogStreams, links: Links, reporter: Reporter) -> None:
        self.streams = streams
        self._log = log
        self._links = links
        self._reporter = reporter

    def geometry_frame(self) -> bytes:
        """Shape of the log, for members that have none."""
        recording = self._log.recording
        assert recording is not None
        return link_frame(LogGeometry(recording.initial_term_id, recording.term_length, recording.mtu))

    def on_message(self, member_id: int, message: Message, led: LedLog) -> None:
        """What a follower of this term asks for or reports; anything else is passed over."""
        if getattr(message, "leadership_term_id", None) != led.leadership_term_id:
            return
        match message:
            case ReplicationRequest():
                self._on_replication_request(member_id, message, led)
            case CatchupPosition():
                self._on_catchup_position(message, led)
            case CatchupProgress():
                self.streams.resume(member_id)
                self.check_catchup(member_id, led.leadership_term_id, message.log_position)

    def _on_replication_request(self, member_id: int, request: ReplicationRequest, led: LedLog) -> None:
        """A follower wants recorded bytes, or the live log from a position on."""
        recording = self._log.recording
        assert recording is not None
        position = request.from_position
        if position < recording.start_position:
            self._refuse(member_id, request.correlation_id, position)
            return
        if position > recording.append_position:
            self._reporter.event(f"member {member_id} asks for the log from {position}, which is not here")
            return
        if not self._is_boundary(member_id, position):
            return
        self.streams.start(member_id, request.correlation_id, position, request.to_position)
        self._send_image(member_id, request.correlation_id, position, led)

    def _on_catchup_position(self, message: CatchupPosition, led: LedLog) -> None:
        """A follower that lags in this term; one catch-up at a time (C-149)."""
        member_id, position = message.follower_member_id, message.log_position
        running = self.streams.get(member_id)
        recording = self._log.recording
        assert recording is not None
        is_running = running is not None and running.is_catchup and not running.has_canvassed
        if is_running or position > recording.append_position:
            return
        if position < recording.start_position:
            self._refuse(member_id, position, position)
            return
        if not self._is_boundary(member_id, position):
            return
        self.streams.start(member_id, position, position, is_catchup=True)
        self._send_image(member_id, position, position, led)

    def _is_boundary(self, member_id: int, position: int) -> bool:
        """Whether a frame begins where a follower says that its log ends; else the mistake is its own."""
        assert self._log.recording is not None
        if self._log.recording.is_boundary(position):
            return True
        self._reporter.error(
            RemoteProtocolError(f"member {member_id} asks for the log from {position}, within a frame")
        )
        return False

    def _refuse(self, member_id: int, correlation_id: int, position: int) -> None:
        """The log does not reach down to where the member's ends: it needs a snapshot."""
        assert self._log.recording is not None
        text = f"the log begins at {self._log.recording.start_position}, {position} is not here any more"
        self._reporter.event(f"member {member_id} asks for {position}: {text}")
        error = LinkError(correlation_id, LinkErrorCode.NOT_AVAILABLE, text)
        self._links.send(member_id, link_frame(error))

    def _send_image(self, member_id: int, correlation_id: int, position: int, led: LedLog) -> None:
        image = LogImage(correlation_id, led.leadership_term_id, position, led.log_session_id)
        self._links.send(member_id, link_frame(image))

    def check_catchup(self, member_id: int, leadership_term_id: int, log_position: int) -> None:
        """Report to a follower that it is level: it has all that there was when it was merged (C-152)."""
        stream = self.streams.get(member_id)
        if (
            stream is not None
            and stream.is_catchup
            and stream.merge_position != NULL_POSITION
            and log_position >= stream.merge_position
        ):
            self._links.send(member_id, consensus_frame(StopCatchup(leadership_term_id, member_id)))
