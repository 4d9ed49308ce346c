"""Texts, help, keys and code are in plain technical English: the words of the field."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.cli.main import main
from tests.cli.command_lines import command_lines
from tests.tree import ROOT, modules

TEXTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
NODE_TOML = ROOT / "conf" / "node.toml"
WORDS_MEAN_MAX = 18
WORDS_MAX = 40

_BLOCK = re.compile(r"^```(?s:.*?)^```$|^ {4}.*$|<!--.*?-->", re.MULTILINE)
_CODE = re.compile(r"`[^`]*`")
_NO_PROSE = re.compile(r"^(?:\||#).*$", re.MULTILINE)
_ITEM = re.compile(r"^(?:-|\d+\.) ", re.MULTILINE)
_TARGET = re.compile(r"\]\([^)]*\)")
_END = re.compile(r"(?<=[.!?])[*\")]*\s+|\n\s*\n")
# A private or translated word, and the field's word in its place.
PRIVATE = {
    "tell, tells, told, telling": "report, say, name",
    "behind": "after",
    "anew": "again",
    "mend, mends, mended, mending": "repair",
    "bring, brings, brought": "get, return, take",
    "held": "stored, kept, compared",
    "own one": "its own, this member's",
    "looks around": "asks the others",
    "peace": "steady state",
}
_PRIVATE = re.compile(rf"\b(?:{'|'.join(', '.join(PRIVATE).split(', '))})\b", re.IGNORECASE)
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
OF_PYTHON = {"tell"}  # names in code that are not ours: of a file


def without_code(text: str) -> str:
    """A Markdown text, line for line, with nothing in the place of code blocks and a word in that of code."""
    prose = _BLOCK.sub(lambda found: "\n" * found[0].count("\n"), text)
    return _CODE.sub(lambda found: "code" + "\n" * found[0].count("\n"), prose)


def sentences(text: str) -> Iterator[str]:
    """The sentences of a Markdown text; tables, headings, code and the targets of links are left out."""
    prose = _ITEM.sub("\n\n", _NO_PROSE.sub("\n", _TARGET.sub("]", without_code(text))))
    for sentence in _END.split(prose):
        if words_in(sentence):
            yield " ".join(sentence.split())


def words_in(sentence: str) -> int:
    return len(re.findall(r"[^\W_][\w'’.,-]*", sentence))


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_sentences_are_short(path: Path) -> None:
    longest_first = sorted(sentences(path.read_text()), key=words_in, reverse=True)
    mean = sum(map(words_in, longest_first)) / len(longest_first)
    shown = "\n".join(f"{words_in(sentence)}: {sentence}" for sentence in longest_first[:8])
    assert mean <= WORDS_MEAN_MAX, f"{mean:.1f} words a sentence\n{shown}"
    assert words_in(longest_first[0]) <= WORDS_MAX, shown


@pytest.mark.parametrize("path", [*TEXTS, NODE_TOML], ids=lambda path: str(path.relative_to(ROOT)))
def test_no_text_has_words_of_its_own(path: Path) -> None:
    found = [
        f"{number}: {line.strip()}"
        for number, line in enumerate(without_code(path.read_text()).splitlines(), 1)
        if _PRIVATE.search(line)
    ]
    assert not found, "\n".join([*found, f"better: {PRIVATE}"])


def test_no_docstring_or_comment_has_words_of_its_own() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{token.start[0]}: {line.strip()}"
        for _, path in modules()
        for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
        if token.type == tokenize.COMMENT or token.string.startswith('"""')
        for line in without_code(token.string).splitlines()
        if _PRIVATE.search(line)
    ]
    assert not found, "\n".join([*found, f"better: {PRIVATE}"])


def test_no_name_in_code_has_one() -> None:
    found = {
        token.string: f"{path.relative_to(ROOT)}: {token.string}"
        for _, path in modules()
        for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
        if token.type == tokenize.NAME and _PRIVATE.search(_CAMEL.sub(" ", token.string).replace("_", " "))
    }
    assert found.keys() <= OF_PYTHON, "\n".join([*found.values(), f"better: {PRIVATE}"])


@pytest.mark.parametrize("words", [[], ["log"], ["tool"], ["archive"], *command_lines()], ids=" ".join)
def test_no_help_has_words_of_its_own(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert main([*words, "--help"]) == 0
    text = capsys.readouterr().out
    assert not _PRIVATE.findall(text), text


def test_the_splitter_leaves_out_what_is_no_prose() -> None:
    text = (
        "# A heading\n\nOne, two `told three`. Four\nfive! Six: seven.\n\n"
        "    held = code\n\n| a | table. |\n\n```\nbehind\n```\n- An [item](to/an/item)\n- another\n"
    )
    assert list(sentences(text)) == ["One, two code.", "Four five!", "Six: seven.", "An [item]", "another"]
    assert not _PRIVATE.search(without_code(text))


def test_a_word_of_its_own_would_be_seen() -> None:
    found = _PRIVATE.findall("Told anew, the own one is behind; what it told.")
    assert found == ["Told", "anew", "own one", "behind", "told"]
