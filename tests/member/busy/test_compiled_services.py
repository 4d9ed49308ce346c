"""A compiled callback: compiled turns serve it as Python's turns do, and leave the rare to Python."""

from __future__ import annotations

from random import Random

import pytest

from cluster.service.agent import ClusteredServiceAgent
from cluster.service.echo import EchoService
from cluster.testing import SimulatedCluster
from cluster.testing.storm import play
from tests.member.busy.busy_cluster import COUNTED, compiled_turns, processes, run
from tests.service.compiled_services import Counter


class LongAnswers(Counter):
    """Four of them fill what a call of the function may answer."""

    max_answer_length = 60_000

    @staticmethod
    def on_session_message_compiled(state, session_id, timestamp, position, payload, answer):
        state[payload[0]] += 1
        answer[:] = payload[0]
        return answer.size


def outcome(cluster: SimulatedCluster) -> tuple[object, ...]:
    """States, answers, and what was raised on which member."""
    cluster.check()
    errors = sorted(
        (member_id, str(error), error.log_position) for member_id, error in cluster.service_errors
    )
    states = {cluster.state(member_id) for member_id in cluster.running}
    assert len(states) == 1
    return states.pop(), [client.received for client in cluster.clients], [error[:2] for error in errors]


@pytest.mark.parametrize("members", [1, 3])
def test_compiled_turns_and_pythons_come_to_the_same_state_answers_and_errors(members):
    counted = COUNTED[:1]  # of more clients the order would be another one
    compiled = run(counted, is_compiled=True, service=Counter, members=members)
    plain = run(counted, is_compiled=False, service=Counter, members=members)

    of_compiled, of_plain = outcome(compiled), outcome(plain)
    assert of_compiled[0] == of_plain[0]
    assert compiled.clients[0].answers == plain.clients[0].answers
    assert of_compiled[2] == of_plain[2]
    assert len(of_plain[2]) > members
    assert all(compiled_turns(member) >= 5 for member in processes(compiled))
    assert not any(compiled_turns(member) for member in processes(plain))


def test_a_message_is_served_in_a_compiled_turn_or_in_pythons_and_never_in_both(monkeypatch):
    seen: list[bytes] = []
    monkeypatch.setattr(
        "cluster.service.agent.ClusteredServiceAgent.on_messages",
        lambda agent, batch: seen.extend(map(bytes, batch.payloads())),
    )
    cluster = run([[b"a%d" % row for row in range(50)]], is_compiled=True, service=Counter, members=1)

    assert len(cluster.clients[0].answers) + len(seen) == 50
    assert len(seen) < 40


def test_answers_that_do_not_fit_one_call_go_out_in_several():
    cluster = run([[b"%c" % (97 + row % 3) for row in range(24)]], is_compiled=True, service=LongAnswers)

    assert cluster.clients[0].answers == [b"%c" % (97 + row % 3) * 60_000 for row in range(24)]


def test_a_state_comes_back_from_a_snapshot_and_goes_on_in_compiled_turns():
    cluster = run([[b"a", b"a"]], is_compiled=True, service=Counter)
    cluster.take_snapshot()
    for member_id in list(cluster.running):
        cluster.kill(member_id)
        cluster.start(member_id)
    cluster.run_until(lambda: cluster.leader is not None, "one leads")
    client = cluster.connect()
    client.offer(b"a")
    cluster.settle()

    assert client.answers == [(3).to_bytes(8, "little")]
    cluster.check()


@pytest.mark.parametrize("service", [EchoService, Counter])
def test_messages_of_supervised_sessions_stay_in_compiled_turns_as_those_of_others(service, monkeypatch):
    seen: list[bytes] = []
    on_messages = ClusteredServiceAgent.on_messages

    def noted(agent, batch):
        seen.extend(map(bytes, batch.payloads()))
        on_messages(agent, batch)

    monkeypatch.setattr(ClusteredServiceAgent, "on_messages", noted)
    cluster = SimulatedCluster(service, members=3, seed=5, compiled_turns=True)
    careful, plain = cluster.connect("careful", supervised=True), cluster.connect("plain")
    for row in range(40):
        plain.offer(b"a%d" % row)
        if row % 8 == 0:
            careful.offer(b"b%d" % row)
        cluster.run(0.002)
    cluster.settle()

    assert len(plain.answers) == 40
    assert len(careful.answers) == 5
    assert sum(payload.startswith(b"b") for payload in seen) <= 3, "the first answer is Python's to keep"
    assert len(seen) < 3 * 10
    cluster.check()


def test_long_answers_to_a_supervised_session_are_all_kept_and_come_once():
    cluster = SimulatedCluster(LongAnswers, members=3, seed=5, compiled_turns=True)
    client = cluster.connect("careful", supervised=True)
    for row in range(24):
        client.offer(b"%c" % (97 + row % 3))
    cluster.settle()

    assert client.answers == [b"%c" % (97 + row % 3) * 60_000 for row in range(24)]
    cluster.check()


def test_a_supervised_session_has_each_answer_once_though_its_leader_dies():
    cluster = run([[b"b"]], is_compiled=True, service=Counter)
    client = cluster.connect("careful", supervised=True)
    for row in range(5):
        client.offer(b"a%d" % row)
    cluster.kill(cluster.await_leader())
    cluster.run_until(lambda: cluster.leader is not None, "another leads")
    client.offer(b"a5")
    cluster.settle()

    assert client.answers == [(row + 1).to_bytes(8, "little") + b"%d" % row for row in range(6)]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_histories_of_a_users_simulator_run_it_in_either_kind_of_turn(seed):
    def message(random: Random) -> bytes:
        return random.choice([b"a", b"b12", b"_", b"?", b"!"])

    played = play([Counter], message, seed)
    assert played.failure == ""
    assert played.answers > 0
