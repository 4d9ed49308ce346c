"""A member that sends nothing of the log is asked whether it is level, while its replay is polled on.

    nothing for a while ──▶ query ── answered: it hears its leader ──▶ nothing for a while …
                               └── no answer: it is in an election, or gone

What it sends meanwhile is the best answer: an election may be over before the question is.
"""

from __future__ import annotations

from collections.abc import Callable

from cluster.aeron.aeron_member import RecordingSource
from cluster.errors import TimedOut


class Silence:
    """Of the replay of one member: ``heard`` whenever it sends, ``is_level`` when it has not."""

    def __init__(
        self, member: RecordingSource, patience_ns: int, timeout_ns: int, now_ns: Callable[[], int]
    ) -> None:
        """It is asked after ``patience_ns``, and has ``timeout_ns`` to answer."""
        self.member = member
        self._patience_ns = patience_ns
        self._timeout_ns = timeout_ns
        self._now_ns = now_ns
        self._asked_ns: int | None = None
        self.since_ns = now_ns()

    def heard(self) -> None:
        """It has sent, or answered."""
        self.since_ns, self._asked_ns = self._now_ns(), None

    def is_level(self, end: int | None = None) -> bool:
        """False when it answers and has recorded more than ``end``.

        Raises TimedOut when it does not answer, and what else its archive or the driver say.
        """
        now_ns = self._now_ns()
        if self._asked_ns is None:
            if now_ns - self.since_ns < self._patience_ns:
                return True
            self.member.begin_query()
            self._asked_ns = now_ns
        if not self.member.poll_response():
            if now_ns - self._asked_ns > self._timeout_ns:
                raise TimedOut(f"it does not answer within {self._timeout_ns / 1e9:g} s")
            return True
        self.heard()
        return end is None or self.member.recorded_end() <= end
