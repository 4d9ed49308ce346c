"""What the tests of real faults share: members that are always ended, and the whole check at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.load import Count, Load, Session, check_logs
from benchmarks.real_members import RealMembers

# Below the defaults, so that what links cannot show, a stopped process or a silent network, shows sooner.
SHORT_TIMEOUTS = {
    "leader_heartbeat_timeout": "2s",
    "leader_heartbeat_interval": "100ms",
    "startup_canvass_timeout": "4s",
}
# Where a test says that there is no election: long enough for a disk that others keep busy for seconds.
STEADY_TIMEOUTS = {**SHORT_TIMEOUTS, "leader_heartbeat_timeout": "6s", "startup_canvass_timeout": "12s"}
BEYOND_STEADY_S = 8


@pytest.fixture
def members_of(tmp_path: Path) -> Iterator[Callable[..., RealMembers]]:
    """Makes members below the test's folder; what runs at the end is killed, and logs for people are kept."""
    made: list[RealMembers] = []

    def make(count: int = 3, **options: Any) -> RealMembers:
        made.append(RealMembers(tmp_path, count, **options))
        return made[-1]

    yield make
    for members in made:
        members.close()
        for pattern in (
            "member-*/archive/*.rec",
            "member-*/archive/*.next",
            "*.synced/*.content",
            "old-disk/archive/*.rec",
        ):
            for path in tmp_path.glob(pattern):
                path.unlink()  # gigabytes, for pytest keeps the folders of three runs


def leadership_terms(members: RealMembers) -> dict[int, int]:
    """The term that each member leads or follows."""
    return {i: standing.leadership_term_id for i, standing in members.established().items()}


def check_everything(
    members: RealMembers, *loads: Load, others: Iterable[Session] = (), over_tcp: bool = False
) -> Count:
    """With all faults over and every member running: each log holds what was acknowledged, once, in order.

    The logs are read from the directories and over each member's endpoint; then all members stop in order.
    ``others`` are sessions that a test had beside the loads'. ``over_tcp`` is for threads in another network,
    which gRPC's own do not follow.
    """
    for load in loads:
        load.finish()
    end = members.await_level()
    sessions = [*others, *(session for load in loads for session in load.sessions)]
    found = check_logs(
        [members.member_dir(i) for i in members.ids],
        (members.tcp if over_tcp else members.endpoints).split(","),
        sessions,
        end,
    )
    assert found.acknowledged > 0, "nothing was acknowledged: the test proved nothing"
    members.stop()
    return found
