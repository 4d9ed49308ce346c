"""What bounds a task and its record batches, call by call, without Spark."""

import dataclasses
import itertools
import os
import tarfile

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from benchmarks.synthetic_log import LogWriter
from cluster.errors import DataLoss
from cluster.log.columns import ROW_SCHEMA
from spark_connector import log
from spark_connector.log import READERS_OF_TASKS
from spark_connector.options.cluster_options import SourceOptions
from spark_connector.schema import ROW_COLUMNS
from spark_connector.source.readers import ClusterBatchReader, ClusterStreamReader
from tests.spark.logs import TERM_LENGTH
from tests.spark.readers import batch, payloads, rows, stream
from tests.tree import ROOT, SAFELY

DATA = ROOT / "tests" / "data" / "aeron-cluster-1.53"
ALL = ReadAllAvailable()
MOST = str(2**63 - 1)
BLOCK_BYTES = 4 << 20


@pytest.mark.conformance("P-50")
def test_limits_of_the_largest_numbers_limit_nothing(live):
    live.lines(live.session_id, 0, 20)
    for options in ({"maxEntriesPerTrigger": MOST}, {"maxBytesPerTrigger": MOST}):
        reader = stream(live, **options, maxBytesPerPartition=MOST)
        start = reader.initialOffset()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        assert end["position"] == live.position
        (task,) = reader.partitions(start, end)
        assert len(rows(reader, [task])) == 22


@pytest.mark.conformance("P-60")
def test_a_task_ends_where_it_was_planned_to_though_the_log_grows(live):
    live.lines(live.session_id, 0, 1000)
    reader = stream(live, maxBytesPerPartition="16k", rowsPerBatch="20")
    start = reader.initialOffset()
    planned = reader.partitions(start, reader.latestOffset(start, ALL))
    assert len(planned) > 4
    assert all(task.end - task.start < 2 * 16_384 for task in planned), "a short end joins its neighbour"

    *_, last = planned
    live.lines(live.session_id, 1000, 1000)
    reading = reader.read(last)
    found = next(reading).column("endPosition").to_pylist()
    live.lines(live.session_id, 2000, 1000)
    found += itertools.chain.from_iterable(more.column("endPosition").to_pylist() for more in reading)
    assert len(found) > 20 and found[-1] == last.end < live.position


@pytest.mark.conformance("P-37")
def test_a_task_waits_for_what_was_planned_while_its_member_runs(live, monkeypatch):
    """It may ask another one than the driver has asked, as where each host has a member."""
    reader = stream(live)
    begin = live.position
    sent = live.lines(live.session_id, 0, 1)
    length = live.position - begin
    start = reader.initialOffset()
    (task,) = reader.partitions(start, reader.latestOffset(start, ALL))
    ahead = [dataclasses.replace(task, end=task.end + length)]
    lagging = [lambda: None, lambda: sent.extend(live.lines(live.session_id, 1, 1))]
    monkeypatch.setattr("time.sleep", lambda _: lagging.pop(0)())
    assert payloads(reader, ahead) == [b"line 0", b"line 1"] == sent

    clock = itertools.count(100.0, 3.0)
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    lagging += [lambda: None] * 9
    ahead = [dataclasses.replace(task, end=live.position + length)]
    says = rf"ends at position {live.position} here, but up to {live.position + length} was planned"
    with pytest.raises(DataLoss, match=says):
        rows(reader, ahead)
    asked = len(lagging)
    assert 0 < asked < 9
    live._counters.update_heartbeat(1)
    with pytest.raises(DataLoss, match=says):
        rows(reader, ahead)
    assert len(lagging) == asked, "a log that nobody writes is not waited for"


@pytest.mark.conformance("P-67")
def test_a_range_of_padding_alone_has_no_rows_and_the_offset_moves_on(live):
    """A member may have committed the end of a term, which no message fits into, and not the next one."""
    padded, sent = 0, 0
    while live.position <= TERM_LENGTH:
        padded = live.position
        live.messages(live.session_id, [b"%2d" % sent * 1500])
        sent += 1
    live.commit(padded)
    reader = stream(live)
    before = reader.latestOffset(reader.initialOffset(), ALL)
    assert before["position"] == padded < TERM_LENGTH

    live.commit(TERM_LENGTH)
    end = reader.latestOffset(before, ALL)
    assert (end["from"], end["position"]) == (padded, TERM_LENGTH)
    assert rows(reader, reader.partitions(before, end)) == []

    live.commit()
    after = reader.latestOffset(end, ALL)
    assert payloads(reader, reader.partitions(end, after)) == [b"%2d" % (sent - 1) * 1500]


@pytest.mark.conformance("P-70")
def test_a_record_batch_has_a_block_of_the_log_which_grows_for_a_longer_message_alone(tmp_path):
    log = LogWriter(tmp_path)
    log.term()
    session_id = log.open_session()
    log.messages(session_id, [bytes([number]) * (7 << 20) for number in range(2)])
    log.messages(session_id, [bytes(1000)] * 12_000)
    log.stop()
    reader = batch(log, rowsPerBatch=MOST, maxBytesPerPartition="1g")
    (task,) = reader.partitions()

    sizes = [
        [len(payload) for payload in record_batch.column("payload").to_pylist() if payload is not None]
        for record_batch in reader.read(task)
    ]
    assert sorted(itertools.chain.from_iterable(sizes)) == [1000] * 12_000 + [7 << 20] * 2
    assert all(sum(of_batch) <= max(BLOCK_BYTES, 2 * max(of_batch, default=0)) for of_batch in sizes)


@pytest.fixture(scope="module")
def member_dir(tmp_path_factory):
    """That of a real Aeron Cluster, with every kind of entry."""
    folder = tmp_path_factory.mktemp("aeron")
    with tarfile.open(DATA / "members.tar.xz") as members:
        wanted = [entry for entry in members if entry.name.startswith("member-1")]
        members.extractall(folder, wanted, **SAFELY)
    return folder / "member-1"


@pytest.mark.conformance("P-71")
@pytest.mark.parametrize("rows_per_batch", [1, 7, 32768])
@pytest.mark.parametrize("kind", [ClusterBatchReader, ClusterStreamReader])
def test_all_record_batches_have_the_schema_of_the_format(member_dir, kind, rows_per_batch):
    """Also those in which a column has no value."""
    given = {"clusterDir": str(member_dir), "minPartitions": "3", "startingOffsets": "earliest"}
    reader = kind(SourceOptions.parse({**given, "rowsPerBatch": str(rows_per_batch)}), tuple(ROW_COLUMNS))
    if kind is ClusterStreamReader:
        start = reader.initialOffset()
        planned = reader.partitions(start, reader.latestOffset(start, ALL))
    else:
        planned = reader.partitions()
    read = [record_batch for task in planned for record_batch in reader.read(task)]

    assert {record_batch.schema for record_batch in read} == {ROW_SCHEMA}
    assert sum(record_batch.num_rows for record_batch in read) == 761 and len(read) >= 761 / rows_per_batch


@pytest.mark.conformance("P-113")
def test_reads_of_ever_other_sessions_and_clusters_do_not_keep_their_files_open(live, tmp_path):
    """A worker of Spark serves many reads: those of a notebook that looks up session after session."""
    live.lines(live.session_id, 0, 10)
    open_files, noted = [], set(log._logged)
    for number in range(2 * READERS_OF_TASKS):
        (tmp_path / f"{number}").symlink_to(live.directory)
        named = {"clusterDir": str(tmp_path / f"{number}"), "sessions": f"{live.session_id},{1000 + number}"}
        reader = ClusterBatchReader(SourceOptions.parse(named), ("payload",))
        assert len(rows(reader, reader.partitions())) == 11
        open_files.append(len(os.listdir("/proc/self/fd")))
    assert open_files[-1] == open_files[READERS_OF_TASKS]
    assert log._logged.keys() - noted <= log._readers.keys(), "nor a note of each"


@pytest.mark.conformance("P-73")
def test_two_attempts_of_a_task_at_once_have_the_rows_that_were_planned(live):
    """The second one begins while the first one reads, and the log goes on."""
    live.lines(live.session_id, 0, 200)
    reader = stream(live, rowsPerBatch="10", minPartitions="2")
    start = reader.initialOffset()
    _, task = reader.partitions(start, reader.latestOffset(start, ALL))

    first = reader.read(task)
    read = {"first": [next(first)], "second": []}
    live.lines(live.session_id, 200, 200)
    second = stream(live, rowsPerBatch="10").read(task)
    for of_first, of_second in itertools.zip_longest(first, second):
        read["first"] += [of_first] if of_first is not None else []
        read["second"] += [of_second] if of_second is not None else []
    tables = [pa.Table.from_batches(batches) for batches in read.values()]
    assert tables[0] == tables[1] and tables[0].num_rows > 80
