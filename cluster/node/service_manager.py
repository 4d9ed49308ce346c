"""What systemd, or another service manager, hears of this process: sd_notify(3), by NOTIFY_SOCKET.

Signs of life are sent by the member's own loop, which a timer wakes: a member that takes no turns sends none.
"""

from __future__ import annotations

import ctypes
import os
import socket
from collections.abc import Mapping

CLOCK_MONOTONIC = 1
TIMER_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC


class _Timer(ctypes.Structure):
    """struct itimerspec: interval, then first expiration, each in seconds and nanoseconds."""

    _fields_ = [(name, ctypes.c_long) for name in ("interval_s", "interval_ns", "first_s", "first_ns")]


class ServiceManager:
    """Whoever started this process, if it wants to hear of it; without one everything here does nothing."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        path = environment.get("NOTIFY_SOCKET", "")
        self._address = f"\0{path[1:]}" if path.startswith("@") else path  # of Linux's abstract names
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) if path else None
        asked = environment.get("WATCHDOG_USEC", "0")
        is_for_us = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self.watchdog_s = int(asked) / 1_000_000 if path and is_for_us and asked.isdigit() else 0.0

    def notify(self, state: str) -> None:
        """Send lines such as ``READY=1``; whoever is gone, or does not take it, does not hear."""
        if self._socket is not None:
            try:
                self._socket.sendto(state.encode(), socket.MSG_DONTWAIT, self._address)
            except OSError:
                pass

    def watchdog(self) -> Watchdog | None:
        """What sends signs of life, once its descriptor is watched; None when nobody waits for any."""
        return Watchdog(self) if self.watchdog_s else None


class Watchdog:
    """A timer that becomes readable twice in the time that the service manager waits."""

    def __init__(self, manager: ServiceManager) -> None:
        self._manager = manager
        libc = ctypes.CDLL(None, use_errno=True)
        self.fd: int = libc.timerfd_create(CLOCK_MONOTONIC, TIMER_FLAGS)
        whole, part = divmod(int(manager.watchdog_s / 2 * 1e9), 1_000_000_000)
        timer = _Timer(whole, part, whole, part)
        if self.fd < 0 or libc.timerfd_settime(self.fd, 0, ctypes.byref(timer), None):
            raise OSError(ctypes.get_errno(), "the timer of the watchdog cannot be made")

    def on_ready(self, events: int) -> None:
        """The member's loop turns: say so."""
        os.read(self.fd, 8)
        self._manager.notify("WATCHDOG=1")
