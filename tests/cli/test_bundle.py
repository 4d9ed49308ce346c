"""``cluster bundle``: what is in it, and what never is."""

from __future__ import annotations

import errno
import json
import os
import shutil
import tarfile
from pathlib import Path

from cluster import ClusterNode
from cluster.node.config_text import write
from tests.archive.logs import a_log
from tests.archive.members import write_member
from tests.node.processes import await_that, keys_of
from tests.security.planted import Planted

GROUP = "bundle"
PAYLOAD = b"payload of somebody's message"
STACKS = """\
{"timestamp": "12:00", "event": "stacks", "stacks": {"7": ["  File old\\n"]}}
{"timestamp": "13:00", "event": "stacks", "stacks": {"7": [" File a\\n", " File b\\n"], "8": [" File c\\n"]}}
{"timestamp": "14:00", "event": "ha
"""


def a_cluster_with_secrets(folder: Path) -> tuple[Path, Planted]:
    """Two stopped members whose secrets lie among their files, under names that a member does not know."""
    folder.mkdir()
    planted = Planted(folder)
    for member_id in (0, 1):
        member = folder / f"member-{member_id}"
        log = a_log(3)
        log.message(PAYLOAD)
        write_member(member, log)
        shutil.copy(planted.file("token"), member / "tokens")
        shutil.copy(planted.tls.key, member / "cluster" / "key.pem")
        (member / "output.log").write_bytes(
            b"a service prints " + (planted.secrets / "password").read_bytes()
        )
        (member / "node.log").write_text('{"event": "starts"}\n' + STACKS)
        write(
            member / "node.toml",
            {
                "dir": str(member),
                "authenticator": "token",
                "authenticator_file": str(member / "tokens"),
                "tls_certificate": planted.tls.certificate,
                "tls_key": str(member / "cluster" / "key.pem"),
                "tls_ca": planted.tls.ca,
            },
        )
    return folder, planted


def contents(file: Path) -> dict[str, bytes]:
    with tarfile.open(file) as bundle:
        found = {info.name.partition("/")[2]: bundle.extractfile(info) for info in bundle}
        return {name: data.read() for name, data in found.items() if data is not None}


def test_a_bundle_has_no_secret_no_message_and_nothing_that_services_print(run, tmp_path):
    folder, planted = a_cluster_with_secrets(tmp_path / "c")
    status, out, err = run("--dir", folder, "--out", tmp_path / "all.tar.gz", "--json")
    assert (status, err) == (0, "")
    found = contents(tmp_path / "all.tar.gz")
    assert json.loads(out)["files"] == len(found) > 20
    for name, data in found.items():
        planted.assert_not_in(data, name)
        assert PAYLOAD not in data, name
    assert (tmp_path / "all.tar.gz").stat().st_mode & 0o777 == 0o600


def test_a_bundle_describes_each_member_in_files_that_programs_read(run, tmp_path):
    folder, _ = a_cluster_with_secrets(tmp_path / "c")
    assert run("--dir", folder / "member-1", "--out", tmp_path / "one.tar.gz")[0] == 0
    found = contents(tmp_path / "one.tar.gz")
    described = {
        name: json.loads(data)
        for name, data in found.items()
        if name.endswith(".json") and "counters" not in name
    }
    assert {"versions.json", "clocks.json", "status.json"} < set(described)
    assert set(found) - set(described) == {
        "README.txt",
        "status.txt",
        "member-1/node.log",
        "member-1/stacks.txt",
        "member-1/counters.json",
    }
    assert found["status.txt"].startswith(b"unavailable: 1 member, nobody leads")
    keys = {key["key"]: key for key in described["member-1/configuration.json"]["keys"]}
    assert keys["authenticator"]["value"] == "token"
    assert described["member-1/recording-log.json"][0]["type"] == "TERM"
    assert "cluster/recording.log" in described["member-1/disk.json"]["files"]


def test_a_bundle_says_what_its_files_are_and_has_the_last_stacks_as_text(run, tmp_path):
    folder, _ = a_cluster_with_secrets(tmp_path / "c")
    assert run("--dir", folder, "--out", tmp_path / "all.tar.gz")[0] == 0
    found = contents(tmp_path / "all.tar.gz")
    described = {line.split()[0] for line in found["README.txt"].decode().splitlines() if "  " in line}
    assert {Path(name).name for name in found} - {"README.txt"} <= described
    said = "at 13:00\n\nthread 7\n File a\n File b\n\nthread 8\n File c\n"
    assert found["member-1/stacks.txt"].decode() == said


def test_the_configuration_of_a_member_may_lie_elsewhere(run, tmp_path):
    folder, _ = a_cluster_with_secrets(tmp_path / "c")
    moved = (folder / "member-1" / "node.toml").rename(tmp_path / "etc.toml")
    assert run("--dir", folder / "member-1", "--config", moved, "--out", tmp_path / "one.tar.gz")[0] == 0
    described = json.loads(contents(tmp_path / "one.tar.gz")["member-1/configuration.json"])
    assert {key["key"]: key for key in described["keys"]}["authenticator"]["value"] == "token"
    status, _, err = run("--dir", folder, "--config", moved, "--out", tmp_path / "two.tar.gz")
    assert status == 2 and "give --dir of the one member" in err and not (tmp_path / "two.tar.gz").exists()


def test_from_afar_it_has_what_members_tell_and_their_logs(run, tmp_path):
    with ClusterNode.launch(**keys_of(tmp_path)) as node:
        await_that(lambda: node.is_leader, "it leads")
        at = node.config.member.ingress_endpoint
        status, _, err = run("--endpoints", f"{at},127.0.0.1:1", "--out", tmp_path / "afar.tar.gz")
    assert status == 0 and err.startswith("127.0.0.1:1: ") and err.count("\n") == 1
    found = contents(tmp_path / "afar.tar.gz")
    logs = {name: data for name, data in found.items() if name.endswith(".log")}
    assert b"LEADER_READY -> CLOSED" in logs["member-0/node.log"]
    assert set(found) - set(logs) == {
        "README.txt",
        "versions.json",
        "clocks.json",
        "status.txt",
        "status.json",
        "describe.json",
        "member-0/stacks.txt",
    }
    assert b"runner.py" in found["member-0/stacks.txt"], "as they are when the bundle is asked for"
    assert b"member 0 leads" in found["status.txt"]
    assert json.loads(found["describe.json"])


def test_from_afar_nobody_may_answer(run, tmp_path):
    status, _, err = run("--endpoints", "127.0.0.1:1", "--out", tmp_path / "afar.tar.gz")
    assert status == 1 and err.startswith("127.0.0.1:1: ")
    assert len(contents(tmp_path / "afar.tar.gz")) == 6


def test_a_directory_without_members_is_named_and_no_file_is_written(run, tmp_path):
    (tmp_path / "empty").mkdir()
    for directory in (tmp_path / "empty", tmp_path / "nowhere"):
        status, out, err = run("--dir", directory, "--out", tmp_path / "x.tar.gz")
        assert (status, out) == (1, "") and str(directory) in err
    assert not (tmp_path / "x.tar.gz").exists()


def test_what_may_not_be_read_is_named_in_the_bundle_and_the_rest_is_there(run, tmp_path, monkeypatch):
    """Root may read all; so the path says no here."""
    folder, _ = a_cluster_with_secrets(tmp_path / "c")
    opened = Path.open

    def refusing(path, *arguments, **options):
        if path == folder / "member-1" / "node.log":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", refusing)
    status, _, err = run("--dir", folder, "--out", tmp_path / "all.tar.gz")
    assert (status, err) == (0, "")
    found = contents(tmp_path / "all.tar.gz")
    assert found["member-1/node.log"].endswith(b"/member-1/node.log: Permission denied\n")
    assert b"starts" in found["member-0/node.log"]


def test_a_file_that_a_running_member_removes_meanwhile_is_left_out(run, tmp_path, monkeypatch):
    folder, _ = a_cluster_with_secrets(tmp_path / "c")
    (segment := folder / "member-1" / "archive" / "0-0.rec").touch()
    listed = os.walk

    def walk(top):
        found = list(listed(top))
        segment.unlink(missing_ok=True)
        return found

    def is_file(path, was=os.path.isfile):
        is_there = was(path)
        if path == segment:
            segment.unlink(missing_ok=True)
        return is_there

    monkeypatch.setattr(os, "walk", walk)
    monkeypatch.setattr(os.path, "isfile", is_file)
    status, _, err = run("--dir", folder, "--out", tmp_path / "all.tar.gz")
    assert (status, err) == (0, "")
    files = json.loads(contents(tmp_path / "all.tar.gz")["member-1/disk.json"])["files"]
    assert "cluster/recording.log" in files and "archive/0-0.rec" not in files


def test_a_bundle_that_fails_leaves_the_one_before_as_it_was(run, tmp_path, monkeypatch):
    folder, _ = a_cluster_with_secrets(tmp_path / "c")
    (out := tmp_path / "all.tar.gz").write_bytes(b"the one before")

    def fail(path):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr("shutil.disk_usage", fail)
        status, _, err = run("--dir", folder, "--out", out)
    assert (status, err) == (1, f"{out}: cannot be written: No space left on device\n")
    assert out.read_bytes() == b"the one before"
    (tmp_path / "link.tar.gz").symlink_to(out)
    assert run("--dir", folder, "--out", tmp_path / "link.tar.gz")[0] == 0
    assert contents(out) and (tmp_path / "link.tar.gz").is_symlink()
    status, _, err = run("--dir", folder, "--out", folder)
    assert (status, err) == (2, f"{folder}: is no regular file, expected the name of one\n")
    assert {path.name for path in tmp_path.iterdir()} == {"c", "all.tar.gz", "link.tar.gz"}
