"""A member embedded in another program, its event loop, and what it writes down."""

from __future__ import annotations

import errno
import json
import socket
import threading
import time
from collections import Counter

import pytest

from cluster import (
    AgentTermination,
    ClusterClient,
    ClusteredService,
    ClusterNode,
    ConfigurationError,
    DirectoryInUse,
    NodeConfig,
    PortInUse,
)
from cluster.archive.recording import Recording
from cluster.counters import CountersReader
from cluster.errors import OtherMembers, StorageError
from cluster.node.node_log import NodeLog
from cluster.protocol.counter_types import CounterTypeId
from cluster.service.service_loader import load_service
from tests.node.processes import DEADLINE_S, ask, await_that, free_base_port, keys_of


class Counting(ClusteredService):
    """Answers with the number of messages so far; keeps how it was treated."""

    made: list[Counting] = []

    def __init__(self) -> None:
        self.count = 0
        self.was_terminated = False
        self.thread_names: set[str] = set()
        Counting.made.append(self)

    def on_session_message(self, session, timestamp, buffer):
        self.count += 1
        session.offer(b"%d" % self.count)

    def on_terminate(self, cluster):
        self.was_terminated = True


SERVICE = f"{__name__}:Counting"


def test_a_member_can_be_embedded_and_replays_its_log_when_it_is_launched_again(tmp_path):
    keys = keys_of(tmp_path, services=[SERVICE], service_mode="inline")
    with ClusterNode.launch(**keys) as node:
        ipc = f"0=ipc:{node.config.ipc_path}"
        assert ask(ipc, 3) == [b"1", b"2", b"3"]
        assert node.is_leader and node.is_running
        assert ask(f"0={node.config.member.ingress_endpoint}", 1) == [b"4"]
    assert not node.is_running
    assert Counting.made[-1].was_terminated

    with ClusterNode.launch(**keys) as node:
        assert ask(ipc, 1) == [b"5"], "the four before were replayed"
    assert Counting.made[-1] is not Counting.made[-2]


def test_what_is_embedded_leaves_no_thread_and_no_socket_behind(tmp_path):

    keys = keys_of(tmp_path)
    before = set(threading.enumerate())
    with ClusterNode.launch(**keys) as node:
        await_that(lambda: node.is_leader, "it leads")
    assert set(threading.enumerate()) <= before
    with socket.socket() as probe:
        probe.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # a connection's last minute is no listener
        probe.bind(("127.0.0.1", int(node.config.member.ingress_endpoint.rpartition(":")[2])))


@pytest.mark.conformance("S-174")
def test_a_directory_that_is_in_use_and_a_port_that_is_taken_are_refused_and_nothing_is_held(tmp_path):
    keys = keys_of(tmp_path)
    with ClusterNode.launch(**keys):
        with pytest.raises(DirectoryInUse):
            ClusterNode.launch(**{**keys_of(tmp_path)})
        with pytest.raises(PortInUse, match="in use"):
            ClusterNode.launch(**{**keys, "dir": str(tmp_path / "other")})
    ClusterNode.launch(**keys).close()
    ClusterNode.launch(**{**keys, "dir": str(tmp_path / "other")}).close()


def test_a_directory_with_the_log_of_another_member_or_cluster_is_refused(tmp_path):
    """Two members over one log could vote twice, and speak for what they never had."""
    keys = keys_of(tmp_path)
    with ClusterNode.launch(**keys) as node:
        await_that(lambda: node.is_leader, "it leads")
    directory = str(node.config.path)
    port = free_base_port(ports=10)
    other = {**keys, "members": [f"5,127.0.0.1:{port}" + f",127.0.0.1:{port + 2}" * 4], "dir": directory}
    with pytest.raises(ConfigurationError, match=r"member 0 of cluster 0, expected that of member 5 of cl"):
        ClusterNode.launch(**other, member_id=5)
    with pytest.raises(ConfigurationError, match=f"^{directory}/cluster: .* expected .* 0 of cluster 7"):
        ClusterNode.launch(**keys, cluster_id=7)
    with ClusterNode.launch(**keys) as again:
        await_that(lambda: again.is_leader, "its own member has it as before")


def test_a_directory_is_not_started_as_one_of_other_members_and_no_supervisor_is_to_try_again(tmp_path):
    keys = keys_of(tmp_path)
    with ClusterNode.launch(**keys) as node:
        await_that(lambda: node.is_leader, "it leads")
    directory = str(node.config.path)
    port = free_base_port(ports=10)
    other = f"1,127.0.0.1:{port}" + f",127.0.0.1:{port + 2}" * 4
    with pytest.raises(
        OtherMembers, match="members 0, but members 0, 1 are configured: expected members 0"
    ) as e:
        ClusterNode.launch(**{**keys, "members": [*keys["members"], other], "dir": directory})
    assert e.value.exit_status == 2
    moved = {**keys, "members": [other.replace("1,", "0,", 1)], "dir": directory}
    with ClusterNode.launch(**moved) as again:
        await_that(lambda: again.is_leader, "its endpoints may change")


def test_a_directory_without_a_log_may_become_another_members(tmp_path):
    """A first start with the wrong number, that failed for its port, leaves no trap."""
    keys = keys_of(tmp_path, dir=str(tmp_path / "m"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", int(keys["members"][0].rpartition(":")[2])))
        taken.listen()
        with pytest.raises(PortInUse):
            ClusterNode.launch(**keys)
    port = free_base_port(ports=10)
    keys["members"] = [f"5,127.0.0.1:{port}" + f",127.0.0.1:{port + 2}" * 4]
    with ClusterNode.launch(**keys, member_id=5) as node:
        await_that(lambda: node.is_leader, "it leads")


@pytest.mark.conformance("S-171")
def test_each_open_session_has_a_counter_that_goes_with_it(tmp_path):
    with ClusterNode.launch(**keys_of(tmp_path)) as node:
        await_that(lambda: node.is_leader, "it leads")
        with CountersReader(str(node.config.driver_path / "cnc.dat")) as counters:

            def sessions() -> list[int]:
                of_sessions = CounterTypeId.CLIENT_SESSION
                records = counters.counters()
                return [r.value for r in records if r.is_allocated and r.type_id == of_sessions]

            assert sessions() == []
            clients = [ClusterClient.connect(f"0=ipc:{node.config.ipc_path}") for _ in range(3)]
            await_that(lambda: sessions() == [client.cluster_session_id for client in clients], "one each")
            clients[1].close()
            await_that(lambda: sessions() == [clients[i].cluster_session_id for i in (0, 2)], "one is gone")
            for client in clients:
                client.close()
            await_that(lambda: sessions() == [], "all are gone")


@pytest.mark.conformance("S-166", "S-173")
def test_counters_of_module_and_container_are_there_and_the_heartbeats_end_with_the_member(tmp_path):
    keys = keys_of(tmp_path, cluster_id=6, services=["echo", "echo"])
    with ClusterNode.launch(**keys) as node:
        await_that(lambda: node.is_leader, "it leads")
        with (
            ClusterClient.connect(f"0=ipc:{node.config.ipc_path}"),
            CountersReader(str(node.config.driver_path / "cnc.dat")) as counters,
        ):
            present = [record for record in counters.counters() if record.is_allocated]
            assert counters.is_live(time.time_ns() // 1_000_000)
    ids = Counter(record.type_id for record in present)
    of_module = [200, 201, 202, 203, 205, 207, 212, 213, 216, 217, 233, 234, 235, 238, 239, 241]
    of_each_container = [215, 218, 219]
    expected = dict.fromkeys(of_module, 1) | dict.fromkeys(of_each_container, 2)
    assert {type_id: ids[type_id] for type_id in sorted(ids) if 200 <= type_id <= 241} == expected
    for record in present:
        if record.type_id in expected:
            assert int.from_bytes(record.key[:4], "little") == 6, f"the cluster id of {record.label}"
    with CountersReader(str(node.config.driver_path / "cnc.dat")) as counters:
        assert counters.heartbeat_ms == -1


@pytest.mark.conformance("S-188")
@pytest.mark.parametrize("mode", ["inline", "process"])
def test_a_gauge_shows_how_far_each_service_has_applied_the_log(tmp_path, mode):
    with ClusterNode.launch(**keys_of(tmp_path, services=["echo", "echo"], service_mode=mode)) as node:
        await_that(lambda: node.is_leader, "it leads")
        with ClusterClient.connect(f"0=ipc:{node.config.ipc_path}") as client:
            client.offer(b"x")
            committed = client.await_committed(DEADLINE_S)
            with CountersReader(str(node.config.driver_path / "cnc.dat")) as counters:

                def applied() -> list[int]:
                    gauges = [r for r in counters.counters() if r.type_id == CounterTypeId.SERVICE_POSITION]
                    return [record.value for record in gauges]

                await_that(lambda: applied() == [committed, committed], "both have applied it")


def test_a_config_object_is_taken_as_it_is(tmp_path):
    config = NodeConfig(**keys_of(tmp_path, grpc_gateway="none"))
    with ClusterNode.launch(config) as node:
        await_that(lambda: node.is_leader, "it leads without a gateway too")
    with pytest.raises(ConfigurationError, match="give max_sessions within"):
        ClusterNode.launch(config, max_sessions=3)


class Failing(ClusteredService):
    def on_start(self, cluster, snapshot_image):
        raise RuntimeError("no")


def test_a_member_that_ended_by_itself_says_why_when_it_is_closed(tmp_path):
    node = ClusterNode.launch(**keys_of(tmp_path, services=[f"{__name__}:Failing"], service_mode="inline"))
    await_that(lambda: not node.is_running, "it has ended")
    with pytest.raises(AgentTermination, match="service 0 failed to start: no"):
        node.close()


def test_an_error_at_its_orderly_end_is_raised_when_it_is_closed_and_is_in_its_log(tmp_path, monkeypatch):
    def failing_stop(recording, timestamp):
        raise StorageError("0-0.rec", errno.EIO, "syncing failed")

    node = ClusterNode.launch(**keys_of(tmp_path))
    await_that(lambda: node.is_leader, "it leads")
    monkeypatch.setattr(Recording, "stop", failing_stop)
    with pytest.raises(StorageError, match="syncing failed"):
        node.close()
    assert not node.is_running
    *_, failure, end = map(json.loads, (node.config.path / "node.log").read_text().splitlines())
    assert "syncing failed" in failure["event"]
    assert (end["event"], end["in_order"]) == ("ends", False)


class NeedsArguments(ClusteredService):
    def __init__(self, path):
        self.path = path


class ForgetsSession(ClusteredService):
    def on_session_message(self, timestamp, buffer):
        pass


class Misspelt(ClusteredService):
    def on_session_mesage(self, session, timestamp, buffer):
        pass


class Awaits(ClusteredService):
    async def on_timer_event(self, correlation_id, timestamp):
        pass


class NoMethod(ClusteredService):
    on_terminate = 5


class FailsToBegin(ClusteredService):
    def __init__(self):
        raise ValueError("no")


class Liberal(ClusteredService):
    def on_session_message(self, *arguments):
        pass

    def on_timer_event(self, correlation_id, timestamp, is_mine=False):
        pass

    @staticmethod
    def on_session_open(session, timestamp):
        pass

    def on_order(self, order):
        pass


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ecko", 'expected "echo" or "module:ClassName"'),
        (":Class", 'expected "echo"'),
        ("nowhere.at_all:Service", "no module nowhere.at_all, neither installed nor in"),
        ("json:Nothing", "json has no Nothing"),
        ("fractions:Fraction.nothing", "fractions has no Fraction.nothing"),
        ("cluster.service.echo:Echo", "cluster.service.echo has no Echo, but EchoService"),
        ("datetime:date", r"class date is not derived from cluster\.ClusteredService"),
        ("json:dumps", r"is a function, not a class derived from cluster\.ClusteredService"),
        ("cluster.node.runner:AgentRunner", "class AgentRunner is not derived"),
        (f"{__name__}:NeedsArguments", r"NeedsArguments\(\) is called without arguments: missing .* 'path'"),
        (
            f"{__name__}:ForgetsSession",
            r"is called with \(session, timestamp, buffer\): too many",
        ),
        (f"{__name__}:Misspelt", "on_session_mesage is never called; did you mean on_session_message?"),
        (f"{__name__}:Awaits", "on_timer_event is async"),
        (f"{__name__}:NoMethod", "on_terminate is no method"),
        (f"{__name__}:FailsToBegin", r"FailsToBegin\(\) failed: ValueError: no \(.*test_node\.py:\d+\)"),
    ],
)
def test_a_service_that_cannot_be_run_is_refused_with_the_reason(name, message):
    with pytest.raises(ConfigurationError, match=message):
        load_service(name)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import math\n\nmath.sqrt(-1)\n", r"importing {0} failed: ValueError: .* \(.*{0}\.py:3\)"),
        ("raise SystemExit(0)\n", r"importing {0} failed: SystemExit: .* \(.*{0}\.py:1\)"),
        ("class Service(\n", r"importing {0} failed: SyntaxError: .* \(.*{0}\.py:1\)"),
        ("import cluster\nimport pandaz\n", r"failed: ModuleNotFoundError: .*pandaz.* \(.*{0}\.py:2\)"),
    ],
)
def test_an_import_that_fails_says_file_and_line(tmp_path, monkeypatch, source, message):
    name = f"failing_{abs(hash(source))}"
    (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigurationError, match=message.format(name)):
        load_service(f"{name}:Service")


def test_a_service_may_have_methods_of_its_own_and_more_arguments_with_defaults():
    assert isinstance(load_service(f"{__name__}:Liberal"), Liberal)


@pytest.mark.conformance("S-176")
def test_an_error_that_repeats_is_written_at_each_doubling_of_its_count(tmp_path):
    log = NodeLog(tmp_path / "m" / "node.log", "info", member=3)
    for _ in range(100):
        try:
            raise ValueError("again")
        except ValueError as error:
            text = log.error("somewhere", error)
    log.debug("not written")
    log.info("written", answer=42)
    log.close()

    lines = [json.loads(line) for line in (tmp_path / "m" / "node.log").read_text().splitlines()]
    assert [line.get("count") for line in lines] == [1, 2, 4, 8, 16, 32, 64, None]
    assert lines[0]["event"] == "again" and lines[0]["trace"] == text and lines[0]["member"] == 3
    assert (lines[-1]["event"], lines[-1]["answer"]) == ("written", 42)
