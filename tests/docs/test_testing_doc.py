"""docs/testing.md: its table of moved tests is that of ``tests/moved.toml``, and those tests exist."""

from __future__ import annotations

from tests.moved import BEGIN, END, PAGE, level_and_test, levels_of, moved, table
from tests.tree import ROOT


def test_the_table_of_moved_tests_is_made_from_their_list() -> None:
    shown = PAGE.read_text().partition(BEGIN)[2].partition(END)[0]
    assert shown.strip() == table().strip(), "python -m tests.moved writes it"


def test_each_claim_of_a_moved_test_has_a_test_at_the_level_that_is_named() -> None:
    wrong = []
    for place in (place for entry in moved() for place in entry.now):
        level, test = level_and_test(place)
        path, _, name = test.partition("::")
        levels = levels_of(ROOT / path).get(name.partition("[")[0], set())
        if level not in levels:
            wrong.append(f"{place}: {levels or 'no such test'}")
    assert not wrong, "\n".join(wrong)
