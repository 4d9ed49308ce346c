"""What a member listens at has a name: which comes late, or is this host's alone."""

import threading
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from cluster.errors import ClusterError, TimedOut
from cluster.node import exposure, own_name
from cluster.node.node import ClusterNode
from cluster.transport.endpoint import parse_endpoint
from cluster.transport.member_status import member_status
from tests.node.processes import ask, await_that, keys_of
from tests.node.three import Three


@pytest.fixture
def config():
    members = [
        SimpleNamespace(member_id=i, consensus_endpoint=f"db{i}:2", ingress_endpoint=f"db{i}:1")
        for i in range(2)
    ]
    return SimpleNamespace(
        member=members[0],
        cluster_members=members,
        grpc_gateway="thread",
        listen="",
        tcp_listen="",
        metrics_address="",
        aeron_ingress="",
        aeron_archive="",
        consensus_channel="none",
        listens_at=lambda endpoint: endpoint,
    )


def resolve(monkeypatch, look_up):
    monkeypatch.setattr(own_name, "look_up", look_up)


def test_a_name_that_does_not_resolve_yet_is_waited_for(config, monkeypatch):
    answers = [((), "not yet"), ((), "not yet"), (("10.0.0.1",), "")]
    resolve(monkeypatch, lambda host: answers.pop(0) if len(answers) > 1 else answers[0])
    slept = []
    told = own_name.await_own_names(config, slept.append)
    assert told == ["the consensus endpoint db0:2 did not resolve at first: not yet"] and len(slept) == 2


def test_a_name_that_never_resolves_is_no_wrong_usage(config, monkeypatch):
    resolve(monkeypatch, lambda host: ((), "no such name"))
    with pytest.raises(TimedOut, match=r"db0 does not resolve, for 0 s now: no such name") as raised:
        own_name.await_own_names(config, timeout_s=0)
    assert raised.value.exit_status == 1


@pytest.mark.parametrize("other, is_told", [("10.0.0.2", True), ("127.0.1.1", False)])
def test_an_own_name_on_loopback_is_told_where_another_member_is_elsewhere(
    config, monkeypatch, other, is_told
):
    resolve(monkeypatch, lambda host: (("127.0.1.1",) if host == "db0" else (other,), ""))
    found = [(0, 0, 0, "", ("127.0.1.1", 0))]
    monkeypatch.setattr(exposure.socket, "getaddrinfo", lambda *_, **__: found)
    monkeypatch.setattr(own_name, "is_numeric", lambda host: False)
    told = []
    own_name.warn_of_loopback(config, told.append)
    for thread in threading.enumerate():
        if thread.name == "own name":
            thread.join()
    assert len(told) == is_told
    assert not is_told or "db0 is 127.0.1.1 on this host, where member 1 at db1 cannot reach it" in told[0]


def test_a_member_listens_at_an_address_that_it_tells_nobody(tmp_path):
    keys = keys_of(tmp_path, listen="127.0.0.3")
    with ClusterNode.launch(**keys) as node:
        await_that(lambda: node.is_leader, "a leader")
        port = int(node.config.member.ingress_endpoint.rpartition(":")[2])
        for endpoint in (f"127.0.0.3:{port}", f"tcp:127.0.0.3:{port + 1}"):
            status = member_status(parse_endpoint(endpoint))
            assert status.ingress_endpoints == f"0=127.0.0.1:{port}"
        with pytest.raises(ClusterError):
            member_status(parse_endpoint(f"tcp:127.0.0.1:{port + 1}"))


def test_members_that_listen_at_every_address_send_clients_to_the_one_that_they_tell(tmp_path):
    with ExitStack() as opened:
        three = Three(tmp_path, opened, host="127.0.0.2", listen="0.0.0.0", insecure_network=True)
        leader = await_that(three.leader, "a leader, over links to what members tells")
        follower = next(node.config.member for node in three.nodes if node is not leader)
        port = int(follower.ingress_endpoint.rpartition(":")[2])
        assert member_status(parse_endpoint(f"127.0.0.3:{port}")).ingress_endpoints == three.endpoints
        assert ask(f"{follower.member_id}=tcp:127.0.0.3:{port + 1}", 1) == [b"?"]
