"""The thread of a member in which its archive serves Aeron's clients: no replay takes a turn of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future

from cluster.aeron.archive_conductor import ArchiveConductor
from cluster.aeron.driver_thread import DriverThread
from cluster.aeron.replay_session import ReplayedArchive
from cluster.media.aeron import Aeron
from cluster.transport.bounds import Bounds
from cluster.transport.log_server import Judged, ReaderIdentity

SENDING_IDLE_S, IDLE_S = 0.001, 0.01  # between two looks at the driver


class ArchiveServer:
    """``start`` and ``stop`` are called from another thread; the rest may be asked from any."""

    def __init__(
        self,
        channel: str,
        aeron_dir: str,
        open_archive: Callable[[], ReplayedArchive],
        ask: Callable[[ReaderIdentity, int], Future[Judged]],
        archive_id: int,
        bounds: Bounds,
        *,
        on_error: Callable[[Exception], None],
        on_event: Callable[[str], None],
    ) -> None:
        """Serve at ``channel``, by the driver of ``aeron_dir``. The rest is as for ``ArchiveConductor``."""
        self._channel = channel
        self._conductor_of = lambda aeron: ArchiveConductor(
            aeron, channel, open_archive(), ask, archive_id, bounds, on_error
        )
        self._on_event = on_event
        self._thread = DriverThread("aeron-archive", aeron_dir, self._serve, on_error)
        self.start, self.stop = self._thread.start, self._thread.stop
        self._conductor: ArchiveConductor | None = None

    @property
    def replay_count(self) -> int:
        """Replays that are under way."""
        conductor = self._conductor
        return 0 if conductor is None else conductor.replay_count

    @property
    def least_position(self) -> int | None:
        """Where the slowest replay is; None without one."""
        conductor = self._conductor
        return None if conductor is None else conductor.least_position

    def _serve(self, aeron: Aeron) -> None:
        conductor = self._conductor = self._conductor_of(aeron)
        where = f"{self._channel}, by the media driver of {self._thread.aeron_dir}"
        self._on_event(f"replays its recordings to Aeron's clients at {where}")
        try:
            while not self._thread.is_stopped:
                if not conductor.do_work(time.monotonic_ns()):
                    time.sleep(SENDING_IDLE_S if conductor.is_sending else IDLE_S)
        finally:
            self._conductor = None
            conductor.close()
