"""What a service idles on while it is refused (Aeron: IdleStrategy)."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class IdleStrategy:
    """Lets the consensus module take what the service has sent, between two tries in a callback.

    while session.offer(answer) < 0:
        cluster.idle_strategy().idle()
    """

    _idle: Callable[[], None]

    def idle(self, work_count: int = 0) -> None:
        """Idle, unless work was done. Raises AgentTermination when the container is to end."""
        if work_count <= 0:
            self._idle()

    def reset(self) -> None:
        """Begin a new wait (Aeron's idiom); no wait is longer than the one before here."""
