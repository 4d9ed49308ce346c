"""The log of a member that leads, to members of Java's (Aeron: LogPublisher, and the replays of a catch-up).

    recording ──▶ live        one publication, from the base of the term on, to the log endpoint of each other
              └─▶ catch-ups   one each, from where the follower's log ends, to its catch-up endpoint, under
                              the session of the log: to the follower both are one image

Nobody asks for the live log. A publication begins where its member has begun to lead, and the driver holds it
there until somebody listens. Who comes later catches up. Once it reports all that there is, StopCatchup says
that it has the live log.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import numpy as np

from cluster.aeron.asked_publication import AskedPublication, channel_at
from cluster.errors import ClusterError, LocalProtocolError, RemoteProtocolError
from cluster.media.aeron import Aeron
from cluster.media.client_conductor import ChannelRefused
from cluster.media.publication import Publication
from cluster.protocol import streams
from cluster.protocol.consensus import AppendPosition, CatchupPosition, StopCatchup
from cluster.protocol.enums import AppendPositionFlags
from cluster.protocol.response_channel import with_parameter
from cluster.transport.published_log import PublishedLog

BLOCK_BYTES = 256 * 1024
DESTINATION_RETRY_NS = 1_000_000_000
# Who is slow holds the log back while the driver hears it: nobody loses more than can be sent again.
_LIVE = "aeron:udp?control-mode=manual|fc=min|alias=log"


class _SentLog:
    """What one publication has taken of the log."""

    def __init__(self, log: PublishedLog, position: int) -> None:
        self.position = position
        self._log = log
        self._block = np.empty(0, np.uint8)
        self._at = 0

    def send(self, publication: Publication) -> int:
        """Offer what there is; returns how many bytes were taken. Raises ClusterError."""
        if self._at == self._block.size:
            if self.position >= self._log.append_position:
                return 0
            if self.position < self._log.start_position:
                raise LocalProtocolError(f"position {self.position} was purged while it was to be sent")
            self._block, self._at = self._log.read_published(self.position, BLOCK_BYTES), 0
        taken = publication.offer_recorded(self._block, self._at, self._block.size) - self._at
        self._at += taken
        self.position += taken
        return taken


class _Catchup:
    """The log to one follower that lacks the end of it."""

    def __init__(self, aeron: Aeron, log: PublishedLog, message: CatchupPosition, now_ns: int) -> None:
        position = message.log_position
        channel = f"aeron:udp?endpoint={message.catchup_endpoint}|linger=0|eos=false|alias=catch-up"
        self.sent = _SentLog(log, position)
        self.asked = AskedPublication(aeron, _channel_of(log, channel, position), streams.LOG, now_ns)
        self._is_connected = False

    def do_work(self, now_ns: int) -> int:
        """Send what there is. Raises LocalProtocolError where nobody takes it, ChannelRefused."""
        self._is_connected = self._is_connected or self.asked.is_connected(now_ns)
        if not self._is_connected:
            return 0
        assert self.asked.publication is not None
        return self.sent.send(self.asked.publication)


class LogPublisher:
    """``do_work`` in each turn, ``close`` when the member leads no more. Raises MediaDriverError."""

    def __init__(self, aeron: Aeron, log: PublishedLog, log_endpoints: Iterable[str]) -> None:
        """Publish from the present end of the log on."""
        position = log.append_position
        self.session_id = log.session_id
        self._aeron = aeron
        self._log = log
        self._sent = _SentLog(log, position)
        self._id = aeron.ask_for_exclusive_publication(_channel_of(log, _LIVE, position), streams.LOG)
        self._publication: Publication | None = None
        self._due = dict.fromkeys((f"aeron:udp?endpoint={endpoint}" for endpoint in log_endpoints), 0)
        self._expected: dict[int, str] = {}  # destinations by commands that the driver has not answered
        self._catchups: dict[int, _Catchup] = {}  # by member

    def do_work(self, now_ns: int) -> int:
        """Send what there is; returns how many bytes. Raises ChannelRefused for a destination."""
        publication = self._publication
        if publication is None:
            publication = self._publication = self._aeron.publication_of(self._id)
            if publication is None:
                return 0
        self._add_destinations(publication, now_ns)
        work_count = self._sent.send(publication)
        for member_id, catchup in list(self._catchups.items()):
            try:
                work_count += catchup.do_work(now_ns)
            except (ChannelRefused, LocalProtocolError):  # it asks again when it has waited long enough
                self.end_catchup(member_id)
                raise
        return work_count

    def _add_destinations(self, publication: Publication, now_ns: int) -> None:
        for channel, due_ns in list(self._due.items()):
            if now_ns >= due_ns:
                del self._due[channel]
                self._expected[self._aeron.add_sent_destination(publication, channel)] = channel
        for command_id in list(self._expected):
            try:
                if self._aeron.conductor.answer(command_id) is not None:
                    del self._expected[command_id]
            except ChannelRefused:  # a name that is not known, as a rule
                self._due[self._expected.pop(command_id)] = now_ns + DESTINATION_RETRY_NS
                raise

    # ---- catch-ups

    def begin_catchup(self, message: CatchupPosition, now_ns: int) -> None:
        """A follower has this log up to a position.

        Raises RemoteProtocolError for one that is not there, LocalProtocolError for an endless endpoint.
        """
        member_id, position, log = message.follower_member_id, message.log_position, self._log
        self.end_catchup(member_id)
        if not (log.start_position <= position <= log.append_position and log.is_boundary(position)):
            raise RemoteProtocolError(
                f"member {member_id} asks for the log from {position}, which is not here"
            )
        self._catchups[member_id] = _Catchup(self._aeron, log, message, now_ns)

    def stop_of(self, report: AppendPosition) -> StopCatchup | None:
        """The answer to a follower that has caught up; None while it has not."""
        is_level = report.log_position >= self._log.append_position
        if not is_level or report.flags != AppendPositionFlags.CATCHUP:
            return None
        # In the term that it has come to in the log, which it knows for its own.
        return StopCatchup(report.leadership_term_id, report.follower_member_id)

    def end_catchup(self, member_id: int) -> None:
        """It has caught up, or looks for a leader again."""
        if (catchup := self._catchups.pop(member_id, None)) is not None:
            catchup.asked.close()

    def close(self) -> None:
        """The log ends here: what was offered is sent, and its end."""
        for member_id in list(self._catchups):
            self.end_catchup(member_id)
        if self._publication is not None:
            with suppress(ClusterError):
                while self._sent.send(self._publication):
                    pass
        self._aeron.give_up_publication(self._id)


def _channel_of(log: PublishedLog, channel: str, position: int) -> str:
    channel = with_parameter(channel, "session-id", str(log.session_id))
    return channel_at(channel, position, log.initial_term_id, log.term_length, log.mtu)
