"""How much of a bound one client may take: at most three times as much as is free (dynamic thresholds).

    clients that take all they can get   1     2     3     7
    what each of them has                3/4   3/7   3/10  3/22
    what stays free for one that comes   1/4   1/7   1/10  1/22

So whoever has less than others finds room where they find none, and nobody has to know how many there are
(Choudhury and Hahne, Dynamic queue length thresholds for shared-memory packet switches, 1998).
"""

import ipaddress
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

FREE_MULTIPLE: Final = 3


def beyond_share(taken: int, free: int) -> str:
    """Why a client that has ``taken`` gets none of the ``free`` ones, at least 1; empty when it gets one."""
    if taken < FREE_MULTIPLE * free:
        return ""
    return f"has {taken}, and {free} are free: one has at most {FREE_MULTIPLE} times as many as are free"


def sharer_at(address: str) -> str:
    """In whose share an address is: of IPv6 its /64, in which a host picks addresses; else itself."""
    text = address.replace("%5B", "").replace("%5D", "").strip("[]")
    if ":" not in text:
        return address
    try:
        found = ipaddress.IPv6Address(text)
    except ValueError:
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return text if found.is_loopback else str(ipaddress.ip_network((int(found) >> 64 << 64, 64)))


def principal_text(principal: bytes) -> str:
    """The name of a principal, for people."""
    return ascii(principal.decode(errors="replace"))


class Taken:
    """How many of a bound each client has, who is known by its address."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    @property
    def count(self) -> int:
        return self._counts.total()

    def count_at(self, address: str) -> tuple[str, int]:
        """In whose share an address is, and how many that one has."""
        client = sharer_at(address)
        return client, self._counts[client]

    def beyond_share(self, client: str, free: int) -> str:
        """As the function, of what the client has."""
        return beyond_share(self._counts[sharer_at(client)], free)

    @contextmanager
    def by(self, client: str) -> Iterator[None]:
        """The client has one more."""
        client = sharer_at(client)
        self._counts[client] += 1
        try:
            yield
        finally:
            self._counts[client] -= 1
            if not self._counts[client]:
                del self._counts[client]


class FillLevel:
    """Says once that four fifths of a bound are taken, and again after it was down to a half."""

    __slots__ = ("_is_said", "_name", "_say")

    def __init__(self, name: str, say: Callable[[str], None]) -> None:
        self._name = name
        self._say = say
        self._is_said = False

    def update(self, count: int, maximum: int) -> None:
        """``count`` of ``maximum`` are taken now."""
        if not self._is_said and maximum >= 5 and 5 * count >= 4 * maximum:
            self._is_said = True
            self._say(f"{self._name}: {count} of {maximum} are taken")
        elif self._is_said and 2 * count <= maximum:
            self._is_said = False
