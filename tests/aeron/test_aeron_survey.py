"""How the members of a real cluster stand, and how much of its log is committed."""

from __future__ import annotations

import numpy as np
import pytest

from cluster.aeron.aeron_survey import committed_position, survey
from tests.aeron.scripted_aeron import Script, survey_scripted

LOG = np.zeros(64 * 1024, np.uint8)


@pytest.fixture
def scripts(monkeypatch):
    scripts = [
        Script(member, LOG[: 1024 * (4 - member)], 65536, is_leader=member == 0) for member in range(3)
    ]
    survey_scripted(monkeypatch, scripts)
    return scripts


def test_one_member_is_enough_to_hear_of_all(scripts):
    scripts[1].start = 512
    standings = survey("host:9002")
    assert [(each.member_id, each.start_position, each.recorded_end, each.error) for each in standings] == [
        (0, 0, 4096, None),
        (1, 512, 3072, None),
        (2, 0, 2048, None),
    ]
    assert committed_position(standings, 3) == 3072, "two of three have as much"


def test_who_does_not_answer_is_named_once_under_whatever_name_it_was_given(scripts):
    scripts[2].answers = False
    standings = survey("host:9000,other:1,host:9002")
    assert [each.member_id for each in standings] == [0, 1, 2]
    assert [str(each.error) for each in standings] == ["None", "None", "it answers no query"]
    assert committed_position(standings, 3) == 3072


def test_where_nobody_answers_each_endpoint_says_why(scripts):
    for script in scripts:
        script.answers = False
    standings = survey("host:9000,other:1")
    assert [(each.endpoint, each.member_id, str(each.error)) for each in standings] == [
        ("host:9000", None, "it answers no query"),
        ("other:1", None, "other:1 is not reached"),
    ]
    assert committed_position(standings, 2) == 0


def test_a_member_whose_answer_does_not_decode_is_named_and_the_others_are_asked(scripts):
    scripts[2].garbles = True
    standings = survey("host:9000")
    assert [each.member_id for each in standings] == [0, 1, 2]
    assert str(standings[2].error) == "a BackupResponse of 3 bytes"


def test_what_a_member_has_of_an_earlier_term_commits_nothing(scripts):
    scripts[1].term_id = scripts[2].term_id = 3
    assert committed_position(survey("host:9000"), 3) == 2048
