"""docs/runbooks.md by its parts."""

import re

from tests.tree import ROOT

PAGE = (ROOT / "docs" / "runbooks.md").read_text()
SECTIONS = {part.partition("\n")[0]: part for part in PAGE.split("\n## ")[1:]}
SPAN = re.compile(r"`([^`]+)`")


def seen(title: str) -> tuple[list[str], list[str], list[str]]:
    """Alerts, names of cluster status, and lines of node.log that a runbook names."""
    text = SECTIONS[title].partition("**Seen:**")[2].partition("- **Means:**")[0]
    before, _, logged = text.partition("`node.log`")
    spans = SPAN.findall(before)
    alerts = [span for span in spans if span.startswith("Cluster")]
    return alerts, [s for s in spans if s not in alerts and " " not in s], SPAN.findall(logged)
