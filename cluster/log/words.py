"""Words of a table that kernels share, as attributes of the class whose they are.

    class Leadership:
        quorum_position = Word(QUORUM_POSITION)      # self._words[QUORUM_POSITION]

``_words`` is the memory of the table (``array.data``), which Python reads in half of the time that the array
takes.
"""

from typing import Any


class Word:
    """An integer."""

    __slots__ = ("_place",)

    def __init__(self, place: int) -> None:
        self._place = place

    def __get__(self, owner: Any, kind: type | None = None) -> int:
        return owner._words[self._place]  # type: ignore[no-any-return]

    def __set__(self, owner: Any, value: int) -> None:
        owner._words[self._place] = value


class Flag(Word):
    """A word that is 0 or 1."""

    __slots__ = ()

    def __get__(self, owner: Any, kind: type | None = None) -> bool:
        return bool(owner._words[self._place])
