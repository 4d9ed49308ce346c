"""The points of what a streaming source and sink must pass are all there, and each of them is tested."""

from __future__ import annotations

import re

from tests.conftest import NOT_HERE, conformance_points
from tests.tree import ROOT

_MARKER = re.compile(r"mark\.conformance\(([^)]*)\)")
SCENARIOS = [f"P-{number}" for number in range(1, 115)]


def test_each_scenario_of_a_streaming_source_and_sink_is_a_point_that_holds_here() -> None:
    stated = {number: text for number, text in conformance_points().items() if number.startswith("P-")}
    assert list(stated) == SCENARIOS
    assert [number for number, text in stated.items() if NOT_HERE in text] == []


def test_each_of_them_is_the_number_of_a_test() -> None:
    marked = {
        number
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for arguments in _MARKER.findall(path.read_text())
        for number in re.findall(r'"(P-\d+)"', arguments)
    }
    assert [number for number in SCENARIOS if number not in marked] == []
