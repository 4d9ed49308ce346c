"""docs/bad-input.md names a test for each row, and there is one."""

import re

import pytest

from tests.docs.texts import exists
from tests.tree import ROOT

ROWS = [
    line
    for line in (ROOT / "docs/bad-input.md").read_text().splitlines()
    if line.startswith("| ") and not line.startswith("| What comes")
]


@pytest.mark.parametrize("row", ROWS)
def test_each_row_names_a_test(row):
    (test,) = re.findall(r"`([a-z_]+/test_\w+\.py::\w+)` \|$", row)
    assert exists(f"tests/{test}")


def test_what_a_row_says_is_read():
    assert len(ROWS) > 60
