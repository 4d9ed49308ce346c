"""A Spark application leaves no secret: in plans, checkpoints, event logs, rows, or on a command line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cluster import ClusterClient, ClusterNode
from cluster.security.principals import put, token_digest
from tests.node.processes import ROOT, await_that, endpoints_of, environment, keys_of
from tests.security.planted import TOKEN, Planted
from tests.spark.secretive_query import query_and_write


@contextmanager
def secured(planted: Planted, folder: Path) -> Iterator[str]:
    """The endpoint of a member that knows the bearer of a token; a message is in its log."""
    put(str(folder / "known"), "alice", token_digest(TOKEN))
    (folder / "rights").write_text("alice: write, read\n")
    keys = {"authenticator_file": str(folder / "known"), "authorisation": str(folder / "rights")}
    with ClusterNode.launch(**keys_of(folder, authenticator="token", **keys)) as node:
        await_that(lambda: node.is_leader, "it leads")
        endpoints = endpoints_of(node, "tcp")
        with ClusterClient.connect(endpoints, credentials=TOKEN) as client:
            client.offer(b"a message")
            client.await_committed(40)
        (folder / "left").mkdir()
        yield endpoints


@pytest.mark.slow
def test_a_query_and_a_write_leave_no_secret(spark, tmp_path):
    planted = Planted(tmp_path)
    with secured(planted, tmp_path) as endpoints:
        query_and_write(spark, endpoints, planted.file("token"), tmp_path / "left")
        for pid in family_of(os.getpid()):
            planted.assert_not_shown_by(pid)
    for folder in ("checkpoint", "rows", "plans"):
        assert (tmp_path / "left" / folder).exists()
    planted.assert_left_nowhere()


@pytest.mark.slow
def test_an_application_leaves_no_secret(tmp_path):
    planted = Planted(tmp_path)
    with secured(planted, tmp_path) as endpoints:
        program = [
            "-m",
            "tests.spark.secretive_query",
            endpoints,
            planted.file("token"),
            str(tmp_path / "left"),
        ]
        application = subprocess.Popen(
            [sys.executable, *program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env=environment(),
        )
        assert application.stdout is not None
        said = b""
        while b"done" not in said:
            line = application.stdout.readline()
            assert line, said
            said += line
        for pid in family_of(application.pid):
            planted.assert_not_shown_by(pid)
        rest, _ = application.communicate(timeout=100)
        planted.assert_not_in(said + rest, "what it printed")
        assert application.returncode == 0, rest
    for folder in ("events", "checkpoint", "rows", "plans"):
        assert (tmp_path / "left" / folder).exists()
    planted.assert_left_nowhere()


def family_of(pid: int) -> list[int]:
    """A process, its children, theirs, and so on; none of one that has ended."""
    try:
        children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (ProcessLookupError, FileNotFoundError):
        return []
    return [pid, *(found for child in children for found in family_of(child))]
