"""Messages that are written in place: claimed, filled, then committed or aborted (Aeron: BufferClaim)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from cluster.errors import LocalProtocolError


class Claimed(NamedTuple):
    """What an open claim stands for."""

    check_may_send: Callable[[], None]  # raises where nothing may be sent
    release: Callable[[], None]  # gives the room back
    offer: Callable[[memoryview], int]


@dataclass(slots=True, eq=False, repr=False)
class BufferClaim:
    """Room for one message: fill ``buffer``, then ``commit()`` it or ``abort()`` it.

    The room is reserved: a commit is taken however much is offered meanwhile, in the order of the commits.
    A claim that was used up can be claimed again. One that is open when a callback raises is aborted.
    """

    buffer: memoryview = field(init=False, default=memoryview(b""))
    _claimed: Claimed | None = field(init=False, default=None)

    def commit(self) -> int:
        """Send what was written, and return what an offer of it does: 1 on a follower, which sends nothing.

        Always positive, unless the session was closed or the member began to lead since the claim; of a
        client's claim a position, or Offer.CLOSED. Raises
        LocalProtocolError where sending is not allowed (the claim stays open), and when nothing is claimed.
        """
        claimed = self._claimed
        if claimed is None:
            raise LocalProtocolError("nothing is claimed: it was committed or aborted already")
        claimed.check_may_send()
        self.abort()
        return claimed.offer(self.buffer)

    def abort(self) -> None:
        """Send nothing, and give the room back; without effect on a claim that is not open."""
        claimed, self._claimed = self._claimed, None
        if claimed is not None:
            claimed.release()


def check_unused(claim: BufferClaim) -> None:
    """Raise LocalProtocolError for a claim that is open."""
    if claim._claimed is not None:
        raise LocalProtocolError("the claim is open: commit or abort it before it claims again")


def open_claim(claim: BufferClaim, length: int, claimed: Claimed) -> None:
    """Give it a buffer of ``length`` bytes, whose room is reserved."""
    check_unused(claim)
    claim.buffer = memoryview(bytearray(length))
    claim._claimed = claimed
