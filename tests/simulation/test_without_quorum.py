"""A cluster that has no quorum for an hour, with clients that push all the while."""

import gc
from dataclasses import replace

import pytest

from cluster.testing import network
from cluster.testing.world import MS, SECOND
from cluster.transport.sockets import SEND_QUEUE_BYTES_MAX, Connection
from tests.simulation.script import Script

MINUTE = 60 * SECOND
GROWTH_MAX = 1.02


def objects_held() -> tuple[int, int]:
    """Objects without the pieces in queues of connections, and the bytes of the longest queue.

    The network of the simulation keeps what it could not deliver, and is left out.
    """
    gc.collect()
    objects = gc.get_objects()
    left_out = ("memoryview", "managedbuffer", "deque")
    count = sum(
        type(thing).__name__ not in left_out and type(thing).__module__ != network.__name__
        for thing in objects
    )
    queued_bytes = max(thing.queued_bytes for thing in objects if isinstance(thing, Connection))
    return count, queued_bytes


@pytest.mark.faults
@pytest.mark.timeout(600)
def test_an_hour_without_a_quorum_costs_no_memory_and_is_over_in_bounded_time() -> None:
    """The run itself judges what comes after: a commit in time, nothing lost, all members level.

    What members have to tell each other waits in the queues of their links, which have a bound.
    """
    script = Script(3, 1)
    history = script.history
    history.settings = replace(history.settings, tick_ns=200 * MS)  # an hour of short ticks takes minutes
    committed, held = [], []

    def storm() -> None:
        script.await_all()
        for member_id in history.context.member_ids:
            script.cut_off(member_id)
        for duration_ns in (20 * MINUTE, 40 * MINUTE):
            script.world.run_until(script.world.now_ns + duration_ns)
            committed.append(history.invariants.log.end)
            held.append(objects_held())

    script.run(storm)
    assert committed[0] == committed[1]
    (before, _), (after, queued_bytes) = held
    assert after < GROWTH_MAX * before
    assert queued_bytes <= SEND_QUEUE_BYTES_MAX
