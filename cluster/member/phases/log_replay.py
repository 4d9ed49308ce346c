"""What is recorded, processed by the module and its services (Aeron: LogReplay).

    made       JoinLog(start, stop, stream 103, role FOLLOWER) to every service; nothing is processed yet
    is_joined  once every service has acknowledged the start: the election processes the log up to the stop
               position, and commit-pos after it lets the services come as far
    dropped    when the election sees the log processed to the stop position, and no snapshot being taken
               (C-113); the module stays where it is, a service that lags reads on to the stop position

In Aeron the archive replays to a private IPC channel that module and services subscribe to. Here all of them
read the recording itself, each at its own pace: nothing is published to other members or recorded again, and
the last one to come to the stop position ends the replay.
"""

from cluster.archive.recording import Recording
from cluster.member.services.service_adapter import ServiceAdapter
from cluster.protocol import streams
from cluster.protocol.enums import Role


class LogReplay:
    """The replay of ``[start_position, stop_position)`` of a recording under ``log_session_id``."""

    def __init__(
        self,
        services: ServiceAdapter,
        recording: Recording,
        start_position: int,
        stop_position: int,
        log_session_id: int,
    ) -> None:
        self.start_position = start_position
        self.stop_position = stop_position
        self.is_joined = False  # all services read it, too (C-108)
        services.join_log(
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
        self.is_joined = True
