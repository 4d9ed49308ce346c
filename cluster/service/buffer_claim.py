"""Messages that are written in place: claimed, filled, then committed or aborted (Aeron: BufferClaim)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from cluster.errors import LocalProtocolError
from cluster.service.channel import Room


class _Claimed(NamedTuple):
    """What an open claim stands for."""

    claims: Claims
    room: Room
    reserved: int  # bytes of the room
    offer: Callable[[memoryview], int]


class BufferClaim:
    """Room for one message: fill ``buffer``, then ``commit()`` it or ``abort()`` it.

    The room is reserved: a commit is taken however much is offered meanwhile, in the order of the commits.
    A claim that was used up can be claimed again. One that is open when a callback raises is aborted.
    """

    __slots__ = ("_claimed", "buffer")

    def __init__(self) -> None:
        self.buffer = memoryview(b"")
        self._claimed: _Claimed | None = None

    def commit(self) -> int:
        """Send what was written, and return what an offer of it does: 1 on a follower, which sends nothing.

        Always positive, unless the session was closed or the member began to lead since the claim. Raises
        LocalProtocolError where sending is not allowed (the claim stays open), and when nothing is claimed.
        """
        claimed = self._claimed
        if claimed is None:
            raise LocalProtocolError("nothing is claimed: it was committed or aborted already")
        claimed.claims.check_may_send()
        self.abort()
        return claimed.offer(self.buffer)

    def abort(self) -> None:
        """Send nothing, and give the room back; without effect on a claim that is not open."""
        if self._claimed is not None:
            self._claimed.claims.close(self)
            self._claimed.room.used -= self._claimed.reserved
            self._claimed = None


class Claims:
    """Those of one service that are open."""

    def __init__(self, check_may_send: Callable[[], None]) -> None:
        self.check_may_send = check_may_send
        self._open: list[BufferClaim] = []

    def open(
        self,
        claim: BufferClaim,
        length: int,
        room: Room,
        reserved: int,
        offer: Callable[[memoryview], int],
    ) -> bool:
        """Give ``claim`` a buffer of ``length`` bytes that is offered when it is committed.

        False when the room has no ``reserved`` bytes more. Raises LocalProtocolError for one that is open.
        """
        if claim._claimed is not None:
            raise LocalProtocolError("the claim is open: commit or abort it before it claims again")
        if not room.has(reserved):
            return False
        room.used += reserved
        claim.buffer = memoryview(bytearray(length))
        claim._claimed = _Claimed(self, room, reserved, offer)
        self._open.append(claim)
        return True

    def close(self, claim: BufferClaim) -> None:
        """It is committed or aborted."""
        self._open = [other for other in self._open if other is not claim]

    def abort_all(self) -> None:
        """Nobody will commit them: the callback that could has failed."""
        for claim in self._open:
            claim.abort()
