"""What a log's files say of how its member stands."""

from types import SimpleNamespace

import pytest

from cluster.protocol.counter_types import CounterTypeId
from cluster.protocol.enums import ClusterTimeUnit, Role
from cluster.protocol.recording_log import SNAPSHOT, TERM
from cluster.reader.standing import by_counters, by_log


def entry(entry_type, log_position, timestamp):
    return SimpleNamespace(
        entry_type=entry_type, log_position=log_position, term_base_log_position=0, timestamp=timestamp
    )


@pytest.mark.parametrize(
    ("positions", "last", "at", "replayed", "a_day"),
    [([], None, None, 896, 12_288), ([640, 320], 640, "1970-01-01T00:00:00.640+00:00", 384, 4_608)],
)
def test_a_start_replays_from_the_newest_snapshot_on_or_all_of_the_log(positions, last, at, replayed, a_day):
    entries = [entry(TERM, 1000, 0), *(entry(SNAPSHOT, position, position) for position in positions)]
    state = SimpleNamespace(log_entries=entries)
    log = SimpleNamespace(state=state, start_position=128, time_unit=ClusterTimeUnit.MILLIS)
    hour = 3_600_000
    assert by_log(log, 1024, now_ms=2 * hour) == {
        "logBytes": 896,
        "snapshotPosition": last,
        "snapshotTimestamp": last,
        "snapshotTime": at,
        "replayBytes": replayed,
        "logBytesPerDay": a_day,
    }


def test_the_lag_of_services_is_that_of_the_slowest():
    types = [CounterTypeId.COMMIT_POSITION, *[CounterTypeId.SERVICE_POSITION] * 2]

    found = by_counters(types, [960, 320, 640], 0)
    assert (found["serviceLag"], found["servicePositions"]) == (640, [320, 640])


@pytest.mark.parametrize(
    ("role", "now_ms", "shown"),
    [(Role.LEADER, 9_000, 8_995), (Role.FOLLOWER, 9_000, None), (Role.LEADER, None, None)],
)
def test_cluster_time_is_that_of_a_leader_that_lives(role, now_ms, shown):
    types = [CounterTypeId.NODE_ROLE, CounterTypeId.CLUSTER_TIME_OFFSET]
    assert by_counters(types, [role, -5_000_000], now_ms).get("clusterTimeMs") == shown
