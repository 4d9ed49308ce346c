"""A thread of a member that is a client of a media driver, and outlives it: the next one is connected to."""

from __future__ import annotations

import threading
from collections.abc import Callable

from cluster.media.aeron import Aeron, default_aeron_dir

RETRY_S = 1.0
STOP_S = 1.0


class DriverThread:
    """``start`` and ``stop`` are called from another thread."""

    def __init__(
        self,
        name: str,
        aeron_dir: str,
        serve: Callable[[Aeron], None],
        on_error: Callable[[Exception], None],
    ) -> None:
        """``serve`` works until ``is_stopped``, or until it raises: then ``on_error`` hears of that.

        ``aeron_dir`` is the driver's directory, of this user's where it is empty.
        """
        self.aeron_dir = aeron_dir or default_aeron_dir()
        self._serve = serve
        self._on_error = on_error
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def is_stopped(self) -> bool:
        """Whether it is to end."""
        return self._is_stopped.is_set()

    def start(self) -> None:
        """Look for the driver, now and as long as there is none."""
        self._thread.start()

    def stop(self) -> None:
        """End it; a driver that hangs is not waited for."""
        self._is_stopped.set()
        self._thread.join(STOP_S)

    def _run(self) -> None:
        while not self.is_stopped:
            try:
                with Aeron.connect(self.aeron_dir, 0) as aeron:
                    self._serve(aeron)
            except Exception as error:  # of the driver, the system, or a mistake: its clients come again
                self._on_error(error)
                self._is_stopped.wait(RETRY_S)
