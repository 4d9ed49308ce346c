"""Supervised sessions of a real member whose services are processes, which are killed."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from cluster import ClusterClient, ClusterNode
from tests.node.counting_service import COUNTING, kill, pid_of
from tests.node.processes import await_that, endpoints_of, is_alive, keys_of, tool


@pytest.mark.slow
@pytest.mark.conformance("S-187")
def test_a_killed_service_answers_each_message_of_a_supervised_session_once(tmp_path):
    with ExitStack() as opened:
        node = opened.enter_context(ClusterNode.launch(**keys_of(tmp_path, services=[COUNTING, "echo"])))
        await_that(lambda: node.is_leader, "a leader")
        client = opened.enter_context(ClusterClient.connect(endpoints_of(node, "ipc"), supervised=True))
        answers: list[bytes] = []
        for burst in range(4):
            for number in range(500):
                while client.offer(b"m%d" % (500 * burst + number)) < 0:
                    answers += [answer.payload for answer in client.answers(0.01)]
            if burst == 1:
                assert tool(node, "snapshot").returncode == 0
            if burst > 0:
                await_that(lambda: is_alive(pid_of(node.config.path)), "the service runs")
                kill(pid_of(node.config.path))
                await_that(lambda: client.acknowledged == client.offered, "all is committed")
        count = 2 * client.offered
        await_that(
            lambda: answers.extend(answer.payload for answer in client.answers(0.1)) or len(answers) >= count,
            f"{count} answers",
        )
        answers += [answer.payload for answer in client.answers(0.2)]

    messages = [b"m%d" % number for number in range(2000)]
    assert [answer for answer in answers if answer.startswith(b"m")] == messages
    numbered = [answer for answer in answers if not answer.startswith(b"m")]
    assert numbered == [b"%d %s" % pair for pair in enumerate(messages, 1)]
