"""Services in processes of their own, on real members: killed, slow, of several kinds beside each other."""

from __future__ import annotations

import time
from typing import Any

import pytest

from cluster import ClusteredService, ClusterNode
from cluster.member.services.remote_service import RemoteService
from tests.node.counting_service import COUNTING, REPEATING, Client, events, kill, pid_of
from tests.node.processes import Process, Up, await_that, free_base_port, is_alive, keys_of, run, tool


@pytest.mark.slow
@pytest.mark.conformance("C-311")
def test_a_killed_service_goes_on_where_it_was_and_its_member_does_not_notice(tmp_path):
    with ClusterNode.launch(**keys_of(tmp_path, services=[COUNTING, "echo"])) as node:
        await_that(lambda: node.is_leader, "a leader")
        client = Client(f"0=ipc:{node.config.ipc_path}")
        client.send(*[b"m%d" % i for i in range(100)])
        client.await_answers(200)
        assert tool(node, "snapshot").returncode == 0
        client.send(*[b"n%d" % i for i in range(100)])
        client.await_answers(400)

        pid = pid_of(node.config.path)
        kill(pid)
        client.send(b"away")
        await_that(lambda: client.client.poll_egress() >= 0 and b"away" in client.answers, "the echo goes on")
        assert node.is_leader
        assert client.await_answers(402)[-1] == b"201 away"
        assert pid_of(node.config.path) != pid

        client.send(b"state")
        assert client.await_answers(404)[-1] == b"201 201 201", "each message and each timer came once"
        ours = [answer for answer in client.answers if answer.split()[0].isdigit()]
        assert [int(answer.split()[0]) for answer in ours] == [*range(1, 202), 201]
        log = events(node.config.path)
        assert f"service 0: its process {pid} was ended by signal 9; it is started again in 0.1 s" in log
        assert sum(line.startswith("enters an election") for line in log) == 1
        client.client.close()
    assert not is_alive(pid_of(node.config.path)), "the member's end is its services'"


@pytest.mark.slow
@pytest.mark.parametrize("services", [1, 2])
def test_compiled_turns_serve_it_and_python_is_called_for_what_is_rare(tmp_path, monkeypatch, services):
    python_turns = []
    do_work = RemoteService.do_work
    monkeypatch.setattr(
        RemoteService, "do_work", lambda self, *now: python_turns.append(0) or do_work(self, *now)
    )
    with ClusterNode.launch(**keys_of(tmp_path, services=[REPEATING] * services)) as node:
        await_that(lambda: node.is_leader, "a leader")
        client = Client(f"0=ipc:{node.config.ipc_path}")
        client.send(b"first")
        client.await_answers(services)
        began, before = time.monotonic(), len(python_turns)
        for number in range(300):
            client.send(b"%d" % number)
            client.await_answers((number + 2) * services)
        ticks = (time.monotonic() - began) / 0.050  # those that are not quiet
        turns, large = (len(python_turns) - before) / services, bytes(range(256)) * 12_000
        pids = [pid_of(node.config.path, service_id) for service_id in range(services)]
        for number in range(2):  # more than a turn receives at once
            client.send(large)
            assert client.await_answers((number + 302) * services)[-services:] == [large] * services
        assert pids == [pid_of(node.config.path, service_id) for service_id in range(services)], "all stay"
        client.client.close()

    numbers = [b"%d" % number for number in range(300) for _ in range(services)]
    assert client.answers[services : 301 * services] == numbers
    assert turns < ticks + 100, "no turn of Python's for a message"


@pytest.mark.slow
def test_a_service_that_is_killed_under_load_has_answered_each_message_once(tmp_path):
    with ClusterNode.launch(**keys_of(tmp_path, services=[REPEATING])) as node:
        await_that(lambda: node.is_leader, "a leader")
        client = Client(f"0=ipc:{node.config.ipc_path}")
        sent = [b"%d" % number for number in range(3000)]
        for begin in range(0, len(sent), 1000):
            if begin:
                await_that(lambda: is_alive(pid_of(node.config.path)), "the service is back")
                kill(pid_of(node.config.path))
            for number in range(begin, begin + 1000, 10):
                client.send(*sent[number : number + 10])
                client.client.poll_egress()
        assert client.await_answers(len(sent)) == sent
        client.client.close()


def test_a_service_that_is_slow_holds_up_neither_its_member_nor_the_other_services(tmp_path):
    services = [COUNTING, "echo"]
    keys = keys_of(tmp_path, services=services, leader_heartbeat_timeout="1s", session_timeout="1s")
    with ClusterNode.launch(**keys) as node:
        await_that(lambda: node.is_leader, "a leader")
        client = Client(f"0=ipc:{node.config.ipc_path}")
        client.send(b"sleep2.5", b"next")
        assert client.await_answers(2) == [b"sleep2.5", b"next"], "of the echo"
        assert client.await_answers(4)[2:] == [b"1 sleep2.5", b"2 next"]
        assert client.client.offer(b"last") > 0
        client.await_answers(6)
        lags = [line for line in events(node.config.path) if line.startswith("service 0 lags")]
        assert [line.partition(", for ")[2].partition(".")[0] for line in lags] == ["1", "2"], lags
        assert "service 0 has caught up" in events(node.config.path)
        client.client.close()


class Slow(ClusteredService):
    def on_session_message(self, session: Any, timestamp: int, buffer: memoryview) -> None:
        time.sleep(0.3)
        session.offer(buffer)


def test_an_inline_service_that_is_slow_is_named_once(tmp_path):
    name = f"{__name__}:Slow"
    keys = keys_of(tmp_path, services=[name], service_mode="inline", service_cycle_threshold="20ms")
    with ClusterNode.launch(**keys) as node:
        await_that(lambda: node.is_leader, "a leader")
        client = Client(f"0=ipc:{node.config.ipc_path}")
        client.send(b"one")
        client.await_answers(1)
        client.send(b"two")
        client.await_answers(2)
        [told] = [line for line in events(node.config.path) if "runs inline" in line]
        assert told == (
            f"service 0 ({name}) runs inline and has held up its member for 0.3 s in on_session_message: "
            'with service_mode = ["process"] the member would go on'
        )
        client.client.close()


def test_a_service_can_be_started_by_hand_and_one_process_at_a_time_runs_it(tmp_path):
    node = ClusterNode.launch(**keys_of(tmp_path, services=[COUNTING], service_mode="external"))
    with node:
        directory = str(node.config.path)
        with Process("service", "--dir", directory) as process:
            await_that(lambda: node.is_leader, "the member has waited for it")
            second = run("service", "--dir", directory)
            assert (second.returncode, second.stderr) == (1, "service 0 runs already in another process\n")
            status, _, err = process.stop()
            assert (status, err) == (0, "")
        with Process("service", "--dir", directory):
            client = Client(f"0=ipc:{node.config.ipc_path}")
            client.send(b"x")
            assert client.await_answers(1) == [b"1 x"]
            client.client.close()
    nobody = run("service", "--dir", directory)
    assert nobody.returncode == 1
    assert f"{directory}/driver/service-0.sock: no member waits for the process of service 0" in nobody.stderr


BROKEN = """
from cluster import ClusteredService

class Broken(ClusteredService):
    def on_start(self, cluster, snapshot_image):
        print("hello from", type(self).__name__)

    def on_session_message(self, session, timestamp, buffer):
        session.offer(bytes(buffer).upper())
"""


def test_what_a_service_prints_is_where_up_says(tmp_path):
    (tmp_path / "printing.py").write_text(BROKEN)
    options = ["--members", "1", "--service", "printing:Broken", "--base-port", str(free_base_port(10))]
    with Process("up", "--dir", "c", *options, cwd=tmp_path) as up:
        assert up.process.stdout is not None
        said = iter(up.process.stdout.readline, "")  # with a line before it when a start takes long
        assert any("what services print in c/member-*/output.log" in line for line in said)
        printed = tmp_path / "c" / "member-0" / "output.log"
        await_that(printed.read_text, "the service has started, which a member awaits for ten seconds")
        assert printed.read_text() == "hello from Broken\n"
        assert up.stop()[0] == 0


@pytest.mark.faults
def test_a_service_of_13_seconds_deposes_nobody(tmp_path):
    with Up(tmp_path / "c", "--service", COUNTING) as up:
        sent = run("send", "--endpoints", up.endpoints, "--linger", "15000", text="sleep13\nafter\n")
        assert sent.stdout == "1 sleep13\n2 after\n"
        leaders = [member["elections"] for member in up.top()]
        assert leaders == [1, 1, 1], "nobody stood for election again"
        assert up.stop()[0] == 0


@pytest.mark.faults
def test_services_of_three_members_are_killed_under_load_and_all_is_done_once(tmp_path):
    with Up(tmp_path / "c", "--service", COUNTING) as up:
        client = Client(up.endpoints)
        for round_ in range(6):
            client.send(*[b"%d" % i for i in range(500)])
            kill(pid_of(up.member_dir(round_ % 3)))
            client.send(*[b"%d" % i for i in range(500)])
            client.await_answers(1000 * (round_ + 1))
        client.send(b"state")
        assert client.await_answers(6001)[-1].split()[0] == b"6000"
        assert [int(answer.split()[0]) for answer in client.answers[:-1]] == list(range(1, 6001))
        await_that(lambda: _state(client) == b"6000 6000 6000", "each message and timer came once")
        assert [member["elections"] for member in up.top()] == [1, 1, 1]
        client.client.close()
        assert up.stop()[0] == 0


def _state(client: Client) -> bytes:
    client.send(b"state")
    return client.await_answers(len(client.answers) + 1)[-1]
