"""A reader with a consumer group: where it begins, what it reports, and what cannot be."""

import pytest

from benchmarks.real_members import await_that
from cluster import ClusterClient, Consumer, LogReader
from cluster.errors import ClusterError, ConfigurationError, LogPurged
from cluster.reader import group_reports
from cluster.reader.consumers import REPORTS, ConsumerCount, reported_groups
from tests.node.processes import Up
from tests.reader.scripted import FakeMember, open_reader


@pytest.fixture(scope="module")
def endpoints(tmp_path_factory):
    with Up(tmp_path_factory.mktemp("cluster"), members=1) as cluster:
        with ClusterClient.connect(cluster.endpoints) as client:
            for number in range(10):
                client.offer(b"%d" % number)
            client.await_committed()
        yield cluster.endpoints


def reader_of(endpoints, group):
    return LogReader.open(endpoints=endpoints, consumer_group=group)


def ends(reader):
    return [entry["endPosition"] for entry in reader.entries(entry_types=["SESSION_MESSAGE"])]


def reported(endpoints, group):
    with LogReader.open(endpoints=endpoints, entry_filter=REPORTS) as reader:
        found = reported_groups(reader.log).get(group)
        return None if found is None else found.position


def test_a_reader_begins_where_its_group_is_and_reports_what_is_processed(endpoints):
    with reader_of(endpoints, "billing") as reader:
        assert reader.group_position is None
        whole = ends(reader)
        assert len(whole) == 10, "all of the log is new to a group without a report"
        reader.processed(whole[3])
        assert ends(reader) == whole[4:], "what was processed here counts at once"
    assert reported(endpoints, "billing") == whole[3], "closing reports it"
    with reader_of(endpoints, "billing") as reader:
        assert reader.group_position == whole[3]
        assert ends(reader) == whole[4:]
        followed = reader.entries(None, whole[9], entry_types=["SESSION_MESSAGE"], follow=True)
        assert [entry["endPosition"] for entry in followed] == whole[4:]
        assert len(ends(LogReader(reader.log))) == 10
    with reader_of(endpoints, "audit") as reader:
        assert len(ends(reader)) == 10, "groups are apart"


def test_a_report_is_committed_when_it_returns_and_is_made_beside_the_reader_otherwise(endpoints):
    with reader_of(endpoints, "search") as reader:
        whole = ends(reader)
        reader.processed(whole[0])
        await_that(lambda: reported(endpoints, "search") == whole[0], "the thread reports")
        reader.processed(whole[1])  # within the interval after the first
        reader.report()
        assert reported(endpoints, "search") == whole[1]
        reports = reader.end_position()
        reader.report()
        assert reader.end_position() == reports, "nothing new is no report"


def test_a_member_that_lags_is_not_believed_that_a_group_has_not_reported(monkeypatch):
    """redpanda-data/redpanda#6301: in a change of leaders a group was taken for one without an offset."""
    lagging, leading, following = (FakeMember(member_id, committed=640) for member_id in range(3))
    lagging.committed, leading.is_up, following.is_up = 64, False, False
    counted = []
    monkeypatch.setattr(ConsumerCount, "take", lambda self, position, block: counted.append(len(block)))

    def come_up(_):
        leading.is_up = following.is_up = True

    with open_reader([lagging, leading, following], on_wait=come_up) as reader:
        reported_groups(reader.log)
    assert sum(counted) == 640


def test_a_report_that_the_cluster_refuses_is_told_and_raised(endpoints):
    with LogReader.open(endpoints=endpoints) as reader:
        end = reader.end_position()
    ClusterClient.connect(endpoints, consumer=Consumer("ahead", end)).close()
    refusal = f"position 32 is before {end}, which the group is at"

    reader = reader_of(endpoints, "ahead")
    reader.processed(32)
    with pytest.raises(ClusterError, match=refusal):
        reader.report()
    await_that(lambda: reader.warnings, "the thread's report was refused")
    assert reader.warnings[0].startswith("consumer group ahead is not reported at 32: ")
    with pytest.raises(ClusterError, match=refusal):
        reader.close()

    with pytest.raises(ZeroDivisionError), reader_of(endpoints, "ahead") as reader:
        reader.processed(32)
        _ = 1 / 0


def test_a_last_report_that_takes_too_long_is_an_error(endpoints, monkeypatch):
    monkeypatch.setattr(group_reports, "LAST_REPORT_S", 0.0)
    reader = reader_of(endpoints, "slow")
    reader.processed(32)
    with pytest.raises(ClusterError, match="consumer group slow is not reported within 0 s"):
        reader.close()


def test_a_group_without_a_report_in_a_log_without_its_head_begins_nowhere(endpoints, monkeypatch):
    monkeypatch.setattr("cluster.reader.remote.RemoteLog.start_position", property(lambda _: 640))
    monkeypatch.setattr("cluster.reader.reader_group.reported_groups", lambda _: {})
    with reader_of(endpoints, "late") as reader:
        with pytest.raises(LogPurged) as purged:
            ends(reader)
        assert str(purged.value) == (
            "consumer group late has no report, and the log begins at 640; give from_position"
        )
        assert purged.value.start_position == 640


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            {"dir": "member-0", "consumer_group": ""},
            "consumer_group goes with endpoints, which are not given",
        ),
        ({"endpoints": "0=a:1", "consumer_group": ""}, "consumer: group is of 0 bytes, expected 1 to 256"),
    ],
)
def test_a_group_that_cannot_be_is_refused(options, told):
    with pytest.raises(ConfigurationError) as refused:
        LogReader.open(**options)
    assert str(refused.value) == told


def test_what_is_no_end_of_an_entry_and_a_reader_without_a_group_are_refused(endpoints):
    with reader_of(endpoints, "odd") as reader:
        for position in (-32, 65):
            with pytest.raises(ConfigurationError, match=f"position is {position}, expected the endPosition"):
                reader.processed(position)
    with (
        LogReader.open(endpoints=endpoints) as reader,
        pytest.raises(ConfigurationError, match="the reader was opened without consumer_group"),
    ):
        reader.processed(32)
