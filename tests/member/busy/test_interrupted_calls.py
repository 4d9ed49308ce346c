"""Calls of compiled turns that a signal interrupts, or that take a part of what they are given."""

import errno
from collections import Counter
from random import Random

import pytest

from cluster.member.busy import lend, words
from cluster.testing.calls import SimulatedCalls
from cluster.testing.network import SimulatedSocket
from cluster.testing.python_calls import FileCalls
from tests.member.busy.busy_cluster import compiled_turns, log_of, processes, run

PAYLOADS = [[b"%d %d" % (client, row) + b"." * (row * 61 % 1900) for row in range(30)] for client in range(2)]
CHANCE = 0.2
OF_FILES = ("_write", "_sync", "_full_sync")
INTERRUPTED = ("_wait", "_receive", "_send", *OF_FILES)
UNUSED_SYNC = {1: "_full_sync", 2: "_sync"}


@pytest.fixture
def counts(monkeypatch):
    """How many calls were interrupted, and how many writes and sends cut short, by their names."""
    counts, chance = Counter(), Random(35)

    def interrupting(call, name):
        def interrupted(calls, *arguments):
            if chance.random() < CHANCE:
                counts[name] += 1
                raise InterruptedError(errno.EINTR, name)
            return call(calls, *arguments)

        return interrupted

    def cut_short(calls, file, buffer, length, offset):
        if chance.random() < CHANCE:
            counts["short writes"] += 1
            length = chance.randint(1, length)
        return write(calls, file, buffer, length, offset)

    write = FileCalls._write
    monkeypatch.setattr(FileCalls, "_write", cut_short)
    for name in INTERRUPTED:
        owner = FileCalls if name in OF_FILES else SimulatedCalls
        monkeypatch.setattr(owner, name, interrupting(getattr(owner, name), name))
    return counts


@pytest.mark.parametrize(("level", "passes"), [(1, 1), (2, 3)])
def test_interrupted_calls_and_short_writes_change_nothing_that_others_see(
    monkeypatch, counts, level, passes
):
    """Whether a run of compiled turns is one pass, or goes on with what is left in sockets."""
    receive_into, turns = SimulatedSocket.recv_into, lend.busy_turns

    def counted_turns(tables):
        reason = turns(tables)
        counts["passes", int(tables.words[words.RUN_TURNS])] += 1
        return reason

    monkeypatch.setattr(SimulatedSocket, "recv_into", lambda self, view: receive_into(self, view[:900]))
    monkeypatch.setattr(lend, "busy_turns", counted_turns)
    settings = {"file_sync_level": level, "passes_max": passes, "checksums": ("crc32c",) * 3}
    cluster = run(PAYLOADS, is_compiled=True, **settings)

    assert [[bytes(answer) for answer in client.answers] for client in cluster.clients] == PAYLOADS
    members = processes(cluster)
    assert len({log_of(member) for member in members}) == 1
    assert all(compiled_turns(member) > 20 for member in members)
    assert min(counts[name] for name in (*INTERRUPTED, "short writes") if name != UNUSED_SYNC[level]) > 3
    assert all(counts["passes", number] > 3 for number in range(1, passes + 1))
    cluster.check()
