"""Mistakes of services in processes of their own, put into production code one at a time (mistakes.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cluster.member.services import remote_service
from cluster.member.services.remote_service import RemoteService
from cluster.member.services.service_progress import TakenFromService
from cluster.protocol.enums import Role
from cluster.protocol.service import JoinLog
from cluster.service.channel import LogJoined
from tests.simulation.mistakes import Patch, Sought


def position_of_a_service_as_far_as_it_may_read(patch: Patch) -> None:
    """It is taken for what was served: what the next process would say again is dropped."""
    on_position = RemoteService._on_position

    def hasty(self: Any, message: Any) -> None:
        on_position(self, message.replace(log_position=max(self._limit, message.log_position)))

    patch(RemoteService, "_on_position", hasty)


def replay_of_a_new_process_answered(patch: Patch) -> None:
    """It says in its replay what a leader says, and its requests count as new."""
    replay = remote_service.replay

    def as_leader(log: Any, begin: int, end: int, member_id: int) -> LogJoined:
        joined = replay(log, begin, end, member_id)
        return LogJoined(JoinLog.decode(joined.message).replace(role=Role.LEADER).encode(), joined.log)

    patch(remote_service, "replay", as_leader)
    patch(TakenFromService, "is_new_request", lambda self, log_position: True)


FAULTS = ("end a service", "partial transfers", "kill the leader", "slow service")
APART_MISTAKES: dict[Callable[[Patch], None], Sought] = {
    position_of_a_service_as_far_as_it_may_read: Sought(("I-6", "I-7", "I-8"), FAULTS),
    replay_of_a_new_process_answered: Sought(("I-3", "I-7", "I-8"), FAULTS),
}
