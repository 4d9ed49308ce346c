"""Clients whose input has ended lives of this member: three such lives, and the client is served no more.

A mistake of ours that some bytes meet costs one life. Whoever sends them again after each would cost all.
"""

LIVES_MAX = 3
MEMORY_NS = 600_000_000_000  # after the last of them all is forgotten
OUTSIDERS_MAX = 1_024  # who is remembered; then the oldest is forgotten


class Outsiders:
    """Of one process, by the principal of a certificate, or by the address of the connection."""

    def __init__(self) -> None:
        self._ended: dict[str, tuple[int, int]] = {}  # how many lives, and when the last one; oldest first

    def on_life_ended(self, who: str, now_ns: int) -> None:
        """A life ends because of what ``who`` has sent."""
        count, _ = self._known(who, now_ns)
        self._ended.pop(who, None)
        if len(self._ended) >= OUTSIDERS_MAX:
            del self._ended[next(iter(self._ended))]
        self._ended[who] = count + 1, now_ns

    def refusal(self, who: str, now_ns: int) -> str:
        """Why ``who`` is served no more; empty when it is."""
        count, last_ns = self._known(who, now_ns)
        if count < LIVES_MAX:
            return ""
        left_s = (last_ns + MEMORY_NS - now_ns) // 1_000_000_000
        return f"what {who} sent has ended {count} lives of this member; it is refused for {left_s} s more"

    def _known(self, who: str, now_ns: int) -> tuple[int, int]:
        count, last_ns = self._ended.get(who, (0, now_ns))
        return (0, now_ns) if now_ns - last_ns >= MEMORY_NS else (count, last_ns)
