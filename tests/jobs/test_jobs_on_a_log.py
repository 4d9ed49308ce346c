"""Tables of a real Aeron Cluster's directory, stopped and repeated at the worst places; jobs as programs."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.errors import ConfigurationError
from jobs import terms
from jobs.command import JobOptions, checkpoint_in, run_main
from jobs.delta_table import read
from jobs.keeping import keep
from jobs.tables import tables_in
from tests.jobs.conftest import CUT, rows_by
from tests.spark.logs import open_log

ROOT = Path(__file__).resolve().parents[2]


pytestmark = pytest.mark.timeout(600)  # queries that start, on a machine that may be busy


def go_on(spark, member_dir, place, names, **source):
    """Keep the tables of these names in ``place``, over the checkpoint of all; the rows they have then."""
    tables = {table: job for table, job in tables_in(place).items() if job.layout.name in names}
    options = JobOptions.over({"clusterDir": member_dir, **source}, place, say=lambda _: None)
    keep(spark, "tables", tables, options)
    return {job.layout.name: rows_by(read(spark, table), job.layout.key) for table, job in tables.items()}


@pytest.mark.conformance("P-25", "P-99")
def test_a_batch_that_delta_has_and_spark_forgot_is_not_counted_twice(spark, member_dir, place, kept_rows):
    """The crash falls between Delta's commit and Spark's: the batch runs again."""
    commits = sorted(Path(checkpoint_in(place), "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    assert [path.name for path in commits] == ["0", "1"]
    commits[-1].unlink()
    commits[-1].with_name(f".{commits[-1].name}.crc").unlink()
    names = ["log", "sessions"]
    found = go_on(spark, member_dir, place, names, maxEntriesPerTrigger=str(CUT))
    assert found == {name: kept_rows[name] for name in names}


@pytest.mark.slow
@pytest.mark.conformance("P-100")
def test_tables_that_lack_what_their_checkpoint_says_they_have_are_refused_until_that_is_deleted(
    spark, member_dir, place, kept_rows
):
    """Else the job would go on after the rows that are gone, and say nothing.

    A new checkpoint cuts the log elsewhere, from its begin on, and counts its batches from 0 again.
    """
    spark.sql(f"RESTORE TABLE delta.`{place}/sessions` TO VERSION AS OF 1").collect()
    shutil.rmtree(f"{place}/log")
    for name, says in (("sessions", "had its rows replaced by RESTORE"), ("log", "is not there")):
        lacks = rf"table {place}/{name} {says}.*; expected no checkpoint .* delete it"
        with pytest.raises(ConfigurationError, match=lacks):
            go_on(spark, member_dir, place, [name])
    shutil.rmtree(checkpoint_in(place))
    found = go_on(spark, member_dir, place, ["sessions"], startingOffsets="earliest")
    assert found == {"sessions": kept_rows["sessions"]}


@pytest.mark.slow
def test_tables_of_another_log_are_refused_and_stay_as_they_are(
    spark, member_dir, place, kept_rows, tmp_path
):
    """Their checkpoint is lost. Positions of another log mean something else, but it has them."""
    shutil.rmtree(checkpoint_in(place))
    other, session_id = open_log(tmp_path / "other")
    other.lines(session_id, 0, 4000)
    other.stop()
    spark.sql(f"OPTIMIZE delta.`{place}/log`").collect()  # a commit that says nothing of the Log
    for name, source in (("log", {}), ("leadership_terms", {"startingOffsets": "earliest"})):
        is_of = r"table .* is of cluster 0:\d+:-?\d+ \(position 250144\), "
        with pytest.raises(ConfigurationError, match=is_of):
            go_on(spark, str(tmp_path / "other"), place, [name], **source)
        (job,) = (job for job in tables_in(place).values() if job.layout.name == name)
        assert rows_by(read(spark, f"{place}/{name}"), job.layout.key) == kept_rows[name]


def says_only_what_a_person_wants(lines: list[str]) -> None:
    assert lines[0] == "terms: reading from 0 to 250,144", "before Spark is started"
    assert len(lines) == 3 and lines[1].startswith("terms: batch 0, 761 rows in "), lines
    assert lines[2].startswith("terms: done, 761 rows ("), lines


@pytest.mark.slow
@pytest.mark.conformance("P-110")
def test_a_job_says_only_what_a_person_wants(spark, member_dir, tmp_path, kept_rows, monkeypatch, capfd):
    """Its table is one of its own, by a path from where it is started."""
    monkeypatch.setattr("jobs.session.spark_session", lambda *_: spark)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["job", "--cluster-dir", member_dir, "--table", "table"])
    run_main(terms.main)
    said = capfd.readouterr()
    assert said.out == ""
    says_only_what_a_person_wants(said.err.splitlines())
    assert rows_by(read(spark, str(tmp_path / "table")), "leadershipTermId") == kept_rows["leadership_terms"]


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}


@pytest.mark.slow
@pytest.mark.conformance("P-110")
def test_a_job_runs_as_a_module_and_says_only_what_a_person_wants(spark, member_dir, table, kept_rows):
    done = subprocess.run(
        [sys.executable, "-m", "jobs.terms", "--cluster-dir", member_dir, "--table", Path(table).name],
        capture_output=True, text=True, check=False, timeout=240, cwd=Path(table).parent, env=environment(),
    )  # fmt: skip
    assert done.returncode == 0 and done.stdout == "", done.stderr
    says_only_what_a_person_wants(done.stderr.splitlines())
    assert rows_by(read(spark, table), "leadershipTermId") == kept_rows["leadership_terms"]


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
def test_a_job_runs_under_spark_submit(spark, member_dir, table, kept_rows):
    submit = Path(sys.executable).parent / "spark-submit"
    done = subprocess.run(
        [submit, "--properties-file", "conf/spark-defaults.conf", "jobs/terms.py",
         "--cluster-dir", member_dir, "--table", os.path.relpath(table, ROOT)],
        capture_output=True, text=True, check=False, timeout=240, cwd=ROOT, env=environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert rows_by(read(spark, table), "leadershipTermId") == kept_rows["leadership_terms"]


def test_a_directory_that_is_none_is_one_line_and_status_1(tmp_path, table):
    done = subprocess.run(
        [sys.executable, "-m", "jobs.terms", "--cluster-dir", str(tmp_path), "--table", table],
        capture_output=True, text=True, check=False, timeout=240, cwd=ROOT, env=environment(),
    )  # fmt: skip
    assert done.returncode == 1
    assert str(tmp_path) in done.stderr and done.stderr.count("\n") == 1, done.stderr
