"""The tutorial, copied line by line into an empty directory."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator

import pytest

from tests.docs.shell import UP, Terminal
from tests.docs.texts import ROOT, Step, steps
from tests.node.processes import await_that

WELL = r"(callbacks raised .*\n)?{} of {} histories passed: .*\n"
PRINTS = {
    ". .venv/bin/activate": [""],
    "python test_tally.py": ["passed\n"],
    "python -m pytest -q test_tally.py": [r"\. +\[100%\]\n1 passed in .*\n"],
    "cluster sim --seeds 10 tally:Tally --members 3": [WELL.format(10, 10)],
    "cluster up --dir words --service tally:Tally": [UP.format("tally:Tally", "words")],
    "echo tea | cluster send --endpoints 127.0.0.1:9000": ["1\n", "2\n", "3\n"],
    "cluster tool snapshot --dir words": [r"\[\d\] SNAPSHOT completed\n"],
    "kill -9 $(cluster tool pid --dir words/member-1)": [""],
    "cluster node --config words/member-1/node.toml": [r"member 1: 127.0.0.1:9010\n"],
    "cluster sim --seeds 5 examples.order_book:OrderBook": [WELL.format(5, 5)],
}
FAILS = "cluster sim --seeds 10 tally:Tally"
GOES_ON = ("cluster up", "cluster node")
STEPS = [step for step in steps("docs/tutorial.md") if not step.text.startswith("seed ")]
printed_before: dict[str, int] = {}


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    made = Terminal(tmp_path_factory.mktemp("tutorial"))
    (made.directory / "examples").symlink_to(ROOT / "examples")
    yield made
    made.close()


def prepare(terminal: Terminal, step: Step) -> None:
    """What a person waits for before typing the line."""
    if step.text.startswith("echo "):
        await_that(lambda: " LEADER " in terminal.run("cluster top --dir words --once"), "a leader")


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.text.splitlines()[0])
def test_the_tutorial_works_as_it_stands(terminal: Terminal, step: Step) -> None:
    if step.file:
        (terminal.directory / step.file).write_text(terminal.here(step.text))
        return
    if step.text == FAILS:
        failed = subprocess.run(
            ["bash", "-c", f". .venv/bin/activate; {FAILS}"],
            cwd=terminal.directory, capture_output=True, text=True, timeout=280,
        )  # fmt: skip
        assert failed.returncode == 1, failed
        assert re.search(r"seed \d+ fails: MembersApart: client \d+ got b'\d+' as answer", failed.stdout)
        return
    prepare(terminal, step)
    count = printed_before[step.text] = printed_before.get(step.text, 0) + 1
    expected = terminal.here(PRINTS[step.text][count - 1])
    if step.text.startswith(GOES_ON):
        printed = terminal.start(step.text, expected)
    else:
        printed = terminal.run(step.text)
    assert re.fullmatch(expected, printed), printed
