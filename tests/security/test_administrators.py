"""Who controls real members from afar, over real ports: ``cluster tool VERB --endpoints``."""

from __future__ import annotations

import json
from contextlib import ExitStack

import pytest

from cluster import ClusterClient, ClusterNode, Lane, TokenCredentials
from cluster.cli.main import main
from cluster.security.principals import put, token_digest
from tests.node.processes import await_that, endpoints_of, keys_of
from tests.node.three import Three
from tests.security.real_members import NETWORK, audited, keys_by_certificate
from tests.transport.authorities import Certificates

TOKENS = {name: f"token-of-the-{name}".encode() for name in ("operator", "writer", "keeper", "chief")}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("certs"))


@pytest.fixture
def rights(tmp_path):
    """Keys of members that know their principals by tokens; the operator may administer, and nothing else."""
    for name, token in TOKENS.items():
        put(str(tmp_path / "tokens"), name, token_digest(token))
        (tmp_path / f"{name}.token").write_bytes(token)
    (tmp_path / "rights").write_text(
        "operator: admin\nwriter: write, read\nkeeper: write, admin\nchief: read, admin\n"
    )
    return {
        "authenticator": "token",
        "authenticator_file": f"{tmp_path}/tokens",
        "authorisation": f"{tmp_path}/rights",
    }


@pytest.fixture
def node(tmp_path, rights):
    with ClusterNode.launch(**keys_of(tmp_path, **rights)) as node:
        await_that(lambda: node.is_leader, "it leads")
        yield node


@pytest.fixture
def tool(capsys):
    """Run a verb; returns its exit status, standard output and standard error."""

    def run(*arguments):
        status = main(["tool", *map(str, arguments)])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


@pytest.mark.conformance("S-69")
@pytest.mark.parametrize("medium", NETWORK)
def test_who_has_the_right_to_administer_does_what_a_tool_in_the_directory_does(node, tmp_path, tool, medium):
    def asked(verb, *options):
        endpoints = endpoints_of(node, medium)
        return tool(verb, "--endpoints", endpoints, "--token-file", tmp_path / "operator.token", *options)

    assert asked("snapshot") == (0, "[0] SNAPSHOT completed\n", "")
    assert "SNAPSHOT" in tool("recording-log", "--dir", node.config.path)[1]
    assert asked("validate-recording-log") == (0, "[0] VALIDATE_RECORDING_LOG completed\n", "")
    assert asked("standby-snapshot") == (0, "[0] STANDBY_SNAPSHOT completed\n", "")
    assert asked("resume") == (1, "", "member 0 is ACTIVE, expected SUSPENDED\n")
    assert asked("suspend") == (0, "[0] SUSPEND completed\n", "")
    assert asked("snapshot") == (1, "", "member 0 is SUSPENDED, expected ACTIVE\n")
    assert asked("resume") == (0, "[0] RESUME completed\n", ""), "no session opens in a suspended cluster"
    assert asked("snapshot", "--json")[1] == (
        '{"memberId": 0, "toggle": "SNAPSHOT", "outcome": "completed"}\n'
    )
    status, _, err = asked("replicate-standby-snapshot")
    assert (status, err) == (1, "member 0 replicated no snapshot: `cluster tool errors` says why\n")
    assert asked("shutdown") == (0, "[0] SHUTDOWN completed\n", "")
    done = [line for line in audited(node) if line["principal"] == "operator" and line["peer"] == "127.0.0.1"]
    assert [(line["what"], line["outcome"]) for line in done] == [
        ("SNAPSHOT", "done"),
        ("VALIDATE_RECORDING_LOG", "done"),
        ("STANDBY_SNAPSHOT", "done"),
        ("RESUME", "member 0 is ACTIVE, expected SUSPENDED"),
        ("SUSPEND", "done"),
        ("SNAPSHOT", "member 0 is SUSPENDED, expected ACTIVE"),
        ("RESUME", "done"),
        ("SNAPSHOT", "done"),
        ("REPLICATE_STANDBY_SNAPSHOT", "member 0 replicated no snapshot: `cluster tool errors` says why"),
        ("SHUTDOWN", "done"),
    ], "by whom and what came of it"
    assert audited(node) == done


@pytest.mark.parametrize("medium", NETWORK)
def test_a_restart_from_afar_takes_the_right_to_administer_and_somebody_who_starts_it_again(
    node, tmp_path, capsys, medium
):
    def asked(who):
        endpoints = endpoints_of(node, medium)
        status = main(["restart", "--endpoints", endpoints, "--token-file", str(tmp_path / f"{who}.token")])
        return status, capsys.readouterr().err

    assert asked("writer") == (1, f"{endpoints_of(node, medium)}: no right to admin\n".removeprefix("0="))
    assert asked("chief") == (1, "member 0 runs within a program, which starts it again\n")
    assert [(line["principal"], line["what"]) for line in audited(node)] == [
        ("writer", "to administer"), ("chief", "RESTART")
    ]  # fmt: skip
    assert node.is_running


def test_who_may_administer_forgets_lanes_that_are_finished(node, tmp_path, tool):
    endpoints = endpoints_of(node, "tcp")

    def forget(who):
        return tool("forget-lanes", "--endpoints", endpoints, "--token-file", tmp_path / f"{who}.token", "a")

    lane, writer = Lane("a", 0, 1), TokenCredentials(str(tmp_path / "writer.token"))
    with ClusterClient.connect(endpoints, lane=lane, credentials=writer):
        assert forget("keeper")[2].endswith("a is not finished: session 1 holds a lane of it\n")
    assert forget("writer")[2].endswith("no right to admin, which it takes to forget lanes\n")
    assert "application=a" in tool("lanes", "--dir", node.config.path)[1]
    assert forget("keeper") == (0, "lanes of a are forgotten\n", "")
    assert tool("lanes", "--dir", node.config.path) == (0, "no lanes\n", "")
    at_home = tool("forget-lanes", "--dir", node.config.path, "--token-file", tmp_path / "writer.token", "a")
    assert at_home[2].endswith("application a has no lanes\n"), "the user of the host needs no right to admin"


@pytest.mark.conformance("S-72")
@pytest.mark.parametrize("medium", NETWORK)
def test_who_has_not_is_refused_in_one_line_and_audited(node, tmp_path, tool, medium):
    endpoints = endpoints_of(node, medium)
    address = endpoints.removeprefix("0=")
    status, out, err = tool("suspend", "--endpoints", endpoints, "--token-file", tmp_path / "writer.token")
    assert (status, out, err) == (1, "", f"{address}: no right to admin\n")
    status, out, err = tool("abort", "--endpoints", endpoints)
    assert (status, out, err) == (1, "", f"{address}: reader failed authentication\n")
    assert [(line["principal"], line["what"], line["why"]) for line in audited(node)] == [
        ("writer", "to administer", "no right to admin"),
        ("", "to administer", "no token"),
    ]
    assert tool("is-leader", "--dir", node.config.path)[0] == 0, "it goes on"


@pytest.mark.parametrize("medium", NETWORK)
def test_where_everybody_may_write_and_read_nobody_administers(tmp_path, tool, medium):
    with ClusterNode.launch(**keys_of(tmp_path)) as node:
        await_that(lambda: node.is_leader, "it leads")
        endpoints = endpoints_of(node, medium)
        status, _, err = tool("suspend", "--endpoints", endpoints)
        assert (status, err) == (1, f"{endpoints.removeprefix('0=')}: no right to admin\n")
        assert tool("is-leader", "--endpoints", endpoints) == (0, "", "")
        assert [line["what"] for line in audited(node)] == ["to administer"]
        assert tool("suspend", "--endpoints", endpoints_of(node, "ipc"))[0] == 0, "the own user, on the host"


@pytest.mark.parametrize("medium", NETWORK)
def test_a_certificate_names_the_administrator(tmp_path, certificates, tool, medium):
    keys = keys_by_certificate(tmp_path, certificates, "alice: admin\nbob: write, read\n")
    with ClusterNode.launch(**keys) as node:
        await_that(lambda: node.is_leader, "it leads")

        def asked_by(name):
            shown = certificates.client(name)
            options = ("--tls-ca", shown.ca, "--tls-certificate", shown.certificate, "--tls-key", shown.key)
            return tool("snapshot", "--endpoints", endpoints_of(node, medium), *options)

        assert asked_by("alice") == (0, "[0] SNAPSHOT completed\n", "")
        status, out, err = asked_by("bob")
        assert (status, out) == (1, "") and err.endswith(": no right to admin\n") and err.count("\n") == 1
        assert [line["principal"] for line in audited(node)] == ["alice", "bob"]
        status, out, err = tool("snapshot", "--endpoints", endpoints_of(node, medium))
        assert (status, out, err.count("\n")) == (1, "", 1) and "TLS" in err


def test_from_any_member_the_leader_is_found_and_an_end_is_waited_for(tmp_path, rights, tool):
    (tmp_path / "rights").write_text("operator: admin, read\n")
    with ExitStack() as opened:
        cluster = Three(tmp_path, opened, **rights)
        leader = await_that(cluster.leader, "a leader")
        follower = next(node for node in cluster.nodes if node is not leader)
        shown = ("--token-file", tmp_path / "operator.token")
        one = cluster.endpoint_of(follower).partition("=")[2]
        member_id = leader.config.member_id
        assert tool("snapshot", "--endpoints", one, *shown) == (0, f"[{member_id}] SNAPSHOT completed\n", "")

        over_tcp = f"tcp:{follower.config.tcp_ingress_of(follower.config.member)}"
        done = tool("snapshot", "--endpoints", over_tcp, *shown)
        assert done == (0, f"[{member_id}] SNAPSHOT completed\n", "")
        over_ipc = f"ipc:{follower.config.ipc_path}"
        status, _, err = tool("snapshot", "--endpoints", over_ipc, *shown)
        why = f"member {follower.config.member_id} does not lead: this is for the leader, which is member"
        assert (status, err) == (1, f"{why} {member_id}\n"), "whose socket nobody named"

        to = follower.config.member_id
        moved = tool("transfer-leadership", "--endpoints", cluster.endpoints, "--to", to, *shown)
        assert moved == (0, f"member {to} leads\n", "")
        await_that(lambda: follower.is_leader, "it knows itself what the one before it says")
        leader, member_id = follower, to
        status, _, err = tool("transfer-leadership", "--endpoints", one, "--to", to, *shown)
        assert (status, err) == (1, f"member {to} goes on leading: it leads already\n")
        back = tool("transfer-leadership", "--dir", leader.config.path, "--json")[1]
        leader, member_id = await_that(cluster.leader, "a leader"), json.loads(back)["leaderMemberId"]
        assert leader.config.member_id == member_id != to

        listed = tool("list-members", "--endpoints", one, *shown)[1]
        assert listed.startswith(f"leaderMemberId={member_id}, memberId=")
        described = json.loads(tool("describe", "--endpoints", one, "--json", *shown)[1])
        assert [member["memberId"] for member in described] == [0, 1, 2]
        assert tool("is-leader", "--endpoints", one, *shown)[0] == 1
        status, _, err = tool("validate-recording-log", "--endpoints", cluster.endpoints, *shown)
        assert status == 2 and "expected one member, not 3" in err

        assert tool("abort", "--endpoints", one, *shown) == (0, f"[{member_id}] ABORT completed\n", "")
        for node in cluster.nodes:
            await_that(lambda node=node: not node.is_running, f"member {node.config.member_id} has ended")
