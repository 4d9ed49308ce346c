"""``cluster job``: finds the jobs, hands them their options, and ends as they do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from cluster.cli.job import JOBS, folder_of_jobs
from cluster.cli.main import main

ROOT = Path(__file__).resolve().parents[2]


def job(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cluster", "job", *arguments],
        capture_output=True, text=True, check=False, timeout=100, **options,
    )  # fmt: skip


def test_every_job_of_the_package_is_one_of_the_command() -> None:
    runnable = {
        path.stem if path.name != "__main__.py" else path.parent.name
        for path in (ROOT / "jobs").rglob("*.py")
        if 'if __name__ == "__main__":' in path.read_text()
    }
    assert set(JOBS) == runnable - {"session"}, "which only set-up runs"
    assert folder_of_jobs() == ROOT


def test_a_job_has_its_own_help_under_the_name_it_was_called_by() -> None:
    done = job("verify", "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: cluster job verify [-h] --tables DIR")
    assert "\n  cluster job verify --dir c1/member-0 --tables delta/all\n" in done.stdout


def test_wrong_usage_of_a_job_is_the_jobs_line_and_status() -> None:
    done = job("sessions", "--cluster-dir", "d", "--table", "t", "--trigger", "hourly")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "--trigger is 'hourly'; expected available-now or an interval such as '5 seconds'\n"


def test_an_unknown_job_is_named_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["job", "session"]) == 2
    said = capsys.readouterr().err
    assert "there is no job 'session'; expected one of tables, log_to_delta, " in said
    assert said.count("\n") == 1


def test_no_job_is_answered_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["job"]) == 2
    said = capsys.readouterr().err
    assert "which job?; expected one of tables, log_to_delta, " in said
    assert said.count("\n") == 1


def test_a_job_may_be_named_with_hyphens() -> None:
    done = job("log-to-delta", "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: cluster job log-to-delta [-h] ")


@pytest.mark.slow
def test_an_installed_package_has_no_top_level_jobs_and_runs_them(tmp_path: Path) -> None:
    """The wheel, unpacked as pip does, in front of everything else."""
    checkout = tmp_path / "checkout"
    for name in ("cluster", "spark_connector", "jobs", "conf"):
        shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, checkout / name)
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=checkout, capture_output=True, check=True, timeout=100,
    )  # fmt: skip
    (wheel,) = tmp_path.glob("*.whl")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    assert {path.name for path in site.iterdir() if path.suffix != ".dist-info"} == {
        "cluster", "spark_connector", "pyspark_cluster"
    }  # fmt: skip
    assert (site / "pyspark_cluster" / "jobs" / "conf" / "spark-defaults.conf").is_file()

    where = "import jobs.session; print(jobs.session.conf_dir())"
    command = f"import cluster.cli.job as j, sys; sys.path.insert(0, str(j.folder_of_jobs())); {where}"
    installed = {**os.environ, "PYTHONPATH": str(site)}
    found = subprocess.run(
        [sys.executable, "-c", command],
        cwd=tmp_path, env=installed, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert found.stdout.strip() == str(site / "pyspark_cluster" / "jobs" / "conf")
    assert job("tables", "--help", cwd=tmp_path, env=installed).stdout.startswith("usage: cluster job tables")
