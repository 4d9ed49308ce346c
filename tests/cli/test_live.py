"""``cluster live``: the page and what it is fed with, of a cluster that runs and of one that has stopped."""

import asyncio
import json
import re
import socket
import threading
from collections import Counter
from datetime import UTC, datetime

import pytest

from cluster.cli import live, live_clients, live_pages, live_story
from cluster.cli.events import by_time, last_logs
from cluster.cli.http_port import HttpRequest
from cluster.cli.live_buttons import MemberButtons
from cluster.cli.live_clients import ClientRates
from cluster.cli.live_messages import moved_messages
from cluster.cli.live_pages import LivePages
from cluster.cli.live_story import EVENTS_MAX, Looks, frames_of_events, page
from cluster.errors import ConfigurationError, NotAClusterDirectory, StorageError
from cluster.protocol.counter_types import BUCKETS_NS
from cluster.reader.log_reader import LogReader
from tests.archive.logs import SEGMENT_LENGTH, LogWriter, a_log
from tests.archive.members import Member, write_member

GROUP = "live"
STATUS = {
    "v": 1, "time": "2026-01-31T12:00:00.000+00:00", "verdict": "unavailable", "messages": [],
    "cluster": {"leader": None, "leadershipTermId": 1, "commitPosition": 96}, "backups": [],
    "members": [{"memberId": 0, "isAlive": False}, {"memberId": 1, "isAlive": False}],
}  # fmt: skip


def log(folder, member_id, *events):
    """Its node.log; each event has its second."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        json.dumps({"member": member_id, "event": text, "timestamp": f"2026-01-31T11:59:{second:02}Z"})
        for second, text in events
    ]
    (folder / "node.log").write_text("".join(f"{line}\n" for line in lines))


def a_history(directory) -> None:
    log(
        directory / "member-0",
        0,
        (1, "starts"),
        (3, "election CANVASS -> NOMINATE: has the longest log"),
        (4, "election NOMINATE -> CANDIDATE_BALLOT: stands for term 7"),
        (5, "role FOLLOWER -> LEADER"),
        (9, "ends"),
    )
    log(directory / "member-1", 1, (2, "starts"), (6, "election CANVASS -> CLOSED: follows in term 7"))


def wrote(member_id, second, sender, receiver, text) -> dict:
    """A message's line."""
    at = f"2026-01-31T11:59:{second:02}Z"
    return {
        "member": member_id, "from": sender, "to": receiver, "event": text, "level": "debug", "timestamp": at
    }  # fmt: skip


def get(pages: LivePages, path: str, host: str = "localhost:80"):
    return asyncio.run(pages.answer(HttpRequest("GET", path, "", {"host": host}, "127.0.0.1", None)))


def story_in(text: str) -> list[dict]:
    return json.loads(re.search(r"^const STORY = (.*);$", text, re.MULTILINE)[1])


def test_the_logs_of_a_stopped_cluster_become_a_frame_an_event(tmp_path):
    a_history(tmp_path)
    with (tmp_path / "member-1" / "node.log").open("a") as file:  # messages are too many for a frame each
        file.write(f"{json.dumps(wrote(1, 7, 'member 1', 'member 0', 'CanvassPosition'))}\n")
    frames = frames_of_events(tmp_path, STATUS)
    seen = [
        (
            frame["status"]["cluster"]["leader"],
            *((m["isAlive"], m.get("leadershipTermId")) for m in frame["status"]["members"]),
        )
        for frame in frames[:-1]
    ]
    assert seen == [
        (None, (True, None), (False, None)),
        (None, (True, None), (True, None)),
        (None, (True, None), (True, None)),
        (None, (True, 7), (True, None)),
        (0, (True, 7), (True, None)),
        (0, (True, 7), (True, 7)),
        (None, (False, 7), (True, 7)),
    ]
    assert frames[-1]["status"] == STATUS
    assert [frame["messages"] for frame in frames if frame["messages"]] == [
        [{"from": "member 1", "to": "member 0", "text": "CanvassPosition", "count": 1}]
    ]
    assert frames[4]["events"] == ["2026-01-31T11:59:05.000Z    0  role FOLLOWER -> LEADER"]


def test_a_member_that_was_killed_is_shown_to_run_until_another_finds_it_gone(tmp_path):
    log(tmp_path / "member-0", 0, (1, "starts"), (3, "member 1 is gone"), (5, "member 7 is gone"))
    log(tmp_path / "member-1", 1, (2, "starts"), (4, "starts"))
    frames = frames_of_events(tmp_path, STATUS)
    seen = [frame["status"]["members"][1]["isAlive"] for frame in frames]
    assert seen == [False, True, False, True, True, False]


def test_of_very_many_events_the_last_are_played_with_what_the_others_have_led_to(tmp_path, monkeypatch):
    monkeypatch.setattr(live_story, "FRAMES_MAX", 2)
    a_history(tmp_path)
    frames = frames_of_events(tmp_path, STATUS)
    assert [frame["status"]["members"][1]["isAlive"] for frame in frames] == [True, True, False]


def test_the_log_of_a_backup_is_played_too(tmp_path):
    tmp_path.joinpath("backup.log").write_text('{"event": "is level", "timestamp": "2026-01-31T11:59:01Z"}\n')
    frames = frames_of_events(tmp_path, STATUS | {"members": [], "backups": [{"memberId": None}]})
    assert [frame["events"] for frame in frames] == [["2026-01-31T11:59:01.000Z    -  is level"], []]


def test_frames_of_a_stopped_cluster_say_how_far_its_members_had_the_log_by_then(tmp_path):
    made = a_log(0)
    begins = []
    for second in (4, 6, 8):
        made.time = 1000 * int(datetime(2026, 1, 31, 11, 59, second, tzinfo=UTC).timestamp())
        begins.append(made.position)
        made.message(b"x" * 100)
    write_member(tmp_path / "member-0", made)
    log(
        tmp_path / "member-0", 0,
        (1, "starts"), (2, "election CANVASS -> CLOSED: leads"), (5, "x"), (7, "x"), (9, "x"), (10, "ends"),
    )  # fmt: skip
    follows = (
        "election FOLLOWER_BALLOT -> FOLLOWER_REPLAY: follows member 0, leader of term 0; has a log to 32"
    )
    log(tmp_path / "member-1", 1, (3, "starts"), (5, follows), (7, "election FOLLOWER_READY -> CLOSED: x"))
    ends = {0: made.position, 1: begins[2] - 32}
    members = [{"memberId": id_, "isAlive": False, "appendPosition": end} for id_, end in ends.items()]
    last = STATUS | {"members": members}

    frames = frames_of_events(tmp_path, last, lambda: LogReader.open(dir=str(tmp_path / "member-0")))
    seen = [
        (frame["status"]["cluster"]["commitPosition"], *(m.get("appendPosition") for m in members))
        for frame in frames[:-1]
        for members in [frame["status"]["members"]]
    ]
    assert seen == [
        (begins[0], None, None),
        (begins[0], begins[0], None),
        (begins[0], begins[0], None),
        (begins[1], begins[1], None),
        (begins[1], begins[1], 32),
        (begins[2], begins[2], 32),
        (begins[2], begins[2], begins[2] - 32),
        (made.position, made.position, begins[2] - 32),
        (made.position, made.position, begins[2] - 32),
    ]
    assert all(
        m.get("appendPosition") == m.get("commitPosition")
        for f in frames[:-1]
        for m in f["status"]["members"]
    )
    without = frames_of_events(tmp_path, last, lambda: LogReader.open(dir=str(tmp_path / "member-1")))
    assert len(without) == len(frames) and "appendPosition" not in without[1]["status"]["members"][0]


def test_before_the_log_that_was_kept_a_member_had_as_much_as_its_snapshot_says(tmp_path):
    made = LogWriter(time=1000 * int(datetime(2026, 1, 31, 11, 59, 5, tzinfo=UTC).timestamp()))
    made.term(0)
    made.walk(1, 1_000)
    member = Member(tmp_path / "member-0")
    member.write(made)
    member.recording.purge_to(2 * SEGMENT_LENGTH)
    member.stop()
    log(tmp_path / "member-0", 0, (1, "starts"), (2, "election INIT -> CLOSED: x"), (3, "snapshot at 512"))
    log(tmp_path / "member-1", 1, (40, "starts"))
    members = [{"memberId": id_, "isAlive": False, "appendPosition": made.position} for id_ in (0, 1)]
    frames = frames_of_events(
        tmp_path, STATUS | {"members": members}, lambda: LogReader.open(dir=str(tmp_path / "member-0"))
    )
    seen = [frame["status"]["members"][0].get("appendPosition") for frame in frames]
    assert seen == [None, None, 512, made.position, made.position]


def test_a_page_needs_nothing_from_elsewhere_and_no_text_of_a_story_ends_its_script():
    frames = [{"status": STATUS, "events": ["</script><script>alert(1)</script>"]}]
    text = page(frames)
    assert text.count("</script>") == 1 and story_in(text) == frames
    assert not re.search(r"""(src|href)\s*=|@import|url\(|https?:""", page())
    assert story_in(page()) is None


def test_a_stopped_directory_becomes_a_story_which_is_served_whole(run, tmp_path, monkeypatch):
    for member_id in range(2):
        write_member(tmp_path / f"c/member-{member_id}", a_log(5))
    a_history(tmp_path / "c")
    out = tmp_path / "story.html"
    ended, said, _ = run("--dir", tmp_path / "c", "--out", out)
    assert (ended, said) == (0, f"{out}: 8 frames\n")
    assert len(story_in(out.read_text())) == 8

    served = []
    monkeypatch.setattr(live, "_serve", lambda *given: served.append(given))
    assert run("--story", out, "--port", "8080", "--seconds", "2s")[0] == 0
    assert served == [(out.read_text(), None, 8080)]
    assert run("--dir", tmp_path / "c", "--buttons")[0] == ConfigurationError.exit_status
    assert run("--story", tmp_path / "none.html")[0] == StorageError.exit_status
    assert run("--story", out, "--dir", tmp_path)[0] == 2


@pytest.mark.parametrize("data", [b"<html>junk", b"\xff\x00", page().encode()])
def test_a_file_that_is_no_story_is_refused(run, tmp_path, data):
    (tmp_path / "junk.html").write_bytes(data)
    ended, out, err = run("--story", tmp_path / "junk.html")
    assert (ended, out) == (2, "") and f"{tmp_path}/junk.html: no story" in err


def test_all_pages_share_one_look_and_a_new_one_gets_the_events_before_it(tmp_path):
    looks = []

    def look(_):
        looks.append(1)
        return STATUS

    a_history(tmp_path)
    pages = LivePages(page(), Looks(look, last_logs(tmp_path, None), ClientRates(no_log)))
    first, second = (json.loads(get(pages, "/frame").body) for _ in range(2))
    assert first == second and len(looks) == 1
    pages._fresh_until_s = 0
    third = json.loads(get(pages, "/frame").body)
    assert len(looks) == 2 and third["events"] == first["events"] and len(first["events"]) == 7 <= EVENTS_MAX


@pytest.mark.parametrize(("cost_s", "stands_s"), [(0.001, 0.5), (0.02, 1.0), (5.0, 5.0)])
def test_a_look_stands_the_longer_the_more_it_and_the_answers_before_it_took(monkeypatch, cost_s, stands_s):
    used_s, now_s = [1.0], [100.0]
    monkeypatch.setattr(live_pages.time, "process_time", lambda: used_s[0])
    monkeypatch.setattr(live_pages.time, "monotonic", lambda: now_s[0])
    looks = []
    pages = LivePages(page(), Looks(lambda _: looks.append(1) or STATUS, [], ClientRates(no_log)))
    used_s[0] += cost_s

    assert get(pages, "/frame").headers["X-Due-Ms"] == str(round(1_000 * stands_s))
    now_s[0] += stands_s - 0.01
    assert get(pages, "/frame").headers["X-Due-Ms"] == "10" and len(looks) == 1
    now_s[0] += 0.02
    assert get(pages, "/frame").headers["X-Due-Ms"] == "500" and len(looks) == 2


def test_a_new_page_has_events_though_hundreds_of_messages_were_written_after_them(tmp_path):
    a_history(tmp_path)
    message = json.dumps(wrote(0, 10, "member 0", "member 1", "CommitPosition logPosition=96"))
    with (tmp_path / "member-0" / "node.log").open("a") as file:
        file.write(f"{message}\n" * 1_000)
    frame = Looks(lambda _: STATUS, last_logs(tmp_path, None), ClientRates(no_log)).frame()
    assert len(frame["events"]) == 7


def test_a_look_goes_by_the_one_a_moment_before_and_by_no_older_one(monkeypatch):
    given = []
    now = iter((10.0, 10.1, 10.5, 13.0))
    monkeypatch.setattr(live_story.time, "monotonic", lambda: next(now))
    looks = Looks(lambda before: given.append(before) or STATUS, [], ClientRates(no_log))
    for _ in range(4):
        looks.frame()
    assert given == [None, None, 96, None]


def no_log():
    raise NotAClusterDirectory("none is here")


def test_a_message_is_moved_once_whoever_wrote_it_and_a_vote_without_any_line_of_it(tmp_path):
    a_history(tmp_path)
    lines = [
        wrote(0, 10, "member 0", "member 1", "RequestVote candidateTermId=8"),
        wrote(1, 11, "member 0", "member 1", "RequestVote candidateTermId=8"),
        wrote(1, 12, "member 1", "member 0", "Vote candidateTermId=8 vote=1"),
        wrote(1, 13, "member 2", "member 1", "ClockRequest askedNs=1"),
        wrote(1, 14, "member 2", "member 1", "ClockRequest askedNs=2"),
        wrote(0, 15, "service 0", "member 0", "ServiceAck"),
    ]
    for line in lines:
        with (tmp_path / f"member-{line['member']}" / "node.log").open("a") as file:
            file.write(f"{json.dumps(line)}\n")
    log(tmp_path / "member-2", 2, (12, "election NOMINATE -> FOLLOWER_BALLOT: voted for member 0 in term 8"))
    moved = [tuple(each.values()) for each in moved_messages([*by_time(last_logs(tmp_path, None))])]
    assert moved == [
        ("member 0", "member 1", "RequestVote candidateTermId=8", 1),
        ("member 1", "member 0", "Vote candidateTermId=8 vote=1", 1),
        ("member 2", "member 0", "Vote in term 8", 1),
        ("member 2", "member 1", "ClockRequest askedNs=2", 2),
        ("service 0 of member 0", "member 0", "ServiceAck", 1),
    ]


def test_clients_are_as_fast_as_the_log_says_of_the_part_of_it_that_is_read(tmp_path, monkeypatch):
    write_member(tmp_path, a_log(64))
    with LogReader.open(dir=str(tmp_path)) as log:
        columns = ("position", "endPosition", "clusterSessionId")
        [batch] = log.batches(columns=columns, entry_types=("SESSION_MESSAGE",))
        sent = batch.to_pylist()
        begin, end = sent[0]["position"], sent[-1]["endPosition"]
        clients = ClientRates(lambda: log)
        now = iter((10.0, 12.0, 14.0, 15.0))
        monkeypatch.setattr(live_clients.time, "monotonic", lambda: next(now))
        monkeypatch.setattr(LogReader, "is_live", True)
        positions = iter((begin, end, end, begin))
        monkeypatch.setattr(log, "commit_position", lambda: next(positions))
        assert clients.look() == []
        found = clients.look()
        by_session = Counter(each["clusterSessionId"] for each in sent)
        assert {each["session"]: each["messagesPerSecond"] for each in found} == {
            session: round(count / 2) for session, count in by_session.items()
        }
        assert sum(each["bytesPerSecond"] for each in found) == pytest.approx((end - begin) / 2, rel=0.01)
        assert clients.look() == clients.look() == []  # nothing has come; the log was restored to before

        monkeypatch.setattr(live_clients, "READ_BYTES_MAX", (end - begin) // 4)
        now, positions = iter((20.0, 22.0)), iter((begin, end))
        clients.look()
        estimated = sum(each["messagesPerSecond"] for each in clients.look())
        assert estimated == pytest.approx(len(sent) / 2, rel=0.25)


def test_twenty_pages_that_ask_at_once_are_all_answered_by_one_look(tmp_path):
    a_history(tmp_path)
    looked, may_look = [], threading.Event()

    def look(_):
        looked.append(may_look.wait(10))
        return STATUS

    pages = LivePages(page(), Looks(look, last_logs(tmp_path, None), ClientRates(no_log)))

    async def run():
        with socket.create_server(("127.0.0.1", 0)) as listener:
            serving = asyncio.create_task(pages.port(listener).run())
            opened = [await asyncio.open_connection(*listener.getsockname()) for _ in range(20)]
            for _, writer in opened:
                writer.write(b"GET /frame HTTP/1.1\r\nHost: localhost\r\n\r\n")
            may_look.set()
            answers = [await reader.read() for reader, _ in opened]
            serving.cancel()
            return answers

    answers = asyncio.run(run())
    assert all(answer.startswith(b"HTTP/1.1 200 OK\r\n") for answer in answers) and looked == [True]


def test_buttons_are_for_whoever_has_the_key_and_for_members_that_are_there(tmp_path):
    write_member(tmp_path / "member-0", a_log(5))
    (tmp_path / "member-0" / "node.toml").write_text("")
    buttons = MemberButtons(tmp_path)
    pages = LivePages(page(), None, buttons)

    def press(path, key=buttons.key, of=pages):
        headers = {"host": "localhost:80", "x-key": key}
        return asyncio.run(of.answer(HttpRequest("POST", path, "", headers, "127.0.0.1", None))).status

    assert press("/member-0/kill", "") == press("/member-0/kill", of=LivePages(page(), None)) == 403
    assert press("/member-1/kill") == press("/member-0/eat") == press("/../etc/kill") == 404
    assert press("/member-0/kill") == press("/member-0/stop") == 409  # it does not run


def test_the_page_runs_what_it_has_within_and_no_site_of_another_name_gets_it():
    pages = LivePages(page(), None)
    assert "default-src 'none'" in get(pages, "/").headers["Content-Security-Policy"]
    assert get(pages, "/", "rebound.example:80").status == 403
    assert get(pages, "/frame").status == 404


def test_the_page_has_the_bounds_of_the_times_that_members_count():
    named = json.loads(re.search(r"const BOUNDS = (\[.*?\])", page(), re.DOTALL)[1])
    units = {"µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
    bounds = [float(number) * units[unit] for number, unit in map(str.split, named)]
    assert bounds == list(BUCKETS_NS)
