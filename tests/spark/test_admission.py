"""When a stream's micro-batches are due and how much they hold, call by call, without Spark."""

from types import SimpleNamespace

import numpy as np
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from spark_connector.offsets import Offset, batch_range
from spark_connector.options.cluster_options import SourceOptions
from spark_connector.source.admission import Room, end_within
from spark_connector.source.readers import ClusterStreamReader
from tests.spark.readers import COLUMNS, batch, joined, micro_batches, payloads, rows, stream


class Trigger:
    """What Spark asks at each trigger of one query, at a time that the test sets."""

    def __init__(self, reader, monkeypatch):
        self.now_s = 1000.0
        monkeypatch.setattr("spark_connector.source.admission.time.monotonic", lambda: self.now_s)
        self.reader = reader
        self.start = reader.initialOffset()

    def __call__(self):
        """The payloads of the micro-batch that is due now; None when none is."""
        end = self.reader.latestOffset(self.start, self.reader.getDefaultReadLimit())
        if end is self.start:
            return None
        got = payloads(self.reader, self.reader.partitions(self.start, end))
        self.start = end
        return got


def trigger_of(live, monkeypatch, **options):
    return Trigger(stream(live, minEntriesPerTrigger="10", maxTriggerDelay="1m", **options), monkeypatch)


@pytest.mark.conformance("P-51")
def test_fewer_entries_than_wanted_wait_for_more(live, monkeypatch):
    trigger = trigger_of(live, monkeypatch)
    assert trigger() == [], "the first micro-batch of a query does not wait: the term and the session"

    sent = live.lines(live.session_id, 0, 9)
    assert trigger() is None
    sent += live.lines(live.session_id, 9, 1)
    assert trigger() == sent
    live.lines(live.session_id, 10, 9)
    assert trigger() is None, "what the last one had is not counted again"


@pytest.mark.conformance("P-51")
def test_they_wait_no_longer_than_the_greatest_delay_after_the_last_micro_batch(live, monkeypatch):
    trigger = trigger_of(live, monkeypatch)
    trigger()
    sent = live.lines(live.session_id, 0, 3)
    trigger.now_s += 59.9
    assert trigger() is None
    trigger.now_s += 0.1
    assert trigger() == sent

    live.lines(live.session_id, 3, 3)
    assert trigger() is None, "the delay counts from the last micro-batch"


@pytest.mark.conformance("P-51")
def test_a_query_that_starts_again_does_not_wait_for_its_first_micro_batch(live, monkeypatch):
    trigger = trigger_of(live, monkeypatch)
    trigger()
    sent = live.lines(live.session_id, 0, 3)
    assert trigger() is None

    again = trigger_of(live, monkeypatch)
    again.start = trigger.start
    assert again() == sent


def test_entries_that_wait_are_counted_once(live, monkeypatch):
    trigger = trigger_of(live, monkeypatch)
    trigger()
    read = []
    entry_ends = type(trigger.reader._log).entry_ends

    def counted(log, begin, end):
        for ends in entry_ends(log, begin, end):
            read.append(len(ends))
            yield ends

    monkeypatch.setattr("spark_connector.log.SourceLog.entry_ends", counted)
    for number in range(9):
        live.lines(live.session_id, number, 1)
        for _ in range(2):  # Spark asks for the progress of a query whenever it has nothing to read
            assert trigger() is None
            assert trigger.reader.reportLatestOffset()["entriesBehindLatest"] == number + 1
    assert read == [1] * 9


def test_what_has_all_to_be_read_does_not_wait(live):
    live.lines(live.session_id, 0, 2)
    options = {"minEntriesPerTrigger": "100"}
    reader = stream(live, **options)
    reader.prepareForTriggerAvailableNow()
    assert len(joined(micro_batches(reader))) == 2

    reader = stream(live, **options)
    first = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    live.lines(live.session_id, 2, 2)
    second = reader.latestOffset(first, ReadAllAvailable())
    assert len(payloads(reader, reader.partitions(first, second))) == 2


@pytest.mark.conformance("P-49")
def test_both_limits_at_once_end_at_the_one_that_is_met_first(live):
    live.messages(live.session_id, [b"x" * 500] * 20)
    live.commit()
    ends = [row[1] for row in rows(batch(live), batch(live).partitions())]

    def first_end(**options):
        reader = stream(live, **options)
        return reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())["position"]

    assert first_end(maxEntriesPerTrigger="5", maxBytesPerTrigger="1m") == ends[4]
    assert first_end(maxEntriesPerTrigger="15", maxBytesPerTrigger=str(ends[4] + 32)) == ends[4]


@pytest.mark.conformance("P-59")
def test_an_option_that_changed_at_a_restart_holds_from_then_on(live):
    live.lines(live.session_id, 0, 30)
    first = stream(live, maxEntriesPerTrigger="4")
    start = first.initialOffset()
    end = first.latestOffset(start, first.getDefaultReadLimit())
    assert len(rows(first, first.partitions(start, end))) == 4

    second = stream(live, maxEntriesPerTrigger="9", minPartitions="3")
    later = second.latestOffset(end, second.getDefaultReadLimit())
    planned = second.partitions(end, later)
    assert len(rows(second, planned)) == 9 and len(planned) == 3
    assert len(second.partitions(start, end)) == 1, "what was planned before stays as it was"


def test_a_limit_of_bytes_admits_the_entry_that_ends_at_it(live):
    live.lines(live.session_id, 0, 5)
    of_entries = stream(live, maxEntriesPerTrigger="4")
    start = of_entries.initialOffset()
    end = of_entries.latestOffset(start, of_entries.getDefaultReadLimit())["position"]

    for limit, is_fourth_in in ((end - start["position"], True), (end - start["position"] - 1, False)):
        of_bytes = stream(live, maxBytesPerTrigger=str(limit))
        found = of_bytes.latestOffset(start, of_bytes.getDefaultReadLimit())["position"]
        assert (found == end) is is_fourth_in and found <= end


@pytest.mark.parametrize(("room", "left"), [(Room(2, None), Room(0, None)), (Room(None, 96), Room(None, 0))])
def test_a_room_is_taken_when_nothing_is_left_of_it(room, left):
    assert room.is_bounded and not room.is_taken

    room.take(2, 96)

    assert (room, room.is_taken) == (left, True)
    assert not Room(None, None).is_taken


def test_of_a_room_for_less_than_there_are_logs_each_has_a_part():
    assert Room(4, None).part(3) == Room(1, None)
    assert Room(2, 96).part(5) == Room(1, 19)
    assert Room(None, 3).part(5) == Room(None, 1)


@pytest.mark.parametrize(("most", "end"), [(1, 32), (2, 64), (3, 96), (4, 128), (5, 128)])
def test_a_batch_ends_at_its_last_entry_wherever_blocks_of_the_log_end(most, end):
    log = SimpleNamespace(entry_ends=lambda *_: iter([np.array([32, 64]), np.array([96, 128])]))

    assert end_within(log, 0, 128, Room(most, None)) == end


def test_a_log_that_is_purged_beyond_the_end_of_a_query_leaves_an_empty_batch():
    reader = ClusterStreamReader(SourceOptions.parse({"clusterDir": "member-0"}), COLUMNS)
    reader._log = SimpleNamespace(
        cluster="0:1:2",
        start_position=960,
        retained=lambda _: 960,
        term_before=lambda _: None,
        check_history=lambda _: None,
    )
    start = Offset("0:1:2", 96)

    end = reader.advance(start.to_json(), 640, Room(None, None))

    assert batch_range(start, Offset.from_json(end)) == (640, 640)
