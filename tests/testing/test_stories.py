"""``cluster.testing.stories``: what each page says happens, in the order in which it says so."""

from __future__ import annotations

import json
import re

import pytest

from cluster.cli import story
from cluster.cli.main import main
from cluster.testing.stories import STORIES, Stage, StoryUntrue
from cluster.testing.stories.narration import as_shiviz
from tests.testing.stories_page import HEAD, as_section
from tests.tree import ROOT

PAGE = (ROOT / "docs" / "stories.md").read_text()
LONG = {"canvass-one-missing"}  # a minute of canvass


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in LONG else ()) for name in STORIES]
)
def test_each_step_is_seen_after_the_one_before_it_and_the_page_shows_them(name):
    told = STORIES[name].play()

    sentences = [line.sentence for line in told if line.sentence]
    assert len(sentences) >= 2
    assert "\n".join(as_section(STORIES[name], told)) in PAGE, "made by tests.testing.stories_page"


def test_the_page_has_all_stories_in_the_order_of_the_list_and_no_other():
    assert PAGE.startswith(HEAD)
    commands = [line for line in PAGE.splitlines() if line.startswith("`cluster story ")]
    assert commands == [f"`cluster story {name}`" for name in STORIES]


def test_a_step_that_was_not_seen_is_named():
    stage = Stage()
    leader = stage.cluster().await_leader()
    stage.step("Nobody says so.", leader, "RequestVote", to="alice")

    with pytest.raises(StoryUntrue, match="step 1 was not seen: Nobody says so"):
        stage.lines()


def test_a_step_that_comes_before_the_one_before_it_is_not_seen():
    stage = Stage()
    leader = stage.cluster().await_leader()
    stage.step("It leads.", leader, "election .* -> LEADER_REPLAY")
    stage.step("It stands.", leader, "election .* -> CANDIDATE_BALLOT")

    with pytest.raises(StoryUntrue, match="step 2 "):
        stage.lines()


def test_what_is_never_to_be_seen_and_is_seen_is_named():
    stage = Stage()
    leader = stage.cluster().await_leader()
    stage.step("It starts.", leader, "starts")
    stage.never("It asks nobody.", leader, "RequestVote")
    stage.step("It leads.", leader, "election .* -> LEADER_REPLAY")

    with pytest.raises(StoryUntrue, match="step 2 was seen: It asks nobody"):
        stage.lines()


def test_a_redirected_client_is_in_no_log_and_its_egress_is_closed_by_the_follower():
    told = [line.happening for line in STORIES["client-redirect"].play()]

    redirect = next(i for i, line in enumerate(told) if "code=REDIRECT" in line.text)
    assert not any("SessionOpenEvent" in line.text for line in told[: redirect + 1])
    assert sum(line.text.startswith("Log: SessionOpenEvent") for line in told) == 2  # once to each follower


def test_the_command_lists_stories_and_tells_one_as_text_as_json_and_as_a_diagram(capsys):
    def said(*words):
        assert main(["story", *words]) == 0
        return capsys.readouterr().out

    assert [line.split()[0] for line in said().splitlines()] == list(STORIES)
    assert "alice -> member 1                 SessionConnectRequest" in said("client-redirect")
    document = json.loads(said("client-redirect", "--json"))
    assert {"from": "alice", "to": "member 1", "text": "SessionConnectRequest"}.items() <= document["lines"][
        0
    ].items()
    assert said("client-redirect", "--mermaid").startswith("sequenceDiagram\n    participant a0 as alice\n")


def test_each_reader_in_a_log_for_shiviz_knows_what_the_sender_did_before_and_each_counts_from_one():
    played = STORIES["leader-dies"].play()
    pattern, executions, *lines = as_shiviz(played)
    log = "\n".join([*lines, ""])
    parsed = [*re.finditer(pattern.replace("(?<", "(?P<"), log)]  # as ShiViz does, by its default expression
    assert executions == "" and "".join(f"{found[0]}\n" for found in parsed) == log
    assert [found["event"] for found in parsed] == lines[::2]
    assert all(found["host"] in json.loads(found["clock"]) for found in parsed)
    counts: dict[str, int] = {}
    sent: dict[str, list[dict[str, int]]] = {}
    reads = 0
    for event, stamped in zip(lines[::2], lines[1::2], strict=True):
        actor, _, clock_text = stamped.partition(" ")
        clock = json.loads(clock_text)
        counts[actor] = counts.get(actor, 0) + 1
        assert clock[actor] == counts[actor]
        if event.startswith("reads "):
            reads += 1
            known = [before for before in sent[event.removeprefix("reads ")]
                     if all(clock.get(who, 0) >= count for who, count in before.items())]  # fmt: skip
            assert known
        else:
            sent.setdefault(event, []).append(clock)
    assert reads == sum(line.heard_ns is not None for line in played) > 10
    between_processes = [line for line in played if line.heard_ns and "service" not in str(line.happening)]
    assert all(line.heard_ns > line.happening.time_ns for line in between_processes)


def test_a_story_is_written_as_a_page_and_as_a_log_of_the_same_lines(tmp_path, capsys):
    page, log = tmp_path / "story.html", tmp_path / "story.log"
    assert main(["story", "client-redirect", "--out", str(page), "--shiviz", str(log)]) == 0
    assert capsys.readouterr().out == f"{page}: 10 lines\n{log}: 10 lines\n"
    assert main(["story", "client-redirect", "--json"]) == 0
    assert f"const STORY = {capsys.readouterr().out.strip()};" in page.read_text()
    assert log.read_text().startswith(
        "(?<event>.*)\\n(?<host>\\S*) (?<clock>{.*})\n\nSessionConnectRequest\nalice "
    )
    assert main(["story", "client-redirect", "--html", str(tmp_path / "none" / "story.html")]) == 1


def test_a_seed_is_a_history_of_the_simulator_with_echo(tmp_path, monkeypatch):
    played = []
    monkeypatch.setattr(story, "sim", lambda *names, **options: played.append((*names, options)))
    story.story(seed=17, out=tmp_path / "story.html", as_json=True)
    assert played == [("echo", {"seed": 17, "story": tmp_path / "story.html", "as_json": True})]
    assert main(["story", "client-redirect", "--seed", "17"]) == 2


def test_a_story_that_there_is_not_is_refused_with_the_command_that_lists_them(capsys):
    assert main(["story", "nothing"]) == 2
    assert "`cluster story` lists them" in capsys.readouterr().err
