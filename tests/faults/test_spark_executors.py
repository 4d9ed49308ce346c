"""Executors in processes of their own: what they read is the log, whichever of them dies on the way.

What they write is in the log once.
"""

import json
import subprocess
import sys

import pytest

from benchmarks.kills.processes import RealSpark
from benchmarks.processes import running_cluster
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
    spark = RealSpark(tmp_path)
    address, _ = spark.start_cluster(free_port(), workers=2)
    yield address
    spark.close()


@pytest.mark.conformance("P-72")
@pytest.mark.timeout(300)
def test_an_executor_that_dies_in_the_middle_of_a_task_loses_and_repeats_no_row(log, master):
    found = read_by_executors(master, log, "dies")
    with LogReader.open(dir=str(log.directory)) as reader:
        assert found["positions"] == [entry["position"] for entry in reader.entries()]
    assert len(found["executors"]) >= 2 and found["attempts"] > 0, "more than one has read, and one has died"


@pytest.mark.conformance("P-73")
@pytest.mark.parametrize("master", ["standalone"], indirect=True)
@pytest.mark.timeout(300)
def test_a_task_that_spark_runs_twice_at_once_has_its_rows_once(log, master):
    """Speculation: Spark does so on two hosts only, which a local cluster is not."""
    found = read_by_executors(master, log, "slow")
    with LogReader.open(dir=str(log.directory)) as reader:
        assert found["positions"] == [entry["position"] for entry in reader.entries()]
    assert found["attempts"] == 1, "the second attempt was first"


@pytest.mark.conformance("P-80")
@pytest.mark.timeout(300)
def test_rows_of_a_task_whose_executor_dies_in_the_middle_are_in_the_log_once_and_in_order(master):
    rows = 40_000
    with running_cluster() as cluster:
        run_program("write_by_executors", master, cluster["endpoints"], str(rows))
        with LogReader.open(endpoints=cluster["endpoints"]) as reader:
            entries = [entry for entry in reader.entries() if entry["entryType"] == "SESSION_MESSAGE"]
    written = [(int(entry["payload"]), entry["clusterSessionId"]) for entry in entries]
    for task in (range(rows // 2), range(rows // 2, rows)):
        assert [number for number, _ in written if number in task] == list(task)
    assert len({session for number, session in written if number < rows // 2}) == 2, "both attempts wrote"


def read_by_executors(master, log, what):
    return json.loads(run_program("read_by_executors", master, str(log.directory), what).splitlines()[-1])


def run_program(name, *arguments):
    """The standard output of one of this folder's programs."""
    done = subprocess.run(
        [sys.executable, "-m", f"tests.faults.{name}", *arguments],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
