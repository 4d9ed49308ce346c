"""What a log's files say of how its member stands."""

from types import SimpleNamespace

import pytest

from cluster.protocol.enums import ClusterTimeUnit
from cluster.protocol.recording_log import SNAPSHOT, TERM
from cluster.reader.standing import by_log


def entry(entry_type, log_position, timestamp):
    return SimpleNamespace(entry_type=entry_type, log_position=log_position, timestamp=timestamp)


@pytest.mark.parametrize(
    ("positions", "last", "at", "replayed"),
    [([], None, None, 896), ([640, 320], 640, "1970-01-01T00:00:00.640+00:00", 384)],
)
def test_a_start_replays_from_the_newest_snapshot_on_or_all_of_the_log(positions, last, at, replayed):
    entries = [entry(TERM, 1000, 0), *(entry(SNAPSHOT, position, position) for position in positions)]
    state = SimpleNamespace(log_entries=entries)
    log = SimpleNamespace(state=state, start_position=128, time_unit=ClusterTimeUnit.MILLIS)
    assert by_log(log, 1024) == {
        "logBytes": 896,
        "snapshotPosition": last,
        "snapshotTimestamp": last,
        "snapshotTime": at,
        "replayBytes": replayed,
    }
