"""The connections of a process as kernels see them: a row of words for each descriptor.

Whoever owns a connection says here what it is; the connection itself says what keeps its bytes from going
straight through. A kernel leaves those with a ``STATE`` other than 0, and those of kind 0, to Python.
"""

from typing import Any

from cluster.log.compiler import types
from cluster.log.kernel import as_python, kernel, routine
from cluster.log.memory import BYTES, BYTES_OUT, I64, WORDS_OUT, copy_bytes
from cluster.protocol.arrays import np

ROW_WORDS = 16
KIND, OWNER, STATE, CRC, FRAME_LENGTH_MAX = range(5)
PART_LENGTH, PART_ROW = range(5, 7)  # half a frame that waits in ``parts`` for its rest
IS_PART_NEW = 7  # a kernel has begun another frame, since the owner has cleared this
HEARD_NS = 8  # when something came last
TLS = 9  # the address of OpenSSL's session that its bytes go through; 0: they are those on the wire

# Kinds.
NOT_SERVED, CLIENT, LINK_IN, LINK_OUT, STRANGER, SERVICE_LINK = range(6)
# STRANGER: a client that is only sent to; SERVICE_LINK: the process of a service.
RECEIVED_KINDS = (CLIENT, LINK_IN, SERVICE_LINK)

PART_ROWS, PART_BYTES = 32, 160 * 1024  # an envelope of a link, and more

# Bits of STATE.
IS_KEPT = 1  # bytes that are not in ``parts`` wait for more, or for their owner
IS_QUEUED = 2  # bytes wait to be sent
IS_PAUSED = 4
IS_ENDING = 8  # or not connected yet
IS_WRAPPED = 16  # its bytes go through TLS by Python alone
IS_CUT = 32  # a part of what it was to get is lost: it is closed

INDEX_LENGTH = 4096
_ZEROS = np.zeros(ROW_WORDS, np.int64).data


@routine
def drop_part(connections, keepers, descriptor):  # type: ignore[no-untyped-def]
    """The half frame of a connection is taken."""
    row = descriptor * ROW_WORDS
    if connections[row + PART_LENGTH] > 0:
        keepers[connections[row + PART_ROW]] = 0
        connections[row + PART_LENGTH] = 0


@kernel(types.boolean(WORDS_OUT, WORDS_OUT, BYTES_OUT, I64, I64, BYTES, I64, I64))
def keep_part(  # type: ignore[no-untyped-def]
    connections, keepers, parts, descriptor, length, buffer, begin, end
):
    """Keep ``buffer[begin:end]`` of a frame for who receives the rest.

    False where it is a long one, or all rows are taken. ``length`` is the frame's, 0 for half a header.
    """
    row = descriptor * ROW_WORDS
    if length > PART_BYTES:
        return False
    for slot in range(keepers.size):
        if keepers[slot] == 0:
            keepers[slot] = descriptor + 1
            copy_bytes(parts, slot * PART_BYTES, buffer, begin, end - begin)
            connections[row + PART_ROW], connections[row + PART_LENGTH] = slot, end - begin
            return True
    return False


_drop_part = as_python(drop_part)


class RowWord:
    """A word of the row of a connection, which has it as an attribute as long as it is open."""

    __slots__ = ("_field",)

    def __init__(self, field: int) -> None:
        self._field = field

    def __get__(self, owner: Any, kind: type | None = None) -> int:
        return owner._table.get(owner.descriptor, self._field)  # type: ignore[no-any-return]

    def __set__(self, owner: Any, value: int) -> None:
        if not owner.is_closed:
            owner._table.set(owner.descriptor, self._field, value)


class ConnectionTable:
    """Rows by descriptor; ``words`` goes to kernels. ``index`` has descriptors by low bits of client ids.

    A row of ``parts`` has half a frame of whom ``keepers`` names by its descriptor plus 1 (0: it is free).
    There are rows where compiled turns receive.
    """

    __slots__ = ("_view", "index", "keepers", "parts", "words")

    def __init__(self, descriptors: int = 1024) -> None:
        self.words = np.zeros(descriptors * ROW_WORDS, np.int64)
        self.index = np.zeros(INDEX_LENGTH, np.int64)
        self._view = self.words.data
        self.parts = np.zeros(0, np.uint8)
        self.keepers = np.zeros(0, np.int64)

    def clear(self, descriptor: int) -> None:
        """The descriptor is another's from now on, or nobody's."""
        needed = (descriptor + 1) * ROW_WORDS
        if needed > len(self.words):
            words = np.zeros(max(needed, 2 * len(self.words)), np.int64)
            words[: len(self.words)] = self.words
            self.words = words
            self._view = words.data
        self.drop_part(descriptor)
        begin = descriptor * ROW_WORDS
        self._view[begin : begin + ROW_WORDS] = _ZEROS

    def get(self, descriptor: int, field: int) -> int:
        return self._view[descriptor * ROW_WORDS + field]

    def set(self, descriptor: int, field: int, value: int) -> None:
        self._view[descriptor * ROW_WORDS + field] = value

    def mark(self, descriptor: int, bit: int, is_so: bool) -> None:
        """Set or clear one bit of its STATE."""
        at = descriptor * ROW_WORDS + STATE
        self._view[at] = self._view[at] | bit if is_so else self._view[at] & ~bit

    def keep_parts(self) -> None:
        """Have rows for half frames, which kernels may receive the rest of."""
        if not len(self.keepers):
            self.parts = np.zeros(PART_ROWS * PART_BYTES, np.uint8)
            self.keepers = np.zeros(PART_ROWS, np.int64)

    def part(self, descriptor: int) -> Any:
        """Its half frame, until that is dropped; empty where there is none."""
        begin = self.get(descriptor, PART_ROW) * PART_BYTES
        return self.parts[begin : begin + self.get(descriptor, PART_LENGTH)]

    def keep_part(self, descriptor: int, part: Any, length: int) -> bool:
        """Keep what came of a frame of this length; False where kernels do not, or there is no room."""
        if self.get(descriptor, KIND) not in RECEIVED_KINDS:
            return False
        return bool(keep_part(self.words, self.keepers, self.parts, descriptor, length, part, 0, len(part)))

    def drop_part(self, descriptor: int) -> None:
        """Its half frame is taken."""
        _drop_part(self._view, self.keepers, descriptor)

    def serve(self, descriptor: int, kind: int, owner: int, frame_length_max: int) -> None:
        """Let kernels take what comes over it, for this member or connection id."""
        begin = descriptor * ROW_WORDS
        self._view[begin + OWNER] = owner
        self._view[begin + FRAME_LENGTH_MAX] = frame_length_max
        self._view[begin + KIND] = kind
        if kind in (CLIENT, STRANGER):
            self.index[owner & INDEX_LENGTH - 1] = descriptor
