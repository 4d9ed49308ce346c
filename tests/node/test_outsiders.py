"""A client whose bytes bring out a mistake of ours costs three lives of a member, and not all of them."""

import json

import pytest

from cluster import ClusterClient, ClusterError, ClusterNode
from cluster.member.clients.client_requests import ClientRequests
from cluster.node import disk_failures
from tests.node.processes import await_that, endpoints_of, keys_of


@pytest.mark.slow
def test_a_member_lives_on_without_the_client_that_ended_three_of_its_lives(tmp_path, monkeypatch):
    def stumble(*_):
        raise IndexError("a mistake of ours")

    monkeypatch.setattr(disk_failures, "FIRST_PAUSE_NS", 1_000_000)
    monkeypatch.setattr(disk_failures, "PAUSE_MAX_NS", 1_000_000)
    with ClusterNode.launch(**keys_of(tmp_path)) as node:
        await_that(lambda: node.is_leader, "it leads")
        with monkeypatch.context() as mistaken:
            mistaken.setattr(ClientRequests, "on_session_connect", stumble)
            with pytest.raises(ClusterError, match="has ended 3 lives of this member"):
                ClusterClient.connect(endpoints_of(node, "tcp"), message_timeout_s=60)
        await_that(lambda: node.is_leader, "it leads again")
        ClusterClient.connect(endpoints_of(node, "ipc")).close()

    lines = [json.loads(line) for line in (node.config.path / "node.log").read_text().splitlines()]
    ends = [line["why"] for line in lines if line["event"].startswith("acknowledges nothing more")]
    assert len(ends) == 3 and all("; client " in end and "127.0.0.1, was served" in end for end in ends)
