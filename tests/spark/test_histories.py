"""Queries over logs that change under them: rolled back, truncated, served by members that were replaced."""

import json
from itertools import pairwise

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from cluster.protocol.enums import Role
from spark_connector.options.cluster_options import SourceOptions
from spark_connector.source.readers import ClusterStreamReader
from tests.reader.scripted import FakeMember
from tests.reader.scripted import open_reader as open_members
from tests.spark.readers import batch, joined, micro_batches, payloads, rows, stream

ALL = ReadAllAvailable()


def planned_batches(reader, start):
    """Run the reader to the end as Spark does; return the offsets as they stand in its checkpoint."""
    offsets = [start]
    while (end := reader.latestOffset(offsets[-1], reader.getDefaultReadLimit())) != offsets[-1]:
        offsets.append(end)
    return json.loads(json.dumps(offsets))


@pytest.mark.conformance("P-30")
def test_ten_micro_batches_that_are_rolled_back_come_again_as_they_were_or_cut_anew(live):
    """Spark goes by the offsets that are left of its checkpoint, and plans what they do not tell."""
    live.lines(live.session_id, 0, 60)
    reader = stream(live, maxEntriesPerTrigger="5", minPartitions="2")
    offsets = planned_batches(reader, reader.initialOffset())
    assert len(offsets) == 14
    ranges = list(pairwise(offsets))
    first = [rows(reader, reader.partitions(start, end)) for start, end in ranges]

    again = stream(live, maxEntriesPerTrigger="50")
    assert [again.partitions(*pair) for pair in ranges] == [reader.partitions(*pair) for pair in ranges]
    assert [rows(again, again.partitions(*pair)) for pair in ranges[-10:]] == first[-10:]

    later = planned_batches(again, offsets[3])
    got = [row for pair in pairwise(later) for row in rows(again, again.partitions(*pair))]
    assert got == joined(first[3:])


@pytest.mark.conformance("P-34")
def test_entries_that_a_change_of_leader_takes_back_are_never_rows(live):
    """Appended by a leader that fell, replaced at the same positions by those of the next."""
    sent = live.lines(live.session_id, 0, 5)
    committed = live.position
    reader = stream(live)
    start = reader.initialOffset()
    live.messages(live.session_id, [b"taken back"] * 3)
    end = reader.latestOffset(start, ALL)
    live._recording.sync()
    assert payloads(reader, reader.partitions(start, end)) == sent

    live._recording.truncate(committed)
    live.term(leader_member_id=1)
    live.messages(live.session_id, [b"of the next leader"])
    live.commit()
    later = reader.latestOffset(end, ALL)
    assert payloads(reader, reader.partitions(end, later)) == [b"of the next leader"]
    assert b"taken back" not in joined(micro_batches(stream(live)))


@pytest.mark.conformance("P-63", "P-64")
@pytest.mark.parametrize("tasks", [1, 9, 64])
def test_an_entry_that_is_longer_than_tasks_belongs_to_the_one_in_which_it_begins(live, tasks):
    sent = [bytes([number]) * 8000 for number in range(6)]
    live.messages(live.session_id, sent)
    live.commit()
    reader = stream(live, minPartitions=str(tasks))
    start = reader.initialOffset()
    planned = reader.partitions(start, reader.latestOffset(start, ALL))

    assert payloads(reader, planned) == sent
    assert len(planned) == tasks
    assert tasks < 64 or sum(not rows(reader, [task]) for task in planned) > 40, "most begin no entry"


@pytest.mark.conformance("P-68")
def test_record_batches_have_as_many_rows_as_the_option_says(live):
    sent = live.lines(live.session_id, 0, 30)
    reader = batch(live, rowsPerBatch="7")

    (task,) = reader.partitions()
    read = list(reader.read(task))
    assert [record_batch.num_rows for record_batch in read] == [7, 7, 7, 7, 4]
    assert len({record_batch.schema for record_batch in read}) == 1
    assert payloads(reader, [task]) == sent


@pytest.mark.conformance("P-40")
def test_a_member_that_was_wiped_and_has_less_of_the_log_is_read_where_it_has_it(monkeypatch):
    """It got the leader's newest snapshot, so its log begins there."""
    members = [FakeMember(0, Role.LEADER), FakeMember(1), FakeMember(2)]
    opened = open_members(members)
    monkeypatch.setattr("spark_connector.log.IDLE_INTERVAL_S", 0.0)
    monkeypatch.setattr("cluster.reader.LogReader.open", lambda **_: opened)
    monkeypatch.setattr("spark_connector.log._readers", {})
    reader = members_stream()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)

    members[1].start = members[1].committed = 3200
    assert positions(reader, reader.partitions(start, end)) == list(range(0, 6400, 64))
    for member in members:
        member.committed = 7040
    later = reader.latestOffset(end, ALL)
    members[0].is_up = members[2].is_up = False
    assert positions(reader, reader.partitions(end, later)) == list(range(6400, 7040, 64))


def members_stream():
    given = {"endpoints": "0=h0:1,1=h1:1,2=h2:1", "startingOffsets": "earliest"}
    return ClusterStreamReader(SourceOptions.parse(given), ("position",))


def positions(reader, planned):
    return [row[0] for row in rows(reader, planned)]
