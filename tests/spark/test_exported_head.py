"""The source with ``exportDir``: over a purged log a stream has what it had before, also after a restart."""

import pytest

from cluster.errors import ConfigurationError, LogPurged
from cluster.reader import LogReader
from cluster.reader.exported_log import ExportedLog
from spark_connector.options.cluster_options import SourceOptions
from tests.reader.object_store import object_store
from tests.spark.logs import TERM_LENGTH, open_log
from tests.spark.pipeline import Pipeline, wait_for
from tests.spark.readers import batch, joined, micro_batches, payloads, stream

START = 2 * TERM_LENGTH


@pytest.fixture
def live(tmp_path):
    log, log.session_id = open_log(tmp_path / "member-0")
    log.sent = [b"%3d" % number * 300 for number in range(300)]
    log.messages(log.session_id, log.sent)
    log.commit()
    yield log
    log.stop()


@pytest.fixture
def folder(tmp_path):
    return str(tmp_path / "exported")


def export(log, folder, end=None):
    with LogReader.open(dir=str(log.directory)) as reader:
        if end is not None:
            reader.commit_position = lambda: reader.boundary_at_or_after(end)
        list(ExportedLog(folder).append(reader))


def purge(log):
    assert log._recording.purge_to(START) == START


@pytest.mark.conformance("S-300")
def test_earliest_over_a_purged_log_is_one_stream_without_a_gap(live, folder):
    export(live, folder)
    purge(live)
    live.sent += live.lines(live.session_id, 0, 10)

    reader = stream(live, exportDir=folder, maxEntriesPerTrigger="31", maxBytesPerPartition="4k")
    assert joined(micro_batches(reader)) == live.sent
    reader = batch(live, exportDir=folder, maxBytesPerPartition="10k")
    assert payloads(reader, reader.partitions()) == live.sent
    assert joined(micro_batches(stream(live))) != live.sent


@pytest.mark.conformance("S-300")
def test_a_query_goes_on_from_its_checkpoint_wherever_the_joint_is_by_then(live, folder):
    options = {"exportDir": folder, "maxEntriesPerTrigger": "50"}
    export(live, folder)
    before, reader = [], stream(live, **options)
    limit, starts = reader.getDefaultReadLimit(), [reader.initialOffset()]
    for _ in range(3):
        starts.append(reader.latestOffset(starts[-1], limit))
        before.append(payloads(reader, reader.partitions(*starts[-2:])))
    purge(live)

    again = stream(live, **options)
    assert again.latestOffset(starts[1], limit) == starts[2]
    assert [payloads(again, again.partitions(*starts[n : n + 2])) for n in range(3)] == before
    rest = []
    while (end := again.latestOffset(starts[-1], limit)) != starts[-1]:
        rest += payloads(again, again.partitions(starts[-1], end))
        starts.append(end)
    assert joined(before) + rest == live.sent


def test_what_was_planned_before_the_purge_is_read_from_files_exported_since(live, folder):
    export(live, folder, TERM_LENGTH)
    reader = stream(live, exportDir=folder, maxBytesPerPartition="64k")
    start = reader.initialOffset()
    planned = reader.partitions(start, reader.latestOffset(start, reader.getDefaultReadLimit()))
    assert payloads(reader, planned) == live.sent, "by the process that reads them again"
    export(live, folder)
    purge(live)

    assert payloads(reader, planned) == live.sent


@pytest.mark.conformance("S-300")
def test_a_gap_between_files_and_log_fails_when_it_is_planned_or_is_passed_over(live, folder, capsys):
    export(live, folder, TERM_LENGTH)
    purge(live)
    text = (
        "position 0 of cluster 0:1800000000000:1877313736 was asked for, but the log is purged up to "
        f"{START}, and {folder} has it only from 0 to {TERM_LENGTH}; what lies between is lost to this reader"
    )

    for failing in (stream(live, exportDir=folder).initialOffset, batch(live, exportDir=folder).partitions):
        with pytest.raises(LogPurged) as gap:
            failing()
        assert str(gap.value) == text
    lenient = stream(live, exportDir=folder, failOnDataLoss="false")
    assert joined(micro_batches(lenient)) == joined(micro_batches(stream(live)))
    assert text in capsys.readouterr().err
    later = stream(live, exportDir=folder, startingOffsets=f'{{"position": {START}}}')
    assert later.initialOffset()["position"] == START, "what lies before it is not its concern"


def test_places_and_times_are_found_in_the_files(live, folder):
    export(live, folder)
    expected = {}
    places = {"startingTimestamp": "1800000000000", "startingOffsets": '{"term": 0}'}
    for option, value in places.items():
        expected[option] = stream(live, **{option: value}).initialOffset()
    purge(live)

    for option, value in places.items():
        assert stream(live, exportDir=folder, **{option: value}).initialOffset() == expected[option]
    with pytest.raises(ConfigurationError, match="within an entry; around it entries start at 0 and 96"):
        stream(live, exportDir=folder, startingOffsets='{"position": 32}').initialOffset()


@pytest.mark.slow
@pytest.mark.conformance("S-300")
def test_a_query_of_spark_goes_on_from_files_in_an_object_store(spark, live, tmp_path):
    pipeline = Pipeline(spark, live, tmp_path / "out", maxEntriesPerTrigger="20")
    pipeline.start()
    wait_for(lambda: len(pipeline.taken) > 1)
    pipeline.query.stop()
    with object_store() as store:
        export(live, store.uri("exported"))
        purge(live)
        live.sent += live.lines(live.session_id, 0, 10)

        pipeline.options = {"exportDir": store.uri("exported"), "maxBytesPerPartition": "64k"}
        pipeline.run()
        given = {"clusterDir": str(live.directory), **pipeline.options}
        read = spark.read.format("cluster").options(**given).load()
        assert read.count() > 0
        store.is_refusing = True
        with pytest.raises(Exception, match=r"s3://\*\*\*@bucket/exported\?.* cannot be opened") as refused:
            spark.read.format("cluster").options(**given).load().count()
    assert pipeline.lines() == live.sent
    plans = read._jdf.queryExecution().toString() + pipeline.query.lastProgress.json
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    for text in (plans, str(refused.value), str(SourceOptions.parse(given)), kept.decode(errors="replace")):
        assert "somebody" not in text and ":secret" not in text


def test_options_that_do_not_go_with_files_are_refused():
    for options, says in (
        ({"includeFrameHeader": "true"}, "option exportDir is given, and includeFrameHeader"),
        (
            {"startingOffsets": "group", "consumerGroup": "g"},
            "exportDir is given, and startingOffsets is group",
        ),
    ):
        with pytest.raises(ConfigurationError, match=says):
            SourceOptions.parse({"endpoints": "h:1", "exportDir": "x", **options})
