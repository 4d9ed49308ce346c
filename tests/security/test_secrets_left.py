"""What a run leaves has no secret in it: files, output, command lines, environments, reprs."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import ClusterClient, ClusterError, PasswordCredentials, TokenCredentials
from cluster.client.context import ClientContext
from cluster.node.config_text import write
from cluster.security.principals import password_digest, put, token_digest
from tests.node.processes import COMMAND, Process, environment, keys_of, run
from tests.security.planted import PASSWORD, TOKEN, Planted


@pytest.fixture
def planted(tmp_path):
    return Planted(tmp_path)


@pytest.fixture(params=["token", pytest.param("password", marks=pytest.mark.slow)])
def kind(request):
    return request.param


@pytest.fixture
def member(planted, kind) -> Iterator[tuple[Process, str]]:
    """A process of a member that knows a principal with every right; and where it listens."""
    digest = token_digest(TOKEN) if kind == "token" else password_digest(PASSWORD)
    put(str(planted.folder / "known"), "alice", digest)
    (planted.folder / "rights").write_text("alice: write, read, admin\n")
    keys = keys_of(
        planted.folder,
        member_id=0,
        authenticator=kind,
        authenticator_file=str(planted.folder / "known"),
        authorisation=str(planted.folder / "rights"),
        tls_ca=planted.tls.ca,
        tls_certificate=planted.tls.certificate,
        tls_key=planted.tls.key,
        log_level="debug",
    )
    config = planted.folder / "node.toml"
    write(config, keys)
    with Process("node", "--config", str(config), is_new=True) as process:
        yield process, str(keys["members"][0]).split(",")[1]
        status, out, err = process.stop()
        planted.assert_not_in((out + err).encode(), "what the member printed")
        assert status == 0


def children_of(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.timeout(300)  # a few commands, each with what it imports
def test_a_member_and_its_clients_leave_no_secret(planted, kind, member):
    process, endpoint = member
    shown = ("--token-file", planted.file("token"))
    wrong = ("--token-file", planted.file("wrong"))
    if kind == "password":
        shown = ("--user", "alice", "--password-file", planted.file("password"))
        wrong = ("--user", "alice", "--password-file", planted.file("wrong"))
    to = ("--endpoints", f"0={endpoint}", "--tls-ca", planted.tls.ca)
    sender = subprocess.Popen(
        [*COMMAND, "send", *to, *shown],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment(),
    )
    for pid in (process.process.pid, *children_of(process.process.pid), sender.pid):
        planted.assert_not_shown_by(pid)
    said, _ = sender.communicate(b"hello\n", timeout=40)
    assert sender.returncode == 0, said
    planted.assert_not_in(said, "send")
    for command in (("send", *to, *wrong), ("log", "dump", *to, *shown)):
        done = run(*command, text="refused\n")
        planted.assert_not_in((done.stdout + done.stderr).encode(), command)
        assert done.returncode == (0 if command[-len(shown) :] == shown else 1), done.stderr
    planted.assert_left_nowhere()


def test_no_repr_has_a_secret(planted):
    token, password = planted.file("token"), planted.file("password")
    for shown in (TokenCredentials(token), PasswordCredentials("alice", password), TOKEN):
        planted.assert_not_in(repr(ClientContext("0=a:1", credentials=shown)).encode(), shown)
    with pytest.raises(ClusterError) as refused:
        ClusterClient.connect("0=tcp:127.0.0.1:1", credentials=PASSWORD, message_timeout_s=0.2)
    planted.assert_not_in(repr(refused.value).encode(), "a client that reaches nobody")
