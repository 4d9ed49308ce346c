"""Which members' processes are known not to run: nobody waits for those in an election.

    seen, then refused or replaced     gone at once, until its link has been up for a second
    never seen, and refused            late: waited for as long as a leader's silence, then gone
    never seen, and silent             waited for as long as a canvass lasts (C-57)

A late member looks like a dead one; it is safe to go on without either, since a majority of all
members is needed anyway. But a cluster's members are started one by one, and the best log should lead.
"""

from collections.abc import Callable


class Liveness:
    """``gone_member_ids`` are those whose process does not run."""

    def __init__(self, late_timeout_ns: int) -> None:
        self.gone_member_ids: set[int] = set()
        self._seen: set[int] = set()
        self._late: set[int] = set()
        self._late_timeout_ns = late_timeout_ns
        self._late_deadline_ns = 0

    def start(self, now_ns: int) -> None:
        """From here on those who are late are waited for."""
        self._late_deadline_ns = now_ns + self._late_timeout_ns

    def on_seen(self, member_id: int) -> None:
        self._seen.add(member_id)
        self._late.discard(member_id)

    def on_refused(self, member_id: int) -> bool:
        """Nobody listens where the member should be; True when it was there before, and so is gone."""
        if member_id in self._seen:
            self.gone_member_ids.add(member_id)
            return True
        self._late.add(member_id)
        return False

    def update(self, now_ns: int, is_stable: Callable[[int], bool]) -> list[int]:
        """Who is back counts as before; returns those who are late no more, but gone."""
        if self.gone_member_ids:
            self.gone_member_ids -= {member for member in sorted(self.gone_member_ids) if is_stable(member)}
        if not self._late or now_ns < self._late_deadline_ns:
            return []
        absent = sorted(self._late)
        self.gone_member_ids |= self._late
        self._late.clear()
        return absent
