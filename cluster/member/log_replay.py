"""What is recorded, processed by the module and its services (Aeron: LogReplay).

    made       JoinLog(start, stop, stream 103, role FOLLOWER) to every service; nothing is processed yet
    do_work    once every service has acknowledged the start: a part of the log into the LogAdapter,
               and commit-pos after it, which lets the services come as far
    dropped    when the election sees the log processed to the stop position, and no snapshot being taken
               (C-113); the module stays where it is, a service that is behind reads on to the stop position

In Aeron the archive replays to a private IPC channel that module and services subscribe to. Here all of them
read the recording itself, each at its own pace: nothing is published to other members or recorded again, and
the last one to come to the stop position ends the replay.
"""

from typing import TYPE_CHECKING

from cluster.archive.recording import Recording
from cluster.protocol import streams
from cluster.protocol.enums import Role

if TYPE_CHECKING:
    from cluster.member.agent import ConsensusModuleAgent


class LogReplay:
    """Replays ``[start_position, stop_position)`` of a recording under ``log_session_id``."""

    def __init__(
        self,
        agent: "ConsensusModuleAgent",
        recording: Recording,
        start_position: int,
        stop_position: int,
        log_session_id: int,
    ) -> None:
        assert agent.log.adapter.position == start_position < stop_position
        self._agent = agent
        self.start_position = start_position
        self.stop_position = stop_position
        self._is_joined = False
        agent.services.join_log(
            recording,
            log_position=start_position,
            max_log_position=stop_position,
            log_session_id=log_session_id,
            log_stream_id=streams.REPLAY,
            is_startup=True,
            role=Role.FOLLOWER,  # also on the leader to be: its services answer nobody (C-109)
            on_acked=self._on_joined,
        )

    def _on_joined(self, _: object) -> None:
        self._is_joined = True

    def do_work(self) -> int:
        """Process a part, once all services read it too (C-108); returns its bytes."""
        return self._agent.process_log(self.stop_position) if self._is_joined else 0
