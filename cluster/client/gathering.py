"""When what a client offers is sent: at once, or together with what is offered right after it.

A message that comes alone is sent by its offer. Within ``GATHER_NS`` after a send others gather, and go
out as one: with the first offer after that time, with ``GATHERED_MAX`` bytes, with the next call that polls,
waits or sends anything else, and at the latest by the client's own thread, which looks every ``LOOK_S`` as
long as messages gather. A client without that thread sends each message by itself.
"""

from cluster.client.ingress_publication import World
from cluster.client.session_conductor import SessionConductor

GATHER_NS = 100_000
GATHERED_MAX = 32 * 1024
LOOK_S = 0.001
LOOKS_MAX = 256  # one after the other, before the thread does what else is its duty


class Gathering:
    """Decides for one client. Called by whoever has its turn."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._has_thread = False
        self._is_watched = False  # by the thread, which looks again soon
        self._looks = 0
        self._seen = 0  # messages offered when it looked last

    def begin(self) -> None:
        """From now on a thread calls ``look``."""
        self._has_thread = True

    def on_offer(self, session: SessionConductor) -> None:
        """A message was taken: send it now, or see to it that it is sent soon."""
        window = session.window
        is_due = window.gathered_bytes >= GATHERED_MAX or not self._has_thread
        if is_due or self._world.now_ns() - session.last_sent_ns >= GATHER_NS:
            session.flush()
        elif not self._is_watched:
            self._is_watched = True
            self._looks, self._seen = 0, -1
            self._world.call_soon()

    def look(self, session: SessionConductor) -> bool:
        """Send what has gathered; whether to look again after ``LOOK_S``, and do nothing else now."""
        if not self._is_watched:
            return False
        if self._looks > 0:
            session.flush_offered()
        offered = session.window.offered
        self._is_watched = self._seen != offered and self._looks < LOOKS_MAX
        self._looks, self._seen = self._looks + 1, offered
        return self._is_watched
