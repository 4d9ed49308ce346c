"""Executors in processes of their own: what they read is the log, whichever of them dies on the way."""

import json
import subprocess
import sys

import pytest

from benchmarks.kills.processes import RealSpark
from cluster.reader import LogReader
from tests.spark.logs import open_log
from tests.transport.linked_members import free_port

pytestmark = pytest.mark.faults


@pytest.fixture
def log(tmp_path):
    written, session = open_log(tmp_path / "member-0")
    written.messages(session, [b"%3d" % number * 100 for number in range(600)])
    written.commit()
    yield written
    written.stop()


@pytest.fixture(params=["local-cluster", "standalone"])
def master(request, tmp_path):
    """Two executors with a core each."""
    if request.param == "local-cluster":
        yield "local-cluster[2,1,1024]"
        return
    spark = RealSpark(tmp_path, endpoints="")
    address, _ = spark.start_cluster(free_port(), workers=2)
    yield address
    spark.close()


@pytest.mark.conformance("S-302")
@pytest.mark.timeout(300)
def test_an_executor_that_dies_in_the_middle_of_a_task_loses_and_repeats_no_row(log, master):
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.read_by_executors", master, str(log.directory)],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    with LogReader.open(dir=str(log.directory)) as reader:
        assert found["positions"] == [entry["position"] for entry in reader.entries()]
    assert len(found["executors"]) >= 2 and found["attempts"] > 0, "more than one has read, and one has died"
