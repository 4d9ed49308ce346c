"""A backup of real members over real ports: the drill of docs/backup.md, and who may make one."""

from __future__ import annotations

import json
import os
import signal
import threading
from contextlib import contextmanager

import pytest

from cluster import ClusterClient, ClusterNode, LogReader
from cluster.cli.main import main
from cluster.errors import ConfigurationError
from cluster.node.backup_config import BackupConfig, load_backup_config
from cluster.node.backup_process import BackupProcess
from cluster.protocol.enums import ClusterBackupState
from cluster.security.principals import put, token_digest
from tests.backup.running import QUICK, await_copy
from tests.cli.promtool import scrape
from tests.node.config_files import check_says_all
from tests.node.processes import Process, Up, await_that, endpoints_of, keys_of, run, tool
from tests.transport.authorities import Certificates
from tests.tree import ROOT


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
            shown = scrape(run("tool", "backup-metrics", "--dir", str(backup)).stdout)
            values = {series.partition("{")[0]: value for series, value in shown.items()}
            assert values["cluster_backup_position_bytes"] >= later["logPosition"]
            assert values["cluster_backup_up"] == 1
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


def launched(tmp_path, **keys):
    """A member that asks everybody for a token."""
    for name in ("reader", "writer"):
        put(str(tmp_path / "tokens"), name, token_digest(f"token of {name}".encode()))
        (tmp_path / f"{name}.token").write_text(f"token of {name}\n")
    (tmp_path / "rights").write_text("reader: read\nwriter: write\n")
    keys |= {"authenticator": "token", "authenticator_file": f"{tmp_path}/tokens"}
    return ClusterNode.launch(**keys_of(tmp_path, authorisation=f"{tmp_path}/rights", **keys))


@pytest.fixture
def node(tmp_path):
    """One of these with one snapshot."""
    with launched(tmp_path) as node:
        send_one(node)
        yield node


@pytest.fixture
def certificates(tmp_path):
    (tmp_path / "certs").mkdir()
    return Certificates(tmp_path / "certs")


@pytest.fixture
def node_with_tls(tmp_path, certificates):
    files = certificates.member(0)
    keys = {"tls_ca": files.ca, "tls_certificate": files.certificate, "tls_key": files.key}
    with launched(tmp_path, **keys) as node:
        send_one(node)
        yield node


def send_one(node):
    """A message, and a snapshot behind it."""
    await_that(lambda: node.is_leader, "a leader")
    with ClusterClient.connect(endpoints_of(node, "ipc"), credentials=b"token of writer") as client:
        assert client.offer(b"1") > 0
        client.await_committed()
    assert tool(node, "snapshot").returncode == 0


def a_backup(tmp_path, node, medium, token, **keys):
    return BackupConfig(
        endpoints=endpoints_of(node, medium),
        dir=str(tmp_path / "backup"),
        token_file=str(tmp_path / f"{token}.token"),
        cool_down_interval="300ms",
        **keys,
    )


@contextmanager
def running(config):
    """A backup that turns in a thread."""
    with BackupProcess(config) as process:
        thread = threading.Thread(target=process.run)
        thread.start()
        try:
            yield process
        finally:
            process.stop()
            thread.join()


def await_backing_up(process):
    await_that(lambda: process.agent.state is ClusterBackupState.BACKING_UP, "it is level")


@pytest.mark.parametrize("medium", ["grpc", "tcp", "ipc"])
def test_a_backup_is_made_over_every_medium_by_who_may_read(tmp_path, node, medium):
    config = a_backup(tmp_path, node, medium, "reader")
    with running(config) as process:
        await_backing_up(process)
    assert numbers(config.path) == [1]
    plan = run("tool", "recovery-plan", "--dir", str(config.path), "--services", "1", "--json")
    assert len(json.loads(plan.stdout)["snapshots"]) == 2
    verified = run("archive", "verify", "--dir", str(config.path))
    assert verified.returncode == 0, verified.stdout


def test_a_backup_of_real_files_is_promoted_once_and_its_lag_printed(tmp_path, node):
    config = a_backup(tmp_path, node, "ipc", "reader")
    promote = ("tool", "promote", "--dir", str(config.path), "--json")
    with running(config) as process:
        await_backing_up(process)
        refused = run(*promote)
        assert refused.returncode == 1 and "in use by process" in refused.stderr
    audit = config.path / "audit.log"
    audit.touch()
    promoted = json.loads(run(*promote).stdout)
    end = process.agent.position
    assert (promoted["endPosition"], promoted["membersCommitPosition"], promoted["lag"]) == (end, end, 0)
    noted = json.loads(audit.read_text())
    assert (noted["what"], noted["outcome"]) == ("PROMOTE", "done: a new cluster of one member")
    refused = run(*promote)
    assert (refused.returncode, refused.stderr) == (
        1,
        f"{config.path}: holds no backup: no cluster/cluster-mark.dat\n",
    )


@pytest.mark.conformance("S-164")
@pytest.mark.parametrize("medium", ["grpc", "tcp"])
def test_who_may_not_read_gets_no_backup(tmp_path, node, medium):
    config = a_backup(tmp_path, node, medium, "writer")
    log = config.path / "backup.log"
    with running(config) as process:
        await_that(lambda: "AUTHENTICATION_REJECTED" in log.read_text(), "it is refused")
        assert process.agent.position == 0
    assert "no right to read, which it takes to make a backup" in log.read_text()
    assert not list((config.path / "archive").glob("*.rec"))
    audited = [json.loads(line) for line in (node.config.path / "audit.log").read_text().splitlines()]
    assert ("writer", "to make a backup", "no right to read") in [
        (line["principal"], line["what"], line.get("why")) for line in audited
    ]


@pytest.mark.parametrize("medium", ["grpc", "tcp"])
def test_a_backup_over_tls_is_made_of_a_member_that_its_authority_vouches_for(
    tmp_path, node_with_tls, certificates, medium
):
    config = a_backup(tmp_path, node_with_tls, medium, "reader", tls_ca=certificates.trust.ca)
    with running(config) as process:
        await_backing_up(process)
        shown = run("top", "--dir", str(config.path), "--once", "--json")
        table = run("top", "--dir", str(config.path), "--once")
        status = run("status", "--dir", str(config.path))
    assert shown.returncode == 0, shown.stderr
    assert (status.returncode, status.stdout.partition(",")[0]) == (0, "healthy: a backup"), status.stdout
    [member] = json.loads(shown.stdout)["members"]
    assert (member["role"], member["backupState"]) == ("BACKUP", "BACKING_UP")
    assert (member["commitPosition"], member["errors"]) == (process.agent.position, 0)
    assert member["nextQuery"] > member["nextQuery"][:10] and member["memberId"] is None
    assert "BACKUP" in table.stdout and "BACKING_UP" in table.stdout
    assert numbers(config.path) == [1]


@pytest.mark.parametrize(
    ("authority", "said"),
    [("", "speaks TLS"), ("strangers", "none of the authorities that are believed here")],
    ids=["none", "another"],
)
@pytest.mark.parametrize("medium", ["grpc", "tcp"])
def test_nothing_is_copied_from_a_member_whose_certificate_cannot_be_checked(
    tmp_path, node_with_tls, medium, authority, said
):
    (tmp_path / "strangers").mkdir()
    strangers = Certificates(tmp_path / "strangers").trust.ca
    config = a_backup(tmp_path, node_with_tls, medium, "reader", tls_ca=strangers if authority else "")
    log = config.path / "backup.log"
    with running(config) as process:
        await_that(lambda: said in log.read_text(), "it is told")
        assert process.agent.position == 0
    assert "token of reader" not in log.read_text()


# ---- its configuration


def test_the_file_in_conf_is_the_configuration():
    check_says_all("backup.toml", BackupConfig)
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
        ('endpoints = "a:1"\ntls_key = "k"', "tls: ca is not given"),
        ('endpoints = "a:1"\nuser = "u"', "user and password file are given together"),
    ],
)
def test_a_configuration_that_will_not_do_is_one_line(tmp_path, text, said):
    (tmp_path / "backup.toml").write_text(f'{text}\ndir = "{tmp_path}/backup"\n')
    started = run("backup", "--config", str(tmp_path / "backup.toml"))
    assert (started.returncode, started.stdout) == (2, "")
    assert said in started.stderr and started.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"aeron_dir": "/dev/shm/a"}, "aeron_dir: expected consensus_endpoints beside it"),
        ({"consensus_endpoints": "a"}, "consensus_endpoints: consensus endpoint 'a': expected host:port"),
        ({"consensus_endpoints": "a:1", "endpoints": "b:1"}, "expected neither endpoints nor services"),
        ({"consensus_endpoints": "a:1", "services": ["echo"]}, "expected neither endpoints nor services"),
    ],
)
def test_what_a_backup_of_a_real_cluster_cannot_be_is_refused(keys, said):
    with pytest.raises(ConfigurationError, match=said):
        load_backup_config(None, keys)


def test_a_backup_of_a_real_cluster_needs_no_file(tmp_path):
    loaded = load_backup_config(None, {"consensus_endpoints": "a:1,b:1", "dir": str(tmp_path)})
    assert (loaded.aeron_endpoints, loaded.member_endpoints) == (["a:1", "b:1"], [])
    with BackupProcess(loaded) as process:
        assert process.copied_from == ["a:1", "b:1"]


@pytest.mark.parametrize("retained", ["9", '"many"'])
def test_what_a_backup_keeps_and_logs_changes_while_it_runs_or_nothing_does(tmp_path, retained):
    path, text = tmp_path / "backup.toml", f'endpoints = "127.0.0.1:1"\ndir = "{tmp_path}/backup"\n'
    path.write_text(text)
    process = BackupProcess(load_backup_config(path, {}), lambda: load_backup_config(path, {}))
    with process:
        path.write_text(f'{text}retained_snapshots = {retained}\nlog_level = "debug"\nfile_sync_level = 0\n')
        process.reload()
        turning = threading.Thread(target=process.run)
        turning.start()
        log = tmp_path / "backup" / "backup.log"
        await_that(lambda: "the configuration" in log.read_text(), "it was read again")
        process.stop()
        turning.join()
        said = next(
            line for line in map(json.loads, log.read_text().splitlines()) if "the c" in line["event"]
        )
        if retained == "9":
            assert said["changed"] == {"retained_snapshots": "0 -> 9", "log_level": "info -> debug"}
            assert said["needs_restart"] == {"file_sync_level": "1 -> 0"}
        else:
            assert (
                said["event"] == "the configuration stays as it was" and "retained_snapshots" in said["why"]
            )
        assert process.agent._context.retained_snapshots == (9 if retained == "9" else 0)


def test_a_backup_that_is_told_nothing_names_what_it_lacks(capsys):
    assert main(["backup"]) == 2
    assert "give either --config or --consensus-endpoints" in capsys.readouterr().err


def test_an_environment_variable_wins_over_the_file(tmp_path, monkeypatch):
    (tmp_path / "backup.toml").write_text('dir = "there"\n')
    monkeypatch.setenv("CLUSTER_BACKUP_DIR", "here")
    assert load_backup_config(tmp_path / "backup.toml", {}).dir == "here"
    assert load_backup_config(tmp_path / "backup.toml", {"dir": "option"}).dir == "option"
