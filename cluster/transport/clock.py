"""The host's clock, its boot and a pause, for commands and readers that nobody hands the time."""

import time

NEVER_NS = (1 << 63) - 1  # on a monotonic clock


def epoch_ms() -> int:
    """Milliseconds since the Unix epoch."""
    return time.time_ns() // 1_000_000


def pause(seconds: float) -> None:
    """Wait; what a reader that follows a directory does between two looks."""
    time.sleep(seconds)


def monotonic_ns() -> int:
    """Nanoseconds that never run backwards, for deadlines."""
    return time.monotonic_ns()


def boot_id() -> str:
    """Of this boot of the machine, "" where it is not known."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
