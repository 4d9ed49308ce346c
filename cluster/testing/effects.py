"""What a history did, as one hash that no rewording moves.

The hash of the trace holds every text, so a word in a message changes it. This one is over what members do:
the kind of effect and its numbers, without names, texts and times.
"""

from array import array
from enum import IntEnum
from hashlib import blake2b


class Effect(IntEnum):
    """What a member, or a process on its host, did."""

    BEGAN = 1  # member
    STATE = 2  # member, leadership term, election state, role, module state, commit position
    SENT = 3  # member, to member, length and CRC-32 of the bytes
    WROTE = 4  # offset, length and CRC-32 of the bytes
    APPLIED = 5  # member, service, position, chain of what its service was given up to there
    ENDED = 6  # member, whether by an error


class Effects:
    """The hash of one history's effects, in their order."""

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=8)

    def add(self, effect: Effect, *numbers: int) -> None:
        """Numbers are below 2^63."""
        self._hash.update(array("q", (effect, *numbers)).tobytes())

    @property
    def hash(self) -> str:
        return self._hash.hexdigest()
