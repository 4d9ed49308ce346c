"""Answers of a user's function, through the sink, in the Log of a real cluster."""

from __future__ import annotations

import argparse
import dataclasses

import pytest

from cluster import ClusterClient, LogReader
from jobs.command import JobOptions
from jobs.respond import respond
from tests.node.processes import Up

pytestmark = pytest.mark.timeout(300)


def messages(endpoints: str) -> list[bytes]:
    reader = LogReader.open(endpoints=endpoints)
    try:
        batches = reader.batches(0, reader.commit_position(), columns=["entryType", "payload"])
        rows = [row for batch in batches for row in batch.to_pylist()]
    finally:
        reader.close()
    return [row["payload"] for row in rows if row["entryType"] == "SESSION_MESSAGE"]


@pytest.mark.slow
def test_each_message_is_answered_once_and_a_restart_answers_only_what_is_new(spark, tmp_path):
    with Up(tmp_path / "cluster", "--service", "echo") as cluster:
        options = JobOptions.over({"endpoints": cluster.endpoints}, str(tmp_path), say=lambda _: None)
        given = argparse.Namespace(transform="tests.jobs.shouting:answers", to=None)
        options = dataclasses.replace(options, arguments=given)
        with ClusterClient.connect(cluster.ipc) as client:
            client.offer_batch([b"one", b"two"])
            client.await_committed(20)
        respond(spark, options)
        assert sorted(messages(cluster.endpoints)) == sorted([b"one", b"two", b"ONE!", b"TWO!"])

        with ClusterClient.connect(cluster.ipc) as client:
            client.offer(b"three")
            client.await_committed(20)
        respond(spark, options)
        assert messages(cluster.endpoints)[-2:] == [b"three", b"THREE!"]
        assert len(messages(cluster.endpoints)) == 6
