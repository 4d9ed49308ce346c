"""``cluster status`` of directories: stopped, copied, damaged, missing, and of one that runs alone."""

import json
import shutil
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import numpy as np
import pytest

from cluster.archive.directory_lock import DirectoryLock
from cluster.archive.files import OsFiles
from cluster.archive.identity_file import write_identity
from cluster.cli import running_member, status, status_document
from cluster.cli.status_document import with_missing_entries
from cluster.errors import TimedOut
from cluster.protocol.backup import BackupSnapshotRecording
from cluster.protocol.identity import ClusterIdentity, IdOfMember
from cluster.protocol.mark_file import CLUSTER_MARK_FILE_NAME
from cluster.protocol.token import identity_text
from cluster.reader.directory import DirectoryLog
from cluster.reader.log_reader import LogReader
from cluster.reader.standing import by_log, standing_text
from cluster.transport.clock import epoch_ms
from tests.aeron.scripted_aeron import Script, survey_scripted
from tests.archive.logs import T0, LogWriter, a_log, log_params
from tests.archive.members import live_counters, write_member
from tests.cli.answers import ANSWER

GROUP = "status"
IDENTITY = ClusterIdentity(7, members=tuple(map(IdOfMember, range(3))))


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch, tmp_path):
    for name in ("CLUSTER_DIR", "CLUSTER_ENDPOINTS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def test_a_stopped_cluster_says_how_far_each_log_goes_and_which_is_short(run, tmp_path):
    log = a_log(50)
    for member_id, length in enumerate((50, 50, 20)):
        write_member(tmp_path / "cluster-data" / f"member-{member_id}", a_log(length), member_id=member_id)
    ends = [log.position, log.position, a_log(20).position]

    ended, out, _ = run("--json")

    found = json.loads(out)
    assert (ended, found["verdict"], found["mayFail"]) == (
        1, "unavailable", {"withoutStopping": 0, "withoutLoss": 1}
    )  # fmt: skip
    assert [member["appendPosition"] for member in found["members"]] == ends
    assert [member["lag"] for member in found["members"]] == [0, 0, ends[0] - ends[2]]
    assert [message["text"] for message in found["messages"]] == ["no member runs"]
    verdict, may_be_lost, *_ = run("--dir", "cluster-data")[1].splitlines()
    assert verdict.startswith("unavailable: 3 members, nobody leads, term ")
    assert may_be_lost == "  1 may lose its disk without losing what was acknowledged"


def test_a_directory_that_was_closed_is_known_by_its_last_words(run, tmp_path):
    for member_id in range(2):
        write_member(tmp_path / f"c/member-{member_id}", a_log(5), member_id=member_id)
    (tmp_path / "c/member-1/cluster/closed.dat").touch()
    members = json.loads(run("--dir", "c", "--json")[1])["members"]
    assert [member["isClosed"] for member in members] == [False, True]


def test_an_old_copy_beside_a_member_s_directory_is_no_other_member(run, tmp_path):
    for name, length in (("member-0", 20), ("member-1", 50), ("member-1.old", 20), ("odd", 20)):
        write_member(tmp_path / "c" / name, a_log(length), member_id={"member-0": 0, "odd": 2}.get(name, 1))
    members = json.loads(run("--dir", "c", "--json")[1])["members"]
    assert [(member["memberId"], Path(member["dir"]).name) for member in members] == [
        (0, "member-0"), (1, "member-1"), (2, "odd"),
    ]  # fmt: skip


def test_one_member_s_directory_says_how_many_members_its_cluster_has(run, tmp_path):
    write_member(tmp_path / "m", a_log(5))
    write_identity(OsFiles(), str(tmp_path / "m/cluster"), str(tmp_path / "m/archive"), IDENTITY)
    out = run("--dir", "m")[1]
    assert out.startswith("unavailable: 3 members, nobody leads")
    assert "no member runs; of 2 others nothing is known here" in out


def test_of_members_that_do_not_answer_nothing_is_said_but_that(run, monkeypatch):
    refused = TimedOut("db0:9000: Connection refused")
    monkeypatch.setattr(status_document, "ask_members", lambda *_: {-1: refused})

    lines = run("--endpoints", "db0:9000")[1].splitlines()
    found = json.loads(run("--endpoints", "db0:9000", "--json")[1])

    assert lines[0] == "unavailable: nothing is known of 1 member"
    assert lines[-2] == "error: no member answers: db0:9000: Connection refused"
    assert found["cluster"]["commitPosition"] is found["mayFail"]["withoutLoss"] is None


def test_a_real_cluster_has_the_same_verdict_and_document(run, monkeypatch):
    log = np.zeros(8192, np.uint8)
    scripts = [
        Script(member, log, 65536, is_leader=member == 1, term_id=4, leader_id=1) for member in range(3)
    ]
    scripts[0].snapshots = (BackupSnapshotRecording(3, 4, 0, 4096, T0, -1),)
    survey_scripted(monkeypatch, scripts)
    status, out, _ = run("--json", "--consensus-endpoints", "host:9000")
    found = json.loads(out)
    assert (status, found["verdict"], found["mayFail"]) == (
        0,
        "healthy",
        {"withoutStopping": 1, "withoutLoss": 2},
    )
    assert found["cluster"] == {
        "id": None,
        "identity": None,
        "memberCount": 3,
        "leader": 1,
        "leadershipTermId": 4,
        "commitPosition": 8192,
        "time": None,
        "timeOffsetMs": None,
    }
    first = found["members"][0]
    expected = {
        "role": "FOLLOWER",
        "appendPosition": 8192,
        "lag": 0,
        "snapshotPosition": 4096,
        "replayBytes": 4096,
    }
    assert first | expected == first
    assert run("--consensus-endpoints", "host:9000")[1].startswith(
        "healthy: 3 members, member 1 leads, term 4"
    )


def test_a_real_member_that_lags_or_does_not_answer_is_told(run, monkeypatch):
    log = np.zeros(8192, np.uint8)
    scripts = [Script(member, log, 65536) for member in range(3)]
    survey_scripted(monkeypatch, scripts)
    monkeypatch.setattr(status_document, "SECOND_LOOK_S", 0)
    monkeypatch.setattr(status_document, "with_missing_entries", lambda *_: None)
    scripts[1].recorded = 1024
    scripts[2].answers = False
    status, out, _ = run("--json", "--consensus-endpoints", "host:9000")
    found = json.loads(out)
    assert (status, found["cluster"]["commitPosition"], found["verdict"]) == (1, 1024, "at-risk")
    assert found["messages"][0]["text"] == "member 2 does not answer: host:9002: it answers no query"
    scripts[2].answers, scripts[2].data = True, log
    found = json.loads(run("--json", "--consensus-endpoints", "host:9000")[1])
    assert (found["verdict"], found["members"][1]["lag"]) == ("at-risk", 7168)
    assert [message["name"] for message in found["messages"]] == ["lags"]
    for script in scripts:
        script.answers = False
    status, out, _ = run("--json", "--consensus-endpoints", "host:9000")
    assert (status, json.loads(out)["verdict"]) == (1, "unavailable")
    assert run("--consensus-endpoints", "host:9000", "--dir", "d")[0] == 2


def messages(count):
    """A log that all have in common as far as it goes."""
    log = LogWriter(log_params())
    log.term(0)
    log.open_session(2)
    for _ in range(count):
        log.message(bytes(100), 2)
    return log


def test_of_a_member_that_lags_it_is_said_how_many_entries_it_lacks_and_how_old_the_first_is(tmp_path):
    write_member(tmp_path / "full", messages(50))
    short, full = messages(43).position, messages(50).position
    members = [
        {"memberId": 0, "isAlive": True, "lag": 0},
        {"memberId": 1, "isAlive": True, "lag": full - short},
        {"memberId": 2, "isAlive": False, "lag": full},
    ]
    now = datetime.fromtimestamp(T0 / 1_000 + 60, UTC)
    with_missing_entries(members, full, now, lambda: LogReader.open(dir=str(tmp_path / "full")))
    assert members[0] == {"memberId": 0, "isAlive": True, "lag": 0}
    assert (members[1]["lagEntries"], members[1]["lagMs"]) == (7, 60_000 - 45)
    assert members[2]["lagEntries"] == 52 and "lagMs" not in members[2]


def test_how_many_days_there_is_room_for_is_by_the_growth_since_a_term_an_hour_ago(tmp_path):
    write_member(tmp_path / "member", a_log(50))
    with closing(DirectoryLog(str(tmp_path / "member"))) as log:
        began_ms = log.state.log_entries[0].timestamp
        for hours, per_day in ((0, None), (0.5, 48_000), (12, 2_000)):
            found = by_log(log, log.start_position + 1_000, began_ms + round(hours * 3_600_000))
            assert found["logBytesPerDay"] == per_day
    member = {"isAlive": True, "diskFree": 10_000, "logBytesPerDay": 2_000}
    for bound, days in (({}, 5.0), ({"logRoom": 500}, 0.2), ({"logBytesPerDay": 0}, None)):
        bounded = member | bound
        status_document._add_outlook(bounded, 0)
        assert bounded["logDays"] == days


def test_without_a_terminal_the_table_is_as_wide_as_columns_says(run, tmp_path, monkeypatch):
    for member_id in range(3):
        write_member(tmp_path / f"c/member-{member_id}", a_log(50), member_id=member_id)

    def widest_of_table() -> int:
        return max(len(line) for line in run("--dir", "c")[1].splitlines() if "  " in line.strip())

    monkeypatch.delenv("COLUMNS", raising=False)
    widest = widest_of_table()
    for columns in range(widest - 4, widest):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert widest_of_table() <= columns
    monkeypatch.setenv("COLUMNS", str(widest + 2))
    assert widest_of_table() == widest


def test_a_copy_without_counters_is_read_as_the_directory_it_was(run, tmp_path, monkeypatch):
    write_member(tmp_path / "member", a_log(50), is_clean=False)
    shutil.copytree(tmp_path / "member", tmp_path / "copy", ignore=lambda *_: {"driver"})
    monkeypatch.setenv("CLUSTER_DIR", str(tmp_path / "copy"))

    _, out, _ = run("--json")

    found = json.loads(out)
    [member] = found["members"]
    assert (member["isAlive"], member["appendPosition"]) == (False, a_log(50).position)
    with LogReader.open(dir=str(tmp_path / "member")) as log:
        assert log.identity is not None
        assert (found["cluster"]["id"], found["cluster"]["identity"]) == (
            log.identity.cluster_id, identity_text(*log.identity)
        )  # fmt: skip


def test_a_damaged_catalog_is_named_beside_the_members_that_can_be_read(run, tmp_path):
    for member_id in range(2):
        write_member(tmp_path / f"c/member-{member_id}", a_log(50), member_id=member_id)
    (tmp_path / "c/member-1/archive/archive.catalog").write_bytes(b"\xff" * 4_096)

    ended, out, _ = run("--dir", "c", "--json")

    members = json.loads(out)["members"]
    assert ended == 1 and [("damage" in member) for member in members] == [False, True]
    assert "archive.catalog" in members[1]["damage"]


def test_a_damaged_recording_log_is_named_of_a_member_that_does_not_run(run, tmp_path):
    for member_id in range(2):
        write_member(tmp_path / f"c/member-{member_id}", a_log(50), member_id=member_id)
    (tmp_path / "c/member-1/cluster/recording.log").write_bytes(Random(1).randbytes(100))

    members = json.loads(run("--dir", "c", "--json")[1])["members"]

    assert [("damage" in member) for member in members] == [False, True]
    assert "recording.log at offset 44: entry type" in members[1]["damage"]


def test_one_that_runs_and_leads_is_healthy(run, tmp_path):
    write_member(tmp_path / "member", a_log(50), is_clean=False)
    cluster = str(tmp_path / "member" / "cluster")
    with live_counters(tmp_path / "member"):
        lock = DirectoryLock.take(OsFiles(), cluster, CLUSTER_MARK_FILE_NAME, epoch_ms())
        ended, out, _ = run("--dir", "member")
        assert ended == 0 and out.startswith("healthy: 1 member, member 0 leads, ")
        found = json.loads(run("--dir", "member", "--json")[1])
        lock.release()
    assert (found["verdict"], found["cluster"]["leader"], found["members"][0]["diskFree"] > 0) == (
        "healthy", 0, True
    )  # fmt: skip


def test_the_mark_file_of_a_member_is_read_once(run, tmp_path, monkeypatch):
    for member_id in range(2):
        write_member(tmp_path / f"c/member-{member_id}", a_log(5), member_id=member_id)
    read, mark_of = [], running_member.mark_of
    monkeypatch.setattr(running_member, "mark_of", lambda folder: read.append(folder) or mark_of(folder))
    run("--dir", "c")
    assert sorted(read) == ["c/member-0", "c/member-1"]


def test_what_a_member_says_of_its_disk_and_log_is_shown_and_junk_is_not(monkeypatch):
    def look(standing):
        monkeypatch.setattr(status_document, "ask_members", lambda *_: {0: ANSWER.replace(standing=standing)})
        [member] = status_document.status_document(None, "127.0.0.1:9000")["members"]
        return member

    member = look(standing_text({"diskFree": 7, "version": "0.2.0", "snapshotPosition": None}))
    assert (member["diskFree"], member["version"], member["lag"]) == (7, "0.2.0", 0)
    assert "snapshotPosition" not in member
    links = [{"peer": 1, "isUp": True, "isConnecting": False, "queuedBytes": 9, "refusedCertificate": ""}]
    assert look(standing_text({"links": links}))["links"] == links
    for junk in ("", "{", "[1]", '{"memberId": 5, "diskFree": "much", "links": [5]}', "[" * 50_000):
        member = look(junk)
        assert member["memberId"] == 0 and "diskFree" not in member and "links" not in member
    for junk in ({"peer": 1}, {"peer": "<b>", "isUp": True, "queuedBytes": 9, "refusedCertificate": ""}):
        assert "links" not in look(standing_text({"links": [junk]}))


def test_a_second_look_at_who_lags_is_left_to_who_looked_a_moment_before(monkeypatch):
    answer = ANSWER.replace(standing=standing_text({"serviceLag": 64}))
    monkeypatch.setattr(status_document, "ask_members", lambda *_: {0: answer})
    slept = []
    monkeypatch.setattr(status_document.time, "sleep", slept.append)
    status_document.status_document(None, "127.0.0.1:9000", committed_before=32)
    assert slept == []
    status_document.status_document(None, "127.0.0.1:9000")
    assert slept == [status_document.SECOND_LOOK_S]


def test_what_is_waited_for_may_not_be_there_yet(run, tmp_path, monkeypatch):
    now = 0.0

    def sleep(seconds):
        nonlocal now
        now += seconds
        if now >= 1 and not (tmp_path / "late").exists():
            write_member(tmp_path / "late", a_log(5))

    monkeypatch.setattr(status.time, "sleep", sleep)
    monkeypatch.setattr(status.time, "monotonic", lambda: now)

    ended, out, _ = run("--dir", "late", "--wait", "leader", "--timeout", "3")

    assert ended == 1 and out.startswith("unavailable") and 3 <= now < 4
    ended, _, told = run("--dir", "late", "--timeout", "3")
    assert ended == 2 and "--timeout: it needs --wait" in told


def test_no_directory_is_said_with_what_was_expected(run):
    ended, out, told = run()
    assert (ended, out) == (1, "")
    assert "cluster-data: no such directory; start a cluster here" in told and "CLUSTER_DIR" in told
    assert run("--dir", "a", "--endpoints", "b")[0] == 2
