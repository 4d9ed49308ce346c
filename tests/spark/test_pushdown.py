"""Filters of a query that narrow a batch read: fewer bytes, and never another answer."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from cluster.reader import LogReader
from spark_connector.options.cluster_options import SourceOptions
from spark_connector.source.pushdown import MAX, _cut, _microseconds
from spark_connector.source.readers import FilteringBatchReader
from tests.spark.logs import open_log

BEGIN_MS = 1_800_000_000_000
COLUMNS = ("position", "timestamp", "entryType", "clusterSessionId")


@pytest.fixture
def live(tmp_path):
    log, session_id = open_log(tmp_path / "member-0", time=BEGIN_MS)
    others = [log.open_session() for _ in range(2)]
    for number in range(90):
        log.time = BEGIN_MS + 10 * (number // 2)
        log.messages([session_id, *others][number % 3], [b"x" * (number % 5 * 700 + 1)])
        if number % 10 == 0:
            log.timer(number)
    log.commit()
    yield log
    log.stop()


def at(milliseconds):
    return datetime.fromtimestamp(BEGIN_MS / 1000, UTC) + timedelta(milliseconds=milliseconds)


def read(log, filters, **options):
    """The rows that Spark gets, and the bytes of log that the tasks cover."""
    given = {"clusterDir": str(log.directory), "pushFilters": "true", "minPartitions": "3", **options}
    reader = FilteringBatchReader(SourceOptions.parse(given), COLUMNS)
    assert reader.pushFilters(filters) == filters, "Spark checks them again"
    planned = reader.partitions()
    rows = [row for task in planned for batch in reader.read(task) for row in batch.to_pylist()]
    return rows, sum(task.end - task.start for task in planned)


def holds(condition, row):
    """What Spark makes of one filter."""
    value = row[condition.attribute[0]]
    match condition:
        case EqualTo(value=wanted) | EqualNullSafe(value=wanted):
            return value == wanted
        case In(value=wanted):
            return value in wanted
        case GreaterThan(value=bound):
            return value > bound
        case GreaterThanOrEqual(value=bound):
            return value >= bound
        case LessThan(value=bound):
            return value < bound
        case LessThanOrEqual(value=bound):
            return value <= bound
    return True


@pytest.mark.conformance("P-76")
@pytest.mark.parametrize(
    "filters",
    [
        [GreaterThanOrEqual(("position",), 20_000), LessThan(("position",), 60_001)],
        [GreaterThan(("position",), 20_001), LessThanOrEqual(("position",), 60_000)],
        [EqualTo(("position",), 96)],
        [EqualTo(("position",), 97)],
        [GreaterThanOrEqual(("timestamp",), at(100)), LessThan(("timestamp",), at(200))],
        [GreaterThan(("timestamp",), at(100)), LessThanOrEqual(("timestamp",), at(200))],
        [EqualTo(("timestamp",), at(150))],
        [GreaterThan(("timestamp",), at(10_000))],
        [LessThan(("timestamp",), at(0))],
        [EqualTo(("entryType",), "TIMER")],
        [In(("entryType",), ("TIMER", "SESSION_OPEN", None)), GreaterThan(("position",), 300)],
        [EqualNullSafe(("clusterSessionId",), 2)],
        [In(("clusterSessionId",), (1, 3)), EqualTo(("clusterSessionId",), 3)],
        [EqualTo(("clusterSessionId",), 1), EqualTo(("clusterSessionId",), 2)],
        [EqualTo(("entryType",), "NO_SUCH")],
    ],
)
def test_with_filters_the_rows_that_pass_are_those_that_pass_without(live, filters):
    every, _ = read(live, [])
    rows, covered = read(live, filters)

    passing = [row for row in every if all(holds(condition, row) for condition in filters)]
    assert [row for row in rows if all(holds(condition, row) for condition in filters)] == passing
    assert len(rows) < len(every) and covered <= live.position


def test_filters_on_places_make_the_range_smaller(live):
    rows, covered = read(live, [GreaterThanOrEqual(("position",), 20_000), LessThan(("position",), 30_000)])
    assert covered <= 10_032 and rows
    _, covered = read(live, [EqualTo(("timestamp",), at(150))])
    assert covered < 10_000
    assert read(live, [EqualTo(("position",), live.position)]) == ([], 0)


def test_what_says_nothing_here_changes_nothing(live):
    every = read(live, [])
    naive = datetime(2030, 1, 1)
    others = [
        IsNotNull(("position",)),
        Not(EqualTo(("entryType",), "TIMER")),
        StringStartsWith(("entryType",), "SESSION"),
        EqualTo(("timestamp",), naive),
        EqualTo(("position",), 7.5),
        EqualTo(("leadershipTermId",), 5),
        EqualNullSafe(("clusterSessionId",), None),
        EqualTo(("decoded", "id"), 5),
        EqualTo(("decoded", "position"), 5),
        GreaterThan(("position", "id"), 5),
    ]
    assert read(live, others) == every


def test_filters_narrow_further_what_options_have_narrowed(live):
    every, _ = read(live, [])
    begin = every[30]["position"]
    options = {
        "startingOffsets": f'{{"position": {begin}}}',
        "sessions": "1,2",
        "entryTypes": "SESSION_MESSAGE",
    }

    rows, _ = read(live, [In(("clusterSessionId",), (2, 3)), GreaterThan(("position",), 96)], **options)
    assert rows == [row for row in every[30:] if row["clusterSessionId"] == 2]
    assert read(live, [EqualTo(("clusterSessionId",), 3)], **options)[0] == []


def test_a_task_that_begins_within_an_entry_begins_with_the_next(live):
    with LogReader.open(dir=str(live.directory)) as log:
        positions = [entry["position"] for entry in log.entries()]
    for before, after in pairwise(positions[::7]):
        rows, _ = read(live, [GreaterThan(("position",), before), LessThanOrEqual(("position",), after)])
        assert [row["position"] for row in rows] == [p for p in positions if before < p <= after]


def test_a_filter_leaves_all_times_that_it_lets_through():
    """Positions are aligned afterwards, times are not."""
    time = at(7)
    bounds = {
        kind: _cut((0, MAX), kind(("timestamp",), time), _microseconds)
        for kind in (EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)
    }
    us = (BEGIN_MS + 7) * 1000
    assert bounds == {
        EqualTo: (us, us + 1),
        GreaterThan: (us + 1, MAX),
        GreaterThanOrEqual: (us, MAX),
        LessThan: (0, us),
        LessThanOrEqual: (0, us + 1),
    }
