"""``cluster top`` on screens of different widths."""

import io
import os
import pty
import shutil
import sys
import threading
from contextlib import contextmanager

import pytest
from rich.console import Console

from cluster.archive.directory_lock import DirectoryLock
from cluster.archive.files import OsFiles
from cluster.cli.events import LastEvents, last_logs
from cluster.cli.top import Directories, _ask
from cluster.cli.top_screen import BARS, LOOKS_MAX, History, _header, _screen, draw, watch_screen
from cluster.errors import NotAClusterDirectory
from cluster.protocol.counter_types import BUCKETS_NS, bits_of, members_of
from cluster.protocol.mark_file import CLUSTER_MARK_FILE_NAME
from cluster.transport.clock import epoch_ms
from cluster.transport.endpoint import parse_endpoints
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


@pytest.mark.parametrize("width", [80, 120, 160, 200])
def test_three_members_are_shown_whole_on_a_narrow_and_on_a_wide_screen(width):
    text = shown(MEMBERS, width)

    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    for word in ("LEADER", "FOLLOWER", "not running", "9,876,543,210", "121 KiB", "96 B", "elections"):
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

    members = _ask(parse_endpoints("127.0.0.1:9010"))
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


def test_the_last_events_of_all_members_stand_below_the_tables_and_go_on(tmp_path, capsys):
    node_log = tmp_path / "member-0" / "node.log"
    node_log.parent.mkdir()
    event = '{"event": "%s", "level": "%s", "timestamp": "2026-01-27T12:00:01Z"}\n'
    node_log.write_text("".join(event % (f"event {i}", "info") for i in range(1_000)))
    last = LastEvents(last_logs(tmp_path, None), 2)

    def drawn():
        draw(MEMBERS, History(), False, last)
        return capsys.readouterr().out.partition("\nlast events\n")[2].splitlines()

    begin = "2026-01-27T12:00:01.000Z    0  "
    assert drawn() == [begin + "event 998", begin + "event 999"]
    with node_log.open("a") as log:
        log.write(event % ("a message", "debug") + event % ("\\u009bevent", "error"))
    assert drawn() == [begin + "event 999", begin + "ERROR: \\u009bevent"]
    draw(MEMBERS, History(), False, LastEvents(last_logs(tmp_path / "nobody", None), 2))
    assert "last events" not in capsys.readouterr().out


def test_a_column_of_which_nothing_is_known_is_left_out():
    known = [{k: v for k, v in member.items() if k not in ("elections", "errors")} for member in MEMBERS]

    assert "elections" not in shown(known, 160) and "sessions" in shown(known, 160)


def test_days_of_room_are_shown_to_a_tenth_only_where_they_are_few():
    text = shown([member | {"logDays": days} for member, days in zip(MEMBERS, (0.1, 41.5, 759_797.7))], 200)
    assert all(f" {days} " in text for days in ("0.1", "41.5", "759,798"))


def test_the_header_judges_the_members_where_all_are_seen():
    leader = {**MEMBERS[0], "memberCount": 3, "uptimeMs": 11_520_000, "messagesPerSecond": 7_000}
    header = _header([leader, *MEMBERS[1:]], History())
    assert header == [
        "at-risk: 0 of 3 may stop, member 0 leads, term 12, up 3 h 12 min, 7,000 messages/s, 121 KiB/s",
        "warning: member 2 does not run",
    ]
    assert _header([leader], History()) == [], "of one of three nobody can say it"
    assert _header([{"memberId": None, "isAlive": True, "backupState": "BACKING_UP"}], History()) == []


def test_the_header_says_who_lags_since_the_look_before():
    members = [{**member, "isAlive": True} for member in MEMBERS]
    rates = History()
    rates.added_to([{**member} for member in members])
    rates.added_to([*members[:2], {**members[2], "commitPosition": 9_876_540_000}])
    last = {**members[2], "commitPosition": 9_876_540_000}
    assert "member 2 lags" in "\n".join(_header([*members[:2], last], rates))


def test_a_rate_is_of_what_is_committed_and_not_of_a_replay(monkeypatch):
    now = 100.0
    monkeypatch.setattr("cluster.cli.top_screen.time.monotonic", lambda: now)
    rates = History()

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


def counts(**buckets):
    """A histogram with so many in each of its first buckets."""
    return [*buckets.values(), *[0] * (len(BUCKETS_NS) + 1 - len(buckets))]


def test_the_header_has_how_long_commits_and_syncs_take_of_late_and_how_rates_have_moved(monkeypatch):
    now = 100.0
    monkeypatch.setattr("cluster.cli.top_screen.time.monotonic", lambda: now)
    history = History()
    for look in range(LOOKS_MAX + 10):
        now += 1.0
        leader = {
            **MEMBERS[0], "ingressMessages": 10 * look * look, "memberCount": 1,
            "commitTimes": counts(a=1_000_000, b=99 * look, c=look), "syncTimes": counts(a=5),
        }  # fmt: skip
        history.added_to([leader])
    first, times, messages, *_ = _header([leader], history)

    assert "1,370 messages/s" in first
    assert times == "commit p50 <= 100 us, p99 <= 100 us; sync p50 <= 50 us, p99 <= 50 us"
    assert history.quantile_ns(leader, "commitTimes", 0.995) == 250_000
    name, bars = messages.split(maxsplit=1)
    assert (name, len(bars), bars[-1]) == ("messages/s", LOOKS_MAX, BARS[-1]) and list(bars) == sorted(bars)
    slow = {**leader, "commitTimes": [0] * len(BUCKETS_NS) + [1]}
    assert _header([slow], History())[1] == "commit p50 > 1 s, p99 > 1 s; sync p50 <= 50 us, p99 <= 50 us"


@contextmanager
def a_terminal(monkeypatch):
    """A pseudo-terminal in place of standard input and output: what is typed there, and what is shown."""
    ours, theirs = pty.openpty()
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("LINES", "12")
    monkeypatch.setenv("TERM", "xterm-256color")
    with (
        open(ours, "r+b", buffering=0) as terminal,
        open(theirs) as stdin,
        open(os.dup(theirs), "w") as stdout,
    ):
        monkeypatch.setattr(sys, "stdin", stdin)
        monkeypatch.setattr(sys, "stdout", stdout)
        yield terminal


def test_keys_pause_scroll_and_end_the_screen_as_in_other_programs(monkeypatch):
    with a_terminal(monkeypatch) as terminal:  # here: before the test pytest puts its own in place
        _watch_and_press(terminal)


def _watch_and_press(terminal):
    looks = []

    def look():
        looks.append(len(looks))
        listed = [{"id": i, "typeId": 1, "value": i, "label": f"counter {i}"} for i in range(40)]
        return [{**MEMBERS[0], "memberCount": 1, "counters": listed, "commitPosition": 1_000 + len(looks)}]

    watching = threading.Thread(target=watch_screen, args=(look, History(), 0.05, False, LastEvents([], 0)))
    watching.start()
    shown = ""

    def await_shown(text):
        nonlocal shown
        shown = ""
        while text not in shown:
            shown += os.read(terminal.fileno(), 65_536).decode(errors="replace")

    await_shown("q quit, p pause")
    terminal.write(b"p")
    await_shown("paused: q quit")
    count = len(looks)
    terminal.write(b"c")
    await_shown("counters of member 0")
    terminal.write(b"\x1b[F")
    await_shown("counter 39")
    assert "LEADER" not in shown
    terminal.write(b"\x1b[H")
    await_shown("LEADER")
    terminal.write(b"\x1b[B\x1b[B")
    assert len(looks) == count
    terminal.write(b" ")
    await_shown(f"{1_000 + count + 1:,}")
    terminal.write(b"q")
    watching.join(10)
    assert not watching.is_alive()
