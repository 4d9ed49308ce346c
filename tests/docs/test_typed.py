"""Programs that a reader copies pass the type checker that he may use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.texts import ROOT, steps


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_blocks_of_pages_about_python_pass_mypy_strict(tmp_path: Path) -> None:
    for page in ("clients", "services", "tutorial"):
        for i, step in enumerate(step for step in steps(f"docs/{page}.md") if step.file):
            (tmp_path / f"{page}_{i}.py").write_text(step.text)
            (tmp_path / step.file).write_text(step.text)  # from which others import
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), "--strict"]
    run = subprocess.run(
        [*command, "--follow-imports", "silent", *map(str, sorted(tmp_path.glob("*.py")))],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert run.returncode == 0, run.stdout + run.stderr
