"""``cluster top`` on screens of different widths."""

import io
import shutil

import pytest
from rich.console import Console

from cluster.archive import OsFiles
from cluster.archive.directory_lock import DirectoryLock
from cluster.cli.top import Directories, _Endpoints, _header, _Rates, _screen
from cluster.errors import NotAClusterDirectory
from cluster.protocol.counter_types import bits_of, members_of
from cluster.protocol.mark_file import CLUSTER_MARK_FILE_NAME
from cluster.transport.clock import epoch_ms
from cluster.transport.log_client import Unreachable
from tests.archive.logs import a_log
from tests.archive.members import live_counters, write_member

MEMBERS = [
    {
        "memberId": member_id, "isAlive": member_id != 2, "role": "LEADER" if member_id == 0 else "FOLLOWER",
        "electionState": "CLOSED", "moduleState": "ACTIVE", "leadershipTermId": 12,
        "commitPosition": 9_876_543_210, "appendPosition": 9_876_543_210, "lag": 96,
        "bytesPerSecond": 123_456 if member_id == 0 else None,
        "sessions": 16, "elections": 2, "errors": 0,
    }
    for member_id in range(3)
]  # fmt: skip


def shown(members, width):
    screen = io.StringIO()
    console = Console(width=width, file=screen)
    for part in _screen(members, False, console):
        console.print(part)
    return screen.getvalue()


@pytest.mark.parametrize("width", [80, 120, 160])
def test_three_members_are_shown_whole_on_a_narrow_and_on_a_wide_screen(width):
    text = shown(MEMBERS, width)

    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    for word in ("LEADER", "FOLLOWER", "not running", "9,876,543,210", "123,456", "elections"):
        assert word in text


def test_members_take_a_row_each_as_soon_as_the_screen_has_room_for_it():
    widths = [width for width in range(60, 160) if "election" in shown(MEMBERS, width).splitlines()[1]]

    assert widths == list(range(widths[0], 160)) and widths[0] < 120
    assert all(len(line.rstrip()) <= widths[0] for line in shown(MEMBERS, 159).splitlines())


@pytest.mark.parametrize("width", [80, 160])
def test_a_member_that_does_not_answer_is_shown_with_the_reason(width):
    silent = {"memberId": 1, "isAlive": False, "error": "127.0.0.1:9010: UNAVAILABLE"}

    text = shown([MEMBERS[0], silent], width)

    assert "member 1: 127.0.0.1:9010: UNAVAILABLE" in text and "LEADER" in text and "no answer" in text


@pytest.mark.parametrize("width", [50, 160])
def test_a_member_that_never_answered_is_shown_by_its_endpoint_alone(monkeypatch, width):
    silent = Unreachable("127.0.0.1:9010: UNAVAILABLE")
    monkeypatch.setattr("cluster.cli.top.ask_members", lambda _: {-1: silent})

    members = _Endpoints("127.0.0.1:9010").look()
    text = shown(members, width)

    assert members[0]["memberId"] is None
    assert "-1" not in text and "\n127.0.0.1:9010: UNAVAILABLE\n" in text and "no answer" in text


@pytest.mark.parametrize("width", [80, 160])
def test_whom_a_member_without_its_promises_waits_for_stands_below_the_table(width):
    waiting = {**MEMBERS[2], "isAlive": True, "electionState": "CANVASS", "waitsFor": [0, 1]}

    text = shown([*MEMBERS[:2], waiting], width)

    assert text.count("waits for") == 1 and "member 2 waits for members 0, 1\n" in text


def test_consumer_groups_stand_below_the_table_as_the_member_that_is_furthest_has_them():
    groups = [{"group": "billing", "position": 9_876_540_000, "bytesBehind": 3_210}]
    late = [{"group": "billing", "position": 64, "bytesBehind": 0}]
    members = [dict(MEMBERS[0], commitPosition=64, consumers=late), dict(MEMBERS[1], consumers=groups)]

    line = "consumer group billing: at 9,876,540,000, 3,210 bytes before the commit position"
    assert shown(members, 160).splitlines()[-1] == line


def test_members_waited_for_are_a_bit_each_in_their_counter():
    assert members_of(bits_of([0, 2, 62, 63])) == [0, 2, 62]
    assert members_of(bits_of([])) == []


def test_a_column_of_which_nothing_is_known_is_left_out():
    known = [{k: v for k, v in member.items() if k not in ("elections", "errors")} for member in MEMBERS]

    assert "elections" not in shown(known, 160) and "sessions" in shown(known, 160)


def test_the_header_judges_the_members_where_all_are_seen():
    leader = {**MEMBERS[0], "memberCount": 3, "uptimeMs": 11_520_000, "messagesPerSecond": 7_000}
    header = _header([leader, *MEMBERS[1:]], None)
    assert header == [
        "at-risk: 0 of 3 may stop, member 0 leads, term 12, up 3 h 12 min, 7,000 messages/s, 123,456 bytes/s",
        "warning: member 2 does not run",
    ]
    assert _header([leader], None) == [], "of one of three nobody can say it"
    assert _header([{"memberId": None, "isAlive": True, "backupState": "BACKING_UP"}], None) == []


def test_the_header_says_who_lags_since_the_look_before():
    members = [{**member, "isAlive": True} for member in MEMBERS]
    rates = _Rates()
    rates.added_to([{**member} for member in members])
    rates.added_to([*members[:2], {**members[2], "commitPosition": 9_876_540_000}])
    last = {**members[2], "commitPosition": 9_876_540_000}
    assert "member 2 lags" in "\n".join(_header([*members[:2], last], rates.committed_before))


def test_a_rate_is_of_what_is_committed_and_not_of_a_replay(monkeypatch):
    now = 100.0
    monkeypatch.setattr("cluster.cli.top.time.monotonic", lambda: now)
    rates = _Rates()

    def look(position, election="CLOSED"):
        nonlocal now
        now += 2.0
        member = {**MEMBERS[0], "commitPosition": position, "electionState": election}
        return rates.added_to([member])[0]["bytesPerSecond"]

    assert look(1_000) is None
    assert look(3_000) == 1_000
    assert look(0, "FOLLOWER_REPLAY") is None
    assert look(500_000_000, "FOLLOWER_CATCHUP") is None
    assert look(500_000_100) is None
    assert look(500_000_300) == 100


def test_a_member_whose_process_is_gone_does_not_run_though_its_counters_are_fresh(tmp_path):
    write_member(tmp_path / "member-0", a_log(5))
    cluster = str(tmp_path / "member-0" / "cluster")
    with live_counters(tmp_path / "member-0"):
        lock = DirectoryLock.take(OsFiles(), cluster, CLUSTER_MARK_FILE_NAME, epoch_ms())
        source = Directories(tmp_path)
        assert [(member["isAlive"], member["role"]) for member in source.look()] == [(True, "LEADER")]
        lock.release()
        assert [(member["isAlive"], member["role"]) for member in source.look()] == [(False, None)]
        source.close()


def test_counters_are_found_where_the_mark_file_says_as_a_real_aeron_s_are(tmp_path):
    write_member(tmp_path / "running", a_log(5))
    shutil.copytree(
        tmp_path / "running", tmp_path / "member-4", ignore=shutil.ignore_patterns("driver", "*.lock")
    )
    with live_counters(tmp_path / "running"):
        source = Directories(tmp_path / "member-4")
        (member,) = source.look()
        source.close()

    assert (member["memberId"], member["isAlive"], member["role"]) == (0, True, "LEADER")


def test_a_folder_without_any_counters_is_refused(tmp_path):
    with pytest.raises(NotAClusterDirectory, match="no counters file"):
        Directories(tmp_path)
