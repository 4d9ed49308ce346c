"""The jobs from a real Aeron Cluster's directory into Delta, stopped and repeated at the worst places."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.errors import ConfigurationError
from jobs import sessions, terms, timers
from jobs.command import JobOptions, checkpoint_in
from jobs.delta_table import read
from jobs.keeping import keep
from jobs.log_to_delta import log_job
from jobs.schemas import TERMS
from tests.jobs.conftest import rows_by
from tests.spark.logs import open_log

ROOT = Path(__file__).resolve().parents[2]


pytestmark = pytest.mark.timeout(600)  # queries that start, on a machine that may be busy


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
def kept(tmp_path_factory) -> Path:
    """Where each job's table lies, with its checkpoint, once ``whole`` is made; tests take copies."""
    return tmp_path_factory.mktemp("kept")


@pytest.fixture(scope="module")
def whole(spark, member_dir, kept):
    """What each job makes of the log in three batches."""
    return {
        name: run_job(spark, name, member_dir, str(kept / name), maxEntriesPerTrigger="300") for name in JOBS
    }


def test_the_log_table_holds_every_entry_once(whole, decoded):
    assert sorted(whole["log"]) == [entry["position"] for entry in decoded]
    for entry in decoded:
        row = whole["log"][entry["position"]]
        for column in ("endPosition", "entryType", "clusterTime", "leadershipTermId", "clusterSessionId"):
            assert row[column] == entry.get(column)
        if entry["payload"] is not None:
            assert len(row["payload"]) == entry["payloadLength"]


def test_the_other_tables_are_what_the_transforms_make_of_the_log(spark, whole, log, log_and_snapshots):
    assert whole["sessions"] == rows_by(sessions.sessions(log), "clusterSessionId")
    assert whole["timers"] == rows_by(timers.timers(log_and_snapshots), "correlationId")
    none = spark.createDataFrame([], TERMS.schema)
    assert whole["terms"] == rows_by(terms.terms(none, log), "leadershipTermId")


@pytest.mark.conformance("P-25", "P-99")
@pytest.mark.parametrize("name", JOBS)
def test_a_batch_that_delta_has_and_spark_forgot_is_not_counted_twice(
    spark, member_dir, kept, table, whole, name
):
    """The crash falls between Delta's commit and Spark's: the batch runs again."""
    shutil.copytree(kept / name, table)
    commits = sorted(Path(checkpoint_in(table), "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    assert len(commits) >= 3
    commits[-1].unlink()
    commits[-1].with_name(f".{commits[-1].name}.crc").unlink()
    assert run_job(spark, name, member_dir, table, maxEntriesPerTrigger="300") == whole[name]


@pytest.mark.conformance("P-100")
@pytest.mark.parametrize("name", JOBS)
def test_a_job_that_lost_its_checkpoint_goes_on_behind_its_table(spark, member_dir, kept, table, whole, name):
    """The new checkpoint cuts the log elsewhere, and counts its batches from 0 again."""
    shutil.copytree(kept / name, table)
    shutil.rmtree(checkpoint_in(table))
    assert run_job(spark, name, member_dir, table, maxEntriesPerTrigger="170") == whole[name]
    shutil.rmtree(checkpoint_in(table))
    assert run_job(spark, name, member_dir, table, startingOffsets="earliest") == whole[name]


@pytest.mark.parametrize("name", ["log", "sessions"])
@pytest.mark.parametrize("how", ["restored", "deleted"])
def test_a_table_that_lacks_what_its_checkpoint_says_it_has_is_refused_until_that_is_deleted(
    spark, member_dir, kept, table, whole, name, how
):
    """Else the job would go on after the rows that are gone, and say nothing."""
    shutil.copytree(kept / name, table)
    if how == "restored":
        spark.sql(f"RESTORE TABLE delta.`{table}` TO VERSION AS OF 1").collect()
        says = "was brought back to an earlier version by RESTORE"
    else:
        for path in set(Path(table).iterdir()) - {Path(checkpoint_in(table))}:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        says = "is not there"
    for _ in range(2):
        with pytest.raises(ConfigurationError, match=rf"table {table} {says}, and checkpoint .* delete it"):
            run_job(spark, name, member_dir, table)
    shutil.rmtree(checkpoint_in(table))
    for _ in range(2):
        assert run_job(spark, name, member_dir, table) == whole[name]


@pytest.mark.parametrize("source", [{}, {"startingOffsets": "earliest"}], ids=["goes on", "from the begin"])
@pytest.mark.parametrize("name", ["log", "terms"])
def test_a_table_of_another_log_is_refused_and_stays_as_it_is(
    spark, member_dir, kept, table, whole, tmp_path, name, source
):
    """Its checkpoint is lost. Positions of another log mean something else, but it has them."""
    shutil.copytree(kept / name, table)
    shutil.rmtree(checkpoint_in(table))
    other, session_id = open_log(tmp_path / "other")
    other.lines(session_id, 0, 4000)
    other.stop()
    spark.sql(f"OPTIMIZE delta.`{table}`").collect()  # a commit that says nothing of the Log
    with pytest.raises(ConfigurationError, match=r"table .* is of cluster 0:\d+:-?\d+ \(position 250144\), "):
        run_job(spark, name, str(tmp_path / "other"), table, **source)
    assert rows_by(read(spark, table), JOBS[name]().layout.key) == whole[name]


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}


@pytest.mark.conformance("P-110")
def test_a_job_runs_as_a_module_and_says_only_what_a_person_wants(spark, member_dir, table, whole):
    done = subprocess.run(
        [sys.executable, "-m", "jobs.terms", "--cluster-dir", member_dir, "--table", Path(table).name],
        capture_output=True, text=True, check=False, timeout=240, cwd=Path(table).parent, env=environment(),
    )  # fmt: skip
    lines = done.stderr.splitlines()
    assert done.returncode == 0 and done.stdout == "", done.stderr
    assert lines[0] == "terms: reading from 0 to 250,144", "before Spark is started"
    assert len(lines) == 3 and lines[1].startswith("terms: batch 0, 761 rows in "), lines
    assert lines[2].startswith("terms: done, 761 rows ("), lines
    assert rows_by(read(spark, table), "leadershipTermId") == whole["terms"]


def ended_by(end, member_dir, table) -> tuple[int, str]:
    """Exit status, and what a job says, once it has read the log and ``end`` has done something to it."""
    job = subprocess.Popen(
        [sys.executable, "-m", "jobs.terms", "--cluster-dir", member_dir, "--table", table,
         "--trigger", "1 second"],
        stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment(), start_new_session=True,
    )  # fmt: skip
    try:
        assert job.stderr is not None
        assert job.stderr.readline() == "terms: reading from 0 to 250,144 and on\n"
        assert job.stderr.readline().startswith("terms: batch 0, 761 rows in ")
        end(job.pid)
        _, rest = job.communicate(timeout=60)
    finally:
        job.kill()
    return job.returncode, rest


@pytest.mark.faults
def test_a_job_that_is_stopped_stops_in_order(member_dir, table):
    status, said = ended_by(lambda pid: os.kill(pid, signal.SIGTERM), member_dir, table)
    assert status == 130
    assert said.startswith("terms: stopped, 761 rows") and said.count("\n") == 1, said


@pytest.mark.faults
def test_a_job_that_is_stopped_with_all_its_processes_says_so_in_a_line(member_dir, table):
    """As a service manager does, which tells Spark's JVM to end as well."""
    status, said = ended_by(lambda pid: os.killpg(pid, signal.SIGTERM), member_dir, table)
    assert status == 130
    assert said.startswith("terms: stopped") and said.count("\n") == 1, said


@pytest.mark.faults
def test_a_job_whose_jvm_is_killed_says_so_in_a_line(member_dir, table):
    def kill_jvm(pid: int) -> None:
        (jvm,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        os.kill(int(jvm), signal.SIGKILL)

    status, said = ended_by(kill_jvm, member_dir, table)
    assert (status, said) == (
        1,
        "Spark's JVM has ended in the middle of the job; the next start repeats the batch at work\n",
    )


@pytest.mark.slow
def test_a_job_runs_under_spark_submit(spark, member_dir, table, whole):
    submit = Path(sys.executable).parent / "spark-submit"
    done = subprocess.run(
        [submit, "--properties-file", "conf/spark-defaults.conf", "jobs/terms.py",
         "--cluster-dir", member_dir, "--table", os.path.relpath(table, ROOT)],
        capture_output=True, text=True, check=False, timeout=240, cwd=ROOT, env=environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert rows_by(read(spark, table), "leadershipTermId") == whole["terms"]


def test_a_directory_that_is_none_is_one_line_and_status_1(tmp_path, table):
    done = subprocess.run(
        [sys.executable, "-m", "jobs.terms", "--cluster-dir", str(tmp_path), "--table", table],
        capture_output=True, text=True, check=False, timeout=240, cwd=ROOT, env=environment(),
    )  # fmt: skip
    assert done.returncode == 1
    assert str(tmp_path) in done.stderr and done.stderr.count("\n") == 1, done.stderr
