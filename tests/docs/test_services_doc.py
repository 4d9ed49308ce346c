"""The blocks of docs/services.md, in files of their own, run as services of a member."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import pack

import pytest

from cluster import ClusterClient, ClusterNode
from cluster.service.clustered_service import ClusteredService
from tests.docs.texts import ROOT, steps
from tests.node.processes import await_that, keys_of, tool


@pytest.fixture
def files(tmp_path, monkeypatch) -> Iterator[None]:
    for step in steps("docs/services.md"):
        if step.file:
            (tmp_path / step.file).write_text(step.text)
    monkeypatch.chdir(tmp_path)
    yield


class Client:
    """A client that keeps its answers."""

    def __init__(self, node: ClusterNode) -> None:
        self.answers: list[bytes] = []
        self._client = ClusterClient.connect(f"0=ipc:{node.config.ipc_path}", self)

    def on_message(self, cluster_session_id: int, timestamp: int, payload: memoryview) -> None:
        self.answers.append(bytes(payload))

    def send(self, payload: bytes) -> None:
        assert self._client.offer(payload) > 0

    def await_that(self, condition: Callable[[], bool]) -> None:
        await_that(lambda: self._client.poll_egress() >= 0 and condition(), "it is answered")

    def ask(self, payload: bytes, answer: bytes) -> None:
        """Send one message, and await just this answer."""
        before = len(self.answers)
        self.send(payload)
        self.await_that(lambda: len(self.answers) > before)
        assert self.answers[before:] == [answer]

    def close(self) -> None:
        self._client.close()


@pytest.mark.slow
def test_the_services_of_the_page_do_what_they_say_in_both_modes(files, tmp_path):
    services = ["tally:Tally", "echoes:LongOnes"]
    keys = keys_of(tmp_path, services=services, service_mode=["process", "inline"])
    with ClusterNode.launch(**keys) as node:
        await_that(lambda: node.is_leader, "a leader")
        client = Client(node)
        client.ask(b"apples", b"apples: 1")
        client.ask(b"apples", b"apples: 2")
        assert tool(node, "snapshot").returncode == 0
        client.close()
    with ClusterNode.launch(**keys) as node:
        await_that(lambda: node.is_leader, "a leader")
        client = Client(node)
        client.ask(b"apples", b"apples: 3")
        client.send(b"longer than ten bytes")
        client.await_that(lambda: len(client.answers) == 3)
        assert sorted(client.answers[1:]) == [b"longer than ten bytes", b"longer than ten bytes: 1"]
        client.await_that(lambda: client.answers[-1] == b"in all: 4")
        client.close()


def test_the_page_names_every_callback() -> None:
    text = (ROOT / "docs" / "services.md").read_text()
    callbacks = [name for name, value in vars(ClusteredService).items() if callable(value) and name[0] != "_"]
    assert [name for name in callbacks if f"`{name}(" not in text] == []


@pytest.mark.slow
def test_the_compiled_service_of_the_page_answers_and_keeps_its_totals(files, tmp_path):
    keys = keys_of(tmp_path, services=["totals:Totals"], service_mode=["inline"])
    with ClusterNode.launch(**keys) as node:
        await_that(lambda: node.is_leader, "a leader")
        client = Client(node)
        client.ask(pack("<qq", 7, 30), pack("<q", 30))
        client.ask(pack("<qq", 7, -5), pack("<q", 25))
        client.ask(pack("<qq", 10_000, 1), b"expected an account below 10000 and an amount")
        assert tool(node, "snapshot").returncode == 0
        client.close()
    with ClusterNode.launch(**keys) as node:
        await_that(lambda: node.is_leader, "a leader")
        client = Client(node)
        client.ask(pack("<qq", 7, 1), pack("<q", 26))
        client.close()
