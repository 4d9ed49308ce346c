"""Looks at files that an operator names, in a thread: a file system that does not answer stops no turn."""

import threading
from _thread import start_new_thread
from collections import deque
from collections.abc import Callable

from cluster.errors import ClusterError, ConfigurationError
from cluster.transport.clock import monotonic_ns

SLOW_NS = 5_000_000_000  # without an answer: the operator is notified


class FileLook:
    """One look at a time. What the last good one has found stays, however long the next one takes."""

    def __init__(self, look: Callable[[], None], what: str, on_error: Callable[[ClusterError], None]) -> None:
        """``look`` reads and puts what it finds in its place, at once; it may raise ConfigurationError."""
        self._look = look
        self._what = what
        self._on_error = on_error
        self._errors: deque[ClusterError] = deque()
        self._ended = threading.Event()
        self._ended.set()
        self._begun_ns = 0
        self._is_reported = False

    def do_work(self, patience_s: float = 0.0) -> None:
        """Begin a look unless one runs, and wait for it so long; report, here, what looks have raised."""
        now_ns = monotonic_ns()
        if self._ended.is_set():
            self._begun_ns, self._is_reported = now_ns, False
            self._begin()
            self._ended.wait(patience_s)
        elif now_ns - self._begun_ns >= SLOW_NS and not self._is_reported:
            self._is_reported = True
            self._errors.append(ConfigurationError(f"{self._what}: no answer for {SLOW_NS // 10**9} s"))
        while self._errors:
            self._on_error(self._errors.popleft())

    def _begin(self) -> None:
        self._ended.clear()
        try:
            start_new_thread(self._run, ())  # Thread.start would wait until it runs
        except RuntimeError:  # no more threads: the next look comes
            self._ended.set()

    def _run(self) -> None:
        try:
            self._look()
        except ClusterError as error:
            self._errors.append(error)
        except Exception as error:  # no memory: the next look comes
            self._errors.append(ConfigurationError(f"{self._what}: {type(error).__name__}: {error}"))
        finally:
            self._ended.set()


class LoadedState:
    """Which state of files is in use. Another one is loaded again at each look, as it may do later."""

    def __init__(self, in_use: object) -> None:
        self._in_use = in_use
        self._refused: object = None  # the last that would not do

    def take(self, state: object, load: Callable[[], None]) -> bool:
        """Load what is not in use; whether it is now. What ``load`` raises comes once for each state."""
        if state == self._in_use:
            return False
        try:
            load()
        except Exception:
            if state == self._refused:
                return False
            self._refused = state
            raise
        self._in_use = state
        return True
