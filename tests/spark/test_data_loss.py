"""What was purged before it was read: a failure, or with failOnDataLoss=false a warning with the range."""

import pytest

from cluster.errors import ConfigurationError, DataLoss, LogPurged
from spark_connector.source.readers import ClusterStreamReader
from tests.spark.logs import TERM_LENGTH, open_log
from tests.spark.readers import batch, joined, micro_batches, payloads, rows, stream

START = 2 * TERM_LENGTH


@pytest.fixture
def live(tmp_path):
    log, session_id = open_log(tmp_path / "member-0")
    log.sent = [b"%3d" % number * 300 for number in range(300)]
    log.messages(session_id, log.sent)
    log.session_id = session_id
    log.commit()
    yield log
    log.stop()


@pytest.fixture
def purge(live):
    """A function that purges two terms; returns the payloads that are left."""

    def now():
        assert live._recording.purge_to(START) == START
        left = payloads(batch(live), batch(live).partitions())
        assert 0 < len(left) < 300
        return left

    return now


def lenient(log, **options) -> ClusterStreamReader:
    return stream(log, failOnDataLoss="false", **options)


@pytest.mark.conformance("P-42")
def test_a_query_that_stood_still_goes_on_where_the_log_begins_and_says_so_once(live, purge, capsys):
    reader = stream(live, maxEntriesPerTrigger="10")
    first = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    left = purge()

    reader = lenient(live)
    end = reader.latestOffset(first, reader.getDefaultReadLimit())
    assert end["from"] == START
    assert payloads(reader, reader.partitions(first, end)) == left
    assert reader.latestOffset(end, reader.getDefaultReadLimit()) is end
    (told,) = capsys.readouterr().err.splitlines()
    assert told == (
        f"cluster source: position {first['position']} of cluster 0:1800000000000:1877313736 was asked for, "
        f"but the log is purged up to {START}; what lies between is lost to this reader; "
        f"failOnDataLoss is false: going on at {START}"
    )


@pytest.mark.conformance("P-42")
def test_that_micro_batch_is_planned_alike_when_it_runs_again(live, purge):
    reader = stream(live, maxEntriesPerTrigger="10")
    first = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    purge()
    reader = lenient(live)
    end = reader.latestOffset(first, reader.getDefaultReadLimit())

    assert stream(live).partitions(first, end) == reader.partitions(first, end)
    assert reader.partitions(first, end)[0].start == START


def test_limits_count_from_where_the_log_begins(live, purge):
    reader = stream(live, maxEntriesPerTrigger="10")
    first = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    left = purge()

    reader = lenient(live, maxEntriesPerTrigger="7")
    end = reader.latestOffset(first, reader.getDefaultReadLimit())
    assert payloads(reader, reader.partitions(first, end)) == left[:7]


@pytest.mark.conformance("P-43")
def test_what_is_purged_between_planning_and_reading_is_passed_over_by_each_task(live, purge, capsys):
    reader = lenient(live, maxBytesPerPartition="64k")
    start = reader.initialOffset()
    planned = reader.partitions(start, reader.latestOffset(start, reader.getDefaultReadLimit()))
    left = purge()

    assert rows(reader, planned[:2]) == []
    assert payloads(reader, planned) == left
    told = capsys.readouterr().err.splitlines()
    assert f"position 0 was purged, the log begins at {START} now; failOnDataLoss is false: " in told[0]
    assert f"position {TERM_LENGTH} was purged" in told[1]


@pytest.mark.conformance("P-5", "P-42")
def test_a_start_that_was_purged_is_moved_to_where_the_log_begins(live, purge, capsys):
    left = purge()
    for where in ('{"position": 96}', '{"term": 0}'):
        assert joined(micro_batches(lenient(live, startingOffsets=where))) == left
        reader = batch(live, startingOffsets=where, failOnDataLoss="false")
        assert payloads(reader, reader.partitions()) == left
        assert len(capsys.readouterr().err.splitlines()) == 2
        with pytest.raises(LogPurged, match=f"purged up to {START}"):
            stream(live, startingOffsets=where).initialOffset()


@pytest.mark.conformance("P-6", "P-20")
def test_another_log_or_a_shorter_one_fails_whatever_is_allowed(live, tmp_path):
    other, _ = open_log(tmp_path / "other", time=1_900_000_000_000)
    try:
        with pytest.raises(DataLoss, match="cluster 0:1900000000000"):
            lenient(live).latestOffset(stream(other).initialOffset(), None)
        with pytest.raises(ConfigurationError, match="beyond the end"):
            lenient(live, startingOffsets=f'{{"position": {live.position + 96}}}').initialOffset()
    finally:
        other.stop()
