"""A job that is interrupted finishes its batch; one that is interrupted twice leaves it."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import threading

import pytest
from pyspark.sql import SparkSession

from jobs.command import JobOptions, run_main
from jobs.session import spark_session
from jobs.streaming import BatchGate, QueryStops, run
from tests.node.processes import await_that

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def options(tmp_path):
    said = []
    made = JobOptions.over({}, str(tmp_path), say=said.append)
    return dataclasses.replace(made, trigger={"processingTime": "0 seconds"}), said


def query(spark, gate, take):
    """A stream of small batches for ever."""

    def on_batch(batch, number):
        with gate.passing():
            take(batch)

    return (
        spark.readStream.format("rate").option("rowsPerSecond", 100).load().writeStream.foreachBatch(on_batch)
    )


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.slow
def test_the_batch_at_work_is_finished(spark, options, tmp_path, capfd):
    options, said = options
    counts = []

    def take(batch):
        if batch.count():
            interrupt()
            counts.append([batch.count() for _ in range(20)])

    gate = BatchGate()
    with pytest.raises(KeyboardInterrupt):
        run(spark, query(spark, gate, take), "counted", options, gate)
    assert [len(of) for of in counts] == [20]
    assert not spark.streams.active
    assert "stopped" in said[-1]
    assert "StackOverflowError" not in capfd.readouterr().err


def test_a_second_interrupt_leaves_the_batch_unfinished(spark, options):
    options, said = options
    may_end, has_ended = threading.Event(), threading.Event()

    def take(batch):
        if batch.count():
            interrupt()
            await_that(lambda: any("finishes its batch" in line for line in said), "what it does is said")
            interrupt()
            may_end.wait()
            has_ended.set()

    gate = BatchGate()
    with pytest.raises(KeyboardInterrupt):
        run(spark, query(spark, gate, take), "left", options, gate)
    assert not has_ended.is_set()
    (left,) = spark.streams.active
    may_end.set()
    await_that(has_ended.is_set, "the batch ends")
    left.stop()


def test_a_closed_gate_lets_no_batch_in():
    gate = BatchGate()
    with gate.passing():
        assert not gate.close(0.01)
    assert gate.close(0.01)
    with pytest.raises(QueryStops), gate.passing():
        raise AssertionError("let in")


def test_a_start_of_spark_that_is_interrupted_leaves_no_process_behind(monkeypatch, capfd):
    """With another program in place of the JVM, which PySpark forgets before it has reported."""
    started = []

    def starting(_):
        started.append(subprocess.Popen(["sleep", "600"]))
        raise KeyboardInterrupt

    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", starting)
    with pytest.raises(SystemExit) as ended:
        run_main(lambda: spark_session("a job", "local[1]"))
    assert ended.value.code == 130
    assert started[0].wait(timeout=10) == -signal.SIGKILL
    assert capfd.readouterr() == ("", "")
