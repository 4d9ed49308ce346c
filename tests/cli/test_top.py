"""``cluster top`` on screens of different widths."""

import io
import shutil

import pytest
from rich.console import Console

from cluster.cli.top import _Directories, _tables
from cluster.errors import NotAClusterDirectory
from tests.archive.logs import a_log
from tests.archive.members import live_counters, write_member

MEMBERS = [
    {
        "memberId": member_id, "isAlive": member_id != 2, "role": "LEADER" if member_id == 0 else "FOLLOWER",
        "electionState": "CLOSED", "moduleState": "ACTIVE", "leadershipTermId": 12,
        "commitPosition": 9_876_543_210, "appendPosition": 9_876_543_210, "lag": 96,
        "sessions": 16, "elections": 2, "errors": 0,
    }
    for member_id in range(3)
]  # fmt: skip


def shown(members, width):
    screen = io.StringIO()
    for table in _tables(members, False, {0: 123_456.0}, width):
        Console(width=width, file=screen).print(table)
    return screen.getvalue()


@pytest.mark.parametrize("width", [80, 160])
def test_three_members_are_shown_whole_on_a_narrow_and_on_a_wide_screen(width):
    text = shown(MEMBERS, width)

    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    for word in ("LEADER", "FOLLOWER", "not running", "9,876,543,210", "123,456", "elections"):
        assert word in text


@pytest.mark.parametrize("width", [80, 160])
def test_a_member_that_does_not_answer_is_shown_with_the_reason(width):
    silent = {"memberId": 1, "isAlive": False, "error": "127.0.0.1:9010: UNAVAILABLE"}

    text = shown([MEMBERS[0], silent], width)

    assert "127.0.0.1:9010: UNAVAILABLE" in text and "LEADER" in text


def test_counters_are_found_where_the_mark_file_says_as_a_real_aeron_s_are(tmp_path):
    write_member(tmp_path / "running", a_log(5))
    shutil.copytree(tmp_path / "running", tmp_path / "member-4", ignore=shutil.ignore_patterns("driver"))
    with live_counters(tmp_path / "running"):
        source = _Directories(tmp_path / "member-4")
        (member,) = source.look()
        source.close()

    assert (member["memberId"], member["isAlive"], member["role"]) == (4, True, "LEADER")


def test_a_folder_without_any_counters_is_refused(tmp_path):
    with pytest.raises(NotAClusterDirectory, match="no counters file"):
        _Directories(tmp_path)
