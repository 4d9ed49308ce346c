"""The page of ``cluster live`` and of stories, as a browser runs it."""

import asyncio
import signal
import socket
import time
from types import SimpleNamespace

import pytest

from cluster.cli import live_pages
from cluster.cli.live_pages import LivePages
from cluster.cli.live_story import page
from cluster.testing.stories import STORIES
from cluster.testing.stories.narration import as_document
from tests.cli.browser import Browser
from tests.node.processes import Up, await_that, started

pytestmark = pytest.mark.slow


@pytest.fixture
def browser(tmp_path):
    with Browser(tmp_path / "profile") as browser:
        yield browser
        assert browser.errors == []


def test_a_story_is_played_stepped_and_scrubbed_a_sentence_a_step(browser, tmp_path):
    story = STORIES["client-redirect"]
    played = story.play()
    (tmp_path / "story.html").write_text(page(as_document(story.name, story.title, story.page, played)))
    browser.open(f"file://{tmp_path}/story.html")
    browser.await_that("document.querySelector('#place').textContent > '1 of'")

    browser.value("document.querySelector('#speed').value = '20'")
    browser.await_that(f"document.querySelector('#place').textContent === '{len(played)} of {len(played)}'")
    actors = browser.value("[...document.querySelectorAll('.actor')].map(text => text.textContent)")
    assert actors == ["alice", "member 0", "service 0 of member 0", "member 1", "member 2"]

    sentences = [f"{n}. {line.sentence}" for n, line in enumerate((x for x in played if x.sentence), 1)]
    found = [browser.text("#sentence")]
    for _ in sentences[1:]:
        browser.click("#back")
        found.append(browser.text("#sentence"))
    assert found == sentences[::-1]
    assert browser.value("document.querySelectorAll('#told .arrow').length") == 1
    browser.value("document.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight'}))")
    assert browser.text("#sentence") == sentences[1]
    last = len(played) - 1
    browser.value(
        f"const at = document.querySelector('#at'); at.value = {last}; at.dispatchEvent(new Event('input'))"
    )
    assert browser.text("#sentence") == sentences[-1] and browser.text("#play") == "Play"


def test_of_very_many_in_a_story_members_are_shown_and_whoever_spoke_just_now(browser, tmp_path):
    def line(sender):
        return {"timeNs": 1, "from": sender, "to": "member 0", "text": "x", "sentence": None, "isHeld": False}

    lines = [line("member 1"), *(line(f"client {number}") for number in range(40))]
    story = {"name": "x", "title": "x", "page": "x", "lines": lines}
    (tmp_path / "story.html").write_text(page(story))
    browser.open(f"file://{tmp_path}/story.html")
    browser.value("document.querySelector('#speed').value = '20'")
    browser.await_that("document.querySelector('#place').textContent === '41 of 41'")
    actors = browser.value("[...document.querySelectorAll('.actor')].map(text => text.textContent)")
    assert actors == [*(f"client {number}" for number in range(20, 40)), "member 0", "member 1"]


def test_backups_times_of_commits_and_consumer_groups_stand_beside_the_members(browser, tmp_path):
    counts = [0, 3, 20, 110, 40, 9, 4, 1, 0, 0, 0, 2, 0, 1]
    member = {"isAlive": True, "electionState": "CLOSED", "leadershipTermId": 3, "commitPosition": 9_000}
    status = {
        "time": "2026-11-28T02:00:00Z",
        "verdict": "healthy",
        "messages": [],
        "cluster": {"leader": 0, "leadershipTermId": 3, "commitPosition": 9_000},
        "members": [{**member, "memberId": 0, "role": "LEADER", "commitTimes": counts}],
        "groups": [{"group": "billing", "position": 6_000, "bytesBehind": 3_000}],
        "backups": [{**member, "memberId": None, "role": "BACKUP"}],
    }
    (tmp_path / "page.html").write_text(page([{"status": status, "events": []}]))
    browser.open(f"file://{tmp_path}/page.html")
    browser.await_that("document.querySelectorAll('.lane').length === 2")
    bars = "[...document.querySelectorAll('#times div')].map(bar => bar.{})"
    heights = [float(height.rstrip("%")) for height in browser.value(bars.format("style.height"))]
    assert heights == pytest.approx([100 * count / 110 for count in counts], abs=0.01)
    assert browser.value(bars.format("title"))[-1] == "1 in more than 1 s"
    assert browser.text("#times-text") == "times of the leader's commits, most within 500 µs"
    assert browser.text("#groups") == "consumer group billing: at 6,000, 2.9 KiB to read"
    heights = "[...document.querySelectorAll('main > section')].map(section => section.offsetHeight > 0)"
    assert browser.value(heights) == [False, True, True]  # no part of it is for a story


def test_the_page_of_a_backup_has_no_members_to_map(browser, tmp_path):
    status = {
        "time": "2026-11-28T02:00:00Z",
        "verdict": "healthy",
        "messages": [],
        "mayFail": {"withoutStopping": 0},
        "cluster": {"leader": None, "leadershipTermId": None, "commitPosition": 9_000},
        "members": [],
        "backups": [{"isAlive": True, "commitPosition": 9_000, "memberId": None, "role": "BACKUP"}],
    }
    (tmp_path / "page.html").write_text(page([{"status": status, "events": ["is level"]}]))
    browser.open(f"file://{tmp_path}/page.html")
    browser.await_that("document.querySelectorAll('.lane').length === 1")
    assert browser.text("#summary") == "a backup" and browser.text("#events") == "is level"


def test_links_and_clients_move_as_fast_as_the_looks_say_and_messages_from_one_to_the_other(
    browser, tmp_path
):
    def links(*peers):
        return [
            {"peer": peer, "isUp": is_up, "isConnecting": is_up is None, "queuedBytes": queued}
            for peer, is_up, queued in peers
        ]

    def frame(second, position, messages=()):
        member = {
            "isAlive": True,
            "electionState": "CLOSED",
            "leadershipTermId": 3,
            "ingressMessages": position,
        }
        member |= {"commitPosition": position, "appendPosition": position}
        status = {
            "time": f"2026-11-28T02:00:{second:02}Z",
            "verdict": "healthy",
            "messages": [],
            "cluster": {"leader": 1, "leadershipTermId": 3, "commitPosition": position},
            "members": [
                {**member, "memberId": 0, "role": "FOLLOWER", "links": links((1, True, 7), (2, None, 0))},
                {**member, "memberId": 1, "role": "LEADER", "links": links((0, True, 2048), (2, False, 0))},
                {"memberId": 2, "isAlive": False},
            ],
            "clients": {"sessions": 2},
        }
        clients = [{"session": 5, "messagesPerSecond": 4_000, "bytesPerSecond": 2048}]
        return {"status": status, "events": [], "messages": messages, "clients": clients}

    sent = [{"from": "member 0", "to": "member 1", "text": "RequestVote candidateTermId=4", "count": 2}]
    (tmp_path / "page.html").write_text(page([frame(1, 1024), frame(2, 3072, sent)]))
    browser.open(f"file://{tmp_path}/page.html")
    browser.await_that("document.querySelector('#place').textContent === '2 of 2'")
    texts = browser.value("[...document.querySelectorAll('#map-texts text')].map(text => text.textContent)")
    assert texts == ["2.0 KiB/s, 2.0 KiB wait", "connecting", "down", "2,048 messages/s"]
    ways = browser.value(
        "[...links.values()].map(link => [link.from, link.to, link.line.getAttribute('class').trim(),"
        " link.flow.getAttribute('class'), Math.sign(link.moving.playbackRate)])"
    )
    assert ways == [
        ["member 0", "member 1", "link", "flow", -1],  # from the leader on
        ["member 0", "member 2", "link unknown", "flow still", 1],
        ["member 1", "member 2", "link down", "flow still", 1],
        ["client", "member 0", "flow still", "flow still", 1],
        ["client", "member 1", "link unknown", "flow", 1],
        ["client", "member 2", "flow still", "flow still", 1],
    ]
    assert browser.text("#clients") == "client session 5: 4,000 messages/s, 2.0 KiB/s"
    assert browser.text("#said") == "member 0 → member 1: RequestVote candidateTermId=4 ×2"
    assert browser.text(".names") == "RequestVote ×2"
    browser.await_that("document.querySelectorAll('.moved, .names').length === 0")


def test_a_page_asks_when_a_look_is_due_and_only_while_it_is_shown(browser, monkeypatch):
    monkeypatch.setattr(live_pages, "FRESH_S", 1.0)
    monkeypatch.setattr(live_pages, "FRESH_MAX_S", 1.0)
    looks = []
    cluster = {"leader": None, "leadershipTermId": 1, "commitPosition": 96}
    status = {"time": "2026-11-28T02:00:00Z", "verdict": "healthy", "messages": [], "cluster": cluster}
    frame = {"status": status | {"members": []}, "events": [], "messages": [], "clients": []}
    pages = LivePages(page(), SimpleNamespace(frame=lambda: looks.append(1) or frame))
    asked = []
    monkeypatch.setattr(
        pages, "answer", lambda request, answer=pages.answer: asked.append(1) or answer(request)
    )

    async def run():
        with socket.create_server(("127.0.0.1", 0)) as listener:
            serving = asyncio.create_task(pages.port(listener).run())
            url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
            await asyncio.to_thread(look_at_it, url)
            serving.cancel()

    def look_at_it(url):
        browser.open(url)
        await_that(lambda: len(looks) > 5, "the page asks again and again")
        assert len(asked) <= len(looks) + 4  # the page, its icon; and timers may be early
        browser.value("Object.defineProperty(document, 'hidden', {value: true, configurable: true}); 0")
        time.sleep(1.2)  # it may have asked just before
        before = len(asked)
        time.sleep(2)
        assert len(asked) == before
        browser.value("delete document.hidden; document.dispatchEvent(new Event('visibilitychange')); 0")
        await_that(lambda: len(asked) > before + 2, "it asks again when it is shown")

    asyncio.run(run())
    browser.errors.clear()  # it has no icon


def test_a_member_that_is_killed_by_a_button_is_seen_to_go_another_to_lead_and_it_to_come_back(
    browser, tmp_path
):
    with Up(tmp_path / "c", members=3) as up:
        serving = started("live", "--dir", str(tmp_path / "c"), "--buttons")
        try:
            browser.open(serving.stdout.readline().strip())
            browser.await_that("document.querySelector('#verdict').textContent === 'healthy'")
            leader = up.leader
            verbs = "document.querySelectorAll('#buttons p')[{}].querySelectorAll('button')[{}]"

            browser.value(verbs.format(leader, 0) + ".click()")
            lane = f"document.querySelector('.lane[data-member=\"{leader}\"]')"
            browser.await_that(f"{lane}.classList.contains('gone')")
            browser.await_that("document.querySelectorAll('.role.LEADER').length === 1")
            browser.await_that("document.querySelector('#events').textContent.includes('-> LEADER')")
            browser.await_that("document.querySelector('#said').textContent.includes(': Vote in term ')")
            following = (
                3
                - leader
                - browser.value("Number(document.querySelector('.LEADER .name').textContent.at(-1))")
            )
            browser.await_that("document.querySelector('#said').textContent.includes('SIGUSR1')")
            browser.value(verbs.format(following, 3) + ".click()")
            browser.await_that("!document.querySelector('#said').textContent.includes('SIGUSR1')")
            browser.value(verbs.format(leader, 2) + ".click()")
            browser.await_that(f"!{lane}.classList.contains('gone')")
            browser.await_that("document.querySelector('#verdict').textContent === 'healthy'")
            browser.value(verbs.format(leader, 2) + ".click()")
            browser.await_that("document.querySelector('#pressed').textContent === 'it runs\\n'")
            browser.errors.remove(
                "Failed to load resource: the server responded with a status of 409 (Conflict)"
            )
        finally:
            serving.send_signal(signal.SIGINT)
            serving.communicate(timeout=30)
        await_that(
            lambda: not up.top()[leader]["isAlive"], "the member that a button started ends with the page"
        )
