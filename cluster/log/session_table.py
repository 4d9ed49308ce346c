"""The open sessions of the cluster as kernels see them: one row of integers a session, found by its id.

Everything lies in one array of int64, because a kernel takes one array faster than five:

    header (32 words) | service message ids (128) | touched slots | slots with egress | index | slots

The index is a hash table with open addressing: session ids count up from 1, so the low bits of an id place
it, and a look-up is one probe. At most half of the index is taken, so a probe ends for any id.
"""

from collections.abc import Iterable

from cluster.log.kernel import kernel, routine
from cluster.log.memory import I64, WORDS_OUT
from cluster.protocol.arrays import np
from cluster.protocol.sbe import NULL_VALUE

# Fields of a slot, in words.
CLUSTER_SESSION_ID, STATE, CONNECTION_ID, ACTIVE_NS = range(4)
APPENDED, COMMITTED, COMMITTED_POSITION, TOUCHED, EGRESS_END, RETAINED, SUPERVISED = range(4, 11)
ANSWERED, KEPT_AT = 11, 12
SLOT_WORDS = 16

FREE, OPEN, CLOSING = range(3)  # states

SESSION_SLOT = np.dtype(
    [
        ("cluster_session_id", "<i8"),
        ("state", "<i8"),  # FREE, OPEN, CLOSING: only an open session's messages are taken
        ("connection_id", "<i8"),  # whose messages are taken; -1 when none is linked
        ("active_ns", "<i8"),  # when it was heard last, by the monotonic clock of who leads
        ("appended", "<i8"),  # messages in this member's log, committed or not
        ("committed", "<i8"),  # of them, those below the commit position
        ("committed_position", "<i8"),  # end of the last committed one
        ("touched", "<i8"),  # 1: in the list of slots that follow_log changed
        ("egress_end", "<i8"),  # within frame_egress: how much, then where to; 0 outside
        ("retained", "<i8"),  # 1: its messages are dropped until its client has taken answers
        ("supervised", "<i8"),  # 1: its answers are kept by every member until its client has them
        ("answered", "<i8"),  # answers that a service has given it, if it is supervised
        ("kept_at", "<i8"),  # where log/kept_frames.py has its answers; 0 before the first
        ("reserved", "<i8", 3),
    ]
)
assert SESSION_SLOT.itemsize == 8 * SLOT_WORDS

# Words of the header.
SLOT_LIMIT, INDEX_MASK, TOUCHED_COUNT = range(3)
MESSAGES, KEEP_ALIVES, DROPPED_TERM, DROPPED_SESSION, DROPPED_EGRESS = range(3, 8)
TOUCHED_AT, EGRESS_SLOTS_AT, INDEX_AT, SLOTS_AT = range(8, 12)
LAST_TIMESTAMP = 12
HEADER_WORDS = 32
SERVICE_IDS_AT = HEADER_WORDS
SERVICE_IDS = 128  # bits 56..62 of a service message's id


@routine
def find_slot(table, cluster_session_id):  # type: ignore[no-untyped-def]
    """Offset of the session's slot in ``table``, in words, or -1."""
    mask = table[INDEX_MASK]
    index_at = table[INDEX_AT]
    place = cluster_session_id & mask
    while True:
        slot = table[index_at + place]
        if slot == 0:
            return -1
        if table[slot + CLUSTER_SESSION_ID] == cluster_session_id:
            return slot
        place = (place + 1) & mask


@kernel(I64(WORDS_OUT, I64))
def _find(table, cluster_session_id):  # type: ignore[no-untyped-def]
    return find_slot(table, cluster_session_id)


@kernel(I64(WORDS_OUT, I64, I64))
def _insert(table, cluster_session_id, slot):  # type: ignore[no-untyped-def]
    mask = table[INDEX_MASK]
    place = cluster_session_id & mask
    while table[table[INDEX_AT] + place] != 0:
        place = (place + 1) & mask
    table[table[INDEX_AT] + place] = slot
    return place


@kernel(I64(WORDS_OUT, I64))
def _remove(table, cluster_session_id):  # type: ignore[no-untyped-def]
    """Take the id out of the index, moving back those that had to step over it; return its slot."""
    mask = table[INDEX_MASK]
    index_at = table[INDEX_AT]
    place = cluster_session_id & mask
    while table[table[index_at + place] + CLUSTER_SESSION_ID] != cluster_session_id:
        place = (place + 1) & mask
    removed = table[index_at + place]
    hole = place
    place = (place + 1) & mask
    while table[index_at + place] != 0:
        home = table[table[index_at + place] + CLUSTER_SESSION_ID] & mask
        if (place - home) & mask >= (place - hole) & mask:
            table[index_at + hole] = table[index_at + place]
            hole = place
        place = (place + 1) & mask
    table[index_at + hole] = 0
    return removed


class SessionTable:
    """At most ``max_sessions`` sessions with what the kernels check, count and stamp of each.

    ``slots`` is the table as a structured array (``SESSION_SLOT``) that shares its memory: read and write its
    fields, but open and close sessions by the methods, which keep the index. ``words`` goes to kernels.
    """

    __slots__ = ("_free", "max_sessions", "ranges", "slots", "words")

    def __init__(self, max_sessions: int = 1024) -> None:
        assert max_sessions > 0
        self.max_sessions = max_sessions
        index_length = 1 << (2 * max_sessions - 1).bit_length()
        touched_at = SERVICE_IDS_AT + SERVICE_IDS
        index_at = touched_at + 2 * max_sessions
        slots_at = index_at + index_length
        self.words = np.zeros(slots_at + max_sessions * SLOT_WORDS, np.int64)
        self.words[[SLOT_LIMIT, INDEX_MASK]] = max_sessions, index_length - 1
        self.words[[TOUCHED_AT, EGRESS_SLOTS_AT]] = touched_at, touched_at + max_sessions
        self.words[[INDEX_AT, SLOTS_AT]] = index_at, slots_at
        self.ranges = np.zeros(3 * max_sessions, np.int64)  # of frame_egress
        self.slots = self.words[slots_at:].view(SESSION_SLOT)
        self.clear()

    def clear(self) -> None:
        """Forget all sessions and counts."""
        words = self.words
        words[int(words[INDEX_AT]) :] = 0
        words[TOUCHED_COUNT : DROPPED_EGRESS + 1] = 0
        words[LAST_TIMESTAMP] = 0
        words[SERVICE_IDS_AT : SERVICE_IDS_AT + SERVICE_IDS] = 0
        self._free = list(range(self.max_sessions - 1, -1, -1))

    def __len__(self) -> int:
        return self.max_sessions - len(self._free)

    def open(
        self,
        cluster_session_id: int,
        connection_id: int = NULL_VALUE,
        active_ns: int = 0,
        is_supervised: bool = False,
    ) -> int:
        """Add an open session; return its slot number. The id must be new, and a slot free (``len``)."""
        assert cluster_session_id > 0
        assert self._free, "the caller refuses sessions beyond max_sessions"
        assert self.slot_of(cluster_session_id) < 0
        slot = self._free.pop()
        row = self.slots[slot]
        row["cluster_session_id"] = cluster_session_id
        row["state"] = OPEN
        row["connection_id"] = connection_id
        row["active_ns"] = active_ns
        row["supervised"] = is_supervised
        _insert(self.words, cluster_session_id, self.words[SLOTS_AT] + slot * SLOT_WORDS)
        return slot

    def close(self, cluster_session_id: int) -> None:
        """Remove the session; its slot is zero and free again."""
        self.take_touched_if(cluster_session_id)
        slot = (_remove(self.words, cluster_session_id) - int(self.words[SLOTS_AT])) // SLOT_WORDS
        self.slots[slot] = np.zeros((), SESSION_SLOT)
        self._free.append(slot)

    def slot_of(self, cluster_session_id: int) -> int:
        """The session's slot number, or -1."""
        slot = _find(self.words, cluster_session_id)
        return slot if slot < 0 else (slot - int(self.words[SLOTS_AT])) // SLOT_WORDS

    def link(self, cluster_session_id: int, connection_id: int) -> None:
        """From now on the session's messages come over this connection."""
        self.slots["connection_id"][self.slot_of(cluster_session_id)] = connection_id

    def count_of(self, connection_id: int) -> int:
        """How many sessions are linked to the connection."""
        slots = self.slots
        return int(np.count_nonzero((slots["connection_id"] == connection_id) & (slots["state"] != FREE)))

    def unlink(self, connection_id: int) -> list[int]:
        """The connection is gone; return the sessions that it had, by ascending id."""
        slots = np.flatnonzero((self.slots["connection_id"] == connection_id) & (self.slots["state"] != FREE))
        self.slots["connection_id"][slots] = NULL_VALUE
        return sorted(self.slots["cluster_session_id"][slots].tolist())

    def inactive_since(self, time_ns: int) -> list[int]:
        """Sessions that were heard last before ``time_ns``, by ascending id."""
        slots = np.flatnonzero((self.slots["state"] != FREE) & (self.slots["active_ns"] < time_ns))
        return sorted(self.slots["cluster_session_id"][slots].tolist())

    def touch_all(self, now_ns: int) -> None:
        """Restart the time-out of every session (C-230: a new leader takes over; C-296)."""
        self.slots["active_ns"][self.slots["state"] != FREE] = now_ns

    def restart_appended(self) -> None:
        """What was appended but never committed is gone: a new term begins at what is committed."""
        self.slots["appended"] = self.slots["committed"]

    def owe_acks(self) -> None:
        """Have every session among those that are touched, so that its client hears what is committed."""
        words = self.words
        slots = np.flatnonzero((self.slots["state"] != FREE) & (self.slots["touched"] == 0))
        end = int(words[TOUCHED_AT] + words[TOUCHED_COUNT])
        words[end : end + len(slots)] = slots
        words[TOUCHED_COUNT] += len(slots)
        self.slots["touched"][slots] = 1

    def take_touched(self) -> np.ndarray:
        """Slot numbers that follow_log changed since the last call, in the order of their first message."""
        words = self.words
        begin = int(words[TOUCHED_AT])
        slots = words[begin : begin + int(words[TOUCHED_COUNT])].copy()
        self.slots["touched"][slots] = 0
        words[TOUCHED_COUNT] = 0
        return slots

    def take_touched_if(self, cluster_session_id: int) -> None:
        """Take one session out of the touched ones: its slot is about to become another's."""
        slot = self.slot_of(cluster_session_id)
        if self.slots["touched"][slot]:
            others: Iterable[int] = [other for other in self.take_touched().tolist() if other != slot]
            for other in others:
                self.words[int(self.words[TOUCHED_AT]) + int(self.words[TOUCHED_COUNT])] = other
                self.words[TOUCHED_COUNT] += 1
                self.slots["touched"][other] = 1

    @property
    def last_timestamp(self) -> int:
        """The highest cluster time that follow_log saw in a session message; 0 before the first."""
        return int(self.words[LAST_TIMESTAMP])

    @property
    def service_message_ids(self) -> np.ndarray:
        """By service id, the last id of a service message that follow_log saw; 0 for none."""
        return self.words[SERVICE_IDS_AT : SERVICE_IDS_AT + SERVICE_IDS]
