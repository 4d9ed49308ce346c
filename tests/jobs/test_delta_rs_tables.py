"""Sessions, timers and leadership terms by delta-rs: what Spark's jobs make of the same log."""

from __future__ import annotations

import itertools
import shutil

import deltalake
import pyarrow as pa
import pytest

from cluster import ConfigurationError, LogReader
from jobs import delta_rs, timers, verify
from jobs.delta_table import read
from jobs.schemas import PENDING, SESSIONS, SNAPSHOT, TIMERS
from jobs.sessions import sessions_job
from jobs.tables import tables_in
from jobs.timers import timers_job
from spark_connector.columns import arrow_schema
from tests.jobs import expected
from tests.jobs.timelines import cut_by_position, drawn_timers
from tests.jobs.without_spark import IN_THREE, options, rows, run, run_alone

MERGED = ("sessions", "timers", "leadership_terms")

pytestmark = pytest.mark.timeout(600)  # Spark starts, on a machine that may be busy


@pytest.mark.slow
@pytest.mark.parametrize("name", MERGED)
def test_the_tables_are_those_that_spark_keeps(spark, small, kept, member_dir, name):
    ours, sparks = read(spark, str(small / name)), read(spark, f"{kept}/{name}")
    assert ours.schema.json() == sparks.schema.json(), "types and comments"
    assert ours.count() == sparks.count() > 1 and ours.exceptAll(sparks).isEmpty()
    with LogReader.open(dir=member_dir) as reader:
        job = tables_in(str(small))[str(small / name)]
        assert verify.differences(spark, str(small / name), job, reader) == []
    table = deltalake.DeltaTable(str(small / name))
    assert (table.version(), table.transaction_version(f"cluster.{name}")) == (3, 250_144)
    assert table.protocol() == deltalake.table.ProtocolVersions(1, 2, None, None), "no table features"


@pytest.mark.conformance("P-105")
@pytest.mark.parametrize("name", MERGED)
def test_the_tables_are_the_same_however_the_log_is_cut(small, member_dir, tmp_path, name):
    """A range without any entry of the kind that a table needs is a commit, too."""
    run(member_dir, tmp_path / name, "--max-bytes-per-trigger", "9k")
    assert rows(tmp_path / name) == rows(small / name)
    assert deltalake.DeltaTable(str(tmp_path / name)).version() > 20


@pytest.mark.conformance("P-102")
def test_a_session_whose_close_is_merged_before_its_open_is_closed_and_has_both(
    small, member_dir, decoded, tmp_path
):
    """The log cut before each close, and among messages, and merged from its end on."""
    closes = [entry for entry in decoded if entry["entryType"] == "SESSION_CLOSE"]
    assert len(closes) > 1
    ends = (0, *sorted(entry["position"] for entry in (*closes, decoded[200])), 250_144)
    job = sessions_job()
    table = deltalake.DeltaTable.create(str(tmp_path / "sessions"), arrow_schema(SESSIONS.columns))
    with LogReader.open(dir=member_dir) as reader:
        for start, end in reversed(list(itertools.pairwise(ends))):
            part = reader.batches(start, end, columns=list(job.columns))
            reduced = job.reduction.rows_of(job.reduction.parts_of(part))
            delta_rs._merge(table, job, reduced, [], deltalake.CommitProperties())

    assert rows(tmp_path / "sessions") == rows(small / "sessions")
    found = {row["clusterSessionId"]: row for row in table.to_pyarrow_table().to_pylist()}
    for entry in closes:
        row = found[entry["clusterSessionId"]]
        assert row["state"] == "CLOSED" and row["openPosition"] is not None


@pytest.mark.conformance("P-99")
@pytest.mark.parametrize("name", MERGED)
def test_a_job_that_dies_at_a_merge_goes_on_where_the_table_ends(
    small, member_dir, tmp_path, monkeypatch, name
):
    table, merge = tmp_path / name, delta_rs._merge
    for is_done in (False, True):

        def dying(*arguments, is_done=is_done):
            if is_done:
                merge(*arguments)
            raise MemoryError("the process is killed here")

        with monkeypatch.context() as patch, pytest.raises(MemoryError):
            patch.setattr(delta_rs, "_merge", dying)
            run(member_dir, table, *IN_THREE)
    assert deltalake.DeltaTable(str(table)).transaction_version(f"cluster.{name}") == 102_528
    run(member_dir, table)
    run(member_dir, table)
    assert rows(table) == rows(small / name)
    assert deltalake.DeltaTable(str(table)).version() == 2, "nothing new is no commit"


@pytest.mark.parametrize("name", MERGED)
def test_of_two_jobs_that_merge_the_same_entries_one_has_the_commit(
    small, member_dir, tmp_path, monkeypatch, name
):
    """The other takes the first third of the log, while the one merges all of it."""
    table, merge, calls = tmp_path / name, delta_rs._merge, []

    def after_another(*arguments):
        calls.append(arguments)
        if len(calls) == 1:
            with pytest.raises(MemoryError):
                run(member_dir, table, *IN_THREE)
        rows = merge(*arguments)
        if len(calls) == 2:
            raise MemoryError("the other is killed here")
        return rows

    monkeypatch.setattr(delta_rs, "_merge", after_another)
    run(member_dir, table)
    assert len(calls) == 3 and deltalake.DeltaTable(str(table)).version() == 2
    assert rows(table) == rows(small / name)


def keep_all(member_dir, place, *arguments):
    delta_rs.keep("tables", tables_in(str(place)), options(member_dir, place, *arguments))


def test_the_log_is_read_once_for_all_tables(member_dir, tmp_path, monkeypatch):
    batches, ranges = LogReader.batches, []

    def recorded(reader, begin, end, **given):
        ranges.append((begin, end))
        return batches(reader, begin, end, **given)

    monkeypatch.setattr(LogReader, "batches", recorded)
    keep_all(member_dir, tmp_path, *IN_THREE)
    assert ranges == [(0, 102_528), (102_528, 205_088), (205_088, 250_144)]


@pytest.mark.conformance("P-104")
@pytest.mark.parametrize(("parts", "commits"), [(IN_THREE, [3, 3, 3, 3]), ((), [3, 3, 2, 2])])
def test_a_job_that_dies_between_two_tables_takes_each_on_from_where_it_is(
    small, member_dir, tmp_path, monkeypatch, parts, commits
):
    merge, calls = delta_rs._merge, []

    def dying(*arguments):
        calls.append(arguments)
        if len(calls) == 5:
            raise MemoryError("the process is killed here")
        return merge(*arguments)

    with monkeypatch.context() as patch, pytest.raises(MemoryError):
        patch.setattr(delta_rs, "_merge", dying)
        keep_all(member_dir, tmp_path, *IN_THREE)
    tables = {name: deltalake.DeltaTable(str(tmp_path / name)) for name in ("log", *MERGED)}
    reached = [table.transaction_version(f"cluster.{name}") for name, table in tables.items()]
    assert reached == [205_088, 205_088, 102_528, 102_528]

    keep_all(member_dir, tmp_path, *parts)
    assert [deltalake.DeltaTable(str(tmp_path / name)).version() for name in tables] == commits
    for name in tables:
        assert rows(tmp_path / name) == rows(small / name)


def test_a_snapshot_without_timers_is_a_commit_too(member_dir, tmp_path, monkeypatch):
    empty = [{"entryType": SNAPSHOT, "position": 64}]
    monkeypatch.setattr(timers.TimersOfSnapshots, "__call__", lambda *_: empty)
    monkeypatch.setattr(timers, "ENTRY_TYPES", ("CLUSTER_ACTION",))
    run(member_dir, tmp_path / "timers", *IN_THREE)
    assert deltalake.DeltaTable(str(tmp_path / "timers")).transaction_version("cluster.timers") == 250_144
    assert rows(tmp_path / "timers") == []


def test_a_snapshot_without_timers_cancels_all_that_were_pending(tmp_path):
    job, pending = timers_job(), {"entryType": PENDING, "position": 64, "correlationId": 7}
    first, last = ({"entryType": SNAPSHOT, "position": position} for position in (64, 128))
    table = deltalake.DeltaTable.create(str(tmp_path / "timers"), arrow_schema(TIMERS.columns))
    for entries in ([first, pending], [last]):
        parts = job.reduction.parts_of([pa.RecordBatch.from_pylist(entries, job.schema)])
        delta_rs._merge(table, job, job.reduction.rows_of(parts), entries, deltalake.CommitProperties())
    assert table.to_pyarrow_table()["state"].to_pylist() == ["CANCELLED"]


def test_a_table_of_another_kind_is_refused(small, member_dir, tmp_path):
    shutil.copytree(small / "sessions", tmp_path / "timers")
    with pytest.raises(ConfigurationError, match="is the table sessions of a log; expected timers"):
        run(member_dir, tmp_path / "timers")


def test_one_job_keeps_one_table(small, member_dir, tmp_path):
    said = run_alone("timers", member_dir, "--table", str(tmp_path / "mine"), *IN_THREE)
    assert said[-1].startswith("timers: done, ")
    assert rows(tmp_path / "mine") == rows(small / "timers")


@pytest.mark.parametrize("seed", range(3))
def test_however_a_life_of_timers_is_cut_its_table_is_the_same(tmp_path, seed):
    entries, job = drawn_timers(seed), timers_job()
    table = deltalake.DeltaTable.create(str(tmp_path / "timers"), arrow_schema(TIMERS.columns))
    for part in cut_by_position(entries, seed):
        of_snapshots = [entry for entry in part if entry["entryType"] in (SNAPSHOT, PENDING)]
        parts = job.reduction.parts_of([pa.RecordBatch.from_pylist(part, job.schema)])
        delta_rs._merge(table, job, job.reduction.rows_of(parts), of_snapshots, deltalake.CommitProperties())
    found = {row["correlationId"]: row for row in table.to_pyarrow_table().to_pylist()}
    assert found == expected.timers(entries)
