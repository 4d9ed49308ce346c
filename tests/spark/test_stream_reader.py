"""What the stream reader tells Spark, call by call, over a member's directory; without Spark."""

import itertools
import json
import struct
from types import SimpleNamespace

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from cluster.errors import ConfigurationError, DataLoss, LogDamaged
from spark_connector.data_source import ClusterDataSource
from spark_connector.offsets import Offset
from spark_connector.options.cluster_options import SourceOptions
from spark_connector.source.readers import ClusterBatchReader, ClusterStreamReader
from tests.archive.logs import a_log
from tests.archive.members import write_member
from tests.spark.logs import TERM_LENGTH, LiveLog, open_log
from tests.spark.readers import COLUMNS, batch, joined, micro_batches, payloads, rows, stream

ALL = ReadAllAvailable()


def test_a_stream_delivers_what_is_committed_and_waits_for_more(live):
    reader = stream(live)
    sent = live.lines(live.session_id, 0, 10)

    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert payloads(reader, reader.partitions(start, end)) == sent
    assert reader.latestOffset(end, reader.getDefaultReadLimit()) is end, "the same text: nothing new"

    more = live.lines(live.session_id, 10, 5)
    later = reader.latestOffset(end, reader.getDefaultReadLimit())
    assert payloads(reader, reader.partitions(end, later)) == more


@pytest.mark.conformance("P-32", "P-33")
def test_what_is_appended_but_not_committed_is_never_returned(live):
    reader = stream(live)
    sent = live.lines(live.session_id, 0, 3)
    live.messages(live.session_id, [b"in doubt"])

    assert joined(micro_batches(reader)) == sent

    live.commit()
    assert joined(micro_batches(reader)) == [*sent, b"in doubt"]


@pytest.mark.conformance("P-2")
def test_latest_begins_behind_what_is_there(live):
    live.lines(live.session_id, 0, 3)
    reader = stream(live, startingOffsets="latest")
    start = reader.initialOffset()
    later = live.lines(live.session_id, 3, 2)

    assert reader.initialOffset() == start, "Spark asks twice and hears the same"
    end = reader.latestOffset(start, ALL)
    assert payloads(reader, reader.partitions(start, end)) == later


@pytest.mark.conformance("P-14", "P-23")
def test_a_first_batch_that_runs_again_begins_where_it_began_though_latest_has_moved(live):
    first = stream(live, startingOffsets="latest")
    start = first.initialOffset()
    sent = live.lines(live.session_id, 0, 4)
    end = first.latestOffset(start, ALL)  # in the write-ahead log; then the driver dies

    live.lines(live.session_id, 4, 4)
    second = stream(live, startingOffsets="latest")
    start_again = second.initialOffset()

    assert start_again["position"] > end["position"]
    assert payloads(second, second.partitions(start_again, end)) == sent


@pytest.mark.conformance("P-12")
@pytest.mark.parametrize(
    "options",
    [
        {"startingOffsets": "latest"},
        {"startingOffsets": '{"position": 1}'},  # within an entry
        {"startingOffsets": '{"term": 7}'},  # there is none
        {"startingTimestamp": "2036-01-01T00:00:00Z"},  # after the last entry
    ],
    ids=str,
)
def test_options_of_a_start_do_nothing_where_there_is_a_checkpoint(live, options):
    """Spark asks for no initial offset then."""
    first = stream(live)
    end = first.latestOffset(first.initialOffset(), ALL)
    sent = live.lines(live.session_id, 0, 10)

    second = stream(live, **options)
    assert payloads(second, second.partitions(end, second.latestOffset(end, ALL))) == sent


@pytest.mark.conformance("P-1", "P-2")
def test_the_default_of_a_stream_is_latest_and_of_a_batch_earliest(live):
    sent = live.lines(live.session_id, 0, 3)
    options = SourceOptions.parse({"clusterDir": str(live.directory)})
    reader = ClusterStreamReader(options, COLUMNS)

    assert reader.initialOffset()["position"] == live.position
    assert payloads(batch(live), batch(live).partitions()) == sent


@pytest.mark.conformance("P-3")
def test_a_stream_begins_at_a_position_where_an_entry_starts(live):
    begin = live.position
    sent = live.lines(live.session_id, 0, 3)

    assert joined(micro_batches(stream(live, startingOffsets=f'{{"position": {begin}}}'))) == sent


@pytest.mark.conformance("P-4")
def test_a_position_within_an_entry_is_refused_with_where_the_entries_around_it_start(live):
    entry = live.position
    live.messages(live.session_id, [b"x" * 5000])
    live.commit()
    begin, within = live.position, live.position - 64

    for option, plan in (
        ("startingOffsets", lambda position: stream(live, startingOffsets=position).initialOffset()),
        ("startingOffsets", lambda position: batch(live, startingOffsets=position).partitions()),
        ("endingOffsets", lambda position: batch(live, endingOffsets=position).partitions()),
    ):
        with pytest.raises(
            ConfigurationError, match=rf"{option}.*{within}.*within an entry; .* at {entry} and {begin}"
        ):
            plan(f'{{"position": {within}}}')


@pytest.mark.conformance("P-6")
def test_a_position_beyond_the_end_is_refused_with_the_end(live):
    reader = stream(live, startingOffsets='{"position": 1048576}')
    with pytest.raises(ConfigurationError, match=rf"1048576.*beyond the end.*{live.position}"):
        reader.initialOffset()


@pytest.mark.conformance("P-20")
def test_a_place_of_another_cluster_is_refused_naming_both_and_one_of_this_is_taken(live, tmp_path):
    live.lines(live.session_id, 0, 3)
    other, _ = open_log(tmp_path / "other", time=1_900_000_000_000)
    try:
        ours, theirs = (json.dumps(stream(log).initialOffset()) for log in (live, other))
        taken = batch(live, startingOffsets=ours)
        assert len(rows(taken, taken.partitions())) == 5
        says = "Offsets is of cluster 0:1900000000000:1877313736, .* is cluster 0:1800000000000:1877313736"
        for plan in (
            lambda: stream(live, startingOffsets=theirs).initialOffset(),
            lambda: batch(live, startingOffsets=theirs).partitions(),
            lambda: batch(live, endingOffsets=theirs).partitions(),
        ):
            with pytest.raises(ConfigurationError, match=says):
                plan()
    finally:
        other.stop()


@pytest.mark.conformance("P-47")
@pytest.mark.parametrize("count", [1, 3, 7, 1000])
def test_a_limit_of_entries_is_exact(live, count):
    sent = live.lines(live.session_id, 0, 20)
    reader = stream(live, maxEntriesPerTrigger=str(count))

    start = reader.initialOffset()
    ends = []
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
        ends.append((start, end))
        start = end

    sizes = [len(rows(reader, reader.partitions(*pair))) for pair in ends]
    assert all(size == count for size in sizes[:-1])
    assert sum(sizes) == 22 and sizes[-1] <= count  # a term and a session open stand before the lines
    assert joined(payloads(reader, reader.partitions(*pair)) for pair in ends) == sent


@pytest.mark.conformance("P-48", "P-65", "P-66")
@pytest.mark.parametrize("limit", [1, 100, 5000, TERM_LENGTH, TERM_LENGTH + 96])
def test_a_limit_of_bytes_ends_at_an_entry_and_admits_at_least_one(live, limit):
    """Messages of 3 kB are fragmented, and the log is three terms long."""
    sent = [b"%d." % n * 900 for n in range(50)]
    live.messages(live.session_id, sent)
    live.commit()
    reader = stream(live, maxBytesPerTrigger=str(limit))
    every_end = {row[1] for row in rows(reader, batch(live).partitions())}
    every_end |= set(range(0, live.position, TERM_LENGTH))  # padding ends there

    got, start = [], reader.initialOffset()
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
        assert end["position"] in every_end
        entries = rows(reader, reader.partitions(start, end))
        assert end["position"] - start["position"] <= limit or len(entries) <= 1
        got += [row[3] for row in entries if row[2] == "SESSION_MESSAGE"]
        start = end

    assert got == sent


@pytest.mark.conformance("P-52")
def test_trigger_once_ignores_the_limits(live):
    live.lines(live.session_id, 0, 20)
    reader = stream(live, maxEntriesPerTrigger="1", maxBytesPerTrigger="1")

    end = reader.latestOffset(reader.initialOffset(), ALL)

    assert end["position"] == live.position


@pytest.mark.conformance("P-53", "P-54")
def test_available_now_stops_at_the_end_that_was_there_when_it_began(live):
    sent = live.lines(live.session_id, 0, 5)
    reader = stream(live, maxEntriesPerTrigger="2")
    reader.prepareForTriggerAvailableNow()
    live.lines(live.session_id, 5, 5)

    batches = list(micro_batches(reader))

    assert joined(batches) == sent
    assert len(batches) == 4  # seven entries by two


@pytest.mark.conformance("P-20")
def test_a_checkpoint_of_another_cluster_is_refused(live, tmp_path):
    other, _ = open_log(tmp_path / "other", time=1_900_000_000_000)
    try:
        reader = stream(other)
        start = reader.initialOffset()
        for known in (start, reader.latestOffset(start, ALL)):  # the second leaves nothing to be read
            with pytest.raises(DataLoss, match=r"0:1900000000000:1877313736.*0:1800000000000:1877313736"):
                stream(live).latestOffset(known, ALL)
    finally:
        other.stop()


def test_a_checkpoint_beyond_the_end_of_a_stopped_log_is_refused_naming_both(tmp_path):
    log, session_id = open_log(tmp_path / "member-0")
    log.lines(session_id, 0, 3)
    log.stop()
    reader = stream(log)
    beyond = {**reader.latestOffset(reader.initialOffset(), ALL), "position": 1 << 20}

    with pytest.raises(
        DataLoss, match=rf"position 1048576 of cluster 0:1800000000000.*ends at {log.position}"
    ):
        stream(log).latestOffset(beyond, ALL)


@pytest.mark.conformance("P-37")
def test_a_member_that_runs_may_be_behind_the_checkpoint_for_a_while(live, monkeypatch):
    clock = itertools.count(100.0, 3.0)
    monkeypatch.setattr("spark_connector.log.time.monotonic", lambda: next(clock))
    reader = stream(live)
    ahead = {**reader.initialOffset(), "position": live.position + 4096}

    assert reader.latestOffset(ahead, ALL) is ahead
    assert reader.latestOffset(ahead, ALL) is ahead
    with pytest.raises(DataLoss, match="ends at"):
        reader.latestOffset(ahead, ALL)


@pytest.mark.conformance("P-37")
def test_a_member_that_has_caught_up_has_all_the_time_again_when_it_restarts(live, monkeypatch):
    clock = itertools.count(100.0, 9.0)
    monkeypatch.setattr("spark_connector.log.time.monotonic", lambda: next(clock))
    reader = stream(live)
    start = reader.initialOffset()
    for number in range(3):  # with news in between, as a busy stream has at each trigger
        ahead = {**start, "position": live.position + 4096}
        assert reader.latestOffset(ahead, ALL) is ahead
        live.lines(live.session_id, number, 1)
        assert reader.latestOffset(start, ALL) is not start


@pytest.mark.conformance("P-32")
def test_of_a_member_that_crashed_a_stream_reads_what_is_known_to_be_committed(tmp_path):
    log, session_id = open_log(tmp_path / "member-0")
    sent = log.lines(session_id, 0, 3)
    log.messages(session_id, [b"in doubt"])
    log._recording.sync()
    log.abandon()

    assert joined(micro_batches(stream(log))) == sent
    assert joined(micro_batches(stream(log, readUncommitted="true"))) == [*sent, b"in doubt"]
    assert payloads(batch(log), batch(log).partitions()) == [*sent, b"in doubt"]


@pytest.mark.conformance("P-76")
def test_a_batch_reads_between_positions(live):
    live.lines(live.session_id, 0, 3)
    begin = live.position
    sent = live.lines(live.session_id, 3, 3)
    end = live.position
    live.lines(live.session_id, 6, 3)

    reader = batch(live, startingOffsets=f'{{"position": {begin}}}', endingOffsets=f'{{"position": {end}}}')

    assert payloads(reader, reader.partitions()) == sent


@pytest.mark.conformance("P-76")
def test_an_empty_range_has_one_empty_task(live):
    reader = batch(live, startingOffsets=f'{{"position": {live.position}}}')

    assert len(reader.partitions()) == 1
    assert rows(reader, reader.partitions()) == []


@pytest.mark.conformance("P-6")
def test_a_batch_that_runs_backwards_or_beyond_the_end_is_refused(live):
    live.lines(live.session_id, 0, 3)
    with pytest.raises(ConfigurationError, match=r"endingOffsets.*beyond the end"):
        batch(live, endingOffsets='{"position": 1048576}').partitions()
    with pytest.raises(ConfigurationError, match=r"startingOffsets is position \d+, after endingOffsets"):
        batch(live, startingOffsets="latest", endingOffsets='{"position": 96}').partitions()


@pytest.mark.conformance("P-61", "P-62", "P-65", "P-66")
@pytest.mark.parametrize("partitions", [1, 2, 5, 64])
def test_tasks_share_the_entries_however_the_range_is_cut(live, partitions):
    """Cuts fall within fragmented messages, padding and anywhere else."""
    sent = [b"%d." % n * (n % 7 * 300 + 1) for n in range(120)]
    live.messages(live.session_id, sent)
    live.commit()
    reader = stream(live, minPartitions=str(partitions), maxBytesPerPartition="64k")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)

    planned = reader.partitions(start, end)

    assert len(planned) >= partitions
    assert payloads(reader, planned) == sent
    assert reader.partitions(start, end) == planned


@pytest.mark.conformance("P-22", "P-59", "P-61")
def test_a_batch_that_runs_again_has_its_tasks_whatever_the_options_are_by_then(live):
    live.lines(live.session_id, 0, 2000)
    first = stream(live, minPartitions="4")
    start = first.initialOffset()
    end = first.latestOffset(start, ALL)
    planned = first.partitions(start, end)
    assert len(planned) == 4

    for options in (
        {"minPartitions": "2"},
        {"maxBytesPerPartition": "1k"},
        {"maxBytesPerPartition": "1k", "maxPartitions": "7"},
    ):
        again = stream(live, **options)
        assert again.partitions(again.initialOffset(), end) == planned
    live.lines(live.session_id, 2000, 2000)
    following = again.latestOffset(end, ALL)
    assert len(again.partitions(end, following)) == 7, "the next batch goes by the options of its day"


def test_a_batch_that_version_1_planned_goes_by_the_options_of_the_day(live):
    live.lines(live.session_id, 0, 2000)
    cluster = stream(live).initialOffset()["cluster"]
    start = {"cluster": cluster, "initial": True, "position": 0, "v": 1}
    end = {"cluster": cluster, "from": 96, "position": live.position, "v": 1}

    planned = stream(live, minPartitions="3").partitions(start, end)

    assert len(planned) == 3 and planned[0].start == 96


def test_entry_types_and_columns_are_pruned_where_the_log_is_read(live):
    live.timer(7)
    live.lines(live.session_id, 0, 3)
    reader = stream(live, columns=("endPosition", "entryType"), entryTypes="TIMER,SESSION_OPEN")
    start = reader.initialOffset()

    assert [row[1] for row in rows(reader, reader.partitions(start, reader.latestOffset(start, ALL)))] == [
        "SESSION_OPEN",
        "TIMER",
    ]


def test_sessions_and_templates_are_chosen_where_the_log_is_read_and_limits_count_all(live):
    other = live.open_session()
    wanted = [struct.pack("<4H", 8, template, 7, 0) + b"payload" for template in (1, 2, 1)]
    live.messages(other, wanted)
    live.lines(live.session_id, 0, 5)

    reader = stream(live, sessions=str(other), maxEntriesPerTrigger="4", minPartitions="3")
    assert list(micro_batches(reader)) == [wanted[:1], wanted[1:], []]
    assert joined(micro_batches(stream(live, templateIds="2, 9"))) == wanted[1:2]
    assert [
        row[2] for row in read_all(stream(live, sessions=str(other), entryTypes="SESSION_OPEN,TIMER"))
    ] == ["SESSION_OPEN"]


def read_all(reader):
    start = reader.initialOffset()
    return rows(reader, reader.partitions(start, reader.latestOffset(start, ALL)))


@pytest.mark.conformance("P-20")
def test_a_task_of_another_cluster_or_beyond_the_end_fails(live, tmp_path):
    other, _ = open_log(tmp_path / "other", cluster_id=5)
    try:
        planned = batch(live).partitions()
        with pytest.raises(DataLoss, match="cluster 0:"):
            rows(batch(other), planned)
        live.lines(live.session_id, 0, 3)
        with pytest.raises(DataLoss, match="ends at position"):
            (planned,) = batch(live).partitions()
            rows(batch(live), [type(planned)(planned.cluster, 0, live.position + 96, 0)])
    finally:
        other.stop()


@pytest.mark.conformance("P-74")
def test_a_directory_that_holds_another_log_now_is_read_anew(tmp_path):
    """Workers keep readers open across queries; a cluster may have been made afresh in between."""
    for life in (1, 2):
        log, session_id = open_log(tmp_path / "member-0", time=1_800_000_000_000 + life)
        sent = log.lines(session_id, 10 * life, 3)
        planned = batch(log).partitions()
        assert payloads(batch(log), planned) == sent
        log.stop()
        (tmp_path / "member-0").rename(tmp_path / f"life-{life}")


@pytest.mark.conformance("P-1", "P-41")
def test_what_was_purged_is_not_passed_over_in_silence(live):
    live.messages(live.session_id, [b"x" * 1000] * 300)
    live.commit()
    reader = stream(live, maxEntriesPerTrigger="10")
    start = reader.initialOffset()
    live._recording.purge_to(2 * TERM_LENGTH)

    with pytest.raises(
        DataLoss, match=rf"position 0 of cluster 0:1800000000000.*purged up to {2 * TERM_LENGTH}"
    ):
        stream(live).latestOffset(start, ALL)
    earliest = stream(live).initialOffset()
    assert earliest["position"] == 2 * TERM_LENGTH
    assert live._recording.start_position == 2 * TERM_LENGTH


def purged(log):
    """A log of three hundred messages whose first two terms are purged when the function is called."""
    log.messages(log.session_id, [b"x" * 1000] * 300)
    log.commit()
    return lambda: log._recording.purge_to(2 * TERM_LENGTH)


@pytest.mark.conformance("P-43")
def test_what_is_purged_between_planning_and_reading_fails_its_task(live):
    purge = purged(live)
    reader = stream(live, maxBytesPerPartition="64k")
    start = reader.initialOffset()
    planned = reader.partitions(start, reader.latestOffset(start, ALL))
    assert [task.start for task in planned[:3]] == [0, TERM_LENGTH, 2 * TERM_LENGTH]
    purge()

    for task in planned[:2]:
        says = rf"position {task.start} was purged, the log begins at {2 * TERM_LENGTH}"
        with pytest.raises(DataLoss, match=says):
            rows(stream(live), [task])
    assert rows(stream(live), planned[2:])


@pytest.mark.conformance("P-15")
def test_a_first_batch_that_runs_again_over_a_log_purged_since_fails(live):
    """Spark does not plan it again: it goes by the offsets in the checkpoint."""
    purge = purged(live)
    first = stream(live)
    end = first.latestOffset(first.initialOffset(), ALL)
    purge()

    second = stream(live)
    with pytest.raises(DataLoss, match=rf"position 0 was purged, the log begins at {2 * TERM_LENGTH}"):
        rows(second, second.partitions(second.initialOffset(), end))


@pytest.mark.conformance("P-5")
def test_a_position_that_was_purged_is_refused_with_where_the_log_begins(live):
    purged(live)()
    position = '{"position": 96}'

    for plan in (
        stream(live, startingOffsets=position).initialOffset,
        batch(live, startingOffsets=position).partitions,
        batch(live, endingOffsets=position).partitions,
    ):
        with pytest.raises(DataLoss, match=rf"position 96 .*purged up to {2 * TERM_LENGTH}"):
            plan()


@pytest.mark.conformance("P-44")
def test_a_damaged_segment_is_named_with_the_place(tmp_path):
    log, session_id = open_log(tmp_path / "member-0")
    log.lines(session_id, 0, 100)
    log.stop()
    segment = tmp_path / "member-0" / "archive" / "0-0.rec"
    with segment.open("r+b") as file:
        file.seek(4800)
        file.write(b"\xff" * 4)
    reader = batch(log)

    with pytest.raises(LogDamaged, match=rf"{segment} at offset 4800"):
        rows(reader, reader.partitions())


@pytest.mark.conformance("P-44")
def test_no_row_is_made_of_a_payload_of_which_a_bit_has_flipped(tmp_path):
    log = a_log(100)
    write_member(tmp_path, log, checksum="crc32c")
    begin, _ = log.entries[40]
    segment = tmp_path / "archive" / "0-0.rec"
    data = bytearray(segment.read_bytes())
    data[begin + 70] ^= 1
    segment.write_bytes(data)
    reader = ClusterBatchReader(SourceOptions.parse({"clusterDir": str(tmp_path)}), COLUMNS)

    mismatch = rf"{segment} at offset {begin}: checksum mismatch \(log position {begin}\)"
    with pytest.raises(LogDamaged, match=mismatch):
        rows(reader, reader.partitions())


@pytest.mark.conformance("P-109")
def test_progress_tells_how_far_the_log_is_and_what_is_left(live, monkeypatch):
    reader = stream(live, maxEntriesPerTrigger="2")
    assert reader.reportLatestOffset() is None
    live.lines(live.session_id, 0, 3)

    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())

    monkeypatch.setattr("spark_connector.source.lag.time.time_ns", lambda: (live.time + 250) * 1_000_000)
    assert reader.reportLatestOffset() == {
        "position": live.position,
        "bytesBehindLatest": live.position - end["position"],
        "entriesBehindLatest": 3,
        "msBehindLatest": 250,
    }
    monkeypatch.setattr("spark_connector.source.lag.COUNTED_BYTES", 64)
    assert reader.reportLatestOffset()["entriesBehindLatest"] is None, "they are not read to be counted"


@pytest.mark.conformance("P-109")
def test_a_stream_that_has_all_is_behind_by_nothing(live):
    reader = stream(live)
    reader.latestOffset(reader.initialOffset(), ALL)

    lag = {"bytesBehindLatest": 0, "entriesBehindLatest": 0, "msBehindLatest": 0}
    assert reader.reportLatestOffset() == {"position": live.position, **lag}


@pytest.mark.conformance("P-27")
def test_a_log_without_an_entry_is_an_empty_stream_that_goes_on_when_the_first_comes(tmp_path):
    log = LiveLog(tmp_path / "member-0")
    log.commit()
    reader = stream(log)
    start = reader.initialOffset()

    assert start == {"v": 2, "cluster": None, "position": 0}
    assert reader.latestOffset(start, ALL) is start
    log.term()
    log.commit()
    end = reader.latestOffset(start, ALL)
    assert end["cluster"] == "0:1800000000000:1877313736"
    assert len(rows(reader, reader.partitions(start, end))) == 1
    log.stop()


@pytest.mark.parametrize("name", ["", ".eu"])
def test_who_plans_a_stream_says_once_which_options_do_nothing_in_it(live, capsys, name):
    source = ClusterDataSource({f"clusterDir{name}": str(live.directory), "pushFilters": "true"})
    reader, reading = (source.streamReader(StructType().add("position", "long")) for _ in range(2))
    live.lines(live.session_id, 0, 3)

    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    live.lines(live.session_id, 3, 3)
    for partition in reader.partitions(end, reader.latestOffset(end, ALL)):
        assert list(reading.read(partition))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("cluster source: option pushFilters does nothing in a stream, ")


def test_a_query_with_available_now_reports_where_it_ends_though_spark_commits_no_last_batch():
    said = []
    reader = ClusterStreamReader(SimpleNamespace(consumer_group="group"), ())
    reader._reports = SimpleNamespace(reached=said.append, close=lambda: said.append("closed"))
    reader._log = SimpleNamespace(
        cluster="0:1:2",
        committed_end=lambda: 1920,
        check_not_beyond=lambda *_, **__: None,
        rest=lambda: None,
    )
    reader.prepareForTriggerAvailableNow()
    reader.look(Offset("0:1:2", 960).to_json())
    assert said == []
    reader.look(Offset("0:1:2", 1920).to_json())
    assert said == [1920, "closed"]
