"""``cluster.context()`` and idling, in services inline and in processes of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cluster import ClusterClient, ClusteredService, ClusterNode, ServiceError
from cluster.archive.directory_lock import read_mark_header
from cluster.archive.files import OsFiles
from cluster.protocol.enums import Role
from tests.node.processes import ask, await_that, endpoints_of, keys_of, run
from tests.node.service_in_memory import Module


class Telling(ClusteredService):
    """Answers what its context says, and reports an error with it."""

    def on_start(self, cluster: Any, snapshot_image: Any) -> None:
        self.cluster = cluster

    def on_session_message(self, session: Any, timestamp: int, buffer: memoryview) -> None:
        context = self.cluster.context()
        context.error_handler(ValueError("not to my liking"))
        told = [
            context.cluster_id,
            context.member_id,
            context.service_id,
            context.service_name,
            context.cluster_directory,
            context.archive_directory,
        ]
        session.offer(json.dumps(told).encode())


@pytest.mark.parametrize("mode", ["inline", "process"])
def test_a_service_knows_where_it_runs_and_its_errors_are_counted_though_they_stop_nothing(tmp_path, mode):
    name = f"{__name__}:Telling"
    keys = keys_of(
        tmp_path,
        services=[name],
        service_mode=[mode],
        cluster_id=4,
        service_error_policy="stop",
    )
    with ClusterNode.launch(**keys) as node:
        await_that(lambda: node.is_leader, "a leader")
        answers = ask(endpoints_of(node, "ipc"), 2)
        directory = node.config.path
        folders = [str(directory / "cluster"), str(directory / "archive")]
        assert json.loads(answers[0]) == [4, 0, 0, name, *folders]

        def errors() -> list[int]:
            result = run("top", "--dir", str(directory), "--once", "--json")
            return [member["errors"] for member in json.loads(result.stdout)["members"]]

        await_that(lambda: errors() == [2], "both are counted, and the member lives")
        told = (directory / "node.log").read_text()
        assert "service 0 reported ValueError in on_session_message" in told
        assert "not to my liking" in run("tool", "errors", "--dir", str(directory)).stdout


def test_what_a_process_reports_reaches_its_member_as_reported(tmp_path):
    module = Module(str(tmp_path), f"{__name__}:Telling")
    try:
        module.start()
        module.join(Role.LEADER)
        module.log.term()
        module.log.opened(1)
        module.log.message(1, b"x")
        module.commit()
        module.settle()
        (error,) = module.errors
        assert isinstance(error, ServiceError) and error.is_reported
        assert "ValueError: not to my liking" in error.trace
        assert len(module.answers) == 1
    finally:
        module.close()


class Waiting(ClusteredService):
    """Idles in its callback until the file is there that the message names."""

    def on_start(self, cluster: Any, snapshot_image: Any) -> None:
        self.cluster = cluster

    def on_session_message(self, session: Any, timestamp: int, buffer: memoryview) -> None:
        idle_strategy = self.cluster.idle_strategy()
        idle_strategy.reset()
        Path(self.cluster.context().cluster_directory, "begun").touch()
        while not Path(self.cluster.context().cluster_directory, "released").exists():
            idle_strategy.idle()
        session.offer(b"released")


@pytest.mark.slow
@pytest.mark.conformance("S-93")
def test_the_mark_file_of_a_service_that_idles_in_a_callback_stays_fresh(tmp_path):
    name = f"{__name__}:Waiting"
    with ClusterNode.launch(**keys_of(tmp_path, services=[name])) as node:
        await_that(lambda: node.is_leader, "a leader")
        folder = node.config.path / "cluster"

        def activity() -> int:
            header = read_mark_header(OsFiles(), str(folder / "cluster-mark-service-0.dat"))
            return int(header.activity_timestamp)

        answers: list[bytes] = []
        listener = lambda session_id, timestamp, payload: answers.append(bytes(payload))  # noqa: E731
        with ClusterClient.connect(endpoints_of(node, "ipc"), listener) as client:
            assert client.offer(b"wait") > 0
            await_that((folder / "begun").exists, "it idles")
            for _ in range(2):
                before = activity()
                await_that(lambda before=before: activity() > before, "the mark file is fresh")
            client.poll_egress()
            assert answers == [], "it still idles"
            (folder / "released").touch()
            await_that(lambda: client.poll_egress() >= 0 and answers == [b"released"], "the answer")
