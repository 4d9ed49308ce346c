"""Consumer groups of a running member, as those who look from outside see them."""

import json

from cluster import ClusterClient
from cluster.node.node import ClusterNode
from cluster.protocol.consumer import Consumer
from tests.node.processes import await_that, endpoints_of, keys_of, run


def test_top_shows_where_each_group_is_and_how_far_behind(tmp_path):
    with ClusterNode.launch(**keys_of(tmp_path)) as node:
        await_that(lambda: node.is_leader, "a leader")
        for group, position in (("billing", 64), ("audit", 0)):
            ClusterClient.connect(endpoints_of(node, "ipc"), consumer=Consumer(group, position)).close()

        def groups(*where):
            looked = run("top", *where, "--once", "--json")
            [member] = json.loads(looked.stdout)["members"]
            return member["commitPosition"], member["consumers"]

        for where in (("--dir", str(node.config.path)), ("--endpoints", endpoints_of(node, "grpc"))):
            end, found = await_that(lambda where=where: (seen := groups(*where))[1][1:] and seen, "both")
            assert found == [
                {"group": "audit", "position": 0, "bytesBehind": end},
                {"group": "billing", "position": 64, "bytesBehind": end - 64},
            ]
            told = run("top", *where, "--once").stdout
            assert "consumer group billing: at 64, " in told
