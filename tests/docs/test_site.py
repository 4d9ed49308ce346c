"""The pages of docs/ in reading order: one list, on the front page and in the settings of the site."""

from __future__ import annotations

import re
import runpy
import subprocess
from pathlib import Path

import pytest

from cluster.node.config import NodeConfig
from tests.tree import ROOT

DOCS = ROOT / "docs"
# Pages that .ci/pages.py makes of the code.
MADE = [("Python API", "api.md"), ("Commands", "commands.md"), ("Configuration", "configuration.md")]
_LISTED = re.compile(r"^- \[([^\]]+)\]\(([^)]+)\): ", re.MULTILINE)
_IN_NAV = re.compile(r"^      - (.+): (\S+\.md)$", re.MULTILINE)


def test_the_front_page_lists_every_page_once() -> None:
    listed = [page for _, page in _LISTED.findall((DOCS / "README.md").read_text())]
    pages = {path.name for path in DOCS.glob("*.md")} - {"README.md"}
    assert sorted(listed) == sorted({*pages, str(Path("decisions", "README.md"))})


def test_the_site_has_the_titles_and_the_order_of_the_front_page() -> None:
    in_nav = _IN_NAV.findall((ROOT / "conf" / "site.yml").read_text())
    assert [entry for entry in in_nav if entry not in MADE] == _LISTED.findall(
        (DOCS / "README.md").read_text()
    )


def test_the_pages_made_of_the_code_have_every_name_command_and_key() -> None:
    pages = runpy.run_path(str(ROOT / ".ci" / "pages.py"))["PAGES"]
    assert [title for title, _ in MADE] == list(pages)
    api, commands, configuration = (list(parts()) for parts in pages.values())
    assert "::: cluster.client.cluster_client.ClusterClient\n" in api
    assert any(part.startswith("## cluster log export\n") for part in commands)
    keys = re.findall("^### (.+)$", "\n".join(configuration), re.MULTILINE)
    assert keys == [field.alias for field in NodeConfig.model_fields.values()]


@pytest.mark.interop
def test_the_site_builds_and_all_its_links_lead_somewhere() -> None:
    done = subprocess.run(["make", "docs"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    site = Path(ROOT, "build", "site")
    assert "Coming from Kafka" in (site / "index.html").read_text()
    assert (
        'id="cluster.client.cluster_client.ClusterClient.connect"'
        in (site / "api" / "index.html").read_text()
    )
    assert "cluster log export" in (site / "commands" / "index.html").read_text()
    assert 'id="log_bytes_max"' in (site / "configuration" / "index.html").read_text()
    listed = set(re.findall(r"\]\((\S+\.md)\)", (site / "llms.txt").read_text()))
    assert {page for _, page in MADE} < listed
    assert all((site / page).exists() for page in listed)
