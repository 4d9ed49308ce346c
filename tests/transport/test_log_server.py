"""Where the readers of a member's log are: what they still need is kept for them, for a while."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from cluster.protocol import link
from cluster.protocol.enums import ClusterTimeUnit
from cluster.transport import log_server
from cluster.transport.log_server import LogServer

END = 4096
BLOCK = 1024


class Log:
    """Four blocks of a kibibyte, committed."""

    def status(self, correlation_id):
        return link.LogStatus(
            correlation_id, 0, END, END, 0, None, None, 0, 0, 0, 0, 0, 0, 0, 65536, 1408, 0,
            ClusterTimeUnit.MILLIS,
        )  # fmt: skip

    def commit_position(self):
        return END

    def blocks(self, from_position, to_position, *, max_bytes):
        for position in range(from_position, to_position, BLOCK):
            yield position, np.zeros(BLOCK, np.uint8)

    def close(self):
        pass


@pytest.fixture
def server():
    with ThreadPoolExecutor(1) as executor:
        yield LogServer(Log, executor)


def test_the_slowest_reader_is_known_while_it_reads_and_forgotten_when_it_ends(server):
    async def read():
        fast = server.read(link.LogRequest(1, 2 * BLOCK, END, 0))
        slow = server.read(link.LogRequest(2, 0, END, 0))
        assert server.least_position is None
        seen = []
        for _ in range(3):  # the status, then two blocks
            await anext(fast)
            await anext(slow)
            seen.append(server.least_position)
        await slow.aclose()
        seen.append(server.least_position)
        await fast.aclose()
        seen.append(server.least_position)
        return seen

    assert asyncio.run(read()) == [None, 0, BLOCK, 3 * BLOCK, None]


def test_a_reader_that_takes_nothing_for_a_minute_is_not_waited_for(server, monkeypatch):
    async def read():
        reader = server.read(link.LogRequest(1, 0, END, 0))
        await anext(reader)
        await anext(reader)
        before = server.least_position
        monkeypatch.setattr(log_server, "IDLE_READER_S", -1.0)
        after = server.least_position
        await reader.aclose()
        return before, after

    assert asyncio.run(read()) == (0, None)
