"""The turn that a member takes: its time, what was done in it, and when the next slow tick is due."""

QUIET_NS = 50_000_000  # Python takes a slow tick at least so often


class Turn:
    """``now_ns`` is of a monotonic clock, ``clock_ns`` of the wall clock.

    ``work_count`` above 0 lets no runner wait.

    Until ``quiet_until_ns`` compiled turns take the slow ticks that find nothing to do.
    """

    __slots__ = ("clock_ns", "now_ns", "quiet_until_ns", "slow_tick_ns", "work_count")

    def __init__(self) -> None:
        self.now_ns = 0
        self.clock_ns = 0
        self.slow_tick_ns = 0
        self.quiet_until_ns = 0
        self.work_count = 0

    def begin(self, now_ns: int, clock_ns: int) -> None:
        """The next turn begins."""
        self.now_ns = now_ns
        self.clock_ns = clock_ns
        self.work_count = 0

    @property
    def now_ms(self) -> int:
        """Of the wall clock."""
        return self.clock_ns // 1_000_000

    @property
    def is_slow_tick_due(self) -> bool:
        return self.now_ns >= self.slow_tick_ns

    def hasten_slow_tick(self) -> None:
        """Something waits for the slow tick: let the next turn take it."""
        self.slow_tick_ns = min(self.slow_tick_ns, self.now_ns + 1)
