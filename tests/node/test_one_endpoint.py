"""Who is given one member's endpoint alone finds the others, over gRPC and over tcp."""

from contextlib import ExitStack

import pytest

from cluster import ClusterClient
from cluster.cli.members import ask_members
from cluster.transport.endpoint import parse_endpoints
from tests.node.processes import await_that
from tests.node.three import Three, check_level, send


@pytest.mark.conformance("C-172")
def test_a_client_that_knows_one_follower_is_sent_on_and_follows_the_leaders(tmp_path):
    with ExitStack() as opened:
        cluster = Three(tmp_path, opened)
        leader = await_that(cluster.leader, "a leader")
        follower = next(node for node in cluster.nodes if node is not leader)
        over_tcp = f"tcp:{follower.config.tcp_ingress_of(follower.config.member)}"
        over_grpc = cluster.endpoint_of(follower).partition("=")[2]

        for endpoint in (over_grpc, over_tcp):
            assert sorted(ask_members(parse_endpoints(endpoint))) == [0, 1, 2]
        with ClusterClient.connect(over_grpc, message_timeout_s=20) as client:
            assert client.leader_member_id == leader.config.member_id
        with ClusterClient.connect(over_tcp, message_timeout_s=20) as client:
            assert client.leader_member_id == leader.config.member_id
            send(client, 10)
            client.await_committed(20)
            leader.close()
            send(client, 10)
            client.await_committed(20)
            assert client.leader_member_id != leader.config.member_id
        cluster.nodes.remove(leader)
        check_level(cluster, 20)
