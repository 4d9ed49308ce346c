"""Several clusters in one read: rows of each under its name, one offset for all of them."""

import json
import threading
from collections import Counter

import pytest
from pyspark.sql.datasource import EqualTo, In
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import LongType, StringType, StructField, StructType

from cluster.errors import ConfigurationError, DataLoss, LogPurged
from spark_connector.data_source import ClusterDataSource
from spark_connector.many_clusters.cluster_names import named_clusters
from tests.spark.logs import TERM_LENGTH, open_log
from tests.spark.readers import rows, stream


@pytest.fixture
def logs(tmp_path):
    """Of three clusters, with three messages each."""
    made = {}
    for number, name in enumerate(("asia", "eu", "us")):
        made[name], _ = open_log(tmp_path / name, cluster_id=number)
        made[name].lines(1, 0, 3)
    yield made
    for log in made.values():
        log.stop()


def options_of(logs, **more):
    given = {f"clusterdir.{name}": str(log.directory) for name, log in logs.items()}
    return {**given, "startingoffsets": "earliest", "entrytypes": "SESSION_MESSAGE", **more}


def schema(*names):
    types = {"position": LongType()}
    return StructType([StructField(name, types.get(name, StringType())) for name in names])


@pytest.fixture
def source():
    def make(logs, columns=("clusterName", "entryType"), **more):
        return ClusterDataSource(options_of(logs, **more)).streamReader(schema(*columns))

    return make


def lines_of(reader, start, end):
    return sorted(rows(reader, reader.partitions(start, end)))


def all_of(reader, start):
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    return end, lines_of(reader, start, end)


def test_rows_have_the_name_of_their_cluster_where_the_user_wants_it(logs, source):
    for columns, row in (
        (("clusterName", "entryType"), lambda name: (name, "SESSION_MESSAGE")),
        (("entryType", "CLUSTERNAME"), lambda name: ("SESSION_MESSAGE", name)),
        (("clusterName",), lambda name: (name,)),
        (("entryType",), lambda name: ("SESSION_MESSAGE",)),
    ):
        reader = source(logs, columns)
        _, found = all_of(reader, reader.initialOffset())
        assert found == sorted(row(name) for name in logs for _ in range(3)), columns


def test_the_first_column_is_the_name_and_only_then(logs):
    assert ClusterDataSource(options_of(logs)).schema().startswith("clusterName STRING, position BIGINT")
    one = {"clusterdir": str(logs["eu"].directory)}
    assert ClusterDataSource(one).schema().startswith("position BIGINT")
    some = ClusterDataSource(options_of(logs, columns="payload, clusterName")).schema()
    assert some.startswith("payload BINARY ") and some.endswith(", clusterName STRING")


@pytest.mark.conformance("P-18", "P-26")
def test_an_offset_maps_names_to_the_offsets_of_their_clusters(logs, source):
    reader = source(logs)
    start = reader.initialOffset()
    assert (start["v"], list(start["clusters"])) == (3, ["asia", "eu", "us"])
    end, _ = all_of(reader, start)
    assert {part["v"] for part in end["clusters"].values()} == {2}
    assert reader.latestOffset(end, reader.getDefaultReadLimit()) is end, "nothing is new"
    logs["eu"].lines(1, 3, 2)
    later, found = all_of(reader, end)
    assert [name for name in end["clusters"] if later["clusters"][name] != end["clusters"][name]] == ["eu"]
    assert found == [("eu", "SESSION_MESSAGE")] * 2


def test_a_micro_batch_that_runs_again_is_the_same_for_another_reader(logs, source):
    reader = source(logs)
    start = json.loads(json.dumps(reader.initialOffset()))
    end, found = all_of(reader, start)
    logs["us"].lines(1, 3, 2)
    again = source(logs)
    assert lines_of(again, start, json.loads(json.dumps(end))) == found


def test_a_limit_of_a_micro_batch_is_shared_out(logs, source):
    reader = source(logs, maxentriespertrigger="6")
    start = reader.initialOffset()
    seen = []
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
        batch = lines_of(reader, start, end)
        assert len(batch) <= 6
        seen += batch
        start = end
    assert sorted(seen) == sorted((name, "SESSION_MESSAGE") for name in logs for _ in range(3))


def limited(reader, start):
    """How many messages of each log the next micro-batch has, and its end."""
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    return Counter(name for name, _ in lines_of(reader, start, end)), end


def test_what_a_log_does_not_need_of_its_part_is_for_the_others(logs, source):
    reader = source(logs, maxentriespertrigger="6", startingoffsets="latest")
    start = reader.initialOffset()
    logs["eu"].lines(1, 3, 20)
    found, start = limited(reader, start)
    assert found == {"eu": 6}
    logs["us"].lines(1, 3, 1)
    found, start = limited(reader, start)
    assert found == {"eu": 5, "us": 1}


def test_no_log_waits_for_ever_where_there_are_more_than_a_micro_batch_holds(logs, source):
    reader = source(logs, maxentriespertrigger="1", startingoffsets="latest")
    start = reader.initialOffset()
    for number, log in enumerate(logs.values()):
        log.lines(1, 3, 4 - number)
    seen = []
    for _ in range(9):
        found, start = limited(reader, start)
        assert found.total() == 1
        seen += found
    assert set(seen[:3]) == set(seen[3:6]) == set(logs), "each in its turn"
    assert limited(reader, start) == ({}, start)


def test_what_a_micro_batch_holds_is_not_shared_out_beforehand(logs):
    assert [part.max_entries_per_trigger for part in named_clusters(options_of(logs)).values()] == [None] * 3


def test_a_cluster_that_is_new_begins_as_the_options_say_and_again_there(logs, source):
    known = {name: log for name, log in logs.items() if name != "us"}
    end, _ = all_of(source(known), source(known).initialOffset())
    later, found = all_of(source(logs), end)
    assert found == [("us", "SESSION_MESSAGE")] * 3
    assert lines_of(source(logs, startingoffsets="latest"), end, later) == found, (
        "the batch says where it began"
    )
    assert all_of(source(logs, **{"startingoffsets.us": "latest"}), end)[1] == []


def test_a_cluster_that_no_option_names_any_more_is_an_error_or_left_out(logs, source, capsys):
    end, _ = all_of(source(logs), source(logs).initialOffset())
    logs["eu"].lines(1, 3, 1)
    known = {name: log for name, log in logs.items() if name != "us"}
    with pytest.raises(
        DataLoss, match=r"cluster us, at position \d+; expected endpoints.us or clusterDir.us"
    ):
        all_of(source(known), end)
    later, found = all_of(source(known, failondataloss="false"), end)
    assert (list(later["clusters"]), found) == (["asia", "eu"], [("eu", "SESSION_MESSAGE")])
    assert "cluster us, at position" in capsys.readouterr().err


def test_what_is_left_out_is_told_once(logs, source, capsys):
    end, _ = all_of(source(logs), source(logs).initialOffset())
    reader = source({name: log for name, log in logs.items() if name != "us"}, failondataloss="false")
    for _ in range(3):
        reader.latestOffset(end, reader.getDefaultReadLimit())
        reader.commit(end)
    assert capsys.readouterr().err.count("it is left out") == 1


def test_a_log_under_another_name_is_told(logs, source):
    end, _ = all_of(source(logs), source(logs).initialOffset())
    renamed = {"europe" if name == "eu" else name: log for name, log in logs.items()}
    with pytest.raises(DataLoss, match=r"cluster eu, at .*; cluster europe is that log under another name"):
        all_of(source(renamed), end)


def test_names_of_one_log_are_told(logs, source, capsys):
    twins = {"eu": logs["eu"], "europe": logs["eu"], "us": logs["us"]}
    all_of(source(twins), source(twins).initialOffset())
    batch = ClusterDataSource(options_of(twins)).reader(SCHEMA_OF_TYPES)
    batch.partitions()
    assert capsys.readouterr().err.count("clusters eu and europe are one log, 1:") == 2


@pytest.mark.conformance("P-20")
def test_an_error_of_one_cluster_names_it(logs, source):
    end, _ = all_of(source(logs), source(logs).initialOffset())
    swapped = {"asia": logs["asia"], "eu": logs["us"], "us": logs["eu"]}
    with pytest.raises(DataLoss, match=r"^cluster eu: the checkpoint is of cluster 1:"):
        all_of(source(swapped), end)


@pytest.mark.conformance("P-41", "P-42", "P-43")
def test_one_of_them_that_was_purged_while_the_query_stood_still_is_named(logs, source, capsys):
    start, _ = all_of(source(logs), source(logs).initialOffset())
    logs["eu"].messages(1, [bytes(1000)] * 300)
    logs["eu"].commit()
    planned = source(logs).latestOffset(start, ReadAllAvailable())
    logs["us"].lines(1, 3, 4)
    purged = 2 * TERM_LENGTH
    assert logs["eu"]._recording.purge_to(purged) == purged

    lost = f"cluster eu: position {start['clusters']['eu']['position']} of cluster 1:"
    for lenient in ({}, {"failondataloss.us": "false"}):
        with pytest.raises(DataLoss, match=f"^{lost}.* purged up to {purged}; .* is lost to this reader"):
            source(logs, **lenient).latestOffset(start, ReadAllAvailable())
        with pytest.raises(DataLoss, match=r"^cluster eu: .* purged"):
            lines_of(source(logs, **lenient), start, planned)
    capsys.readouterr()

    lenient = {"failondataloss.eu": "false"}
    end, found = all_of(source(logs, **lenient), start)
    assert end["clusters"]["eu"]["from"] == purged
    assert Counter(name for name, _ in found)["us"] == 4, "the others lose and repeat nothing"
    assert all_of(source(logs, **lenient), end) == (end, [])
    lines_of(source(logs, **lenient), start, planned)
    planning, reading = capsys.readouterr().err.splitlines()
    assert planning.startswith(f"cluster source: {lost}")
    assert reading.startswith("cluster source: cluster eu: ") and "purged" in reading


def test_a_report_that_fails_is_told_with_the_name_of_its_cluster(monkeypatch, capsys):
    class Failing:
        """Reports beside the query, as the real ones."""

        def __init__(self, group, endpoints, tell, **settings):
            self.tell = tell

        def reached(self, position):
            reporter = threading.Thread(target=self.tell, args=(f"{position} is not reported",))
            reporter.start()
            reporter.join()

    monkeypatch.setattr("cluster.reader.group_reports.GroupReports", Failing)
    given = {"endpoints.eu": "a:1", "endpoints.us": "b:1", "consumergroup": "g"}
    end = {name: {"v": 2, "cluster": "0:1:2", "position": 96} for name in ("eu", "us")}
    ClusterDataSource(given).streamReader(SCHEMA_OF_TYPES).commit({"v": 3, "clusters": end})
    assert capsys.readouterr().err.splitlines() == [
        f"cluster source: cluster {name}: 96 is not reported" for name in end
    ]


def test_a_checkpoint_of_one_log_goes_on_as_its_part(logs, source):
    single = stream(logs["eu"], entryTypes="SESSION_MESSAGE")
    start = single.initialOffset()
    end = single.latestOffset(start, single.getDefaultReadLimit())
    logs["eu"].lines(1, 3, 1)
    _, found = all_of(source(logs), end)
    assert found == sorted([("eu", "SESSION_MESSAGE"), *[(n, "SESSION_MESSAGE") for n in ("asia", "us")] * 3])
    with pytest.raises(DataLoss, match="none of asia, us is it"):
        all_of(source({name: logs[name] for name in ("asia", "us")}), end)


def test_a_checkpoint_of_one_log_is_of_no_purged_one_while_another_is_it(
    tmp_path, source, capsys, monkeypatch
):
    """As with real Aeron Clusters: what their purged logs were is not known."""
    monkeypatch.setattr("cluster.reader.directory.read_first_frame", lambda *_: None)
    made = {
        name: open_log(tmp_path / name, time=1_800_000_000_000 + len(name))[0] for name in ("a", "bb", "ccc")
    }
    for log in made.values():
        log.lines(1, 0, 3)
    single = stream(made["bb"], entryTypes="SESSION_MESSAGE")
    end = single.latestOffset(single.initialOffset(), single.getDefaultReadLimit())
    for name in ("a", "ccc"):
        made[name].messages(1, [bytes(1000)] * 200)
        made[name].commit()
        made[name]._recording.purge_to(2 * TERM_LENGTH)
    later = source(made).latestOffset(end, ReadAllAvailable())
    assert later["clusters"]["bb"]["position"] == end["position"], "goes on where it was"
    assert "are one log" not in capsys.readouterr().err
    with pytest.raises(DataLoss, match="each of a, ccc may be it; read them by a new checkpoint"):
        source({name: made[name] for name in ("a", "ccc")}).latestOffset(end, ReadAllAvailable())
    for log in made.values():
        log.stop()


@pytest.mark.conformance("P-109")
def test_progress_tells_the_lag_of_each_log_and_of_all(logs, source):
    reader = source(logs, maxentriespertrigger="3")
    assert reader.reportLatestOffset() is None
    reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    told = reader.reportLatestOffset()
    parts = told["clusters"].values()
    assert told["entriesBehindLatest"] == sum(part["entriesBehindLatest"] for part in parts) > 3
    assert told["bytesBehindLatest"] == sum(part["bytesBehindLatest"] for part in parts)


@pytest.mark.conformance("P-42", "P-109")
def test_the_lag_of_a_log_that_was_purged_before_its_turn_is_that_of_what_is_left(logs, source):
    """It has more news than the others, which the first micro-batch has no room beside."""
    logs["us"].messages(1, [bytes(1000)] * 200)
    logs["us"].commit()
    strict, lenient = (source(logs, maxentriespertrigger="1", failondataloss=it) for it in ("true", "false"))
    start = strict.initialOffset()
    logs["us"]._recording.purge_to(2 * TERM_LENGTH)

    for reader in (strict, lenient):
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        assert end["clusters"]["us"] == start["clusters"]["us"]
    told = lenient.reportLatestOffset()["clusters"]["us"]
    assert told["bytesBehindLatest"] == logs["us"].position - 2 * TERM_LENGTH
    assert 0 < told["entriesBehindLatest"] < 200
    with pytest.raises(LogPurged, match=r"^cluster us: position 0 was purged"):
        strict.reportLatestOffset()


def test_a_batch_reads_all_logs_and_filters_leave_some_out(logs):
    reader = ClusterDataSource(options_of(logs)).reader(SCHEMA_OF_TYPES)
    assert sorted(rows(reader, reader.partitions())) == sorted(
        (name, "SESSION_MESSAGE") for name in logs for _ in range(3)
    )
    for condition, wanted in (
        (EqualTo(("clusterName",), "eu"), ["eu"]),
        (In(("clusterName",), ("us", "asia", None)), ["asia", "us"]),
        (EqualTo(("clusterName",), "none"), []),
    ):
        reader = ClusterDataSource(options_of(logs, pushfilters="true")).reader(SCHEMA_OF_TYPES)
        assert reader.pushFilters([condition]) == [condition]
        found = {name for name, _ in rows(reader, reader.partitions())}
        assert found == set(wanted) or not wanted, condition


SCHEMA_OF_TYPES = schema("clusterName", "entryType")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"endpoints": "a:1", "endpoints.eu": "b:1"},
            "option endpoints names no cluster, others name eu",
        ),
        (
            {"endpoints.eu": "b:1", "user.us": "me"},
            "cluster us has neither option endpoints.us nor clusterDir.us",
        ),
        ({"endpoints.eu": "nonsense"}, "cluster eu: "),
        ({"endpoints.eu": "a:1", "clusterdir.eu": "/d"}, "cluster eu: give either option endpoints or"),
        ({"endpoints.": "a:1"}, "option endpoints. names cluster ''"),
        ({"endpoints.a b": "a:1"}, "option endpoints.a b names cluster 'a b'"),
        (
            {"rowsperbatch.eu": "3", "endpoints.eu": "a:1"},
            "option rowsPerBatch takes no name of a cluster, and 'eu' is given",
        ),
        ({"endpoints.eu": "a:1", "endingoffsets.eu": "latest"}, "option endingOffsets is for a batch"),
    ],
)
def test_what_is_wrong_is_told_with_the_clusters_name(given, message):
    with pytest.raises(ConfigurationError) as caught:
        reader = ClusterDataSource(given).streamReader(SCHEMA_OF_TYPES)
        reader.initialOffset()
    assert message in str(caught.value)


def test_a_name_of_another_type_is_refused(logs):
    wrong = StructType([StructField("clusterName", LongType())])
    with pytest.raises(
        ConfigurationError, match="column clusterName is STRING and nullable, the schema says BIGINT"
    ):
        ClusterDataSource(options_of(logs)).reader(wrong)


def test_one_cluster_may_have_a_time_to_begin_at_and_lose_data_for_itself(logs, source):
    late = {"startingtimestamp.eu": "2100-01-01T00:00:00Z", "startingoffsetsbytimestampstrategy.eu": "latest"}
    reader = source(logs, **late, **{"failondataloss.eu": "false"})
    end, found = all_of(reader, reader.initialOffset())
    assert {name for name, _ in found} == {"asia", "us"}

    end["clusters"]["gone"] = end["clusters"]["eu"]
    with pytest.raises(DataLoss, match="the checkpoint has cluster gone"):
        reader.latestOffset(end, reader.getDefaultReadLimit())
