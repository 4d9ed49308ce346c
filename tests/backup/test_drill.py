"""A backup of real members over real ports: the drill of docs/backup.md, and who may make one."""

from __future__ import annotations

import json
import os
import signal
import threading

import pytest

from cluster import ClusterClient, ClusterNode, LogReader
from cluster.counters import CountersReader
from cluster.node.backup_config import BackupConfig, backup_documentation, load_backup_config
from cluster.node.backup_process import BackupProcess
from cluster.protocol.counter_types import CounterTypeId
from cluster.protocol.enums import ClusterBackupState
from cluster.security.principals import put, token_digest
from tests.node.processes import Process, Up, await_that, endpoints_of, keys_of, run, tool
from tests.tree import ROOT

QUICK = 'interval = "2s"\nresponse_timeout = "2s"\ncool_down_interval = "500ms"\n'


def query(directory, *arguments):
    asked = run("tool", "backup-query", *arguments, "--dir", str(directory), "--json")
    assert asked.returncode == 0, asked.stderr
    return json.loads(asked.stdout)


def send(endpoints, begin, end):
    with ClusterClient.connect(endpoints, message_timeout_s=20) as client:
        for number in range(begin, end):
            while client.offer(b"%d" % number) < 0:
                client.poll_egress()
        client.await_committed()
        return client.committed_position


def numbers(directory):
    with LogReader.open(dir=str(directory)) as log:
        return [int(entry["payload"]) for entry in log.entries(entry_types=["SESSION_MESSAGE"])]


def await_copy(directory, position):
    """Until the running backup has the log up to there."""

    def is_level():
        with CountersReader(f"{directory}/driver/cnc.dat") as counters:
            return counters.find(CounterTypeId.BACKUP_LIVE_LOG_POSITION).get() >= position

    await_that(is_level, f"the copy has the log up to {position}")


@pytest.mark.timeout(300)
@pytest.mark.conformance("S-161", "S-162", "S-163", "S-165")
def test_the_drill(tmp_path):
    backup = tmp_path / "backup"
    config = tmp_path / "backup.toml"
    with Up(tmp_path / "data", "--service", "echo") as up:
        config.write_text(f'endpoints = "{up.endpoints}"\ndir = "{backup}"\n{QUICK}')
        send(up.endpoints, 0, 100)
        assert run("tool", "snapshot", "--dir", str(tmp_path / "data")).returncode == 0
        with Process("backup", "--config", str(config), "--json") as process:
            assert json.loads(process.first_line)["dir"] == str(backup)
            await_copy(backup, send(up.endpoints, 100, 200))
            assert numbers(backup) == list(range(200)), "a reader reads it while it runs"
            later = query(backup, "300s")
            assert later["logPosition"] > 0 and later["nextQuery"] > later["now"]
            process.signal(signal.SIGKILL)
        os.kill(up.pid(up.leader), signal.SIGKILL)
        with Process("backup", "--config", str(config)) as process:
            position = send(up.endpoints, 200, 300)
            await_copy(backup, position)
            refused = run("tool", "restore", "--from", str(backup), "--to", str(tmp_path / "restored"))
            assert refused.returncode == 1 and "in use by process" in refused.stderr
            status, _, err = process.stop()
            assert (status, err) == (0, "")
        for member_id in range(3):
            if member_id != up.leader:
                os.kill(up.pid(member_id), signal.SIGKILL)
    restore = ("tool", "restore", "--from", str(backup), "--to", str(tmp_path / "restored"), "--json")
    restored = run(*restore, "--members", "1")
    assert restored.returncode == 0, restored.stderr
    assert json.loads(restored.stdout)["endPosition"] >= position
    with Up(tmp_path / "restored", "--service", "echo", members=1) as up:
        send(up.endpoints, 300, 400)
        assert up.stop()[0] == 0
    assert numbers(tmp_path / "restored" / "member-0") == list(range(400))


@pytest.fixture
def node(tmp_path):
    """A member with one snapshot that asks everybody for a token."""
    for name in ("reader", "writer"):
        put(str(tmp_path / "tokens"), name, token_digest(f"token of {name}".encode()))
        (tmp_path / f"{name}.token").write_text(f"token of {name}\n")
    (tmp_path / "rights").write_text("reader: read\nwriter: write\n")
    keys = {"authenticator": "token", "authenticator_file": f"{tmp_path}/tokens"}
    with ClusterNode.launch(**keys_of(tmp_path, authorisation=f"{tmp_path}/rights", **keys)) as node:
        await_that(lambda: node.is_leader, "a leader")
        with ClusterClient.connect(endpoints_of(node, "ipc"), credentials=b"token of writer") as client:
            assert client.offer(b"1") > 0
            client.await_committed()
        assert tool(node, "snapshot").returncode == 0
        yield node


def a_backup(tmp_path, node, medium, token):
    return BackupConfig(
        endpoints=endpoints_of(node, medium),
        dir=str(tmp_path / "backup"),
        token_file=str(tmp_path / f"{token}.token"),
        cool_down_interval="300ms",
    )


@pytest.mark.parametrize("medium", ["grpc", "tcp", "ipc"])
def test_a_backup_is_made_over_every_medium_by_who_may_read(tmp_path, node, medium):
    config = a_backup(tmp_path, node, medium, "reader")
    with BackupProcess(config) as process:
        thread = threading.Thread(target=process.run)
        thread.start()
        try:
            await_that(lambda: process.agent.state is ClusterBackupState.BACKING_UP, "it is level")
        finally:
            process.stop()
            thread.join()
    assert numbers(config.path) == [1]
    plan = run("tool", "recovery-plan", "--dir", str(config.path), "--services", "1", "--json")
    assert len(json.loads(plan.stdout)["snapshots"]) == 2
    verified = run("archive", "verify", "--dir", str(config.path))
    assert verified.returncode == 0, verified.stdout


@pytest.mark.conformance("S-164")
@pytest.mark.parametrize("medium", ["grpc", "tcp"])
def test_who_may_not_read_gets_no_backup(tmp_path, node, medium):
    config = a_backup(tmp_path, node, medium, "writer")
    with BackupProcess(config) as process:
        thread = threading.Thread(target=process.run)
        thread.start()
        log = config.path / "backup.log"
        try:
            await_that(lambda: "AUTHENTICATION_REJECTED" in log.read_text(), "it is refused")
        finally:
            process.stop()
            thread.join()
        assert process.agent.position == 0
    assert "no right to read, which it takes to make a backup" in log.read_text()
    assert not list((config.path / "archive").glob("*.rec"))
    audited = [json.loads(line) for line in (node.config.path / "audit.log").read_text().splitlines()]
    assert ("writer", "to make a backup", "no right to read") in [
        (line["principal"], line["what"], line["why"]) for line in audited
    ]


# ---- its configuration


def test_the_file_in_conf_is_the_configuration():
    assert (ROOT / "conf" / "backup.toml").read_text() == backup_documentation()
    loaded = load_backup_config(ROOT / "conf" / "backup.toml", {})
    assert loaded == BackupConfig()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('source_type = "both"', "source_type = \"both\": expected 'any', 'leader' or 'follower'"),
        ('intervall = "1s"', 'unknown key "intervall"; did you mean interval?'),
        ('interval = "soon"', 'interval = "soon": expected a duration such as "10s"'),
        ("", "endpoints: name the members, here or in CLUSTER_ENDPOINTS"),
        ('endpoints = "nowhere"', "endpoint 'nowhere': expected host:port"),
        ('endpoints = "a:1"\ntls_key = "k"', "tls: no file of authorities"),
        ('endpoints = "a:1"\nuser = "u"', "user and password file are given together"),
    ],
)
def test_a_configuration_that_will_not_do_is_one_line(tmp_path, text, said):
    (tmp_path / "backup.toml").write_text(f'{text}\ndir = "{tmp_path}/backup"\n')
    started = run("backup", "--config", str(tmp_path / "backup.toml"))
    assert (started.returncode, started.stdout) == (2, "")
    assert said in started.stderr and started.stderr.count("\n") == 1


def test_an_environment_variable_wins_over_the_file(tmp_path, monkeypatch):
    (tmp_path / "backup.toml").write_text('dir = "there"\n')
    monkeypatch.setenv("CLUSTER_BACKUP_DIR", "here")
    assert load_backup_config(tmp_path / "backup.toml", {}).dir == "here"
    assert load_backup_config(tmp_path / "backup.toml", {"dir": "option"}).dir == "option"
