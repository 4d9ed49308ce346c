"""Entries of the log by type, session and template: others give way to padding, so that positions stay.

    whole     |open|msg 1|msg 2 .......|msg 1|msg 2|timer|msg 1|
    thinned   |open|msg 1|pad|msg 1|pad|msg 1|               a pad's length is that of what it stands for
    restored  |open|msg 1|pad ..........|msg 1|pad ......|msg 1|

A member sends a reader thinned blocks; restored, one has every entry that was wanted in its place, and every
reader skips padding. NewLeadershipTermEvents always stay: they have the time unit of what follows.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numba import types

from cluster.errors import RemoteProtocolError
from cluster.log.frames import (
    DAMAGED,
    INCOMPLETE,
    SBE_HEADER_LENGTH,
    SCHEMA_ID,
    SKIP,
    align_frame,
    next_message,
)
from cluster.log.kernel import kernel, routine
from cluster.log.memory import (
    BYTES,
    BYTES_OUT,
    I64,
    WORDS,
    copy_bytes,
    get_i32,
    get_i64,
    get_u16,
    put_i32,
)
from cluster.protocol.frame import FLAGS_UNFRAGMENTED, HEADER_LENGTH, TYPE_AT, TYPE_PAD, VERSION_AT
from cluster.protocol.sbe import SCHEMA_ID_AT, TEMPLATE_ID_AT

TEMPLATE_IDS = {
    "SESSION_MESSAGE": 1,
    "TIMER": 20,
    "SESSION_OPEN": 21,
    "SESSION_CLOSE": 22,
    "CLUSTER_ACTION": 23,
    "NEW_LEADERSHIP_TERM": 24,
}
SESSION_OPEN, NEW_LEADERSHIP_TERM = 21, 24  # template ids
SHORTEST = HEADER_LENGTH + SBE_HEADER_LENGTH + 24  # the frame of an entry that can be
_OF_SESSIONS = ("SESSION_MESSAGE", "SESSION_OPEN", "SESSION_CLOSE")


@dataclass(frozen=True, slots=True)
class EntryFilter:
    """What is wanted: entries of one of the types and, where any are given, of the sessions and templates.

    ``template_ids`` are those in the SBE headers that payloads begin with. As with a comparison in SQL, what
    has no session is not of one of ``sessions``, and what has no payload has none of the templates.
    """

    entry_types: tuple[str, ...] = tuple(TEMPLATE_IDS)
    sessions: tuple[int, ...] = ()
    template_ids: tuple[int, ...] = ()

    @property
    def rows(self) -> tuple[str, ...]:
        """The entry types that rows may have."""
        possible: Iterable[str] = _OF_SESSIONS if self.sessions else TEMPLATE_IDS
        if self.template_ids:
            possible = ("SESSION_MESSAGE",)
        return tuple(entry_type for entry_type in self.entry_types if entry_type in possible)

    @property
    def is_open(self) -> bool:
        """Whether every entry is wanted."""
        return set(self.rows) == set(TEMPLATE_IDS)

    @property
    def is_by_type(self) -> bool:
        """Whether the entry type alone decides."""
        return not self.sessions and not self.template_ids

    def thinned(self, block: np.ndarray) -> np.ndarray:
        """A run of whole messages, with a header of padding for each run of them that is not wanted."""
        mask = sum(1 << TEMPLATE_IDS[entry_type] for entry_type in self.rows)
        words = [np.array(sorted(values), np.int64) for values in (self.sessions, self.template_ids)]
        out = np.empty(len(block), np.uint8)
        end, length = _thin(block, len(block), mask, *words, out)
        assert end == len(block)
        return out[:length]

    def applied(self, block: np.ndarray) -> np.ndarray:
        """The run with padding in place of what is not wanted."""
        thinned = self.thinned(block)
        return block if len(thinned) == len(block) else restored(thinned, len(block))


def restored(thinned: np.ndarray, length: int) -> np.ndarray:
    """The run of ``length`` bytes that was thinned. Raises RemoteProtocolError when it is none."""
    out = np.zeros(length, np.uint8)
    if _restore(thinned, len(thinned), out, length) != length:
        raise RemoteProtocolError(f"{len(thinned)} bytes are no thinned block of {length}")
    return out


@routine
def _contains(words, value):  # type: ignore[no-untyped-def]
    """By a binary search: ``words`` are sorted."""
    low, high = 0, words.size
    while low < high:
        middle = (low + high) >> 1
        if words[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low < words.size and words[low] == value


@routine
def _is_wanted(buffer, offset, entry_mask, sessions, template_ids):  # type: ignore[no-untyped-def]
    message = offset + HEADER_LENGTH
    frame_end = offset + get_i32(buffer, offset)
    if frame_end - offset < SHORTEST:
        return True  # for who decodes it to report
    template_id = get_u16(buffer, message + TEMPLATE_ID_AT)
    if get_u16(buffer, message + SCHEMA_ID_AT) != SCHEMA_ID or template_id > NEW_LEADERSHIP_TERM:
        return False
    if template_id == NEW_LEADERSHIP_TERM:
        return True
    if entry_mask >> template_id & 1 == 0:
        return False
    if sessions.size > 0:
        session_at = message + (24 if template_id == SESSION_OPEN else 16)
        if session_at + 8 <= frame_end and not _contains(sessions, get_i64(buffer, session_at)):
            return False
    if template_ids.size > 0:
        payload = message + SBE_HEADER_LENGTH + get_u16(buffer, message)
        return payload + 4 <= frame_end and _contains(template_ids, get_u16(buffer, payload + 2))
    return True


@routine
def _put_gap(out, at, buffer, begin, end):  # type: ignore[no-untyped-def]
    """Write the header of padding for ``buffer[begin:end]``; return where the next frame goes."""
    if begin == end:
        return at
    copy_bytes(out, at, buffer, begin, HEADER_LENGTH)
    put_i32(out, at, end - begin)
    put_i32(out, at + VERSION_AT, FLAGS_UNFRAGMENTED << 8 | TYPE_PAD << 16)
    return at + HEADER_LENGTH


@kernel(types.UniTuple(I64, 2)(BYTES, I64, I64, WORDS, WORDS, BYTES_OUT))
def _thin(buffer, limit, entry_mask, sessions, template_ids, out):  # type: ignore[no-untyped-def]
    """Return how far the messages are whole, and the length of what was written."""
    offset, gap, at = 0, 0, 0  # what is not wanted is buffer[gap:offset]
    while offset < limit:
        kind, end = next_message(buffer, offset, limit)
        if kind in (INCOMPLETE, DAMAGED):
            break
        if kind != SKIP and _is_wanted(buffer, offset, entry_mask, sessions, template_ids):
            at = _put_gap(out, at, buffer, gap, offset)
            copy_bytes(out, at, buffer, offset, end - offset)
            at += end - offset
            gap = end
        offset = end
    return offset, _put_gap(out, at, buffer, gap, offset)


@kernel(I64(BYTES, I64, BYTES_OUT, I64))
def _restore(thinned, limit, out, length):  # type: ignore[no-untyped-def]
    """Return the length of what was written, or -1."""
    offset, at = 0, 0
    while limit - offset >= HEADER_LENGTH:
        frame_length = get_i32(thinned, offset)
        end = at + align_frame(frame_length)
        if frame_length < HEADER_LENGTH or end > length:
            return -1
        there = HEADER_LENGTH if get_u16(thinned, offset + TYPE_AT) == TYPE_PAD else end - at
        if there > limit - offset:
            return -1
        copy_bytes(out, at, thinned, offset, there)
        offset += there
        at = end
    return at if offset == limit else -1
