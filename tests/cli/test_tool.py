"""``cluster tool`` says what Aeron's ClusterTool says, about real directories and ours."""

from __future__ import annotations

import errno
import itertools
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import typer

from cluster.archive.directory_lock import DirectoryLock
from cluster.archive.files import OsFiles
from cluster.archive.recording_log import RecordingLog
from cluster.cli import tool
from cluster.cli.main import main
from cluster.counters import CountersReader
from cluster.protocol.counter_types import CounterTypeId
from cluster.protocol.mark_file import CLUSTER_MARK_FILE_NAME
from cluster.protocol.recording_log import SNAPSHOT
from cluster.transport.clock import epoch_ms
from tests.aeron.scripted_aeron import Script, open_scripted
from tests.archive.logs import T0, a_log
from tests.archive.members import Member, live_counters, write_member
from tests.reader.real import a_copy, members, said

GROUP = "tool"


@pytest.mark.conformance("S-136")
@pytest.mark.parametrize("member", [0, 1, 2])
def test_recording_log_prints_the_real_tool_s_entries_one_a_line(run, member):
    real = re.findall(r"Entry\{[^}]*\}", said(member, "ClusterTool recording-log"))
    status, out, err = run("recording-log", "--raw", "--dir", members() / f"member-{member}")
    assert (status, err) == (0, "")
    assert out.splitlines() == real


def test_recording_log_as_json_has_the_same_facts(run):
    _, out, _ = run("recording-log", "--dir", members() / "member-0", "--json")
    assert json.loads(out)[3] == {
        "recordingId": 0,
        "leadershipTermId": 1,
        "termBaseLogPosition": 179616,
        "logPosition": -1,
        "timestamp": 1795233421479,
        "serviceId": -1,
        "type": "TERM",
        "isValid": True,
        "entryIndex": 3,
    }


@pytest.mark.parametrize("member", [0, 1, 2])
def test_describe_prints_the_real_tool_s_mark_files(run, member):
    real = said(member, "ClusterTool describe").splitlines()
    status, out, _ = run("describe", "--raw", "--dir", members() / f"member-{member}")
    assert status == 0
    ours = out.splitlines()
    headers = [line for line in real if line.startswith("[MarkFileHeader]")]
    types = [line.partition(" ")[2].partition(" ")[0] for line in real if line.startswith("Type: ")]
    assert [line.split()[1] for line in ours[::2]] == types == ["CONSENSUS_MODULE", "CONTAINER"]
    # The set's description was made where its directories were called otherwise.
    elsewhere = re.compile(r"(aeronDirectory|servicesClusterDir)='[^']*'")
    assert [elsewhere.sub("", line) for line in ours[1::2]] == [elsewhere.sub("", line) for line in headers]


def test_describe_says_of_a_member_that_ended_in_order_that_it_did(run):
    _, out, _ = run("describe", "--raw", "--dir", members() / "member-0")
    assert out.count("activity: none, it ended in order)") == 2 and "1969" not in out


def test_what_people_see_are_tables_without_fields_that_say_nothing(run):
    _, out, _ = run("describe", "--dir", members() / "member-0")
    head, module, service = out.splitlines()
    assert head.split() == ["component", "member", "service", "cluster", "pid", "started", "last", "alive"]
    assert module.startswith("CONSENSUS_MODULE  0") and module.endswith("ended in order")
    assert service.startswith("CONTAINER")
    _, out, _ = run("recording-log", "--dir", members() / "member-1")
    assert [line.split()[1] for line in out.splitlines()[1:]] == ["TERM", "SNAPSHOT", "SNAPSHOT", "TERM"]
    assert "consensus module" in out and "139,424" in out
    _, out, _ = run("recovery-plan", "--dir", members() / "member-1")
    assert "replays           110,720 bytes from 139,424\n" in out
    assert max(map(len, out.splitlines())) <= 100


def test_every_verb_is_in_one_panel_of_the_help(run):
    group = typer.main.get_command(tool.app)
    assert sorted(group.commands) == sorted(itertools.chain(*tool.ToolVerbs.panels.values()))
    _, out, _ = run("--help")
    assert [f"\n{panel}:\n" in out for panel in ("See", "Control", "Repair", "Backup")] == [True] * 4


@pytest.mark.conformance("S-129")
def test_pid_prints_the_process_id_and_nothing_else(run, a_cluster):
    assert run("pid", "--dir", a_cluster / "member-1") == (0, f"{os.getpid()}\n", "")


def test_the_number_of_a_process_that_is_gone_is_not_handed_to_kill(run, tmp_path):
    """By now it may be somebody else's."""
    write_member(tmp_path / "member-0", a_log(5), is_clean=False)
    for directory, number in ((tmp_path / "member-0", os.getpid()), (members() / "member-0", 11986)):
        status, out, err = run("pid", "--dir", directory)
        assert (status, out) == (1, "")
        assert err == f"{directory}: no member runs here; the last one was process {number}\n"


@pytest.mark.conformance("S-137")
def test_recovery_plan_names_the_snapshots_and_the_log(run):
    status, out, _ = run("recovery-plan", "--raw", "--dir", members() / "member-1")
    assert status == 0
    assert out == (
        "RecoveryPlan{lastLeadershipTermId=1, lastTermBaseLogPosition=179616, appendedLogPosition=250144, "
        "committedLogPosition=139424, snapshots=[Snapshot{recordingId=2, leadershipTermId=0, "
        "termBaseLogPosition=0, logPosition=139424, timestamp=1795233415047, serviceId=-1}, "
        "Snapshot{recordingId=1, leadershipTermId=0, termBaseLogPosition=0, logPosition=139424, "
        "timestamp=1795233415047, serviceId=0}], log=Log{recordingId=0, leadershipTermId=1, "
        "termBaseLogPosition=179616, logPosition=-1, startPosition=0, stopPosition=250144, initialTermId=0, "
        "termBufferLength=65536, mtuLength=1408, sessionId=1158046301}}\n"
    )
    _, out, _ = run("recovery-plan", "--dir", members() / "member-1", "--json")
    assert [snapshot["recordingId"] for snapshot in json.loads(out)["snapshots"]] == [2, 1]
    status, _, err = run("recovery-plan", "--dir", members() / "member-1", "--services", 2)
    assert (status, "no snapshot has an entry of each of 2 services" in err) == (1, True)


@pytest.mark.parametrize("runs", [False, True])
def test_recovery_plan_says_how_far_a_recording_goes_that_did_not_stop(run, tmp_path, runs):
    """That of a member that crashed is what it is asked for; its catalog has no end of it."""
    log = a_log(5)
    write_member(tmp_path, log, is_clean=False)
    with live_counters(tmp_path) if runs else nullcontext():
        _, out, _ = run("recovery-plan", "--dir", tmp_path)

    assert f"recorded up to    {log.position:,}\n" in out
    assert f"replays           {log.position:,} bytes from 0\n" in out


@pytest.mark.conformance("S-142")
def test_the_latest_snapshot_lists_sessions_and_timers(run):
    status, out, _ = run("describe-latest-cm-snapshot", "--dir", members() / "member-0")
    assert status == 0
    assert re.findall(r"^\[(\w+)\]", out, re.MULTILINE) == [
        "SnapshotMarker",
        "ConsensusModule",
        "ClusterSession",
        "Timer",
        "PendingMessageTracker",
        "SnapshotMarker",
    ]
    assert "correlationId=500003|deadline=1795237012786" in out
    assert out.endswith("recordingId=2 length=576\n")
    _, out, _ = run("describe-latest-cm-snapshot", "--dir", members() / "member-0", "--json")
    assert json.loads(out)["records"][2]["clusterSessionId"] == 2


@pytest.mark.conformance("S-145")
def test_errors_shows_module_driver_and_services_even_when_they_are_empty(run, tmp_path):
    member = Member(tmp_path)
    member.marks[2].record_error("the service stumbled", T0)
    member.stop()
    status, out, _ = run("errors", "--dir", tmp_path)
    assert status == 0
    module, driver, service = re.split(r"Type: CONTAINER.*\n|\nAeron driver error log.*\n", out)
    assert "\n0 distinct errors observed\n" in module
    assert driver == "no counters file is there\n"
    assert "1 observations from 2023-11-14 22:13:20.000+0000" in service
    assert service.endswith("the service stumbled\n\n1 distinct errors observed.\n")
    with live_counters(tmp_path) as counters:
        counters.record_error("no media", T0)
        _, out, _ = run("errors", "--dir", tmp_path, "--json")
    told = {part["component"]: [error["text"] for error in part["errors"]] for part in json.loads(out)}
    assert told == {"CONSENSUS_MODULE": [], "DRIVER": ["no media"], "CONTAINER": ["the service stumbled"]}


@pytest.mark.conformance("S-128")
def test_is_leader_tells_by_its_status(run, tmp_path):
    """What is missing is 1, as everywhere on our command line, and told apart from a follower by a line."""
    write_member(tmp_path, a_log(5))
    with live_counters(tmp_path, is_leader=True):
        assert run("is-leader", "--dir", tmp_path) == (0, "", "")
        assert run("is-leader", "--dir", tmp_path, "--json") == (0, '{"isLeader": true}\n', "")
    with live_counters(tmp_path, is_leader=False):
        assert run("is-leader", "--dir", tmp_path) == (1, "", "")
    status, _, err = run("is-leader", "--dir", tmp_path)
    assert (status, "the member does not run" in err) == (1, True)
    (tmp_path / "cluster" / "cluster-mark.dat").unlink()
    status, _, err = run("is-leader", "--dir", tmp_path)
    assert (status, "no cluster-mark.dat is here" in err) == (1, True)


def test_list_members_of_a_real_aeron_that_runs_names_the_tool_that_can(run, tmp_path):
    write_member(tmp_path, a_log(5))
    with live_counters(tmp_path):
        status, out, err = run("list-members", "--dir", tmp_path)
    assert (status, out) == (1, "")
    assert "no ingress.sock to be asked by (Aeron's ClusterTool asks Aeron's)" in err


@pytest.mark.conformance("S-130")
def test_list_members_of_a_member_that_does_not_run_fails_at_once(run):
    status, out, err = run("list-members", "--dir", members() / "member-0")
    assert (status, out) == (1, "")
    assert "the member does not run" in err


@pytest.mark.conformance("S-138")
def test_an_invalidated_snapshot_is_not_recovered_from(run, tmp_path):
    copy = a_copy(tmp_path)
    assert run("invalidate-latest-snapshot", "--dir", copy) == (0, "invalidate-latest-snapshot: true\n", "")
    _, out, _ = run("recovery-plan", "--raw", "--dir", copy)
    assert "snapshots=[]" in out
    _, out, _ = run("recording-log", "--raw", "--dir", copy)
    assert [line.count("isValid=false") for line in out.splitlines()] == [0, 1, 1, 0]


@pytest.mark.conformance("S-139")
def test_no_snapshot_to_invalidate_is_false(run, tmp_path):
    write_member(tmp_path, a_log(5))
    status, out, _ = run("invalidate-latest-snapshot", "--dir", tmp_path)
    assert (status, out) == (1, "invalidate-latest-snapshot: false, there is no valid snapshot\n")


@pytest.mark.conformance("S-140")
def test_seeding_leaves_one_snapshot_and_a_backup(run, tmp_path):
    copy = a_copy(tmp_path)
    before = (copy / "cluster" / "recording.log").read_bytes()
    assert run("seed-recording-log-from-snapshot", "--dir", copy)[0] == 0
    assert (copy / "cluster" / "recording.log.bak").read_bytes() == before
    log = RecordingLog.open(str(copy / "cluster"), files=OsFiles())
    assert [(e.entry_type, e.service_id, e.log_position) for e in log.entries] == [
        (SNAPSHOT, 0, 0),
        (SNAPSHOT, -1, 0),
    ]


@pytest.mark.conformance("S-141")
def test_sorting_says_whether_there_was_anything_to_do(run, tmp_path):
    copy = a_copy(tmp_path)
    assert run("sort-recording-log", "--dir", copy) == (0, "already in order\n", "")
    path = copy / "cluster" / "recording.log"
    data = path.read_bytes()
    path.write_bytes(data[192:] + data[:192])
    assert run("sort-recording-log", "--dir", copy) == (0, "sorted\n", "")
    sorted_data = path.read_bytes()
    assert [sorted_data[begin : begin + 48] for begin in range(0, len(sorted_data), 64)] == [
        data[begin : begin + 48] for begin in range(0, len(data), 64)
    ]


REWRITING = ["sort-recording-log", "seed-recording-log-from-snapshot", "invalidate-latest-snapshot"]


@pytest.mark.parametrize("command", REWRITING)
def test_a_member_that_runs_keeps_the_tools_from_rewriting(run, tmp_path, command):
    """It has the recording log in memory, and would not see what they do."""
    member = Member(tmp_path)
    member.write(a_log(5))
    member.take_snapshot(a_log(5), a_log(5).position)
    before = (tmp_path / "cluster" / "recording.log").read_bytes()
    status, _, err = run(command, "--dir", tmp_path)
    assert (status, f"in use by process {os.getpid()}" in err) == (1, True)
    assert (tmp_path / "cluster" / "recording.log").read_bytes() == before
    member.stop()


@pytest.mark.parametrize("command", REWRITING)
def test_a_read_only_directory_is_named_where_it_would_be_changed(run, tmp_path, monkeypatch, command):
    copy = a_copy(tmp_path)

    def refuse(files, path):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    monkeypatch.setattr(OsFiles, "lock", refuse)
    path = f"{copy}/cluster/cluster-mark.lock"
    assert run(command, "--dir", copy) == (1, "", f"{path}: locking failed: Read-only file system\n")


@pytest.mark.conformance("S-144")
def test_a_link_file_leads_to_the_mark_file(run, tmp_path):
    copy = a_copy(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (copy / "cluster" / "cluster-mark.dat").rename(elsewhere / "cluster-mark.dat")
    (copy / "cluster" / "cluster-mark.lnk").write_text(f"{elsewhere}\n")
    assert "the last one was process 11986" in run("pid", "--dir", copy)[2]
    assert run("describe", "--raw", "--dir", copy)[1].count("[MarkFileHeader]") == 2


def test_a_service_that_is_linked_is_described_once(run, tmp_path):
    copy = a_copy(tmp_path)
    (copy / "cluster" / "cluster-mark-service-0.lnk").write_text(str(copy / "cluster"))
    assert run("describe", "--raw", "--dir", copy)[1].count("Type: CONTAINER") == 1


@pytest.mark.conformance("S-127")
@pytest.mark.parametrize(
    ("arguments", "status", "what"),
    [
        (["fly", "--dir", "."], 2, "fly"),
        (["describe"], 1, "cluster-data: no such directory; start a cluster here"),
        (["sort-recording-log"], 2, "--dir"),
        (["describe", "--dir", "{tmp}/nowhere"], 1, "nowhere: no such directory"),
        (["pid", "--dir", "{tmp}"], 1, "not a member's directory, no recording.log is in it"),
        (["snapshot", "--dir", "{tmp}"], 1, "not a member's directory"),
    ],
)
def test_wrong_usage_and_missing_directories_are_told_apart(run, tmp_path, arguments, status, what):
    found, _, err = run(*(argument.replace("{tmp}", str(tmp_path)) for argument in arguments))
    assert (found, what in err) == (status, True), err


def test_garbage_is_named_with_file_and_offset(run, tmp_path):
    copy = a_copy(tmp_path)
    path = copy / "cluster" / "recording.log"
    data = bytearray(path.read_bytes())
    data[64 + 44] = 7
    path.write_bytes(data)
    status, out, err = run("recording-log", "--raw", "--dir", copy)
    assert (status, len(out.splitlines())) == (1, 1)
    assert err == f"{path} at offset 108: entry type 7, expected 0, 1 or 2\n"
    (copy / "cluster" / "cluster-mark.dat").write_bytes(b"\x5a" * 300)
    status, _, err = run("pid", "--dir", copy)
    assert status == 1
    assert err.startswith(f"{copy}/cluster/cluster-mark.dat at offset ")
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    "command",
    [
        "describe", "pid", "recording-log", "recovery-plan", "errors", "is-leader", "list-members",
        "snapshot", "suspend", "resume", "shutdown", "abort",
    ],
)  # fmt: skip
def test_help_has_an_example(run, command):
    status, out, _ = run(command, "--help")
    assert (status, f"cluster tool {command} --dir" in out) == (0, True)


def test_help_of_the_group_says_whole_sentences_of_its_verbs_and_has_an_example(run):
    status, out, _ = run("--help")
    assert status == 0
    assert "Ask a running member which member leads and which members there are." in " ".join(out.split())
    assert "..." not in out.replace("[ARGS]...", "")
    assert "cluster tool describe --dir" in out


def test_the_export_watermark_is_told_and_shown(run, tmp_path):
    copy = a_copy(tmp_path)
    assert run("export-watermark", "--dir", copy) == (0, "none\n", "")
    assert run("export-watermark", 4096, "--dir", copy) == (0, "4096\n", "")
    assert run("export-watermark", "--dir", copy, "--json") == (0, '{"position": 4096}\n', "")
    assert run("export-watermark", "--dir", copy, "--", -1)[0] == 2


@pytest.fixture
def a_cluster(tmp_path: Path) -> Iterator[Path]:
    """Three members of which the middle one runs and leads; the first was killed when it led."""
    for member_id in range(3):
        write_member(tmp_path / f"member-{member_id}", a_log(5 + member_id))
    cluster = str(tmp_path / "member-1" / "cluster")
    with live_counters(tmp_path / "member-0"), live_counters(tmp_path / "member-1"):
        lock = DirectoryLock.take(OsFiles(), cluster, CLUSTER_MARK_FILE_NAME, epoch_ms())
        for stopped in ("member-0", "member-2"):
            lock_of = str(tmp_path / stopped / "cluster")
            DirectoryLock.take(OsFiles(), lock_of, CLUSTER_MARK_FILE_NAME, epoch_ms()).release()
        yield tmp_path
        lock.release()


@pytest.mark.parametrize(
    "command",
    ["describe", "recording-log", "recovery-plan", "errors", "archive describe", "archive count-entries",
     "archive dump", "log dump", "log tail"],
)  # fmt: skip
def test_what_reads_takes_a_whole_cluster_s_directory_and_its_first_member_that_runs(
    capsys, a_cluster, command
):
    words = command.split() if " " in command else ["tool", command]

    def of(directory: Path) -> tuple[int, str]:
        status = main([*words, "--dir", str(directory)])
        return status, re.sub(r"activityTime[^ ]*|[0-9:.]{8,}[A-Z+]*", "", capsys.readouterr().out)

    assert of(a_cluster) == of(a_cluster / "member-1")
    assert of(a_cluster)[0] == 0


@pytest.mark.parametrize("command", ["pid", "is-leader", "sort-recording-log", "invalidate-latest-snapshot"])
def test_a_command_about_one_member_is_shown_with_one_that_the_directory_has(run, a_cluster, command):
    status, out, err = run(command, "--dir", a_cluster)
    assert (status, out) == (1, "")
    assert err == (
        f"{a_cluster}: holds several members (member-0, member-1, member-2); name one of them, "
        f"for example: cluster tool {command} --dir {a_cluster}/member-0\n"
    )
    shutil.rmtree(a_cluster / "member-0")
    shutil.rmtree(a_cluster / "member-1")
    _, _, err = run(command, "--dir", a_cluster)
    assert f"{a_cluster}: holds no member itself, member-2 in it does; name that, for example: cl" in err


@pytest.mark.parametrize("option", ["--dir=", "-d", ""])
def test_the_command_that_is_shown_names_the_directory_as_it_was_named(run, monkeypatch, a_cluster, option):
    monkeypatch.setenv("CLUSTER_DIR", str(a_cluster))
    _, _, err = run("pid", *([f"{option}{a_cluster}/"] if option else ()))
    assert err.endswith(f": cluster tool pid {option or '--dir '}{a_cluster}/member-0\n")


def test_what_a_leader_is_asked_for_finds_the_leader(run, a_cluster, monkeypatch):
    monkeypatch.setattr("cluster.node.control.TIMEOUT_S", 0.0)
    status, _, err = run("suspend", "--dir", a_cluster)
    assert (status, "was asked for SUSPEND, and has not done it" in err) == (1, True), "nobody turns here"
    toggle = CounterTypeId.CONTROL_TOGGLE
    found = []
    for member_id in range(2):
        with CountersReader(str(a_cluster / f"member-{member_id}" / "driver" / "cnc.dat")) as counters:
            found.append(counters.find(toggle).get())
    assert found == [1, 2], "the one that runs, and not the one that was killed while it led"


def test_without_a_leader_that_is_said(run, tmp_path):
    for member_id in range(2):
        write_member(tmp_path / f"member-{member_id}", a_log(5))
        lock_of = str(tmp_path / f"member-{member_id}" / "cluster")
        DirectoryLock.take(OsFiles(), lock_of, CLUSTER_MARK_FILE_NAME, epoch_ms()).release()
    status, _, err = run("snapshot", "--dir", tmp_path)
    assert (status, err) == (1, f"{tmp_path}: none of its members runs\n")


def test_list_members_asks_a_real_cluster_over_its_own_medium(capsys, monkeypatch):
    scripts = [Script(member, np.zeros(64, np.uint8), 65536) for member in range(3)]
    scripts[0].members = "|".join(f"{m},in:{m},consensus:{m},log:{m},up:{m},archive:{m}" for m in range(3))
    with open_scripted(monkeypatch, scripts):
        command = ["tool", "list-members", "--json", "--consensus-endpoints", "host:9000"]
        assert main(command) == 0
        assert json.loads(capsys.readouterr().out) == {
            "leaderMemberId": 0,
            "memberId": 0,
            "activeMembers": "0=in:0,1=in:1,2=in:2",
        }
        assert main([*command, "--dir", "d"]) == 2
