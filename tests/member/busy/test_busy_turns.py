"""A compiled turn does what Python's does: the same log, the same answers, the same counts."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from numba import config

from cluster.archive import page_cache
from cluster.consensus.context import ConsensusModuleContext
from cluster.member.busy import lend
from cluster.member.clocks import MemberClocks
from cluster.testing.disk import SimulatedFile
from cluster.testing.network import SimulatedSocket
from cluster.transport.sockets import Connection
from tests.member.busy.busy_cluster import PAYLOADS, compiled_turns, log_of, processes, run, traces

ROOT = Path(__file__).resolve().parents[3]


def read_log(cluster):
    """Kinds, sessions and payloads of the members' one log."""
    members = processes(cluster)
    logs = [log_of(member) for member in members]
    assert len({log for log in logs}) == 1, "members have one log"
    return logs[0]


def answers(cluster):
    return [[bytes(answer) for answer in client.answers] for client in cluster.clients]


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("checksums", [(), ("crc32c",) * 3, ("crc32",) * 3], ids=["none", "crc32c", "crc32"])
@pytest.mark.parametrize("members", [1, 3])
def test_answers_come_in_order_whoever_takes_the_turns(level, checksums, members):
    settings = {"file_sync_level": level, "checksums": checksums[:members], "members": members}
    compiled = run(PAYLOADS, is_compiled=True, **settings)
    plain = run(PAYLOADS, is_compiled=False, **settings)

    assert answers(compiled) == answers(plain) == PAYLOADS
    assert all(compiled_turns(member) >= 5 for member in processes(compiled))
    assert not any(compiled_turns(member) for member in processes(plain))


@pytest.mark.parametrize(("level", "other"), [(1, "fullsync"), (2, "datasync")])
def test_the_log_is_synced_by_the_call_of_its_level_whoever_takes_the_turns(monkeypatch, level, other):
    """Once it is there: what is made or grows is synced with its metadata at each level."""
    sync, counts = getattr(SimulatedFile, other), []

    def counted(file):
        counts[-1] += file.path.endswith("-0.rec")
        sync(file)

    monkeypatch.setattr(SimulatedFile, other, counted)
    for is_compiled in (True, False):
        for rows in (5, 40):
            counts.append(0)
            run([PAYLOADS[0][:rows]], is_compiled=is_compiled, file_sync_level=level)

    assert counts[0] == counts[1] and counts[2] == counts[3], "none for messages"


def test_members_have_one_log_and_one_count_of_each_session():
    cluster = run(PAYLOADS, is_compiled=True)
    cluster.check()

    read_log(cluster)
    for member in processes(cluster):
        slots = member.life.consensus_module.replica.sessions.table.slots
        committed = np.sort(slots["committed"][slots["state"] != 0])
        assert committed.tolist() == [40, 40]
        service = member.life.services[0].agent
        assert service.joined_position == member.life.consensus_module.log.commit_position


def test_messages_in_many_fragments_are_answered_by_compiled_turns():
    payloads = [[bytes(range(256)) * (1 + row) for row in range(24)]]  # up to five frames of the MTU
    cluster = run(payloads, is_compiled=True)

    assert answers(cluster) == payloads
    assert all(compiled_turns(member) > 10 for member in processes(cluster))


@pytest.mark.parametrize("piece", [33, 500])
def test_frames_that_come_in_pieces_wait_for_their_rest_in_compiled_turns(monkeypatch, piece):
    """Between two runs of them, too, when their connections have what came so far."""
    counts = Counter()
    receive_into, adopt, turns = SimulatedSocket.recv_into, Connection.adopt, lend.busy_turns

    def counted_adopt(connection, data):
        counts["adopted"] += 1
        adopt(connection, data)

    def counted_turns(tables):
        counts["begun with half frames"] += tables.keepers.any()
        return turns(tables)

    monkeypatch.setattr(SimulatedSocket, "recv_into", lambda self, view: receive_into(self, view[:piece]))
    monkeypatch.setattr(Connection, "adopt", counted_adopt)
    monkeypatch.setattr(lend, "busy_turns", counted_turns)
    monkeypatch.setattr(MemberClocks, "ask", lambda self: None)  # Python takes these messages
    payloads = [[bytes([row % 251]) * (row * 97 % 1400) for row in range(60)]]
    cluster = run(payloads, is_compiled=True)

    assert answers(cluster) == payloads
    assert counts["begun with half frames"] > 100
    # What keeps the links between two followers alive goes to Python.
    intervals = cluster.world.now_ns // ConsensusModuleContext().leader_heartbeat_interval_ns
    assert counts["adopted"] < 14 + 2 * intervals, "greetings, terms that are told, empty envelopes of two"
    cluster.check()


def test_a_log_goes_on_in_the_next_terms_and_segments():
    payloads = [[b"x" * 1500 for _ in range(150)]]  # three terms of 64 KiB, in segments of one
    cluster = run(payloads, is_compiled=True)

    assert answers(cluster) == payloads
    assert len(read_log(cluster)) > 3 * 64 * 1024


@pytest.mark.parametrize("level", [0, 1])
def test_what_lies_far_behind_leaves_the_page_cache_whoever_takes_the_turns(monkeypatch, level):
    uncached = []
    monkeypatch.setattr(page_cache, "CHUNK", 16 * 1024)
    monkeypatch.setattr(
        SimulatedFile, "uncache", lambda self, *at: uncached.append((self.path.rpartition("/")[2], *at))
    )
    settings = {"file_sync_level": level, "cached_length": 64 * 1024}
    found = []
    for is_compiled in (True, False):
        uncached.clear()
        members = processes(run([[b"x" * 12_000] * 120], is_compiled=is_compiled, **settings))
        found.append(
            Counter((name, at + i) for name, at, length in uncached for i in range(0, length, 16 * 1024))
        )

    assert found[0] == found[1]
    segment = members[0].life.consensus_module.log.recording.segment_length
    (end,) = {len(log_of(member)) for member in members}
    assert end > segment + 64 * 1024
    expected = range(0, (end - 64 * 1024) // 16384 * 16384, 16384)
    assert found[0] == {(f"0-{at // segment * segment}.rec", at % segment): 3 for at in expected}


def test_a_leader_that_dies_in_compiled_turns_loses_nothing_acknowledged():
    cluster = run(PAYLOADS, is_compiled=True)
    client = cluster.clients[0]
    cluster.kill(cluster.await_leader())
    cluster.run_until(lambda: cluster.leader is not None, "another leads")
    client.offer(b"after")
    cluster.settle()

    assert client.answers == [*PAYLOADS[0], b"after"]
    cluster.check()


if not config.DISABLE_JIT:  # else this is that run

    @pytest.mark.slow
    @pytest.mark.timeout(300)
    def test_with_compilation_off_the_turn_is_the_same_code_with_the_same_trace():
        command = [sys.executable, "-m", "tests.member.busy.busy_cluster"]
        plain = subprocess.run(
            command,
            cwd=ROOT,
            env=os.environ | {"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert plain.stdout.split() == traces()
