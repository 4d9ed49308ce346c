"""How much of what a service sends may wait."""


class Room:
    """How many bytes of one stream may wait to be taken; what is claimed counts as waiting."""

    __slots__ = ("_capacity", "used")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self.used = 0

    def has(self, length: int) -> bool:
        """Whether so many bytes more may wait; an empty stream takes a message of any length."""
        return self.used == 0 or self.used + length <= self._capacity

    @property
    def is_half_used(self) -> bool:
        return 2 * self.used > self._capacity
