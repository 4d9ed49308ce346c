"""Source and sink where the program has a session of Spark Connect and the server runs them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.demo.cluster_process import ClusterProcess, free_base_port

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "tests" / "spark" / "connect_session.py"


@pytest.mark.conformance("S-292")
@pytest.mark.interop
@pytest.mark.timeout(600)  # a server of its own starts, on a machine that may be busy
def test_a_connect_session_reads_and_writes_batches_and_streams(tmp_path):
    path = os.pathsep.join([str(ROOT), str(ROOT / "spark_connector" / "discovery")])
    with ClusterProcess(tmp_path / "c1", "echo", free_base_port()) as cluster:
        done = subprocess.run(
            [sys.executable, str(PROGRAM), cluster.endpoints, str(tmp_path)],
            capture_output=True, text=True, check=False, timeout=500,
            cwd=tmp_path, env=os.environ | {"PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable},
        )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split("\n")[:2] == ["written 100", "answered 100"]
