"""Changes valid bytes as damage and malice do, by one source of chance."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from random import Random

LENGTH_MAX = 1 << 16
CORPUS_MAX = 500
# Lengths, counts and ids at which code that was not careful goes wrong.
INTERESTING = (
    *(struct.pack("<i", n) for n in (0, 1, -1, 31, 32, 33, 0x7FFF_FFFF, -0x8000_0000, 1 << 24)),
    *(struct.pack("<q", n) for n in (0, -1, (1 << 63) - 1, -(1 << 63), 1 << 32)),
    *(struct.pack("<H", n) for n in (0, 111, 1111, 1112, 0xFFFF)),
    b"\0" * 32,
    b"\xff" * 32,
    b"[" * 2_000,
    b"9" * 500,
)

Change = Callable[[Random, bytearray, Sequence[bytes]], None]


def _flip_bit(random: Random, data: bytearray, others: Sequence[bytes]) -> None:
    data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def _set_byte(random: Random, data: bytearray, others: Sequence[bytes]) -> None:
    data[random.randrange(len(data))] = random.randrange(256)


def _overwrite(random: Random, data: bytearray, others: Sequence[bytes]) -> None:
    value = random.choice(INTERESTING)
    at = random.randrange(len(data))
    data[at : at + len(value)] = value


def _cut(random: Random, data: bytearray, others: Sequence[bytes]) -> None:
    del data[random.randrange(len(data)) :]


def _remove(random: Random, data: bytearray, others: Sequence[bytes]) -> None:
    at = random.randrange(len(data))
    del data[at : at + random.choice((1, 2, 4, 8, 32))]


def _repeat(random: Random, data: bytearray, others: Sequence[bytes]) -> None:
    begin = random.randrange(len(data))
    data[begin:begin] = data[begin : begin + random.choice((1, 4, 32, 200))] * random.randint(1, 40)


def _append(random: Random, data: bytearray, others: Sequence[bytes]) -> None:
    data += random.choice(others)


def _splice(random: Random, data: bytearray, others: Sequence[bytes]) -> None:
    other = random.choice(others)
    data[random.randrange(len(data)) :] = other[random.randrange(len(other) + 1) :]


CHANGES: tuple[Change, ...] = (*(_flip_bit, _set_byte, _overwrite, _cut, _remove, _repeat, _append, _splice),)


class Mutator:
    """The ``number``-th input is the same for the same seed and the same outcomes before it."""

    def __init__(self, corpus: Sequence[bytes], seed: int) -> None:
        self._random = Random(seed)
        self._corpus = list(corpus)
        self._outcomes: set[str] = set()

    def next(self) -> bytes:
        """One input: a valid one with a few changes."""
        data = bytearray(self._random.choice(self._corpus))
        for _ in range(self._random.randint(1, 5)):
            self._random.choice(CHANGES)(self._random, data or bytearray(1), self._corpus)
        return bytes(data[:LENGTH_MAX])

    def learn(self, data: bytes, outcome: str) -> None:
        """What has led to a new outcome is worth changing further."""
        if outcome not in self._outcomes and len(self._corpus) < CORPUS_MAX:
            self._outcomes.add(outcome)
            self._corpus.append(data)
