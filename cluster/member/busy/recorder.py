"""The end of the recording in a busy turn (``archive/append_and_sync.py``), and what a turn does beside.

What is rare is left to Python by its sign: a segment that ends (ROOM), zeros ahead (PREPARE), a fault
(FAILED).
"""

from cluster.archive import append_and_sync
from cluster.archive.recording_words import (
    APPEND_POSITION,
    SEGMENT_BASE,
    SEGMENT_LENGTH,
    SYNC_NS,
    SYNCED_POSITION,
)
from cluster.log.kernel import routine
from cluster.member.busy import words as at
from cluster.member.measuring import measure


@routine
def has_room(t, length):  # type: ignore[no-untyped-def]
    """Whether so many bytes fit the segment, do not fill it, and are not more than a copy has room for."""
    r = t.recording.words
    end = r[APPEND_POSITION] - r[SEGMENT_BASE] + length
    return end < r[SEGMENT_LENGTH] and length <= t.recording.scratch.size


@routine
def append(t, begin, end):  # type: ignore[no-untyped-def]
    """Write ``log[begin:end]``, whole frames that follow what is recorded; there is room."""
    error = append_and_sync.append_to_segment(t.recording, t.log, begin, end)
    if error != 0:
        return _fail(t, error)
    if t.recording.words[APPEND_POSITION] >= t.words[at.PREPARE_AT]:
        t.words[at.REASON] |= at.PREPARE
    _show_position(t)
    return True


@routine
def sync(t):  # type: ignore[no-untyped-def]
    """Keep the sync level's promise for all that was appended."""
    r = t.recording.words
    if r[SYNCED_POSITION] == r[APPEND_POSITION]:
        return True
    error = append_and_sync.sync_segment(t.recording)
    if error != 0:
        return _fail(t, error)
    measure(t.counters, t.words[at.SYNC_TIME], r[SYNC_NS])
    _show_position(t)
    return True


@routine
def _show_position(t):  # type: ignore[no-untyped-def]
    t.counters[t.words[at.POSITION_COUNTER]] = t.recording.words[SYNCED_POSITION]


@routine
def _fail(t, error):  # type: ignore[no-untyped-def]
    """A file failed: nothing more is trusted to it."""
    t.words[at.ERROR] = error
    t.words[at.REASON] |= at.FAILED
    return False
