"""The table of ``docs/testing.md``: tests that were moved, merged or removed, and what proves their claims.

``tests/moved.toml`` has an entry for each; ``python -m tests.moved`` writes the table.
"""

from __future__ import annotations

import ast
import tomllib
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.tree import ROOT

ENTRIES = ROOT / "tests" / "moved.toml"
PAGE = ROOT / "docs" / "testing.md"
BEGIN, END = "<!-- made by python -m tests.moved -->\n", "<!-- end of it -->\n"
LEVELS = ("slow", "faults", "interop")  # make test is said by nothing


class Moved(NamedTuple):
    """A test that is no longer where it was."""

    was: str
    claim: str
    now: list[str]


def moved() -> list[Moved]:
    """All of them, in the order of the file."""
    return [Moved(**entry) for entry in tomllib.loads(ENTRIES.read_text())["moved"]]


def level_and_test(place: str) -> tuple[str, str]:
    """``slow: tests/a.py::test_b[c]`` is of ``make slow``, without a word it is of ``make test``."""
    level, colon, test = place.partition(": ")
    return (level, test) if colon and level in LEVELS else ("test", place)


@cache
def levels_of(path: Path) -> dict[str, set[str]]:
    """Of each test of a file the levels that its marks name; a mark within a parameter counts as both."""
    tree = ast.parse(path.read_text())
    of_file = {mark for node in tree.body if _assigns(node) for mark in _marks(node)}
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            marks = {mark for decorator in node.decorator_list for mark in _marks(decorator)} | of_file
            whole = {
                mark
                for decorator in node.decorator_list
                for mark in LEVELS
                if ast.unparse(decorator) == f"pytest.mark.{mark}"
            }
            found[node.name] = marks if whole or of_file else marks | {"test"}
    return found


def _assigns(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"


def _marks(node: ast.AST) -> set[str]:
    parts = (part for part in ast.walk(node) if isinstance(part, ast.Attribute) and part.attr in LEVELS)
    return {part.attr for part in parts if ast.unparse(part.value) == "pytest.mark"}


def table() -> str:
    """The Markdown of it."""
    lines = ["| Claim | Was | Proven now by |", "|---|---|---|"]
    for entry in moved():
        now = "<br>".join(_shown(*level_and_test(place)) for place in entry.now)
        lines.append(f"| {entry.claim} | {_shown('test', entry.was)} | {now} |")
    return "\n".join(lines).replace("tests/", "") + "\n"


def _shown(level: str, test: str) -> str:
    word = "" if level == "test" else f"make {level}: "
    return word + "`" + test.replace("|", "\\|") + "`"


def main() -> None:
    """Write the table into the page."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(before + BEGIN + "\n" + table() + "\n" + END + rest.partition(END)[2])


if __name__ == "__main__":
    main()
