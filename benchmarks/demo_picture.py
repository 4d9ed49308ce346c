"""The picture of the README: what `cluster demo` printed of the run in ``results/demo.json``, as SVG.

cluster demo --json > benchmarks/results/demo.json
python -m benchmarks.demo_picture
"""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.terminal_theme import MONOKAI

from cluster.cli import demo, demo_report

ROOT = Path(__file__).resolve().parent.parent
RUN = ROOT / "benchmarks" / "results" / "demo.json"
PICTURE = ROOT / "docs" / "demo.svg"
WIDTH = 100
FONTS = re.compile(r"\s*@font-face {.*?}", re.DOTALL)  # fetched from elsewhere; the viewer's own do


def picture(report: dict[str, Any]) -> str:
    """The lines of the run in their order."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, highlight=False)
    console.print("$ cluster demo", style="bold")
    console.print(demo_report.headline(report["members"], demo.MESSAGES_PER_S, demo.KILL_EVERY_S))
    console.print(demo_report.scale())
    for line in (*map(demo_report.kill_line, report["kills"]), *demo_report.summary(report)):
        console.print(line)
    svg = console.export_svg(title="cluster demo", theme=MONOKAI, unique_id="demo")
    return FONTS.sub("", svg)


if __name__ == "__main__":
    PICTURE.write_text(picture(json.loads(RUN.read_text())))
