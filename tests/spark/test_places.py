"""Where reads begin and end that name a time or a leadership term, call by call, without Spark."""

from types import SimpleNamespace

import pytest

from cluster.errors import ConfigurationError, DataLoss
from spark_connector.options.places import EARLIEST
from spark_connector.source import resolving
from tests.spark.logs import TERM_LENGTH, LiveLog, open_log
from tests.spark.readers import batch, joined, micro_batches, payloads, stream

BEGIN_MS = 1_800_000_000_000


@pytest.fixture
def live(tmp_path):
    """A log with a message each ten milliseconds, longer than three term buffers, in two leadership terms."""
    log, session_id = open_log(tmp_path / "member-0", time=BEGIN_MS)
    log.session_id = session_id
    for number in range(60):
        if number == 40:
            log.second_term = log.position
            log.term()
        log.time = BEGIN_MS + 10 * (number + 1)
        log.messages(session_id, [b"%d." % number * 1500])
    log.commit()
    yield log
    log.stop()


def test_a_log_that_is_purged_beyond_the_end_that_was_seen_begins_at_that_end():
    log = SimpleNamespace(cluster=None, earliest=lambda: 960)
    assert resolving._position(log, "startingOffsets", EARLIEST, 640) == 640


def numbers(found):
    return [int(payload.split(b".", 1)[0]) for payload in found]


def read(log, **options):
    reader = batch(log, **options)
    return numbers(payloads(reader, reader.partitions()))


def at(milliseconds):
    return str(BEGIN_MS + milliseconds)


@pytest.mark.conformance("P-7")
@pytest.mark.parametrize("number", [0, 1, 27, 40, 59])
def test_a_read_begins_with_the_entry_of_exactly_that_time(live, number):
    assert read(live, startingTimestamp=at(10 * (number + 1))) == list(range(number, 60))
    assert numbers(joined(micro_batches(stream(live, startingTimestamp=at(10 * (number + 1)))))) == list(
        range(number, 60)
    )


@pytest.mark.conformance("P-8")
@pytest.mark.parametrize("number", [1, 27, 59])
def test_between_two_entries_a_read_begins_with_the_later_one(live, number):
    assert read(live, startingTimestamp=at(10 * number + 1)) == list(range(number, 60))


def test_a_time_before_the_log_is_its_beginning(live):
    assert read(live, startingTimestamp="0") == list(range(60))


def test_a_batch_ends_before_the_first_entry_of_a_time(live):
    assert read(live, startingTimestamp=at(50), endingTimestamp=at(90)) == [4, 5, 6, 7]
    assert read(live, endingTimestamp=at(1_000_000)) == list(range(60)), "after the tip: all that is there"
    assert read(live, endingTimestamp="0") == []


@pytest.mark.conformance("P-9")
def test_after_the_last_entry_a_read_is_refused_with_how_to_wait_there(live):
    late = at(10_000)
    for begin in (
        stream(live, startingTimestamp=late).initialOffset,
        batch(live, startingTimestamp=late).partitions,
    ):
        says = (
            rf"startingTimestamp is '{late}', after the last entry .* {live.position}; .*=latest begins there"
        )
        with pytest.raises(ConfigurationError, match=says):
            begin()


@pytest.mark.conformance("P-10")
def test_or_it_waits_there_for_what_comes(live):
    reader = stream(live, startingTimestamp=at(10_000), startingOffsetsByTimestampStrategy="latest")
    start = reader.initialOffset()
    assert start["position"] == live.position

    live.lines(live.session_id, 0, 2)
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert payloads(reader, reader.partitions(start, end)) == [b"line 0", b"line 1"]


@pytest.mark.conformance("P-11")
def test_a_time_goes_before_a_position(live):
    assert read(live, startingOffsets="latest", startingTimestamp=at(600)) == [59]
    assert read(live, endingOffsets='{"position": 96}', endingTimestamp=at(20)) == [0]


def test_a_term_is_read_from_its_first_entry_on(live):
    assert read(live, startingOffsets='{"term": 1}') == list(range(40, 60))
    assert read(live, startingOffsets='{"term": 0}', endingOffsets='{"term": 1}') == list(range(40))
    assert stream(live, startingOffsets='{"term": 1}').initialOffset()["position"] == live.second_term


def test_a_term_that_the_log_does_not_have_is_refused_with_what_follows(live):
    with pytest.raises(ConfigurationError, match=r'startingOffsets is {"term": 7}.* no entry .*ends before'):
        batch(live, startingOffsets='{"term": 7}').partitions()
    live.leadership_term_id = 4
    live.term()
    live.commit()
    with pytest.raises(ConfigurationError, match=r'endingOffsets is {"term": 3}.* the next one is of term 5'):
        batch(live, endingOffsets='{"term": 3}').partitions()


def test_a_term_before_a_whole_log_is_refused_and_was_never_purged(tmp_path):
    log = LiveLog(tmp_path / "late")
    log.leadership_term_id = 1
    log.term()
    log.commit()
    with pytest.raises(ConfigurationError, match="no entry of that term: the next one is of term 2"):
        batch(log, startingOffsets='{"term": 1}').partitions()
    log.stop()


def test_a_term_whose_beginning_is_purged_is_data_loss(live):
    live._recording.purge_to(2 * TERM_LENGTH)
    with pytest.raises(DataLoss, match=rf"the start of term 0 of .* purged up to {2 * TERM_LENGTH}"):
        batch(live, startingOffsets='{"term": 0}').partitions()


def test_a_range_that_runs_backwards_names_both_options(live):
    with pytest.raises(ConfigurationError, match=r"startingTimestamp is position \d+, after endingOffsets, "):
        batch(live, startingTimestamp=at(300), endingOffsets='{"position": 0}').partitions()
