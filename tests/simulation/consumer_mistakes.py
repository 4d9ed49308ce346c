"""Mistakes that consumer groups must not survive unseen: positions that fall, log that is dropped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cluster.consensus.consumers import ConsumerTable
from cluster.member.log.retention import Retention
from tests.simulation.mistakes import Patch, Sought


def group_goes_back_with_an_old_reader(patch: Patch) -> None:
    """Who had the group earlier reports again from where it was."""
    refusal = ConsumerTable.refusal

    def lenient(self: Any, consumer: Any, principal: bytes, commit_position: int, cluster_time: int) -> str:
        told = refusal(self, consumer, principal, commit_position, cluster_time)
        return "" if "which the group is at" in told else told

    patch(ConsumerTable, "refusal", lenient)


def group_reports_do_not_wait_for_the_last_one(patch: Patch) -> None:
    """Two reports in one commit: the first is not known yet when the second is judged."""
    patch(ConsumerTable, "is_undecided", lambda self, group: False)


def groups_not_loaded_from_a_snapshot(patch: Patch) -> None:
    """Whoever starts from one has none of those before."""
    patch(ConsumerTable, "load", lambda self, records, log_position: None)


def log_dropped_whatever_groups_need(patch: Patch) -> None:
    """As before there were groups."""
    patch(Retention, "_bound_by_groups", lambda self, limit, recording: limit)


def group_reported_beyond_the_commit(patch: Patch) -> None:
    """A reader that has seen what is not committed takes the group there."""
    refusal = ConsumerTable.refusal

    def blind(self: Any, consumer: Any, principal: bytes, commit_position: int, cluster_time: int) -> str:
        return refusal(self, consumer, principal, 1 << 62, cluster_time)

    patch(ConsumerTable, "refusal", blind)


CONSUMER_MISTAKES: dict[Callable[[Patch], None], Sought] = {
    group_goes_back_with_an_old_reader: Sought(("I-25",)),
    group_reports_do_not_wait_for_the_last_one: Sought(("I-25",)),
    groups_not_loaded_from_a_snapshot: Sought(("I-25",)),
    log_dropped_whatever_groups_need: Sought(("I-25",)),
    group_reported_beyond_the_commit: Sought(("I-25",)),
}
