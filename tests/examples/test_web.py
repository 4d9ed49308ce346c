"""examples/web.py: each request over HTTP gets the answer to its own question."""

from __future__ import annotations

import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.client.leader import Leader
from tests.node.processes import await_that
from tests.node.three import Three

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def served(endpoints: str) -> Iterator[str]:
    """The address of the application, run as its docstring says."""
    command = [sys.executable, "-m", "examples.web", endpoints, "0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def post(address: str, body: bytes) -> bytes:
    with urllib.request.urlopen(urllib.request.Request(address, data=body), timeout=60) as response:
        return response.read()


def test_every_request_gets_the_answer_to_its_own_question(tmp_path):
    leader = Leader(str(tmp_path))
    leader.is_supervised = True
    try:
        with served(leader.endpoints["ipc"]) as address, ThreadPoolExecutor(10) as pool:
            questions = [b"question %d" % number for number in range(60)]
            assert list(pool.map(lambda question: post(address, question), questions)) == questions
            with urllib.request.urlopen(address) as response:
                assert response.read() == b"member 0 leads\n"
            with pytest.raises(urllib.error.HTTPError) as refused:
                post(address, bytes(70_000))
            assert refused.value.code == 413
    finally:
        leader.stop()


@pytest.mark.slow
def test_every_request_is_answered_once_while_the_leader_ends(tmp_path):
    with ExitStack() as opened:
        three = Three(tmp_path, opened, services="echo")
        await_that(lambda: three.leader() is not None, "a leader")
        with served(three.endpoints) as address, ThreadPoolExecutor(10) as pool:
            first = [pool.submit(post, address, b"%d" % number) for number in range(100)]
            first[50].result()
            three.leader().close()
            others = [pool.submit(post, address, b"%d" % number) for number in range(100, 200)]
            assert [int(answer.result()) for answer in first + others] == list(range(200))
