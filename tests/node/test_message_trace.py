"""``cluster.node.message_trace``: node.log has every message by its name, as a watched cluster has them."""

import json
import re
from collections import Counter

import pytest

from cluster.node.message_trace import WRITTEN_PER_SECOND_MAX, MessageTrace
from cluster.node.node_log import NodeLog
from cluster.service.echo import EchoService
from cluster.testing import SimulatedCluster


@pytest.fixture
def cluster():
    return SimulatedCluster(EchoService, watched=True)


def traced(cluster, path, level="debug"):
    """What traces the leader's messages from now on, its log, and who leads."""
    leader = cluster.await_leader()
    cluster.settle()
    log = NodeLog(path, level)
    trace = MessageTrace(log, leader, lambda: cluster.world.now_ns)
    trace.follow(cluster._members[leader].life)
    return trace, log, leader


def written(path):
    return [line for line in map(json.loads, path.read_text().splitlines()) if "from" in line]


def without_payload(text):
    return re.sub(r" ('.*'|\d+ bytes)$", "", text)


@pytest.mark.conformance("S-179", "S-180")
def test_a_leader_writes_what_a_watched_cluster_shows_of_it_and_no_payload(cluster, tmp_path):
    _, _, leader = traced(cluster, tmp_path / "node.log")
    begin = len(cluster.happenings)
    cluster.connect("alice", member=leader).offer(b"secret")
    cluster.settle()

    me = f"member {leader}"
    seen = Counter(
        without_payload(line.text)
        for line in cluster.happenings[begin:]
        if me in (line.sender, line.receiver) and line.name not in ("Hello", "HelloReply")
    )
    lines = written(tmp_path / "node.log")
    assert Counter(without_payload(line["event"]) for line in lines) == seen
    said = {(line["from"], line["to"], line["event"].partition(" ")[0]) for line in lines}
    assert {
        ("client 1", me, "SessionConnectRequest"),
        (me, "client 1", "SessionEvent"),
        (f"member {(leader + 1) % 3}", me, "AppendPosition"),
        (me, f"member {(leader + 1) % 3}", "CommitPosition"),
        ("client 1", me, "SessionMessageHeader"),
    } <= said
    assert "secret" not in (tmp_path / "node.log").read_text()


def test_a_log_that_is_no_more_at_debug_leaves_no_trace_and_a_later_life_is_traced_too(tmp_path):
    cluster = SimulatedCluster(EchoService)
    trace, log, leader = traced(cluster, tmp_path / "node.log", "warning")
    life = cluster._members[leader].life
    watched = (life.links, life.clients, life.services[0].channel)
    before = [set(vars(media)) for media in watched]
    cluster.run(1)
    assert trace.life is None and not (tmp_path / "node.log").read_text()

    log.toggle_debug()
    trace.follow(life)
    cluster.run(1)
    assert trace.life is life and written(tmp_path / "node.log")
    log.toggle_debug()
    trace.follow(life)
    count = len(written(tmp_path / "node.log"))
    cluster.run(1)
    assert trace.life is None and len(written(tmp_path / "node.log")) == count
    assert [set(vars(media)) for media in watched] == before

    log.toggle_debug()
    trace.follow(life)
    follower = (leader + 1) % 3
    trace.follow(cluster._members[follower].life)
    cluster.run(1)
    assert len(written(tmp_path / "node.log")) > count


def test_of_what_comes_faster_so_much_is_left_out_and_counted_in_bytes(cluster, tmp_path):
    _, _, leader = traced(cluster, tmp_path / "node.log")
    alice = cluster.connect("alice", member=leader)
    for _ in range(2 * WRITTEN_PER_SECOND_MAX):
        alice.offer(b"x" * 10)
    cluster.settle()
    in_first_second = len(written(tmp_path / "node.log"))
    cluster.run(2)

    lines = [json.loads(line) for line in (tmp_path / "node.log").read_text().splitlines()]
    (told,) = [line for line in lines if "bytes" in line]
    assert in_first_second <= 2 * WRITTEN_PER_SECOND_MAX
    assert told["most"] == WRITTEN_PER_SECOND_MAX and told["bytes"] > WRITTEN_PER_SECOND_MAX * 96


def test_log_level_debug_goes_back_to_info_and_any_other_to_itself(tmp_path):
    for level, usual in (("debug", "info"), ("error", "error")):
        log = NodeLog(tmp_path / level, level)
        if level != "debug":
            log.toggle_debug()
        assert log.is_debugging
        log.toggle_debug()
        assert not log.is_debugging
        (*_, told) = (json.loads(line) for line in (tmp_path / level).read_text().splitlines())
        assert told["event"] == f"log level {usual}"
