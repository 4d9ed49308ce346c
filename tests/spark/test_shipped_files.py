"""Where the package is not installed a program brings it along, for its batches, tasks and streams."""

import os
import subprocess
import sysconfig
import venv
import zipfile
from pathlib import Path

import pyspark
import pytest
from pyspark import SparkFiles

from benchmarks.processes import running_cluster
from jobs.session import java_home
from spark_connector import register
from tests.tree import ROOT

SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"
PROGRAM = ROOT / "tests" / "spark" / "shipped_session.py"
OURS = ("cluster", "spark_connector", "pyspark_cluster", "_pyspark_cluster")
MASTER = "local-cluster[1,1,1024]"


@pytest.fixture(scope="module")
def python(tmp_path_factory) -> Path:
    """A Python with all that we need and without us."""
    folder = tmp_path_factory.mktemp("python")
    venv.create(folder, symlinks=True)
    own = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    for package in Path(sysconfig.get_path("purelib")).iterdir():
        if not package.name.startswith(OURS):
            (own / package.name).symlink_to(package)
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def package(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("package") / "pyspark-cluster.zip"
    with zipfile.ZipFile(path, "w") as made:
        for folder in ("cluster", "spark_connector"):
            for file in (ROOT / folder).rglob("*"):
                if file.is_file() and "__pycache__" not in file.parts:
                    made.write(file, file.relative_to(ROOT))
    return path


@pytest.mark.slow
@pytest.mark.conformance("P-114")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("way", ["--py-files", "addPyFile"])
def test_rows_go_round_with_the_package_as_a_file(tmp_path, python, package, way):
    """Executors are processes of their own. All is compiled for them: that takes most of the time."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)}
    environment["XDG_CACHE_HOME"] = str(tmp_path)  # of compiled kernels
    if home := java_home():
        environment["JAVA_HOME"] = home
    with running_cluster(1) as cluster:
        arguments = [str(package), cluster["endpoints"], str(tmp_path)]
        if way == "addPyFile":
            command = [str(python), str(PROGRAM), *arguments, MASTER]
        else:
            command = [str(SUBMIT), "--master", MASTER, "--py-files", str(package), str(PROGRAM), *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=400, cwd=tmp_path, env=environment
        )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "seen 100" in done.stdout


def test_the_process_that_plans_a_stream_has_the_files_of_its_session(spark):
    """Spark 4.2 gives it a folder of its own, in that of the files."""
    register(spark)
    register(spark)
    files = Path(SparkFiles.getRootDirectory())
    assert (files / "streaming_job").samefile(files)
