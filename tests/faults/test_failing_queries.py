"""Queries from the log into the log that fail at each moment of a micro-batch, and are started again."""

import os
import signal
import subprocess
import sys

import pytest

from benchmarks.processes import running_cluster
from cluster.reader import LogReader
from tests.faults.failing_query import SENT_BEFORE, SENT_OF_IT
from tests.spark.logs import open_log
from tests.spark.sending import LINES, sent_lines

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    """The directory of a log, and its lines."""
    log, session_id = open_log(tmp_path_factory.mktemp("source") / "member-0")
    yield log.directory, log.lines(session_id, 0, LINES)
    log.stop()


class Query:
    def __init__(self, spark, source, endpoints, folder):
        self.spark, self.source, self.endpoints, self.folder = spark, source, endpoints, folder
        self.checkpoint = folder / "checkpoint"

    def fail(self, moment, how):
        """What the program that failed says, in the end."""
        arguments = [moment, how, str(self.source), self.endpoints, str(self.checkpoint)]
        done = subprocess.run(
            [sys.executable, "-m", "tests.faults.failing_query", *arguments],
            capture_output=True,
            text=True,
            timeout=400,
            start_new_session=True,
        )
        assert done.returncode == (-signal.SIGKILL if how == "kill" else 1), done.stderr
        assert sorted(os.listdir(self.checkpoint / "offsets"))[-2:] == ["0", "1"], "it was planned"
        assert "1" not in os.listdir(self.checkpoint / "commits")
        return done.stderr

    def give_up(self, moment):
        """Fail by an error, which Spark answers by having the sink give the micro-batch up."""
        assert f"it fails when the micro-batch is {moment}" in self.fail(moment, "raise")
        assert (self.folder / "aborted").read_text() == "1"

    def start_again(self):
        sent_lines(self.spark, self.source, self.endpoints, self.checkpoint).awaitTermination()

    def sent(self):
        with LogReader.open(endpoints=self.endpoints) as reader:
            return [entry["payload"] for entry in reader.entries(0, entry_types=["SESSION_MESSAGE"])]


@pytest.fixture
def query(spark, lines, tmp_path):
    with running_cluster(1) as cluster:
        yield Query(spark, lines[0], cluster["endpoints"], tmp_path)


def check_is_completed(query, lines):
    """Each line is once in the log when the query was started again, and nothing when it is once more."""
    for _ in range(2):
        query.start_again()
        assert query.sent() == lines


@pytest.mark.conformance("P-23")
def test_a_driver_that_is_killed_before_the_tasks_of_a_micro_batch_has_it_run_then(query, lines):
    query.fail("planned", "kill")
    assert query.sent() == lines[1][:SENT_BEFORE]
    check_is_completed(query, lines[1])


@pytest.mark.conformance("P-24")
def test_a_driver_that_is_killed_before_the_sinks_commit_sends_nothing_twice(query, lines):
    query.fail("sent", "kill")
    assert query.sent() == lines[1]
    check_is_completed(query, lines[1])


@pytest.mark.conformance("P-25")
def test_a_driver_that_is_killed_before_sparks_commit_sends_nothing_twice(query, lines):
    query.fail("committed", "kill")
    assert query.sent() == lines[1]
    check_is_completed(query, lines[1])


@pytest.mark.conformance("P-81")
def test_a_query_whose_task_failed_at_every_attempt_completes_the_micro_batch(query, lines):
    query.give_up("sending")
    assert query.sent() == lines[1][: SENT_BEFORE + SENT_OF_IT]
    check_is_completed(query, lines[1])


@pytest.mark.conformance("P-82")
def test_a_micro_batch_whose_commit_failed_is_not_sent_again(query, lines):
    query.give_up("sent")
    assert query.sent() == lines[1]
    check_is_completed(query, lines[1])
