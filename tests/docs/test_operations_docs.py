"""docs/operations.md as a person follows it: a cluster of three gets five members."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.shell import UP, Terminal
from tests.docs.texts import ROOT

pytestmark = pytest.mark.slow

PAGE = (ROOT / "docs" / "operations.md").read_text()
SECTION = PAGE.partition("## Changing the members\n")[2].partition("\n## ")[0]
COMMANDS = re.findall(r"^ +(cluster .*)$", SECTION, re.MULTILINE)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path)
    try:
        terminal.run(". .venv/bin/activate")
        yield terminal
    finally:
        terminal.close()


@pytest.mark.timeout(300)
def test_members_are_changed_by_the_page(terminal: Terminal) -> None:
    *closing, making, starting = COMMANDS
    assert [line.split()[2] for line in closing] == ["close-member"] * 3
    terminal.start("cluster up", terminal.here(UP.format(".*", ".*")))
    assert terminal.run("echo hello | cluster send --endpoints 127.0.0.1:9000") == "hello\n"
    terminal.interrupt("cluster up")

    for line in closing:
        assert terminal.run(line).splitlines()[0].endswith("; promises and log are whole")
    for _ in range(2):
        assert len(made := terminal.run(making).splitlines()) == 5
    assert all(": was made before: " in line for line in made)
    terminal.start(starting, "(?s)leader: member \\d\n.*next: ")
    assert "hello" in terminal.run("cluster log dump --endpoints 127.0.0.1:9000 --payload utf8")
    assert terminal.run("echo again | cluster send --endpoints 127.0.0.1:9000") == "again\n"
