"""Every tool has a JSON form, and that of a tool that changes files says what it did."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cluster.cli.main import main
from tests.archive.logs import SEGMENT_LENGTH, a_log
from tests.archive.members import Member
from tests.cli.command_lines import command_lines
from tests.reader.real import a_copy, remove_unpacked

OF_PROMETHEUS = ["tool", "backup-metrics"]  # in whose format it prints
TOOLS = [
    words
    for words in command_lines()
    if words[0] in ("tool", "archive", "top") and list(words) != OF_PROMETHEUS
]


@pytest.fixture(scope="module", autouse=True)
def _unpacked() -> Iterator[None]:
    yield
    remove_unpacked()


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, list[str]]]:
    """Run a command; return its exit status and the lines of its standard output."""

    def printed(words: str, directory: Path, *more: str) -> tuple[int, list[str]]:
        capsys.readouterr()
        status = main([*words.split(), "--dir", str(directory), *more])
        return status, capsys.readouterr().out.splitlines()

    return printed


@pytest.mark.conformance("S-185")
@pytest.mark.parametrize("words", TOOLS, ids=" ".join)
def test_every_tool_has_a_json_form(words, capsys):
    assert main([*words, "--help"]) == 0
    assert "--json" in capsys.readouterr().out


def as_it_was(copy: Path) -> None:
    """A real cluster's member."""


def out_of_order(copy: Path) -> None:
    path = copy / "cluster" / "recording.log"
    data = path.read_bytes()
    path.write_bytes(data[192:] + data[:192])


def without_a_snapshot(copy: Path) -> None:
    main(["tool", "invalidate-latest-snapshot", "--dir", str(copy)])


def one_invalid(copy: Path) -> None:
    main(["archive", "mark-invalid", "1", "--dir", str(copy)])


def an_orphan(copy: Path) -> None:
    (copy / "archive" / "7-0.rec").write_bytes(b"x")


INVALIDATED = "invalidate-latest-snapshot"
CASES = [
    ("tool sort-recording-log", as_it_was, 0, ["already in order"], [{"sorted": False}]),
    ("tool sort-recording-log", out_of_order, 0, ["sorted"], [{"sorted": True}]),
    (
        "tool seed-recording-log-from-snapshot",
        as_it_was,
        0,
        ["seeded from the latest snapshot"],
        [{"seeded": True}],
    ),
    (
        "tool seed-recording-log-from-snapshot",
        without_a_snapshot,
        0,
        ["no valid snapshot, recording log removed"],
        [{"seeded": False}],
    ),
    (f"tool {INVALIDATED}", as_it_was, 0, [f"{INVALIDATED}: true"], [{"invalidated": True}]),
    (
        f"tool {INVALIDATED}",
        without_a_snapshot,
        1,
        [f"{INVALIDATED}: false, there is no valid snapshot"],
        [{"invalidated": False}],
    ),
    (
        "archive checksum crc32c 1",
        as_it_was,
        0,
        ["(recordingId=1) 384 bytes"],
        [{"recordingId": 1, "bytes": 384}],
    ),
    (
        "archive compact --yes",
        one_invalid,
        0,
        ["deleted 1 records (256 bytes), 1 segments"],
        [{"recordingIds": [1], "catalogBytes": 256, "files": ["1-0.rec"]}],
    ),
    (
        "archive delete-orphaned-segments --yes",
        an_orphan,
        0,
        ["7-0.rec"],
        [{"files": ["7-0.rec"]}],
    ),
    ("archive delete-orphaned-segments --yes", as_it_was, 0, [], [{"files": []}]),
    (
        "archive mark-invalid 2",
        as_it_was,
        0,
        ["(recordingId=2) INVALID"],
        [{"recordingId": 2, "state": "INVALID"}],
    ),
    (
        "archive mark-valid 1",
        one_invalid,
        0,
        ["(recordingId=1) VALID"],
        [{"recordingId": 1, "state": "VALID"}],
    ),
]


@pytest.mark.conformance("S-185")
@pytest.mark.parametrize("words, prepare, status, lines, objects", CASES)
def test_what_a_tool_did_is_said_in_words_and_as_an_object(
    printed, tmp_path, words, prepare, status, lines, objects
):
    for name in ("words", "json"):
        prepare(a_copy(tmp_path / name))
    assert printed(words, tmp_path / "words" / "member-0") == (status, lines)
    found, texts = printed(words, tmp_path / "json" / "member-0", "--json")
    assert (found, [json.loads(text) for text in texts]) == (status, objects)


@pytest.mark.conformance("S-185")
def test_where_a_purged_log_begins_is_an_object_on_demand(printed, tmp_path):
    member = Member(tmp_path)
    log = a_log(800)
    member.write(log)
    member.take_snapshot(log, SEGMENT_LENGTH)
    member.stop()
    status, (text,) = printed(f"archive purge {SEGMENT_LENGTH} --yes", tmp_path, "--json")
    assert (status, json.loads(text)) == (0, {"oldStartPosition": 0, "startPosition": SEGMENT_LENGTH})
