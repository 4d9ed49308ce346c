"""``cluster demo``: what it counts, what it draws, and a short one with a kill."""

from __future__ import annotations

import json
import tempfile
import urllib.request
import webbrowser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from rich.console import Console

from benchmarks import demo_picture
from cluster.cli import demo, demo_query, demo_report
from cluster.cli.demo_sender import PAYLOAD_BYTES, NumberedAnswers
from cluster.cli.main import main
from cluster.errors import StorageError
from cluster.reader import member_snapshots
from cluster.reader.log_reader import LogReader
from tests.archive.logs import a_log
from tests.archive.members import write_member
from tests.node.processes import DEADLINE_S, free_base_port, run

KILL = {
    "atS": 5.0, "memberId": 0, "leadershipTermId": 0, "gapMs": 42, "nextLeaderMemberId": 2, "levelAtS": 8.0
}  # fmt: skip
REPORT: dict[str, Any] = {
    "seconds": 30.0, "members": 3, "messages": 1_500_000, "messagesPerSecond": 50_000, "lost": 0,
    "doubled": 0, "kills": [KILL], "sql": {"engine": "duckdb", "messages": 1_499_000, "ageMs": 31},
    "terms": [
        {"atS": 0.1, "leaderMemberId": 0, "leadershipTermId": 0},
        {"atS": 5.1, "leaderMemberId": 2, "leadershipTermId": 1},
    ],
}  # fmt: skip


def payloads(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(8, "little") + bytes(PAYLOAD_BYTES - 8) for number in numbers)


def answer(answers: NumberedAnswers, *numbers: int) -> None:
    buffer = np.frombuffer(b"head" + payloads(*numbers), np.uint8)
    answers.on_messages(SimpleNamespace(offsets=4 + PAYLOAD_BYTES * np.arange(len(numbers)), buffer=buffer))  # type: ignore[arg-type]


def test_a_number_that_is_skipped_is_lost_and_one_that_comes_again_is_doubled():
    answers = NumberedAnswers()
    answer(answers, 0, 1, 2)
    assert (answers.answered, answers.lost, answers.doubled) == (3, 0, 0)
    answer(answers, 2, 3, 6)
    assert (answers.answered, answers.lost, answers.doubled) == (5, 2, 1)


@pytest.mark.parametrize(
    ("numbers", "lost", "doubled"),
    [((0, 1, 2, 3), 0, 0), ((0, 1, 3), 1, 0), ((0, 1, 2, 2, 3), 0, 1), ((0, 1, 2), 0, 0), ((), 3, 0)],
)
def test_the_log_of_a_member_is_held_against_what_the_client_knows_to_be_committed(
    monkeypatch, numbers, lost, doubled
):
    class Reader:
        __enter__ = lambda self: self  # noqa: E731
        __exit__ = lambda self, *_: None  # noqa: E731

        def batches(self, **_: Any) -> list[dict[str, pa.Array]]:
            whole = pa.array([bytes(PAYLOAD_BYTES), *(payloads(number) for number in numbers)])
            return [{"payload": whole[1:]}]

    monkeypatch.setattr(LogReader, "open", lambda **_: Reader())
    assert demo_query.check_log("member-0", committed=3) == (lost, doubled)


@pytest.mark.parametrize(("lost", "doubled", "status"), [(0, 0, 0), (1, 0, 1), (0, 1, 1)])
def test_the_exit_status_is_1_when_a_message_is_lost_or_doubled(monkeypatch, capsys, lost, doubled, status):
    monkeypatch.setattr(demo, "_run", lambda *_: {**REPORT, "lost": lost, "doubled": doubled})
    assert main(["demo"]) == status
    assert f"lost {lost}, doubled {doubled}" in capsys.readouterr().out


@pytest.mark.parametrize(("display", "is_terminal"), [(":0", True), ("", True), (":0", False)])
def test_the_page_of_the_members_is_opened_where_there_is_a_display(
    tmp_path, monkeypatch, display, is_terminal
):
    monkeypatch.setenv("DISPLAY", display)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    write_member(tmp_path / "member-0", a_log(5))
    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    with demo._page(tmp_path, Console(force_terminal=is_terminal)):
        for address in opened:
            with urllib.request.urlopen(address, timeout=DEADLINE_S) as page:
                assert b"<html" in page.read()
            with urllib.request.urlopen(f"{address}frame", timeout=DEADLINE_S) as frame:
                assert json.load(frame)["status"]["members"][0]["memberId"] == 0
    assert len(opened) == (1 if display and is_terminal else 0)
    for address in opened:
        with pytest.raises(OSError):
            urllib.request.urlopen(address, timeout=DEADLINE_S)


def test_a_demo_without_room_on_the_disk_does_not_begin(tmp_path, capsys):
    assert main(["demo", "--dir", str(tmp_path / "new"), "--seconds", "12000d"]) == 1
    assert "give another place with --dir, or fewer --seconds" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_a_full_folder_for_temporary_files_is_an_error_in_a_line(monkeypatch, capsys):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "mkdtemp", full)
    assert main(["demo", "--seconds", "1s"]) == 1
    assert "no temporary folder can be made: No space left on device" in capsys.readouterr().err
    with pytest.raises(StorageError, match="no temporary folder can be made"):
        member_snapshots._temporary_folder()


def test_gaps_are_drawn_to_one_scale_and_what_is_longer_ends_in_an_arrow():
    def bar(gap_ms: int) -> str:
        return demo_report.kill_line({**KILL, "gapMs": gap_ms}).plain[41:71].strip()

    assert [len(bar(gap_ms)) for gap_ms in (5, 40, 80)] == [1, 8, 16]
    assert bar(42) == "████████▍"
    assert bar(10_000).endswith("▶")


def test_a_lane_shows_who_leads_and_who_is_dead():
    lanes = [line.plain for line in demo_report.summary(REPORT) if line.plain.startswith("member")]
    assert [lane[10] for lane in lanes] == ["█", "─", "─"]
    assert [lane[10 + 12] for lane in lanes] == [" ", "─", "█"]
    assert [lane[-1] for lane in lanes] == ["─", "─", "█"]


def test_the_picture_of_the_readme_is_that_of_the_run_that_is_kept():
    made = demo_picture.picture(json.loads(demo_picture.RUN.read_text()))
    assert demo_picture.PICTURE.read_text() == made, "python -m benchmarks.demo_picture writes it"


@pytest.mark.faults
@pytest.mark.timeout(240)
def test_nothing_is_lost_or_doubled_when_the_leader_is_killed(tmp_path: Path):
    directory = tmp_path / "kept"
    # A slow machine has its members level some time after the five seconds before the first kill.
    done = run(
        "demo", "--seconds", "20", "--json", "--dir", str(directory), "--base-port", str(free_base_port()),
        timeout_s=4 * DEADLINE_S,
    )  # fmt: skip
    report = json.loads(done.stdout)
    assert (done.returncode, report["lost"], report["doubled"]) == (0, 0, 0), done.stderr
    assert report["kills"]
    for kill in report["kills"]:
        assert kill["nextLeaderMemberId"] != kill["memberId"] and kill["gapMs"] > 0
    assert report["messages"] > 1_000 and report["sql"]["messages"] > 1_000
    assert demo_query.check_log(str(directory / "member-1"), report["messages"]) == (0, 0)
