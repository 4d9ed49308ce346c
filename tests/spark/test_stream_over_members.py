"""What the stream reader tells Spark while members elect, fall behind or go silent; members are played."""

import pytest

from cluster.errors import DataLoss, TimedOut
from cluster.protocol.enums import Role
from spark_connector.options.cluster_options import SourceOptions
from spark_connector.source.readers import ClusterStreamReader
from spark_connector.source.reading import LogRange
from tests.reader.scripted import FakeMember, open_reader

ENDPOINTS = "0=h0:1,1=h1:1,2=h2:1"


@pytest.fixture
def members():
    return [FakeMember(0, Role.LEADER), FakeMember(1), FakeMember(2)]


@pytest.fixture
def start_query(members, monkeypatch):
    """Makes the stream's reader of a query that starts over the three; time passes only while it waits."""
    monkeypatch.setattr("spark_connector.log.IDLE_INTERVAL_S", 0.0)

    def start(**given: str) -> ClusterStreamReader:
        log_reader = open_reader(members)
        monkeypatch.setattr("cluster.reader.LogReader.open", lambda **_: log_reader)
        monkeypatch.setattr("spark_connector.log._readers", {})
        options = SourceOptions.parse({"endpoints": ENDPOINTS, "startingOffsets": "earliest", **given})
        made = ClusterStreamReader(options, ("position",))
        made.wait = log_reader.log._wait
        return made

    return start


@pytest.fixture
def reader(start_query):
    return start_query()


def next_end(reader, start):
    return reader.latestOffset(start, reader.getDefaultReadLimit())


def positions(reader, planned):
    return [position for batch in reader.read(planned) for position in batch.column(0).to_pylist()]


def elect(members, leader):
    for member in members:
        member.role = Role.LEADER if member is leader else Role.FOLLOWER


@pytest.mark.conformance("P-26")
def test_elections_leave_the_text_of_an_offset_as_it_is(reader, members):
    """Spark compares texts: another one would be a micro-batch without rows."""
    end = next_end(reader, reader.initialOffset())

    for leader in (members[1], members[2], members[0]):
        elect(members, leader)
        reader.wait(1.0)
        assert next_end(reader, end) is end


@pytest.mark.conformance("P-35")
def test_an_election_while_the_end_is_asked_for_is_waited_out(reader, members):
    """The leader dies; the survivors answer with what they know, and go on once one of them leads."""
    start = next_end(reader, reader.initialOffset())
    members[0].is_up = False
    for survivor in members[1:]:
        survivor.role = Role.CANDIDATE
    assert next_end(reader, start) is start, "nothing new while nobody leads"

    elect(members, members[2])
    members[1].committed = members[2].committed = 12_800
    end = next_end(reader, start)
    assert (end["from"], end["position"]) == (6400, 12_800)


@pytest.mark.conformance("P-38")
def test_a_commit_position_that_goes_back_is_no_range_backwards(start_query, members):
    """A new leader commits nothing before its own term's entry, and may tell less for a moment: to a query
    that goes on, and to one that starts again from its checkpoint."""
    reader = start_query()
    end = next_end(reader, reader.initialOffset())
    for member in members:
        member.committed = 3200
    reader.wait(1.0)
    assert next_end(reader, end) is end

    again = start_query()
    assert next_end(again, end) is end
    for member in members:
        member.committed = 6464
    assert next_end(again, end)["from"] == 6400


@pytest.mark.conformance("P-45")
def test_a_follower_that_falls_silent_costs_one_time_out_and_not_every_answer(reader, members):
    start = next_end(reader, reader.initialOffset())
    asked = []

    def silent():
        asked.append(members[1])
        members[1].is_up = False
        return FakeMember.status(members[1])

    members[1].status = silent
    for committed in (6464, 6528, 6592):
        members[0].committed = members[2].committed = committed
        start = next_end(reader, start)
        assert start["position"] == committed
    assert len(asked) == 1


@pytest.mark.conformance("P-39")
def test_without_any_member_the_query_fails_and_goes_on_from_the_same_place_later(reader, members):
    start = next_end(reader, reader.initialOffset())
    for member in members:
        member.is_up = False
    with pytest.raises(TimedOut, match="member 0: down; member 1: down; member 2: down"):
        next_end(reader, start)

    for member in members:
        member.is_up = True
        member.committed = 6464
    assert next_end(reader, start)["from"] == 6400


@pytest.mark.conformance("P-41")
def test_a_log_that_was_purged_while_the_query_stood_still_is_data_loss(reader, members):
    start = next_end(reader, reader.initialOffset())
    for member in members:
        member.start = member.committed = 64_000

    with pytest.raises(DataLoss, match="purged up to 64000"):
        next_end(reader, start)


@pytest.mark.conformance("P-40")
def test_a_task_is_read_from_a_member_that_holds_its_start(reader, members):
    """The member that is asked first was filled from a snapshot: its log begins later."""
    members[1].start = 3200
    planned = LogRange("0:77:5", 0, 6400, known=0)

    assert positions(reader, planned) == list(range(0, 6400, 64))
    within = LogRange("0:77:5", 3250, 6400, known=0)
    assert positions(reader, within) == list(range(3264, 6400, 64))
    for member in members:
        member.start = 640
    with pytest.raises(DataLoss, match="position 0 was purged, the log begins at 640"):
        positions(reader, planned)


@pytest.mark.conformance("P-1", "P-40")
def test_earliest_is_that_of_the_member_with_most_of_the_log(start_query, members):
    members[0].start, members[1].start = 640, 3200

    assert start_query().initialOffset()["position"] == 0


@pytest.mark.conformance("P-43")
def test_what_all_members_purge_while_a_task_reads_is_passed_over_where_it_may(start_query, members, capsys):
    reader = start_query(failOnDataLoss="false")
    reading = reader.read(LogRange("0:77:5", 0, 6400, known=0))
    got = [position for _ in range(3) for position in next(reading).column(0).to_pylist()]
    members[1].blocks_until_break = 0
    for member in members:
        member.start = 3200

    got += [position for batch in reading for position in batch.column(0).to_pylist()]
    assert got == [0, 64, 128, *range(3200, 6400, 64)]
    assert "position 192 was purged, the log begins at 3200 there" in capsys.readouterr().err
