"""docs/names.md: what is named there is here."""

import ast
import re

import pytest

from tests.tree import ROOT

PAGE = (ROOT / "docs/names.md").read_text()
ROWS = re.findall(r"^\| (`.+) \| `([\w.]+)` \| `([\w/.]+)` \|$", PAGE, re.MULTILINE)


def defined_in(tree):
    """Functions, classes, attributes and slots, by Class.name where they are a class's."""
    names = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        for within in ast.walk(node) if isinstance(node, ast.ClassDef) else ():
            match within:
                case ast.FunctionDef(name=name) | ast.Attribute(value=ast.Name("self"), attr=name):
                    names.add(f"{node.name}.{name}")
                case ast.Name(id=name, ctx=ast.Store()):
                    names.add(f"{node.name}.{name}")
    return names


@pytest.mark.parametrize(("there", "here", "path"), ROWS)
def test_a_name_is_where_the_page_says(there, here, path):
    assert here in defined_in(ast.parse((ROOT / path).read_text())), there


def test_the_page_has_a_row_for_each_name_once():
    named = [name for there, _, _ in ROWS for name in re.findall(r"`([\w.]+)`[^,]*", there)]
    assert len(ROWS) == len(re.findall(r"^\| `", PAGE, re.MULTILINE)) > 40
    whole = [there for there, _, _ in ROWS]
    assert len(set(whole)) == len(whole) and {
        "slowTickWork",
        "onReplaySessionOpen",
        "redirectUserSessions",
    } <= set(named)
