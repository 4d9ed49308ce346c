"""Whatever became of a directory's files, every command that looks at it ends, and says what it met."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from random import Random

import pytest

from cluster.archive.catalog_file import CatalogFile
from cluster.archive.files import OsFiles
from cluster.cli.main import main
from tests.archive.logs import a_log
from tests.archive.members import write_member
from tests.reader.real import a_copy, members

SEEDS = 40
WORDS = [0, 1, 32, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x01000000]
COMMANDS = [
    ["log", "dump", "--json"],
    ["tool", "describe"],
    ["tool", "recording-log"],
    ["tool", "list-members"],
    ["tool", "recovery-plan"],
    ["tool", "errors"],
    ["tool", "is-leader"],
    ["archive", "describe"],
    ["archive", "verify"],
    ["archive", "dump"],
]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_damaged_directory_is_looked_at_without_a_trace_or_an_end(
    seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    random = Random(seed)
    source = members() / "member-0"
    member = tmp_path / "member"
    files = sorted(path.relative_to(source) for path in source.rglob("*") if path.is_file())
    for file in files:
        (member / file).parent.mkdir(parents=True, exist_ok=True)
        (member / file).hardlink_to(source / file)
    told = _damage(random, source, member, files)

    for command in COMMANDS:
        folder = member / "archive" if command[0] == "archive" else member
        status = main([*command, "--dir", str(folder)])
        captured = capsys.readouterr()

        assert status in (0, 1), (told, command)
        assert status == 0 or captured.out or captured.err, (told, command)


def _damage(random: Random, source: Path, member: Path, files: list[Path]) -> str:
    """Change one file; what is said is shown when the test fails."""
    file = random.choice(files)
    target = member / file
    target.unlink()
    how = random.choice(["bits", "words", "words", "zeros", "garbage", "short", "empty", "other", "gone"])
    if how == "empty":
        target.touch()
    elif how == "other":
        shutil.copy(source / random.choice(files), target)
    elif how != "gone":
        begin = (source / file).open("rb").read(1 << 18)
        used = len(begin.rstrip(b"\0")) + 64
        with target.open("wb") as damaged:  # sparse behind what is used, as the original is
            damaged.write(begin)
            damaged.truncate((source / file).stat().st_size)
        with target.open("r+b") as damaged:
            for _ in range(random.choice([1, 1, 4, 30])):
                offset = random.randrange(random.choice([min(used, 320), used])) & ~3
                damaged.seek(offset)
                if how == "bits":
                    byte = damaged.read(1) or b"\0"
                    damaged.seek(offset)
                    damaged.write(bytes([byte[0] ^ 1 << random.randrange(8)]))
                elif how == "words":
                    damaged.write(random.choice(WORDS).to_bytes(4, "little"))
                elif how == "zeros":
                    damaged.write(bytes(random.choice([32, 512, 4096])))
                elif how == "garbage":
                    damaged.write(random.randbytes(random.choice([8, 100, 4096])))
        if how == "short":
            os.truncate(target, random.randrange(used))
    return f"{file}: {how}"


def test_a_log_that_ends_where_its_catalog_says_nothing_can_be_is_dumped_to_its_last_entry(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    member = a_copy(tmp_path)
    catalog = CatalogFile.open(OsFiles(), str(member / "archive"), write=True)
    end = catalog.entries[0].descriptor.stop_position
    catalog.stop(0, 1 << 60)
    catalog.close()

    status = main(["log", "dump", "--dir", str(member)])
    captured = capsys.readouterr()

    assert status == 1
    assert captured.out.splitlines()[-1].split()[1] == str(end)
    assert f"nothing is readable from position {end} to {1 << 60}" in captured.err


@pytest.mark.parametrize("start", [64, 1 << 20, 1 << 54])
def test_a_log_that_begins_where_nothing_can_begin_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], start: int
) -> None:
    """Of a member that was killed: its catalog has no end that would show the start to be wrong."""
    write_member(tmp_path, a_log(50), is_clean=False)
    catalog = CatalogFile.open(OsFiles(), str(tmp_path / "archive"), write=True)
    catalog.set_start_position(0, start)
    catalog.close()

    for command in (["log", "dump"], ["log", "tail"], ["archive", "verify", "--all"]):
        folder = tmp_path / "archive" if command[0] == "archive" else tmp_path
        status = main([*command, "--dir", str(folder)])
        captured = capsys.readouterr()
        assert status == 1, command
        assert " at offset " in captured.err + captured.out, command


def test_a_link_in_the_place_of_a_segment_is_refused_wherever_it_leads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_member(tmp_path, a_log(50))
    segment = tmp_path / "archive" / "0-0.rec"
    segment.rename(tmp_path / "elsewhere.rec")
    segment.symlink_to(tmp_path / "elsewhere.rec")

    for command in (["log", "dump"], ["archive", "verify"], ["archive", "dump"]):
        folder = tmp_path / "archive" if command[0] == "archive" else tmp_path
        assert main([*command, "--dir", str(folder)]) == 1
        captured = capsys.readouterr()
        assert f"{segment}: is a symbolic link, expected a file" in captured.err + captured.out
        assert len(captured.err.splitlines()) <= 1


@pytest.mark.timeout(60)
def test_a_fifo_in_the_place_of_a_segment_is_refused_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_member(tmp_path, a_log(50))
    segment = tmp_path / "archive" / "0-0.rec"
    segment.unlink()
    os.mkfifo(segment)

    for command in (["log", "dump"], ["archive", "verify"], ["archive", "dump"]):
        folder = tmp_path / "archive" if command[0] == "archive" else tmp_path
        assert main([*command, "--dir", str(folder)]) == 1
        captured = capsys.readouterr()
        assert f"{segment}: is a fifo, expected a file" in captured.err + captured.out
        assert len(captured.err.splitlines()) <= 1
