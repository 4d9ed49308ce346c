"""Whom a leader closes for silence: judged by the world's time, which no clock of a member changes (I-7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.protocol.enums import CloseReason
from tests.simulation.violation import require

if TYPE_CHECKING:
    from tests.simulation.member import Member

SLOWEST = 0.9  # of a leader's time-out: its monotonic clock runs a tenth fast at most


class Silence:
    """Of the sessions of one leader in one term: when each was heard last, in nanoseconds of the world."""

    def __init__(self, session_timeout_ns: int) -> None:
        self._timeout_ns = int(session_timeout_ns * SLOWEST)
        self._heard: dict[int, tuple[int, int]] = {}  # session: the leader's time of it, and the world's

    def on_turn(self, member: Member) -> None:
        """Sessions that were open before a turn and are none now were silent for long enough."""
        now_ns, open_ns = member.world.now_ns, member.open_sessions_ns
        for session_id in self._heard.keys() - open_ns.keys():
            _, heard_ns = self._heard.pop(session_id)
            if member.close_reason_of(session_id) is CloseReason.TIMEOUT:
                silent_ns = now_ns - heard_ns
                require(
                    silent_ns >= self._timeout_ns,
                    "I-7",
                    f"{member.name} closes session {session_id} for silence, which it heard "
                    f"{silent_ns / 1e9:.3f} s ago",
                )
        for session_id, active_ns in open_ns.items():
            if self._heard.get(session_id, (None, 0))[0] != active_ns:
                self._heard[session_id] = active_ns, now_ns
