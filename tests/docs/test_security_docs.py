"""The recipe of docs/security.md, line by line in an empty directory."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.texts import ROOT
from tests.node.processes import DEADLINE_S, await_that, environment, free_base_port

COMMAND = f'cluster() {{ {sys.executable} -m cluster "$@"; }}\n'


def recipe() -> list[str]:
    text = (ROOT / "docs/security.md").read_text()
    (block,) = re.findall(r"^```bash\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return block.splitlines()


def shell(line: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", COMMAND + line], cwd=cwd, env=environment(), capture_output=True, text=True,
        timeout=DEADLINE_S,
    )  # fmt: skip


@pytest.mark.slow
def test_the_recipe_lets_in_whom_it_names_and_nobody_else(tmp_path: Path) -> None:
    port = free_base_port(ports=10)
    members = f'members = ["0,127.0.0.1:{port}{f",127.0.0.1:{port + 2}" * 4}"]\n'
    *files, start, send, dump = (line.replace("9000", str(port)) for line in recipe())
    for line in files:
        done = shell(line, tmp_path)
        assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.iterdir()} >= {"tokens", "rights", "feed.token", "analyst.token"}
    with (tmp_path / "node.toml").open("a") as file:
        file.write(members)

    assert start == "cluster node --config node.toml &"
    node = subprocess.Popen(
        [sys.executable, "-m", "cluster", "node", "--config", "node.toml"], cwd=tmp_path, env=environment(),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        sent = await_that(lambda: _done(shell(send, tmp_path)), "the member takes a message")
        assert sent.stdout == "hello\n"
        read = shell(dump, tmp_path)
        assert read.returncode == 0 and "hello" in read.stdout, read.stderr

        for line in (send.replace("feed", "analyst"), dump.replace("analyst", "feed")):
            refused = shell(line, tmp_path)
            assert refused.returncode == 1 and "no right to" in refused.stderr, refused.stderr
    finally:
        node.send_signal(signal.SIGTERM)
        node.wait(DEADLINE_S)


def _done(result: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str] | None:
    return result if result.returncode == 0 else None
