"""Source and sink where the program has a session of Spark Connect and a server runs them."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from jobs.demo.cluster_process import ClusterProcess
from tests.node.processes import free_base_port

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "tests" / "spark" / "connect_session.py"
SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
START_S = 120

pytestmark = [
    pytest.mark.conformance("P-114"),
    pytest.mark.interop,
    pytest.mark.timeout(600),  # a server of its own starts, on a machine that may be busy
]


def test_a_session_with_a_server_of_its_own_reads_and_writes_batches_and_streams(tmp_path):
    run("local[2]", tmp_path)


def test_a_session_with_a_remote_server_reads_and_writes_batches_and_streams(tmp_path):
    """The server is a process of its own, with another working directory than the program."""
    place = tmp_path / "server"
    place.mkdir()
    with connect_server(place) as remote:
        run(remote, tmp_path)


def run(remote: str, folder: Path) -> None:
    with ClusterProcess(folder / "c1", "echo", free_base_port()) as cluster:
        done = subprocess.run(
            [sys.executable, str(PROGRAM), remote, cluster.endpoints, str(folder)],
            capture_output=True, text=True, check=False, timeout=400, cwd=folder, env=environment(),
        )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[:4] == ["written 100", "answered 100", "copied 100", "refused True"]


def environment() -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), str(ROOT / "spark_connector" / "discovery")])
    return os.environ | {"PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable}


@contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """A Spark Connect server; what ``remote`` takes to come to it."""
    settings = {
        "spark.connect.grpc.binding.port": "0",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
    }
    command = [str(SUBMIT), "--master", "local[2]", "--class", SERVER]
    command += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    log = folder / "server.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            [*command, "spark-internal"], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            cwd=folder, env=environment(),
        )  # fmt: skip
    try:
        yield f"sc://127.0.0.1:{port_of(server, log)}"
    finally:
        server.terminate()
        server.wait(60)


def port_of(server: subprocess.Popen, log: Path) -> str:
    """Where the server listens, once it says so."""
    until = time.monotonic() + START_S
    while time.monotonic() < until and server.poll() is None:
        if said := re.search(r"Spark Connect server started at: 127\.0\.0\.1:(\d+)", log.read_text()):
            return said[1]
        time.sleep(0.2)
    raise AssertionError(log.read_text()[-3000:])
