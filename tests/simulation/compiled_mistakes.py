"""Mistakes at the border of compiled turns: what they are lent, and what they call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cluster.consensus.quorum import QUORUM
from cluster.member.busy import lend
from cluster.member.busy import words as at
from cluster.service.agent import ClusteredServiceAgent
from cluster.testing.python_calls import FileCalls
from tests.simulation.mistakes import Patch, Sought


def recordings_sync_nothing(patch: Patch) -> None:
    """What is written is reported as safe, and is not."""
    patch(FileCalls, "_sync", lambda self, file: 0)


def compiled_leader_is_its_own_majority(patch: Patch) -> None:
    """What is on its own disk is committed."""
    turns = lend.busy_turns

    def alone(tables: at.Tables) -> int:
        quorum, tables.leadership[QUORUM:][:1] = tables.leadership[QUORUM:][:1].copy(), 1
        try:
            return int(turns(tables))
        finally:
            tables.leadership[QUORUM:][:1] = quorum

    patch(lend, "busy_turns", alone)


def what_compiled_turns_delivered_comes_again(patch: Patch) -> None:
    """The service's own place in the log is not moved on."""
    turns = lend.busy_turns

    def again(tables: at.Tables) -> int:
        before = tables.service_cursor.copy()
        try:
            return int(turns(tables))
        finally:
            tables.service_cursor[:] = before

    patch(lend, "busy_turns", again)


def refused_messages_are_passed_over(patch: Patch) -> None:
    """What a compiled callback does not take is not given to Python's."""

    def lost(self: Any, compiled: Any, message: Any, number: int) -> None:
        self._move_to(message)
        compiled.returned_for(message, number)

    patch(ClusteredServiceAgent, "_on_refused", lost)


COMPILED_MISTAKES: dict[Callable[[Patch], None], Sought] = {
    recordings_sync_nothing: Sought(("I-3",)),
    compiled_leader_is_its_own_majority: Sought(("I-3",)),
    what_compiled_turns_delivered_comes_again: Sought(("I-5",)),
    refused_messages_are_passed_over: Sought(("I-5",)),
}
