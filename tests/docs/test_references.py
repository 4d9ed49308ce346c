"""What texts and comments refer to is in the tree: numbered points, documents, and no section of others."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.tree import ROOT, files_of_the_tree

_POINT = re.compile(r"(?<![\w-])(?:[CIS]-\d+|P-1?\d{1,2})\b")  # P-256 is a curve
_POINT_STATED = re.compile(r"^- \*\*([CIPS]-\d+)\*\* ", re.MULTILINE)
_DOCUMENT = re.compile(r"(?<![\w*/.-])((?:[\w.-]+/)*[\w-]+\.md)\b")
_MODULE = re.compile(r"(?<![\w*<-])((?:[\w.-]+/)*[\w-]+\.py)\b")
_OF_USERS = {"first.py", "greeter.py", "greet.py", "my.py", "tally.py", "test_tally.py", "echoes.py"}
_OF_USERS |= {"name.py", "query.py"}  # of `cluster new`
# Sections of papers and rules of texts that a reader does not have. The Raft paper's are on the web.
_ELSEWHERE = re.compile(r"(?<!Raft )§|\b[Rr]ule \d|\b[Ss]ection \d|\bseed (?:\*|tables? |sections? )")
_MADE_BY_COMMAND = {"new.md", "api.md", "commands.md", "configuration.md"}


def lines() -> Iterator[tuple[str, str]]:
    """Place and text of each line of the tree's Python, Markdown and TOML files, but of this one."""
    for path in files_of_the_tree():
        name = str(path.relative_to(ROOT))
        if path.suffix in (".py", ".md", ".toml") and name != "tests/docs/test_references.py":
            for number, line in enumerate(path.read_text().splitlines(), 1):
                yield f"{name}:{number}", line


def test_each_numbered_point_is_stated_in_a_document() -> None:
    documents = ("conformance.md", "invariants.md")
    stated = {
        number for name in documents for number in _POINT_STATED.findall((ROOT / "docs" / name).read_text())
    }
    dangling = [f"{place}: {line}" for place, line in lines() if set(_POINT.findall(line)) - stated]
    assert not dangling, "\n".join(dangling)


def test_each_document_that_is_named_is_there() -> None:
    there = {path.relative_to(ROOT) for path in files_of_the_tree() if path.suffix == ".md"}
    names = {str(path) for path in there} | {path.name for path in there} | _MADE_BY_COMMAND
    missing = [
        f"{place}: {name}"
        for place, line in lines()
        for name in _DOCUMENT.findall(line)
        if name not in names and not is_link(place, name)
    ]
    assert not missing, "\n".join(missing)


def test_each_module_that_is_named_is_there() -> None:
    there = [f"/{path.relative_to(ROOT)}" for path in files_of_the_tree() if path.suffix == ".py"]
    missing = [
        f"{place}: {name}"
        for place, line in lines()
        if not place.startswith("tests/")  # where tests write modules
        for name in _MODULE.findall(line)
        if name not in _OF_USERS
        if not any(path.endswith(f"/{name}") for path in there) and not is_link(place, name)
    ]
    assert not missing, "\n".join(missing)


def is_link(place: str, name: str) -> bool:
    """Whether ``name`` leads to a file from the folder of ``place``, as a link of Markdown does."""
    return ((ROOT / place).parent / name).is_file()


def test_no_line_cites_a_section_that_its_reader_does_not_have() -> None:
    cited = [f"{place}: {line.strip()}" for place, line in lines() if _ELSEWHERE.search(line)]
    assert not cited, "\n".join(cited)


@pytest.mark.parametrize(
    "line", ["(§2.7, §3.6)", "as rule 1.2 says", "(seed *Duty Cycle*)", "(seed table 2.6)", "section 1.5 of"]
)
def test_a_section_of_a_text_elsewhere_would_be_seen(line: str) -> None:
    assert _ELSEWHERE.search(line)
    assert not _ELSEWHERE.search("a log as good (Raft §5.4.1), as the rule of votes wants; a seed tells it")
