"""A process beside a member, which the member starts, and starts again when it has ended.

After a start that ends soon comes a pause, which doubles up to ten seconds.
"""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

PAUSE_MIN_NS, PAUSE_MAX_NS = 100_000_000, 10_000_000_000
WELL_NS = 30_000_000_000  # a process that has run for so long was well: the pauses begin again


@dataclass
class Child:
    """One process at a time. ``name`` is how ``say`` calls it; an empty ``command`` starts nothing."""

    name: str
    command: Sequence[str]
    say: Callable[[str], None]
    given: bytes = b""  # standard input
    descriptors: Sequence[int] = ()  # inherited
    _process: subprocess.Popen[bytes] | None = None
    _began_ns: int = 0
    _pause_ns: int = PAUSE_MIN_NS
    _due_ns: int = 0  # not before this is it started

    @property
    def is_running(self) -> bool:
        """Whether it was started, and its end was not taken yet."""
        return self._process is not None

    def start(self, now_ns: int) -> bool:
        """Start it if its pause is over; whether it was started."""
        if not self.command or now_ns < self._due_ns:
            return False
        self._began_ns = now_ns
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        try:
            # In a session of its own: a Ctrl-C at the terminal is the member's business.
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE if self.given else subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": path},
                pass_fds=self.descriptors,
                start_new_session=True,
            )
        except OSError as error:
            self._on_failure(f"its process cannot be started: {error.strerror}", now_ns)
            return False
        if self._process.stdin is not None:
            # One that ends before it has read it all was started: what that was is said with its end.
            with contextlib.suppress(BrokenPipeError), self._process.stdin as pipe:
                pipe.write(self.given)
        return True

    def take_end(self, now_ns: int) -> int | None:
        """The id of the process if it has ended."""
        process = self._process
        if process is None or (status := process.poll()) is None:
            return None
        self._process = None
        if self.command:
            how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
            self._on_failure(f"its process {process.pid} {how}", now_ns)
        return process.pid

    def terminate(self) -> None:
        """Ask it to end."""
        if self._process is not None:
            self._process.terminate()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    def retire(self) -> None:
        """Start none any more."""
        self.command = ()

    def await_end(self, timeout_s: float, work: Callable[[], object]) -> None:
        """Do ``work``, which is true while there was some, until it ends; kill it when its time is up."""
        process = self._process
        if process is None:
            return
        deadline = time.monotonic() + timeout_s
        while process.poll() is None and time.monotonic() < deadline:
            if not work():
                time.sleep(0.005)
        if process.poll() is None:
            process.kill()
            process.wait()

    def _on_failure(self, what: str, now_ns: int) -> None:
        if now_ns - self._began_ns > WELL_NS:
            self._pause_ns = PAUSE_MIN_NS
        self._due_ns = now_ns + self._pause_ns
        self.say(f"{self.name}: {what}; it is started again in {self._pause_ns / 1e9:.1f} s")
        self._pause_ns = min(2 * self._pause_ns, PAUSE_MAX_NS)
