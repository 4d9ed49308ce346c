"""What a reader copies: the commands and Python blocks of the texts, found by themselves."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# How a command begins: a program of ours or of a shell, or an assignment for one.
_COMMAND = re.compile(r"(cluster|python|make|echo|export|kill|\.|[A-Z_]+=\S+) ")
_FILE = re.compile(r"here in `(\w+\.py)`:\s*$")


@dataclass(frozen=True)
class Step:
    """A command line, or a Python block with the name of the file that the text gives it."""

    document: str
    text: str
    file: str = ""


def steps(document: str) -> Iterator[Step]:
    """The command lines and Python blocks of a Markdown text, in its order; drawings are passed over."""
    before = ""
    for part in re.split(r"(^```.*?^```$)", (ROOT / document).read_text(), flags=re.MULTILINE | re.DOTALL):
        if part.startswith("```"):
            language, _, block = part.removeprefix("```").removesuffix("```").partition("\n")
            if language == "python":
                named = _FILE.search(before)
                yield Step(document, block, named[1] if named else "block.py")
            elif language not in ("mermaid", "json"):
                yield from (Step(document, line) for line in block.splitlines())
        else:
            for line in re.findall(r"^    (\S.*)$", part, re.MULTILINE):
                if _COMMAND.match(line):
                    yield Step(document, without_comment(line))
        before = part


def without_comment(line: str) -> str:
    return re.sub(r"\s+# .*$", "", line).rstrip()


def exists(test: str) -> bool:
    """Whether there is a test of that name, given as pytest writes it."""
    path, _, name = test.partition("::")
    tree = ast.parse((ROOT / path).read_text())
    return name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
