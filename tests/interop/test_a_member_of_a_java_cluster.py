"""A member of ours takes the place of a real one, in a cluster of which the other two are real."""

from __future__ import annotations

import shutil
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from cluster.errors import ClusterError
from cluster.reader import LogReader
from tests.interop.aeron import RealNode, cluster_node, cluster_tool, media_driver, real_backup, told_by
from tests.interop.mixed_cluster import (
    OPTIONS,
    OURS,
    PORT,
    Mixed,
    await_mark_file,
    check_all_are_equal,
    is_free,
    mixed,
)
from tests.node.processes import run

pytestmark = [pytest.mark.interop, pytest.mark.slow]


@pytest.mark.timeout(900)
def test_it_votes_follows_and_has_what_real_ones_have_through_ten_kills_of_real_leaders(tmp_path):
    with mixed(tmp_path, "inline") as cluster:
        for kill in range(10):
            killed_id, killed_s = cluster.kill_leader()
            assert cluster.leader() == 1 - killed_id, "with the vote of ours"
            cluster.work(1 + kill)  # committed with ours alone
            if kill % 4 == 3:
                cluster.kill_ours()
                cluster.start_ours()
            cluster.start_killed(killed_id, killed_s)
        assert check_all_are_equal(cluster) > 500
        cluster.stop_ours()
        assert "voted for member 0" in cluster.story
        assert "voted for member 1" in cluster.story
        assert "RemoteProtocolError" not in cluster.story, "what real ones say is refused"


@pytest.mark.timeout(600)
def test_it_fetches_what_others_have_written_without_it_takes_snapshots_and_gives_its_place_back(tmp_path):
    with mixed(tmp_path, "process") as cluster:
        cluster.stop_ours()
        for seed in (1, 2):
            killed_id, killed_s = cluster.kill_leader()
            cluster.start_killed(killed_id, killed_s)
            cluster.work(seed)
        cluster.start_ours()
        assert "fetches term" in cluster.story
        check_all_are_equal(cluster)

        assert cluster_tool(cluster.member_dir(cluster.leader()) / "cluster", "snapshot").status == 0
        cluster.await_that(lambda: '"snapshot at ' in cluster.story, "a snapshot")
        cluster.work(3)
        cluster.await_level()
        cluster.stop_ours()
        cluster.start_ours()
        assert "starts from the snapshot at" in cluster.story
        cluster.stop_ours()

        cluster.await_that(lambda: is_free(PORT + 100 * OURS + 3), "the driver of ours listens still")
        cluster.start(OURS)
        cluster.work(4)
        cluster.nodes[0].stop()
        cluster.start(0)
        time.sleep(1)
        assert told_by(cluster.record(OURS))[1] == told_by(cluster.record(0))[1]


def end_of(copy: Path) -> int:
    """How far a backup has copied, -1 where it has nothing."""
    try:
        with LogReader.open(dir=str(copy)) as reader:
            return reader.commit_position()
    except ClusterError:
        return -1


@pytest.mark.timeout(300)
def test_a_real_backup_of_the_cluster_copies_ours(tmp_path):
    copy = tmp_path / "copy"
    with mixed(tmp_path, "inline") as cluster:
        assert cluster_tool(cluster.member_dir(cluster.leader()) / "cluster", "snapshot").status == 0
        cluster.await_that(lambda: '"snapshot at ' in cluster.story, "a snapshot")
        cluster.work(1)
        cluster.await_level()
        ours = f"localhost:{PORT + 100 * OURS + 3}"
        with real_backup(copy, "--member-id", "3", "--consensus-endpoints", ours, *OPTIONS) as backup:
            cluster.work(2)
            cluster.await_level()
            end = cluster.committed(OURS)
            cluster.await_that(lambda: end_of(copy) >= end, backup.errors())
        with (
            LogReader.open(dir=str(copy)) as copied,
            LogReader.open(dir=str(cluster.member_dir(OURS))) as own,
        ):
            assert copied.earliest_position() == 0
            assert list(copied.entries(0, end)) == list(own.entries(0, end))


def accept_that_ours_is_empty(cluster: Mixed) -> None:
    """It waits until somebody does."""
    cluster.launch_ours()
    waits = "waits for members 0, 1: its disk has no votes"
    cluster.await_that(lambda: waits in cluster.story, "it waits")
    cluster.stop_ours()
    accepted = run("tool", "accept-data-loss", "--dir", str(cluster.member_dir(OURS)), "--member", "2")
    assert accepted.returncode == 0, accepted.stderr


@pytest.mark.timeout(400)
@pytest.mark.parametrize("version", ["1.44.1", "1.46.9", "1.49.3"])
def test_an_empty_one_has_a_say_once_that_is_accepted_and_ends_with_the_cluster(tmp_path, version):
    """Here the real ones are of older releases that are read."""
    script = ["--service", "script", *OPTIONS]
    with media_driver() as aeron_dir, ExitStack() as running:

        def start(member_id: int) -> RealNode:
            node = cluster_node(tmp_path, member_id, *script, version=version)
            running.callback(node.stop)
            return node

        nodes = [start(0), start(1)]
        for node in nodes:
            node.await_joined()
        cluster = Mixed(tmp_path, nodes, aeron_dir, "inline")
        cluster.work(0)
        cluster.configure_ours("128k")
        accept_that_ours_is_empty(cluster)
        running.callback(cluster.kill_ours_if_it_runs)
        cluster.launch_ours()
        why = "has log_term_length = 65536, and this one 131072"
        cluster.await_that(lambda: why in cluster.story, "the wrong key is named")
        cluster.stop_ours()
        shutil.rmtree(cluster.member_dir(OURS))
        cluster.configure_ours()
        accept_that_ours_is_empty(cluster)
        cluster.start_ours()

        leader_id = cluster.leader()
        nodes[leader_id].stop()
        stopped_s = time.monotonic()
        assert cluster.leader() == 1 - leader_id
        cluster.work(1)
        await_mark_file(stopped_s)  # on a busy machine it did not end by itself
        nodes[leader_id] = start(leader_id)
        nodes[leader_id].await_joined()
        check_all_are_equal(cluster)
        assert cluster_tool(cluster.member_dir(1 - leader_id) / "cluster", "shutdown").status == 0
        assert cluster.ours.end()[0] == 0
        assert '"snapshot at ' in cluster.story
