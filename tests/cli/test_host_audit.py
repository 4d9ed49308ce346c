"""What somebody has done on a member's host stands in its audit.log, with the user of the system."""

import getpass
import json
import os
import pwd

import pytest

from cluster import ClusterNode
from cluster.cli import host_audit, restart
from cluster.cli.host_audit import note_on_host, who_asks
from cluster.cli.main import main
from tests.archive.logs import a_log
from tests.archive.members import Member, write_member
from tests.node.processes import await_that, keys_of

ALICE = pwd.getpwuid(1).pw_name


def me():
    return "this host", getpass.getuser()


def audited(directory):
    lines = map(json.loads, (directory / "audit.log").read_text().splitlines())
    return [(line["peer"], line["principal"], line["what"], line["outcome"]) for line in lines]


def test_verbs_that_take_a_directory_say_who_asked_and_what_came_of_it(tmp_path, capsys):
    with ClusterNode.launch(**keys_of(tmp_path)) as node:
        await_that(lambda: node.is_leader, "it leads")
        assert main(["snapshot", "--dir", str(node.config.path)]) == 0
        assert main(["snapshot", "--dir", str(node.config.path / "cluster")]) == 0
        assert main(["tool", "resume", "--dir", str(node.config.path / "cluster")]) == 1
    assert audited(node.config.path) == [
        (*me(), "SNAPSHOT", "done"),
        (*me(), "SNAPSHOT", "done"),
        (*me(), "RESUME", "member 0 is ACTIVE, expected SUSPENDED"),
    ]
    assert main(["tool", "close-member", "--dir", str(node.config.path)]) == 0
    assert audited(node.config.path)[3:] == [(*me(), "CLOSE_MEMBER", "done")]
    capsys.readouterr()


def test_tools_that_change_a_members_files_note_it_and_others_do_not(tmp_path, capsys):
    member, log = Member(tmp_path), a_log(5)
    member.write(log)
    member.take_snapshot(log, log.position)
    member.stop()
    (tmp_path / "audit.log").touch()
    path = tmp_path / "cluster" / "recording.log"
    path.write_bytes((data := path.read_bytes())[64:] + data[:64])
    for words in (
        ["sort-recording-log"],
        ["sort-recording-log"],
        ["recording-log"],
        ["export-watermark", "4096"],
        ["export-watermark"],
        ["invalidate-latest-snapshot"],
        ["invalidate-latest-snapshot"],
        ["seed-recording-log-from-snapshot"],
    ):
        main(["tool", *words, "--dir", str(tmp_path / "cluster")])
    assert audited(tmp_path) == [
        (*me(), "SORT_RECORDING_LOG", "done"),
        (*me(), "EXPORT_WATERMARK", "done: 4096"),
        (*me(), "INVALIDATE_LATEST_SNAPSHOT", "done"),
        (*me(), "SEED_RECORDING_LOG_FROM_SNAPSHOT", "done: no valid snapshot, recording log removed"),
    ]
    capsys.readouterr()


@pytest.mark.parametrize("inside", ["", "cluster"])
def test_a_restart_is_noted_beside_the_cluster_directory_whichever_is_named(tmp_path, monkeypatch, inside):
    write_member(tmp_path, a_log(5))
    (tmp_path / "audit.log").touch()
    monkeypatch.setattr(os, "kill", lambda pid, signal: None)
    monkeypatch.chdir(tmp_path / inside)
    restart._signal(".")
    assert audited(tmp_path) == [(*me(), "RESTART", "done")]


@pytest.mark.parametrize(
    ("user_id", "login", "said"),
    [
        (0, "0", "root"),
        (0, "1", f"{ALICE} as root"),
        (0, str(2**32 - 1), "root"),
        (0, "what", "root"),
        (4_000_000, "4000000", "uid 4000000"),
    ],
)
def test_who_logged_in_is_named_beside_the_user_that_the_command_has(
    user_id, login, said, monkeypatch, tmp_path
):
    (tmp_path / "loginuid").write_text(login)
    monkeypatch.setattr(os, "getuid", lambda: user_id)
    monkeypatch.setattr(host_audit, "open", lambda _: (tmp_path / "loginuid").open(), raising=False)
    assert who_asks() == said


def test_a_directory_without_an_audit_log_gets_none_of_another_user(tmp_path, capsys):
    note_on_host(tmp_path, "SNAPSHOT")
    assert not list(tmp_path.iterdir())
    (tmp_path / "audit.log").mkdir()
    note_on_host(tmp_path, "SNAPSHOT")
    assert "SNAPSHOT is not noted there" in capsys.readouterr().err
