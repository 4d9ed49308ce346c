"""Wiped members and leaders that do not know that they were replaced: the histories that once went wrong."""

import pytest

from cluster.testing.world import MS, SECOND
from tests.simulation.script import Script


@pytest.mark.parametrize("members", [3, pytest.param(5, marks=pytest.mark.slow)])
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (40, 100))])
def test_a_wiped_member_does_not_follow_a_leader_that_was_replaced(members: int, seed: int) -> None:
    """It would commit with it over what the new leader has committed with the life that it has forgotten."""
    script = Script(members, seed)
    history = script.history

    def storm() -> None:
        stale = script.await_all().member_id
        others = [i for i in history.context.member_ids if i != stale]
        near, far = (
            others[: history.quorum - 2],
            others[history.quorum - 2 :],
        )  # ``near`` stay with the old leader
        script.block([stale, *near], far)  # it hears, and is not heard
        script.until(
            lambda: all(history.members[i].is_electing for i in far),
            10 * SECOND,
        )
        script.block(far, [stale, *near])
        before = history.invariants.log.end
        script.until(
            lambda: any(history.members[i].is_leading for i in far) and history.invariants.log.end > before,
            3 * SECOND,
        )
        script.world.run_until(script.world.now_ns + 100 * MS)
        new = next(i for i in far if history.members[i].is_leading)
        wiped = next(i for i in far if i != new)
        for other in far:
            script.cut_off(other)
        script.wipe(wiped)
        script.join(stale, *near, wiped)
        script.start(wiped)
        script.world.run_until(script.world.now_ns + 6 * SECOND)

    script.run(storm)
