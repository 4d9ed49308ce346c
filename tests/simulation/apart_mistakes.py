"""Mistakes of services in processes of their own, put into production code one at a time (mistakes.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from cluster.member.services import remote_service
from cluster.member.services.remote_service import RemoteService
from cluster.member.services.service_progress import LogScript, TakenFromService
from cluster.node.life import MemberLife
from cluster.node.module_link import ModuleLink
from cluster.protocol.enums import Role
from cluster.protocol.service import JoinLog
from cluster.service.channel import LogJoined
from tests.simulation.mistakes import Patch, Sought


def requests_taken_again_of_the_next_process(patch: Patch) -> None:
    patch(TakenFromService, "on_process_lost", lambda self: None)


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


def new_process_without_a_replay(patch: Patch) -> None:
    """From the snapshot it goes on where the process before it was."""
    send_item = RemoteService._send_item

    def forgetful(self: Any, item: Any) -> None:
        is_replay = isinstance(item, LogJoined) and JoinLog.decode(item.message).max_log_position
        if not is_replay or is_replay != self._taken_position:
            send_item(self, item)

    patch(RemoteService, "_send_item", forgetful)


def resumed_where_its_log_began(patch: Patch) -> None:
    def resumed(self: Any, position: int) -> Iterator[Any]:
        yield from self._items

    patch(LogScript, "resumed", resumed)


def newest_snapshot_though_the_service_was_not_there(patch: Patch) -> None:
    newest_snapshot = MemberLife._newest_snapshot
    patch(MemberLife, "_newest_snapshot", lambda self, position_max: newest_snapshot(self, 1 << 62))


def log_read_beyond_the_end_of_a_term(patch: Patch) -> None:
    patch(ModuleLink, "commit_position", property(lambda self: self._limit))


def snapshot_of_a_process_that_catches_up(patch: Patch) -> None:
    """One that was given up, or is taken already, is written again as if it were the next."""
    patch(RemoteService, "_is_snapshot_wanted", lambda self, log_position: True)


APART_MISTAKES: dict[Callable[[Patch], None], Sought] = {
    requests_taken_again_of_the_next_process: Sought(("I-7", "I-8")),
    position_of_a_service_as_far_as_it_may_read: Sought(("I-6", "I-7", "I-8")),
    replay_of_a_new_process_answered: Sought(("I-3", "I-7", "I-8")),
    new_process_without_a_replay: Sought(("I-5", "I-14")),
    resumed_where_its_log_began: Sought(("I-5", "I-14")),
    newest_snapshot_though_the_service_was_not_there: Sought(("I-5",)),
    log_read_beyond_the_end_of_a_term: Sought(("I-5",)),
    snapshot_of_a_process_that_catches_up: Sought(("I-6",)),
}
