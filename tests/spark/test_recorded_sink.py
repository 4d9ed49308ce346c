"""A query of an earlier release that died amid a batch, and the Log that it sent into."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

import pytest

from cluster import LogReader
from tests.node.processes import Up
from tests.spark.logs import open_log
from tests.spark.sending import LINES, sent_lines
from tests.tree import SAFELY

RECORDED = Path(__file__).resolve().parents[1] / "data" / "spark-sink-1"


@pytest.mark.slow
@pytest.mark.conformance("P-31")
@pytest.mark.timeout(200)
def test_a_batch_that_an_earlier_release_left_unfinished_is_finished_and_each_row_is_once(spark, tmp_path):
    """By record_sink.py: the first of two batches is whole, of the second 8 of 12 lines are there."""
    checkpoint = shutil.copytree(RECORDED, tmp_path / "checkpoint", ignore=shutil.ignore_patterns("*.xz"))
    with tarfile.open(RECORDED / "member-0.tar.xz") as archive:
        archive.extractall(tmp_path / "cluster", **SAFELY)
    log, session_id = open_log(tmp_path / "source")
    lines = log.lines(session_id, 0, LINES)
    with Up(tmp_path / "cluster", members=1) as cluster:
        assert payloads(cluster.endpoints) == lines[:36]
        query = sent_lines(spark, log.directory, cluster.endpoints, checkpoint)
        query.awaitTermination()
        assert payloads(cluster.endpoints) == lines
        query = sent_lines(spark, log.directory, cluster.endpoints, checkpoint)
        query.awaitTermination()
        assert payloads(cluster.endpoints) == lines, "nothing is sent when nothing is new"
    log.stop()


def payloads(endpoints):
    with LogReader.open(endpoints=endpoints) as reader:
        return [entry["payload"] for entry in reader.entries(0, entry_types=["SESSION_MESSAGE"])]
