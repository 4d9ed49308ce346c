"""Read your writes: what a client knows to be committed is read at any member, also one that is late."""

from __future__ import annotations

import asyncio
import json
import subprocess
from contextlib import ExitStack

import pytest

from cluster import AsyncClusterClient, ClusterClient, ConfigurationError, LogReader, TimedOut
from tests.node.processes import COMMAND, DEADLINE_S, await_that, environment
from tests.node.three import Three, said


@pytest.fixture
def three(tmp_path):
    with ExitStack() as opened:
        cluster = Three(tmp_path, opened)
        await_that(lambda: cluster.leader() is not None, "a leader")
        yield cluster


def followers(three):
    return [node for node in three.nodes if not node.is_leader]


def payloads(reader):
    return [entry["payload"] for entry in reader.entries(entry_types=["SESSION_MESSAGE"])]


def test_what_was_committed_is_read_at_each_follower_at_once(three):
    sent = []
    with ClusterClient.connect(three.endpoints) as client:
        for number in range(20):
            sent.append(b"%d" % number)
            client.offer(sent[-1])
            client.await_committed(DEADLINE_S)
            token = client.token()
            node = followers(three)[number % 2]
            with LogReader.open(dir=str(node.config.path), at_least=token) as reader:
                assert payloads(reader) == sent
            with LogReader.open(endpoints=three.endpoint_of(node), at_least=token) as reader:
                assert payloads(reader) == sent
        assert json.loads(token)["position"] == client.committed_position


def test_a_follower_that_missed_it_is_waited_for(three):
    late = followers(three)[0]
    late.close()
    with ClusterClient.connect(three.endpoints) as client:
        client.offer(b"while it was away")
        client.await_committed(DEADLINE_S)
        token = client.token()

    directory = str(late.config.path)
    with pytest.raises(TimedOut, match=r"not committed here within 0\.2 s"):
        LogReader.open(dir=directory, at_least=token, at_least_timeout_s=0.2)
    with (
        three.launch(late.config.member_id, log_term_length=64 * 1024),
        LogReader.open(dir=directory, at_least=token) as reader,
    ):
        assert payloads(reader) == [b"while it was away"]


def test_a_token_says_in_which_term_it_stands_under_each_leader(three):
    tokens = []
    with ClusterClient.connect(three.endpoints) as client:
        for _ in range(2):
            client.offer(b"mine")
            client.await_committed(DEADLINE_S)
            tokens += [json.loads(client.token()), json.loads(client.token())]
            three.leader().close()
    left = next(node for node in three.nodes if node.is_running)
    with LogReader.open(dir=str(left.config.path)) as reader:
        assert [token["term"] for token in tokens] == [
            reader.term_before(token["position"]) for token in tokens
        ]
    first, _, second, _ = tokens
    assert first["term"] != second["term"]
    assert first["position"] <= int(second["term"].split(":")[1]) < second["position"]
    restored = json.dumps({**second, "term": first["term"]})
    with pytest.raises(ConfigurationError, match="restored to an earlier position"):
        LogReader.open(dir=str(left.config.path), at_least=restored)


@pytest.mark.parametrize("medium", ["grpc", "tcp", "ipc"])
def test_a_member_that_nobody_leads_is_read_as_before(three, medium):
    with ClusterClient.connect(three.endpoints) as client:
        client.offer(b"mine")
        client.await_committed(DEADLINE_S)
        token = client.token()
    left = followers(three)[0]
    for node in three.nodes:
        if node is not left:
            node.close()
    await_that(lambda: "enters an election: leader" in said(left), "an election")
    tcp_endpoint = left.config.tcp_endpoints.split(",")[left.config.member_id]
    endpoints = {"grpc": three.endpoint_of(left), "tcp": tcp_endpoint, "ipc": f"ipc:{left.config.ipc_path}"}
    with LogReader.open(endpoints=endpoints[medium], at_least=token, at_least_timeout_s=5) as reader:
        end = json.loads(token)["position"]
        [entry] = reader.entries(to_position=end, entry_types=["SESSION_MESSAGE"])
        assert entry["payload"] == b"mine"


def test_the_same_token_comes_over_every_way_and_goes_to_the_command(three, tmp_path):
    async def send():
        async with AsyncClusterClient.connect(three.endpoints) as client:
            await client.offer(b"hello")
            await client.await_committed(DEADLINE_S)
            return await client.token()

    token = asyncio.run(send())
    directory = str(followers(three)[0].config.path)
    command = [*COMMAND, "log", "dump", "--dir", directory, "--json", "--payload", "utf8", "--at-least"]
    dumped = subprocess.run(
        [*command, token], capture_output=True, text=True, timeout=DEADLINE_S, env=environment()
    )
    assert "hello" in dumped.stdout, dumped.stderr
    other = json.dumps({**json.loads(token), "cluster": "7:1:2"})
    refused = subprocess.run(
        [*command, other], capture_output=True, text=True, timeout=DEADLINE_S, env=environment()
    )
    assert refused.returncode == 2
    assert "the token is of cluster 7:1:2, this log of 0:" in refused.stderr
    with pytest.raises(ConfigurationError, match="the token is of cluster 7:1:2"):
        LogReader.open(endpoints=three.endpoints, at_least=other)
