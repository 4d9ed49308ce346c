"""``cluster live``: the page and what it is fed with, of a cluster that runs and of one that has stopped."""

import asyncio
import json
import re

from cluster.cli import live
from cluster.cli.events import last_logs
from cluster.cli.http_port import HttpRequest
from cluster.cli.live_buttons import MemberButtons
from cluster.cli.live_pages import LivePages
from cluster.cli.live_story import EVENTS_MAX, Looks, frames_of_events, page
from cluster.errors import ConfigurationError, StorageError
from cluster.protocol.counter_types import BUCKETS_NS
from tests.archive.logs import a_log
from tests.archive.members import write_member

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


def get(pages: LivePages, path: str, host: str = "localhost:80"):
    return asyncio.run(pages.answer(HttpRequest("GET", path, "", {"host": host}, "127.0.0.1", None)))


def story_in(text: str) -> list[dict]:
    return json.loads(re.search(r"^const STORY = (.*);$", text, re.MULTILINE)[1])


def test_the_logs_of_a_stopped_cluster_become_a_frame_an_event(tmp_path):
    a_history(tmp_path)
    with (tmp_path / "member-1" / "node.log").open("a") as file:  # messages are too many for a frame each
        file.write('{"event": "RequestVote", "level": "debug", "timestamp": "2026-01-31T11:59:07Z"}\n')
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
    assert frames[4]["events"] == ["2026-01-31T11:59:05.000Z    0  role FOLLOWER -> LEADER"]


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
    assert run("--story", out, "--port", "8080")[0] == 0
    assert served == [(out.read_text(), None, 8080)]
    assert run("--dir", tmp_path / "c", "--buttons")[0] == ConfigurationError.exit_status
    assert run("--story", tmp_path / "none.html")[0] == StorageError.exit_status
    assert run("--story", out, "--dir", tmp_path)[0] == 2


def test_all_pages_share_one_look_and_a_new_one_gets_the_events_before_it(tmp_path):
    looks = []

    def look():
        looks.append(1)
        return STATUS

    a_history(tmp_path)
    pages = LivePages(page(), Looks(look, last_logs(tmp_path, None)))
    first, second = (json.loads(get(pages, "/frame").body) for _ in range(2))
    assert first == second and len(looks) == 1
    pages._looked_s = 0
    third = json.loads(get(pages, "/frame").body)
    assert len(looks) == 2 and third["events"] == first["events"] and len(first["events"]) == 7 <= EVENTS_MAX


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
