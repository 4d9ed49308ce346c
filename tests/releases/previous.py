"""The release before this one, run from its wheel beside the checkout."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

from tests.node.processes import Process, await_that, environment, run

WHEELS = Path(__file__).resolve().parents[1] / "data" / "releases"


class Release:
    """The commands of one release; ``root`` is where its packages lie, None for the checkout's."""

    def __init__(self, root: Path | None) -> None:
        self._variables = {} if root is None else {"PYTHONPATH": str(root)}

    def run(self, *arguments: str, text: str = "", cwd: Path) -> str:
        """What a command that succeeds prints."""
        result = run(*arguments, text=text, cwd=cwd, **self._variables)
        assert result.returncode == 0, f"{arguments}: {result.stderr}"
        return result.stdout

    def node(self, config: Path, member_id: int, cwd: Path) -> Process:
        """A member; it listens when this returns."""
        options = ["--config", str(config), "--member-id", str(member_id)]
        node = Process("node", *options, cwd=cwd, **self._variables)
        assert node.first_line, node.end()
        return node

    def job(self, name: str, *arguments: str, cwd: Path) -> None:
        """A job until nothing is left to read."""
        command = [sys.executable, "-m", f"jobs.{name}", *arguments]
        env = environment(**self._variables)
        result = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=300)
        assert result.returncode == 0, result.stderr[-3000:]


def unpacked(directory: Path) -> Release:
    """The newest wheel of tests/data/releases, its kernels compiled."""
    newest = max(WHEELS.glob("*.whl"), key=lambda wheel: _version_of(wheel.name))
    root = directory / "previous"
    with zipfile.ZipFile(newest) as wheel:
        wheel.extractall(root)
    command = [sys.executable, "-m", "cluster.log.warm"]
    env = environment(PYTHONPATH=str(root))
    subprocess.run(command, cwd=directory, env=env, check=True, timeout=600)
    assert any(os.scandir(root / "cluster" / "log" / "__pycache__")), "compiled beside its own source"
    return Release(root)


def _version_of(name: str) -> tuple[int, ...]:
    return tuple(int(part) for part in name.split("-")[1].split("."))


class Members:
    """Three members of any releases on one configuration; each is stopped and started by itself."""

    def __init__(self, directory: Path, base_port: int, **keys: Any) -> None:
        self.directory = directory
        self._config = directory / "node.toml"
        ports = [base_port + 10 * i for i in range(3)]
        members = [f"{i},127.0.0.1:{port}" + f",127.0.0.1:{port + 2}" * 4 for i, port in enumerate(ports)]
        lines = {"members": members, "dir": str(directory / "member-{member_id}"), **keys}
        self._config.write_text("".join(f"{key} = {value!r}\n" for key, value in lines.items()))
        self.endpoints = ",".join(f"{i}=127.0.0.1:{port}" for i, port in enumerate(ports))
        self.processes: dict[int, Process] = {}

    def start(self, member_id: int, release: Release) -> None:
        self.processes[member_id] = release.node(self._config, member_id, self.directory)

    def restart(self, member_id: int, release: Release) -> None:
        """Stop it in order and start it again, of another release perhaps; it is level when this returns."""
        self.stop(member_id)
        self.start(member_id, release)
        self.await_level()

    def stop(self, member_id: int) -> None:
        status, _, err = self.processes.pop(member_id).stop()
        assert status == 0, err

    def kill_all(self) -> None:
        """SIGKILL, so that nothing is put in order."""
        for process in self.processes.values():
            process.signal(signal.SIGKILL)
        for process in self.processes.values():
            process.process.communicate()
        self.processes.clear()

    def member_dir(self, member_id: int) -> Path:
        return self.directory / f"member-{member_id}"

    def standing(self) -> list[dict[str, Any]]:
        """How each member stands by its counters, told by this release's command."""
        told = Release(None).run("top", "--dir", str(self.directory), "--once", "--json", cwd=self.directory)
        return list(json.loads(told)["members"])

    def leader(self) -> int:
        """The id of the member that leads; waits for one."""
        return int(await_that(self._leaders, "a member leads")[0]["memberId"])

    def _leaders(self) -> list[dict[str, Any]]:
        return [member for member in self.standing() if member.get("role") == "LEADER"]

    def await_level(self) -> None:
        """Wait until there is one leader, all have committed as much as it, and no election goes on."""

        def is_level() -> bool:
            standing = self.standing()
            positions = {member.get("commitPosition") for member in standing}
            elections = {member.get("electionState") for member in standing}
            is_led = [member.get("role") for member in standing].count("LEADER") == 1
            return is_led and len(positions) == 1 and elections == {"CLOSED"}

        await_that(is_level, "all members are level")

    def __enter__(self) -> Members:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill_all()
