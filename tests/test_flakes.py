"""The ledger of tests that failed once and passed when they were run again."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.flakes import LEDGER, flakes, read
from tests.tree import ROOT

KEYS = {"date", "test", "load", "cores", "said", "mended"}


def failure(test: str, said: str = "") -> dict:
    return {"test": test, "load": 3.5, "cores": 2, "said": [said]}


def test_what_passed_when_it_was_run_again_is_a_flake_with_what_it_printed_at_first() -> None:
    first = [failure("a", "of its set-up"), failure("a", "of its end"), failure("b")]
    (entry,) = flakes(first, [failure("b")], "2026-11-27")
    assert entry == {"date": "2026-11-27", **failure("a", "of its set-up"), "mended": ""}


def test_a_run_writes_what_failed_with_the_load_of_the_machine(tmp_path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import os\ndef test_is_not_inherited(): assert 'TEST_FAILURES' not in os.environ\n"
        "def test_bad(): assert 7 == 8\n"
    )
    failures = tmp_path / "failures.jsonl"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml"),
         "-p", "tests.conftest", f"--rootdir={tmp_path}", str(tmp_path)],
        cwd=ROOT, env=os.environ | {"TEST_FAILURES": str(failures)}, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout
    (written,) = read(failures)
    assert written["test"].endswith("::test_bad") and written["cores"] == os.cpu_count()
    assert "assert 7 == 8" in "\n".join(written["said"])


def test_the_ledger_can_be_read_and_says_what_each_was() -> None:
    for entry in read(LEDGER):
        assert entry.keys() == KEYS
        assert (ROOT / entry["test"].partition("::")[0]).is_file(), entry["test"]
