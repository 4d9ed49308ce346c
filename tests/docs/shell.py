"""A person at a terminal: types one line after another, looks at what it prints, presses Ctrl-C."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

from tests.node.processes import DEADLINE_S, await_that, environment, free_base_port

_ADDRESS = re.compile(r"127\.0\.0\.1:9([01]\d\d)")  # of members at the ports that the texts speak of

# What `cluster up` prints, of a service and a directory.
UP = (
    r"endpoints: 0=127.0.0.1:9000,1=127.0.0.1:9010,2=127.0.0.1:9020\nleader: member \d\nservice: {}\n"
    r"directory: {}, .*\nnext: echo hello \| cluster send --endpoints 127.0.0.1:9000\n"
)


class Terminal:
    """An empty directory with the environment that `make setup` made, and the processes that go on in it.

    Ports are others than in the texts, so that several runs do not meet.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.base_port = free_base_port()
        (directory / ".venv").symlink_to(Path(sys.executable).parent.parent)
        self._exports: list[str] = []
        self._running: list[tuple[str, subprocess.Popen[bytes]]] = []

    def here(self, text: str) -> str:
        """The text with the ports that the members have here."""
        return _ADDRESS.sub(lambda found: f"127.0.0.1:{self.base_port + int(found[1])}", text)

    def run(self, line: str) -> str:
        """Run a command to its end, which must be a good one; return what it printed."""
        if line.startswith(("export ", ". ")):
            self._exports.append(line)
        done = subprocess.run(
            ["bash", "-c", self._script(line)],
            cwd=self.directory, env=environment(), capture_output=True, text=True, timeout=DEADLINE_S * 3,
        )  # fmt: skip
        assert done.returncode == 0, f"{line}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def start(self, line: str, pattern: str) -> str:
        """Run a command that goes on, until it has printed what is expected."""
        if line.startswith("cluster up"):
            line += f" --base-port {self.base_port}"
        path = self.directory / f"printed-{len(list(self.directory.glob('printed-*')))}"
        with path.open("wb") as out:
            process = subprocess.Popen(
                # As at a terminal: a script in the background ignores Ctrl-C, and hands that on. Not by a
                # preexec_fn: gRPC, which tests here have used, prints errors in a child that Python forks.
                ["env", "--default-signal=INT", "bash", "-c", self._script(f"exec {line}")],
                cwd=self.directory,
                env=environment(PYTHONUNBUFFERED="1"),
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        self._running.append((line, process))
        await_that(
            lambda: re.search(pattern, path.read_text()) or process.poll() is not None, f"{line}: {pattern}"
        )
        return path.read_text()

    def interrupt(self, command: str) -> None:
        """Press Ctrl-C where the newest command of that name runs, and wait for its end."""
        index = max(i for i, (line, _) in enumerate(self._running) if line.startswith(command))
        _, process = self._running.pop(index)
        process.send_signal(signal.SIGINT)
        process.wait(DEADLINE_S)

    def _script(self, line: str) -> str:
        return self.here("\n".join([*self._exports, line]))

    def close(self) -> None:
        for _, process in self._running:
            process.kill()
            process.wait(DEADLINE_S)
