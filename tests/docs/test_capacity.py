"""docs/capacity.md has the figures of the last run of its benchmark."""

import json

from tests.tree import ROOT


def test_the_figures_of_the_page_are_those_of_the_last_run():
    page = " ".join((ROOT / "docs" / "capacity.md").read_text().split())
    lines = (ROOT / "benchmarks" / "results" / "capacity.jsonl").read_text().splitlines()
    _, alone, message, *each = map(json.loads, lines)
    for one in each:
        count, memory = f"{one['count']:,}", f"{one['bytes_of_memory']:,}"
        assert f"| {one['figure']} | {count} | {memory} | {one['descriptors']} |" in page
    assert f"{alone['anonymous_mib']} MiB of anonymous memory and {alone['descriptors']} descriptors" in page
    assert f"{alone['files']} files and {alone['disk_mib']} MiB" in page
    a, b, c = (f"{message[f'bytes_for_{length}']:,.0f}" for length in (10, 100, 1000))
    assert f"{a} bytes for 10 of payload, {b} for 100, {c} for 1,000" in page
