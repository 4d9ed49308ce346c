"""Each job over a table and a checkpoint of its own, stopped and repeated at the worst places.

``test_jobs_on_a_log`` has the same of tables that one query keeps.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from delta.tables import DeltaTable

from cluster.errors import ConfigurationError
from jobs import sessions, terms, timers
from jobs.command import JobOptions, checkpoint_in
from jobs.delta_table import read
from jobs.keeping import keep
from jobs.log_to_delta import log_job
from tests.jobs.conftest import rows_by
from tests.spark.logs import open_log

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # queries that start, on a machine that may be busy


JOBS = {
    "log": log_job,
    "sessions": sessions.sessions_job,
    "timers": timers.timers_job,
    "terms": terms.terms_job,
}


def run_job(spark, name, member_dir, table, **source):
    job = JOBS[name]()
    options = JobOptions.over({"clusterDir": member_dir, **source}, table, say=lambda _: None)
    keep(spark, job.name, {table: job}, options)
    return rows_by(read(spark, table), job.layout.key)


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> Path:
    """Where each job's table lies, with its checkpoint, once ``whole`` is made; tests take copies."""
    return tmp_path_factory.mktemp("alone")


@pytest.fixture(scope="module")
def whole(spark, member_dir, alone):
    """What each job makes of the log in three batches."""
    return {
        name: run_job(spark, name, member_dir, str(alone / name), maxEntriesPerTrigger="300") for name in JOBS
    }


def test_the_tables_are_those_of_one_query_that_keeps_all(whole, kept_rows):
    assert whole == {name: kept_rows[JOBS[name]().layout.name] for name in JOBS}


@pytest.mark.conformance("P-25", "P-99")
@pytest.mark.parametrize("name", JOBS)
def test_a_batch_that_delta_has_and_spark_forgot_is_not_counted_twice(
    spark, member_dir, alone, table, whole, name
):
    """The crash falls between Delta's commit and Spark's: the batch runs again."""
    shutil.copytree(alone / name, table)
    commits = sorted(Path(checkpoint_in(table), "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    assert len(commits) >= 3
    commits[-1].unlink()
    commits[-1].with_name(f".{commits[-1].name}.crc").unlink()
    assert run_job(spark, name, member_dir, table, maxEntriesPerTrigger="300") == whole[name]


@pytest.mark.conformance("P-100")
@pytest.mark.parametrize("name", JOBS)
def test_a_job_that_lost_its_checkpoint_goes_on_behind_its_table(
    spark, member_dir, alone, table, whole, name
):
    """The new checkpoint cuts the log elsewhere, and counts its batches from 0 again."""
    shutil.copytree(alone / name, table)
    shutil.rmtree(checkpoint_in(table))
    assert run_job(spark, name, member_dir, table, maxEntriesPerTrigger="170") == whole[name]
    shutil.rmtree(checkpoint_in(table))
    assert run_job(spark, name, member_dir, table, startingOffsets="earliest") == whole[name]


@pytest.mark.parametrize("name", ["log", "sessions"])
@pytest.mark.parametrize("how", ["restored", "deleted"])
def test_a_table_that_lacks_what_its_checkpoint_says_it_has_is_refused_until_that_is_deleted(
    spark, member_dir, alone, table, whole, name, how
):
    """Else the job would go on after the rows that are gone, and say nothing."""
    shutil.copytree(alone / name, table)
    if how == "restored":
        newest = DeltaTable.forPath(spark, table).history(1).first().version
        spark.sql(f"RESTORE TABLE delta.`{table}` TO VERSION AS OF {newest - 1}").collect()
        says = rf"had its rows replaced by RESTORE \(version {newest + 1}\)"
    else:
        for path in set(Path(table).iterdir()) - {Path(checkpoint_in(table))}:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        says = "is not there"
    for _ in range(2):
        with pytest.raises(
            ConfigurationError, match=rf"table {table} {says}; expected no checkpoint .* delete it"
        ):
            run_job(spark, name, member_dir, table)
    shutil.rmtree(checkpoint_in(table))
    for _ in range(2):
        assert run_job(spark, name, member_dir, table) == whole[name]


@pytest.mark.parametrize("source", [{}, {"startingOffsets": "earliest"}], ids=["goes on", "from the begin"])
@pytest.mark.parametrize("name", ["log", "terms"])
def test_a_table_of_another_log_is_refused_and_stays_as_it_is(
    spark, member_dir, alone, table, whole, tmp_path, name, source
):
    """Its checkpoint is lost. Positions of another log mean something else, but it has them."""
    shutil.copytree(alone / name, table)
    shutil.rmtree(checkpoint_in(table))
    other, session_id = open_log(tmp_path / "other")
    other.lines(session_id, 0, 4000)
    other.stop()
    spark.sql(f"OPTIMIZE delta.`{table}`").collect()  # a commit that says nothing of the Log
    with pytest.raises(ConfigurationError, match=r"table .* is of cluster 0:\d+:-?\d+ \(position 250144\), "):
        run_job(spark, name, str(tmp_path / "other"), table, **source)
    assert rows_by(read(spark, table), JOBS[name]().layout.key) == whole[name]
