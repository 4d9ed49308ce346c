"""``cluster new``: what it writes runs as its README says."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.cli.main import main
from tests.docs.shell import UP, Terminal
from tests.node.processes import environment


def test_a_new_service_passes_the_test_that_comes_with_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))  # as by python -m cluster
    assert main(["new", "word_count"]) == 0
    assert main(["new", "word_count"]) == 1
    said = capsys.readouterr()
    assert said.out == "word_count: cd word_count, and go on with README.md\n"
    assert "word_count: cannot be made: File exists" in said.err
    monkeypatch.syspath_prepend(str(tmp_path / "word_count"))

    runpy.run_path("word_count/test_word_count.py", run_name="__main__")

    assert capsys.readouterr().out == "passed\n"


@pytest.mark.parametrize("name", ["two words", "class", "client", "../x", "", "json", "numpy"])
def test_a_name_that_is_no_module_or_another_one_s_is_refused(tmp_path, monkeypatch, capsys, name):
    monkeypatch.chdir(tmp_path)
    assert main(["new", name]) == 2
    why = f"choose another, as my_{name}" if name in ("json", "numpy") else "expected a name for a module"
    assert why in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_readme_of_a_new_service_works_as_it_stands(tmp_path):
    terminal = Terminal(tmp_path)
    try:
        terminal.run(". .venv/bin/activate")
        terminal.run("cluster new orders")
        terminal.directory = tmp_path / "orders"
        (terminal.directory / ".venv").symlink_to(tmp_path / ".venv")
        terminal.run("export CLUSTER_ENDPOINTS=127.0.0.1:9000")
        prints = {
            "python test_orders.py": "passed\n",
            "cluster sim": "5 of 5 histories .*\n",
            "cluster up": UP.format("orders:Orders", "cluster-data"),
            "python client.py": "tea 1\nmilk 1\ntea 2\n",
            "cluster log tail": r"(?s).*SESSION_MESSAGE .* payload=milk.*",
            "python query.py": r"(?s).*\|milk\| +1\|.*\| tea\| +2\|.*",
        }
        lines = re.findall(
            r"^    (.*?)(?: +#.*)?$", (terminal.directory / "README.md").read_text(), re.MULTILINE
        )
        for line, (command, pattern) in zip(lines, prints.items(), strict=True):
            assert line.startswith(command)
            pattern = terminal.here(pattern)
            printed = terminal.start(line, pattern) if command == "cluster up" else terminal.run(line)
            assert re.fullmatch(pattern, printed), printed
    finally:
        terminal.close()


@pytest.mark.slow
def test_a_new_service_is_typed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["new", "orders"]) == 0
    mypy = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--cache-dir", "cache", "."]
    environ = environment(MYPYPATH=str(Path(__file__).parents[2]))
    done = subprocess.run(mypy, cwd="orders", env=environ, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout
