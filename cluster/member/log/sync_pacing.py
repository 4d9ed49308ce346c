"""How a log that pours in is synced: by the megabyte, not by the turn.

Each sync waits for the device, some milliseconds on a busy one. A member that fetches a gigabyte, a
mebibyte a turn, would wait for most of the time; nobody waits for its reports meanwhile.
"""

from cluster.archive.recording import Recording

SYNC_BYTES = 8 * 1024 * 1024
SYNC_INTERVAL_NS = 50_000_000  # lest a member that is nearly level be late with its report


class FetchedLogSync:
    """Syncs the recording of a member that is in an election."""

    __slots__ = ("_append_position", "_since_ns")

    def __init__(self) -> None:
        self._append_position = 0
        self._since_ns: int | None = None  # the first turn after the last sync

    def sync(self, recording: Recording, now_ns: int) -> int:
        """Sync what has been appended, unless more is coming; 1 while something is left to be synced."""
        append_position, before = recording.append_position, self._append_position
        self._append_position = append_position
        unsynced = append_position - recording.synced_position
        if unsynced == 0:
            return 0
        if self._since_ns is None:
            self._since_ns = now_ns
        is_pouring = append_position != before and now_ns - self._since_ns < SYNC_INTERVAL_NS
        if is_pouring and unsynced < SYNC_BYTES:
            return 1
        recording.sync()
        self._since_ns = None
        return 0
