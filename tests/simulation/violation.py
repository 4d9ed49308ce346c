"""What the simulator raises when an invariant does not hold."""

from __future__ import annotations


class Violation(BaseException):
    """An invariant does not hold. No ``Exception``: nothing in production may catch it."""

    def __init__(self, invariant: str, what: str) -> None:
        super().__init__(f"{invariant}: {what}")
        self.invariant = invariant


def require(holds: bool, invariant: str, what: str) -> None:
    if not holds:
        raise Violation(invariant, what)
