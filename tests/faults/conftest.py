"""What the tests of real faults share: members that are always ended, and the whole check at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.load import Count, Load, check_logs
from benchmarks.real_members import RealMembers


@pytest.fixture
def members_of(tmp_path: Path) -> Iterator[Callable[..., RealMembers]]:
    """Makes members below the test's folder; what runs at the end is killed."""
    made: list[RealMembers] = []

    def make(count: int = 3, **options: Any) -> RealMembers:
        made.append(RealMembers(tmp_path, count, **options))
        return made[-1]

    yield make
    for members in made:
        members.close()


def check_everything(members: RealMembers, *loads: Load) -> Count:
    """With all faults over and every member running: each log holds what was acknowledged, once, in order.

    The logs are read from the directories and over each member's endpoint; then all members stop in order.
    """
    for load in loads:
        load.finish()
    end = members.await_level()
    sessions = [session for load in loads for session in load.sessions]
    found = check_logs(
        [members.member_dir(i) for i in members.ids],
        [f"{i}={members.hosts[i]}:{members.ports[i]}" for i in members.ids],
        sessions,
        end,
    )
    assert found.acknowledged > 0, "nothing was acknowledged: the test proved nothing"
    members.stop()
    return found
