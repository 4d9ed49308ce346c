"""A follower's end of the log: whole frames that join on to what it has, checked and written.

Nothing is written before it is known to be the next bytes of this very log: position, term id, stream,
session and zeroed padding all match, and the leader has announced the stream on the current connection.
"""

from dataclasses import KW_ONLY, dataclass

import numpy as np

from cluster.consensus.context import NULL_POSITION
from cluster.errors import RemoteProtocolError
from cluster.log.frames import LogParams
from cluster.log.scan import check_run, fault_at
from cluster.member.log.publication import WritableLog


@dataclass(eq=False)
class LogSubscription:
    """What one leader was asked for, until another is asked."""

    _recording: WritableLog
    params: LogParams
    _: KW_ONLY
    leader_member_id: int
    leadership_term_id: int
    correlation_id: int
    stop_position: int = NULL_POSITION  # the live log
    is_requested: bool = False
    has_image: bool = False

    def __post_init__(self) -> None:
        self._is_any_session = not self.is_live  # closed terms were written under others

    @property
    def is_live(self) -> bool:
        """Whether it follows what the leader appends, rather than fetching closed terms."""
        return self.stop_position == NULL_POSITION

    def on_frames(self, member_id: int, buffer: np.ndarray, start: int, end: int) -> int:
        """Write a run of log frames; returns its end, ``start`` when not ours. Raises RemoteProtocolError."""
        if not self.has_image or member_id != self.leader_member_id:
            return start
        recording = self._recording
        position = recording.append_position
        valid_end = check_run(buffer, start, end, position, self.params, is_recording=self._is_any_session)
        if valid_end == start:
            fault = fault_at(buffer, start, end, position, self.params, is_recording=self._is_any_session)
            raise RemoteProtocolError(
                f"log frames of member {member_id} do not join on at position {position}: {fault}"
            )
        recording.append(position, buffer[start:valid_end])
        return valid_end
