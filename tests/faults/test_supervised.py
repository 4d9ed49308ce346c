"""A supervised client counts its answers, while leaders and processes of services are killed."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

import pytest

from cluster import ClusterClient
from tests.faults.conftest import SHORT_TIMEOUTS, STEADY_TIMEOUTS
from tests.node.counting_service import COUNTING, REPEATING, pid_of

pytestmark = pytest.mark.faults

BURST = 2_000


@pytest.mark.conformance("S-187")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("services", [[COUNTING, "echo"], [REPEATING]], ids=["two", "one"])
def test_every_answer_comes_once_whoever_is_killed(members_of, services):
    members = members_of(keys={"services": services, **SHORT_TIMEOUTS})
    members.start()
    members.await_leader()
    answers: list[bytes] = []
    with ClusterClient.connect(
        members.tcp, lambda session_id, timestamp, payload: answers.append(bytes(payload)), supervised=True
    ) as client:
        for burst in range(5):
            offer(client, range(BURST * burst, BURST * (burst + 1)))
            leader = members.await_leader()
            members.kill(leader)
            survivor = members.await_leader(other_than=leader)
            with suppress(ProcessLookupError):
                os.kill(pid_of(members.member_dir(survivor)), signal.SIGKILL)
            members.start(leader)
            client.await_committed(60)
            members.await_level()
        count = len(services) * client.offered
        while len(answers) < count:
            assert client.poll_egress() >= 0 and not client.is_closed, client.why_closed
            client.wait(0.1)
        client.wait(0.5)
        client.poll_egress()

    messages = [b"m%d" % number for number in range(5 * BURST)]
    assert [answer for answer in answers if answer.startswith(b"m")] == messages
    numbered = [answer for answer in answers if not answer.startswith(b"m")]
    assert numbered == [b"%d %s" % pair for pair in enumerate(messages, 1) if COUNTING in services]


@pytest.mark.timeout(300)
def test_a_plain_client_of_a_leader_that_lives_gets_every_answer_once_whenever_its_service_dies(members_of):
    members = members_of(keys={"services": [REPEATING], **STEADY_TIMEOUTS})
    members.start()
    leader = members.await_leader()
    answers: list[bytes] = []
    with ClusterClient.connect(
        members.tcp, lambda session_id, timestamp, payload: answers.append(bytes(payload))
    ) as client:
        for burst in range(8):
            offer(client, range(BURST * burst, BURST * (burst + 1)))
            with suppress(ProcessLookupError):
                os.kill(pid_of(members.member_dir((leader + burst % 2) % 3)), signal.SIGKILL)
        while len(answers) < client.offered:
            assert client.poll_egress() >= 0 and not client.is_closed, client.why_closed
            client.wait(0.1)
    assert members.await_leader() == leader
    assert answers == [b"m%d" % number for number in range(8 * BURST)]


def offer(client: ClusterClient, numbers: range) -> None:
    for number in numbers:
        while client.offer(b"m%d" % number) < 0:
            assert not client.is_closed, client.why_closed
            client.poll_egress()
    client.poll_egress()
