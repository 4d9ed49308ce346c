"""AsyncClusterClient with a supervised session: its leader is killed, and each answer comes once."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from cluster import AsyncClusterClient
from tests.node.processes import DEADLINE_S, Up

COUNT = 3_000
KILLED_AT = 1_000


async def _offer_all(client: AsyncClusterClient, leader_pid: int) -> None:
    for number in range(COUNT):
        if number == KILLED_AT:
            os.kill(leader_pid, signal.SIGKILL)
        await client.offer(b"%d" % number)


async def _take_all(client: AsyncClusterClient) -> list[bytes]:
    answers = []
    while len(answers) < COUNT:
        answers.append((await anext(client.answers())).payload)
    return answers


async def _main(up: Up) -> tuple[list[bytes], list[bytes]]:
    """(all answers, those that came although none was due any more)."""
    async with AsyncClusterClient.connect(up.tcp, supervised=True, message_timeout_s=20) as client:
        session_id = client.cluster_session_id
        _, answers = await asyncio.gather(_offer_all(client, up.pid(up.leader)), _take_all(client))
        await client.await_committed(DEADLINE_S)
        late = [answer.payload async for answer in client.answers(timeout_s=0.5)]
        assert client.cluster_session_id == session_id and client.leader_member_id != up.leader
    return answers, late


@pytest.mark.conformance("S-187")
def test_each_answer_of_a_supervised_async_session_comes_once_though_its_leader_is_killed(tmp_path):
    options = ("--set", "leader_heartbeat_timeout=1s", "--set", "leader_heartbeat_interval=100ms")
    with Up(tmp_path / "c", *options) as up:
        answers, late = asyncio.run(asyncio.wait_for(_main(up), 2 * DEADLINE_S))

    assert (answers, late) == ([b"%d" % number for number in range(COUNT)], [])
