"""Leadership handed over by a tool, between processes: what clients see of it."""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import ExitStack

import pytest

from cluster import ClusterClient
from tests.node.counting_service import REPEATING, Client, pid_of
from tests.node.processes import Up, await_that, run
from tests.node.three import Three, said

# Far above what it takes, also on a busy machine, and far below what the death of a leader costs there.
GAP_S_MAX = 2.0


def test_sessions_stay_open_and_all_that_is_sent_is_committed(tmp_path):
    with Up(tmp_path / "c") as up:
        answers: list[bytes] = []
        with ClusterClient.connect(
            up.endpoints, lambda _, __, payload: answers.append(bytes(payload))
        ) as client:
            session_id, sent, longest_s = client.cluster_session_id, 0, 0.0
            for target in ((up.leader + 1) % 3, (up.leader + 2) % 3, up.leader):
                moved = run("tool", "transfer-leadership", "--dir", str(up.directory), "--to", str(target))
                assert (moved.returncode, moved.stdout) == (0, f"member {target} leads\n"), moved.stderr
                begun = time.monotonic()
                while client.offer(b"%d" % sent) < 0:
                    client.poll_egress()
                    assert time.monotonic() - begun < 30
                sent += 1
                client.await_committed()
                longest_s = max(longest_s, time.monotonic() - begun)
                assert (client.cluster_session_id, client.leader_member_id) == (session_id, target)
            assert longest_s < GAP_S_MAX
            while len(answers) < sent:
                client.poll_egress()
        assert answers == [b"%d" % number for number in range(sent)]
        refused = run("tool", "transfer-leadership", "--dir", str(up.directory), "--to", "7", "--json")
        assert (refused.returncode, refused.stderr) == (1, "there is no member 7, expected one of 0, 1, 2\n")
        assert json.loads(up.first_line)["leaderMemberId"] == up.leader


@pytest.mark.slow
def test_a_leader_whose_service_process_stands_still_hands_over_and_answers_come_again(tmp_path):
    with ExitStack() as opened:
        cluster = Three(tmp_path, opened, services=[REPEATING], leader_heartbeat_timeout="2s")
        await_that(cluster.leader, "a leader")
        client = Client(cluster.endpoints)
        opened.callback(client.client.close)
        client.send(b"first")
        client.await_answers(1)
        leader = cluster.leader()
        pid = pid_of(leader.config.path)
        os.kill(pid, signal.SIGSTOP)
        opened.callback(os.kill, pid, signal.SIGCONT)
        client.send(b"nobody answers this")

        def leads_another():
            client.client.poll_egress()
            return cluster.leader() not in (None, leader)

        await_that(leads_another, "another leader")
        client.send(b"last")
        assert client.await_answers(2)[-1] == b"last"
        stands = f"service 0 of member {leader.config.member_id} stands still"
        for where in (("--dir", str(tmp_path)), ("--endpoints", cluster.endpoints)):
            assert stands in run("status", *where).stdout
        assert "service 0 is away, and those of member" in said(leader)
        assert all(said(node).count("hands leadership over") == (node is leader) for node in cluster.nodes)
