"""Mistakes at the border of compiled turns: what they are lent, and what they call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cluster.member.busy import words as at
from cluster.member.busy.lend import BusyTurns
from cluster.testing.calls import SimulatedCalls
from tests.simulation.mistakes import Patch, Sought


def compiled_turns_sync_nothing(patch: Patch) -> None:
    """What they have written is reported as safe, and is not."""
    patch(SimulatedCalls, "_sync", lambda self, file: 0)


def compiled_leader_is_its_own_majority(patch: Patch) -> None:
    """What is on its own disk is committed."""
    init = BusyTurns.__init__

    def alone(self: Any, *arguments: Any, **options: Any) -> None:
        init(self, *arguments, **options)
        self._words[at.QUORUM] = 1

    patch(BusyTurns, "__init__", alone)


COMPILED_MISTAKES: dict[Callable[[Patch], None], Sought] = {
    compiled_turns_sync_nothing: Sought(("I-3",)),
    compiled_leader_is_its_own_majority: Sought(("I-3",)),
}
