"""Tables of a log whose head was purged: what the snapshot that it begins at has of it."""

from __future__ import annotations

import shutil

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as f
from typer.testing import CliRunner

from cluster import DataLoss, LogReader
from cluster.cli.archive import app
from cluster.reader.exported_log import ExportedLog
from jobs import verify
from jobs.command import JobOptions, checkpoint_in
from jobs.delta_table import delta_table, read
from jobs.keeping import keep
from jobs.rebuild import rebuild
from jobs.sessions import opened_before, sessions_job
from jobs.tables import TABLES, tables_in
from tests.jobs import expected
from tests.jobs.conftest import naive_rows, rows_by
from tests.jobs.without_spark import run

pytestmark = pytest.mark.timeout(600)  # queries that start, on a machine that may be busy

PURGED_TO = 131072


@pytest.fixture(scope="module")
def purged_dir(member_dir, tmp_path_factory) -> str:
    """A real member's directory without the head of its log; session 2 is open in its snapshot at 139,424."""
    directory = shutil.copytree(member_dir, tmp_path_factory.mktemp("purged") / "member-1")
    done = CliRunner().invoke(app, ["purge", str(PURGED_TO), "--dir", str(directory), "--yes"])
    assert done.exit_code == 0, done.output
    return str(directory)


def keep_sessions(spark, directory, table):
    options = JobOptions.over({"clusterDir": directory}, table, say=lambda _: None)
    keep(spark, "sessions", {table: sessions_job()}, options)


@pytest.fixture(scope="module")
def purged_table(spark, purged_dir, tmp_path_factory) -> str:
    """The table of sessions that Spark keeps of it."""
    table = str(tmp_path_factory.mktemp("purged") / "sessions")
    keep_sessions(spark, purged_dir, table)
    return table


@pytest.mark.slow
def test_sessions_that_were_open_at_the_purge_are_those_of_the_snapshot(
    spark, purged_dir, purged_table, decoded
):
    found = rows_by(read(spark, purged_table), "clusterSessionId")
    opening = next(e for e in decoded if e["entryType"] == "SESSION_OPEN" and e["clusterSessionId"] == 2)
    rest = [entry for entry in decoded if entry["position"] >= PURGED_TO]
    rows = naive_rows(expected.sessions([opening, *rest]))
    rows[2] |= dict.fromkeys(("openPosition", "openedAt", "openTermId"))
    assert {2, 3} < found.keys() and found == rows
    assert found[2]["state"] == "CLOSED"


@pytest.mark.slow
def test_sessions_of_a_purged_log_are_the_same_after_a_lost_checkpoint(spark, purged_dir, purged_table):
    found = rows_by(read(spark, purged_table), "clusterSessionId")
    shutil.rmtree(checkpoint_in(purged_table))
    keep_sessions(spark, purged_dir, purged_table)
    assert rows_by(read(spark, purged_table), "clusterSessionId") == found


def test_delta_rs_takes_the_same_sessions_from_the_snapshot(spark, purged_dir, purged_table, table):
    run(purged_dir, f"{table}/sessions")
    ours, sparks = (read(spark, path) for path in (f"{table}/sessions", purged_table))
    assert rows_by(ours, "clusterSessionId") == rows_by(sparks, "clusterSessionId")


def test_a_log_with_its_beginning_and_a_start_elsewhere_need_no_snapshot(member_dir, purged_dir):
    assert [row["clusterSessionId"] for row in opened_before({"clusterDir": purged_dir})] == [2]
    assert opened_before({"clusterDir": member_dir}) == []
    assert opened_before({"clusterDir": purged_dir, "startingOffsets": "latest"}) == []


@pytest.fixture(scope="module")
def purged_log(purged_dir):
    with LogReader.open(dir=purged_dir) as reader:
        yield reader


@pytest.mark.parametrize(
    "name",
    ["sessions", *(pytest.param(name, marks=pytest.mark.slow) for name in TABLES if name != "sessions")],
)
def test_tables_are_compared_from_where_the_log_begins_now(spark, kept, purged_log, name, monkeypatch):
    """They were kept while it had its beginning."""
    table = f"{kept}/{name}"
    job = tables_in(kept)[table]
    assert verify.differences(spark, table, job, purged_log) == []

    key = job.layout.key
    monkeypatch.setattr(verify, "read", lambda *args: read(*args).withColumn(key, f.col(key) + 32))
    wrong = verify.differences(spark, table, job, purged_log)
    assert any(
        "hash is" in line and f"in the Log from {purged_log.start_position:,} up to" in line for line in wrong
    )


@pytest.mark.slow
def test_sessions_that_were_kept_after_a_purge_are_compared_too(spark, purged_table, purged_log):
    assert verify.differences(spark, purged_table, sessions_job(), purged_log) == []


def test_a_table_that_ends_before_the_log_begins_cannot_be_compared(spark, kept, purged_log, monkeypatch):
    monkeypatch.setattr(purged_log.log, "await_start", lambda: 1 << 40)
    with pytest.raises(DataLoss, match=r"goes to 250,144, and the Log begins at 1,099,511,627,776 now"):
        verify.differences(spark, f"{kept}/log", tables_in(kept)[f"{kept}/log"], purged_log)


@pytest.mark.slow
def test_a_table_of_what_is_purged_is_rebuilt_of_exported_files_and_not_without_them(
    spark, place, kept_rows, member_dir, purged_dir, tmp_path
):
    exported = str(tmp_path / "exported")
    with LogReader.open(dir=member_dir) as reader:
        list(ExportedLog(exported).append(reader))
    table = f"{place}/sessions"
    job = tables_in(place)[table]
    delta_table(spark, table).delete()
    with pytest.raises(AnalysisException, match=f"the log is purged up to {PURGED_TO}"):
        rebuild(spark, table, job, {"clusterDir": purged_dir})
    rebuild(spark, table, job, {"clusterDir": purged_dir, "exportDir": exported})
    assert rows_by(read(spark, table), job.layout.key) == kept_rows["sessions"]
