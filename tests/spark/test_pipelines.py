"""The example of a Declarative Pipeline, run by Spark's own command over a real cluster."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.dataset
import pyspark
import pytest

from cluster import ClusterClient
from jobs.demo.cluster_process import ClusterProcess
from jobs.session import java_home
from tests.node.processes import free_base_port

ROOT = Path(__file__).resolve().parents[2]
COMMAND = Path(pyspark.__file__).parent / "bin" / "spark-pipelines"


def send(endpoints, count):
    """So many messages of 10 bytes by one session, all committed; its id."""
    with ClusterClient.connect(endpoints) as client:
        for number in range(count):
            client.offer(b"message %02d" % number)
        return client.cluster_session_id


def rows(folder, table):
    return pyarrow.dataset.dataset(folder / "spark-warehouse" / table).to_table().to_pylist()


@pytest.mark.conformance("S-299")
@pytest.mark.interop
@pytest.mark.timeout(600)  # servers of their own start, on a machine that may be busy
def test_a_declarative_pipeline_goes_on_where_its_last_run_stopped(tmp_path):
    spec = shutil.copytree(ROOT / "examples" / "pipeline", tmp_path / "pipeline") / "spark-pipeline.yml"
    path = os.pathsep.join([str(ROOT), str(ROOT / "spark_connector" / "discovery")])
    environment = os.environ | {"PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable}
    if found := java_home():
        environment["JAVA_HOME"] = found

    def run():
        done = subprocess.run(
            [str(COMMAND), "--conf", "spark.sql.catalogImplementation=hive", "run", "--spec", str(spec)],
            capture_output=True, text=True, check=False, timeout=250, cwd=tmp_path, env=environment,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
        entries = [row["position"] for row in rows(tmp_path, "entries")]
        assert len(entries) == len(set(entries))
        sent = {row["clusterSessionId"]: row for row in rows(tmp_path, "senders")}
        return {session: (row["messages"], row["bytes"]) for session, row in sent.items()}

    with ClusterProcess(tmp_path / "c1", "echo", free_base_port()) as cluster:
        text = spec.read_text().replace("127.0.0.1:9000", cluster.endpoints)
        spec.write_text(text.replace("/tmp/cluster-pipeline", str(tmp_path / "storage")))
        first = send(cluster.endpoints, 7)
        assert run() == {first: (7, 70)}
        second = send(cluster.endpoints, 5)
        assert run() == {first: (7, 70), second: (5, 50)}
