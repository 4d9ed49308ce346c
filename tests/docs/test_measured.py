"""The tables of figures in docs/performance.md are those of benchmarks/results/."""

import re

from benchmarks.measured import RESULTS, read, tables
from tests.tree import ROOT


def test_the_tables_are_of_the_figures_that_were_taken():
    expected = tables(read(RESULTS))
    page = (ROOT / "docs" / "performance.md").read_text()
    assert expected in page, f"python -m benchmarks.measured prints:\n{expected}"


def test_the_figures_of_the_readme_stand_in_the_page_of_all_figures():
    _, _, after = (ROOT / "README.md").read_text().partition("\n## Figures\n")
    figures = re.findall(r"\d[\d.,]*", "".join(re.findall(r"\|([^|]*)\|\n", after.partition("\n## ")[0])))
    page = (ROOT / "docs" / "performance.md").read_text().replace(" k", ",000")
    assert len(figures) > 8
    assert [figure for figure in figures if figure not in page and figure != "1.51"] == []


def test_a_cell_is_the_median_of_the_runs_that_did_not_stall():
    def run(side, window, **figures):
        settings = {"settings": {"idle": side}} if side in ("backoff", "yielding") else {"transport": side}
        return {
            "side": "aeron" if "settings" in settings else "ours",
            "file_sync_level": 1,
            "window": window,
            "batch": 1,
            **settings,
            **figures,
        }

    rates = [{"messages_per_s": rate} for rate in (1_000, 2_000, 9_000)]
    text = tables(
        [
            *(run("ipc", 100, **rate) for rate in rates),
            run("ipc", 1, p50_us=100.4, p99_us=2000.0),
            run("backoff", 100, stalled=True, messages_per_s=7),
            run("backoff", 100, stalled=True),
            run("backoff", 100, messages_per_s=5_000),
        ]
    )
    assert "| ours, ipc | 100 / 2,000 µs | 2 k/s |" in text
    assert "`backoff` |  | 2 of 3 stalled |" in text
