"""Messages that are written in place: claimed, filled, then committed or aborted (Aeron: BufferClaim)."""

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
    """Room for one message: fill ``buffer``, then ``commit()`` or ``abort()`` the claim.

    The room is reserved, so ``commit`` succeeds however much is offered meanwhile; messages are sent in the
    order of the commits. A claim can be used again once it is committed or aborted. If a callback raises
    while a claim is open, the claim is aborted.
    """

    buffer: memoryview = field(init=False, default=memoryview(b""))
    _claimed: Claimed | None = field(init=False, default=None)

    def commit(self) -> int:
        """Send what was written. Returns what an offer of it returns: 1 on a follower, which sends nothing.

        Always positive, unless the session was closed or the member became leader since the claim. A client's
        claim returns a position, or Offer.CLOSED. Raises LocalProtocolError if nothing is claimed, or if
        sending is not allowed here; in that case the claim stays open.
        """
        claimed = self._claimed
        if claimed is None:
            raise LocalProtocolError("nothing is claimed: it was committed or aborted already")
        claimed.check_may_send()
        self.abort()
        return claimed.offer(self.buffer)

    def abort(self) -> None:
        """Send nothing, and give the room back. Does nothing if the claim is not open."""
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
