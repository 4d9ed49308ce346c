"""Real processes for tests: a cluster as ``cluster up`` runs it, and any other command."""

from __future__ import annotations

import fcntl
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cluster import ClusterClient, TlsFiles
from tests.node.forked import Forked

DEADLINE_S = 40.0  # far beyond what anything here takes, also on a busy machine

LEASES = 40  # of the 190 base ports that there are
_leases: dict[int, int] = {}  # base ports to descriptors of locked files, for the life of this process

COMMAND = [sys.executable, "-m", "cluster"]  # in an interpreter of its own
ROOT = Path(__file__).resolve().parents[2]


def environment(**variables: str) -> dict[str, str]:
    """Ours, without keys of a configuration that somebody has set, and with the checkout importable."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("CLUSTER_")}
    return {**clean, "PYTHONPATH": str(ROOT), **variables}


def started(
    *arguments: str, cwd: Path | None = None, is_new: bool = False, **variables: str
) -> subprocess.Popen[str]:
    """A command that runs, with pipes to it; ``is_new`` in an interpreter of its own."""
    env = environment(**variables)
    # What an interpreter goes by itself, as PYTHONPATH, is nothing for one that runs.
    if not is_new and all(name.startswith("CLUSTER_") for name in variables):
        return Forked(["cluster", *arguments], cwd=cwd, env=env)
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([*COMMAND, *arguments], **pipes, text=True, cwd=cwd, env=env)


def run(
    *arguments: str,
    text: str = "",
    cwd: Path | None = None,
    timeout_s: float = DEADLINE_S,
    is_new: bool = False,
    **variables: str,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    with started(*arguments, cwd=cwd, is_new=is_new, **variables) as process:
        try:
            out, err = process.communicate(text, timeout=timeout_s)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def free_base_port(ports: int = 70) -> int:
    """A port from which on ``ports`` of them are free; below those that the system gives away itself."""
    for _ in range(100):
        base = _leased_base_port()
        if all(_is_free(base + offset) for offset in range(ports) if offset % 10 < 3):
            return base
    raise AssertionError("no free ports")


def _leased_base_port() -> int:
    """One that no other process of tests takes while this one lives: who looks does not listen yet."""
    while len(_leases) < LEASES:
        base = random.randrange(11_000, 30_000, 100)
        lease = os.open(Path(tempfile.gettempdir(), f"tests-at-port-{base}.lock"), os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(lease, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lease)
            continue
        _leases[base] = lease
        return base
    return random.choice(list(_leases))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return probe.connect_ex(("127.0.0.1", port)) != 0


def await_that(condition: Callable[[], Any], what: str, timeout_s: float = DEADLINE_S) -> Any:
    """Ask again and again until the answer is true, and return it."""
    deadline = time.monotonic() + timeout_s
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"still not: {what}"
        time.sleep(0.02)
    return answer


def is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Process:
    """A command that goes on; its first line is waited for."""

    def __init__(
        self, *arguments: str, cwd: Path | None = None, is_new: bool = False, **variables: str
    ) -> None:
        self.process = started(*arguments, cwd=cwd, is_new=is_new, **variables)
        assert self.process.stdout is not None
        self.first_line = self.process.stdout.readline()

    def signal(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def end(self) -> tuple[int, str, str]:
        """Wait for its end: status, what it printed after the first line, and its errors."""
        out, err = self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode, out, err

    def stop(self) -> tuple[int, str, str]:
        self.signal()
        return self.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


class Up(Process):
    """``cluster up --json`` in a directory; there is a leader when the constructor returns."""

    def __init__(
        self,
        directory: Path,
        *options: str,
        members: int = 3,
        base_port: int = 0,
        cwd: Path | None = None,
        is_new: bool = False,
        **variables: str,
    ) -> None:
        self.directory = directory
        self.base_port = base_port or free_base_port()
        super().__init__(
            "up", "--json", "--dir", str(directory), "--members", str(members),
            "--base-port", str(self.base_port), *options, cwd=cwd, is_new=is_new, **variables,
        )  # fmt: skip
        if not self.first_line:
            status, _, err = self.end()
            raise AssertionError(f"cluster up ended with {status}: {err}")
        self.described = json.loads(self.first_line)

    @property
    def endpoints(self) -> str:
        return str(self.described["endpoints"])

    @property
    def tcp(self) -> str:
        return str(self.described["tcpEndpoints"])

    @property
    def ipc(self) -> str:
        return str(self.described["ipcEndpoints"])

    @property
    def leader(self) -> int:
        return int(self.described["leaderMemberId"])

    def pid(self, member_id: int) -> int:
        return int(self.described["members"][member_id]["pid"])

    def member_dir(self, member_id: int) -> Path:
        return Path(self.described["members"][member_id]["dir"])

    def top(self) -> list[dict[str, Any]]:
        """How the members stand, by their counters."""
        result = run("top", "--dir", str(self.directory), "--once", "--json")
        return list(json.loads(result.stdout)["members"])


def dump(member_dir: Path) -> list[dict[str, Any]]:
    """The log of a member that does not run any more, payloads as text."""
    result = run("log", "dump", "--dir", str(member_dir), "--json", "--payload", "utf8")
    assert result.returncode == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def keys_of(tmp_path: Path, **more: Any) -> dict[str, Any]:
    """The configuration of a cluster of one member, on free ports."""
    port = free_base_port(ports=10)
    return {
        "members": [f"0,127.0.0.1:{port}" + f",127.0.0.1:{port + 2}" * 4],
        "dir": str(tmp_path / "member-{member_id}"),
        **more,
    }


def endpoints_of(node: Any, medium: str) -> str:
    """What a client of a node's only member is given to reach it over "grpc", "tcp" or "ipc"."""
    config = node.config
    return {
        "grpc": f"0={config.member.ingress_endpoint}",
        "tcp": f"0=tcp:{config.tcp_ingress_of(config.member)}",
        "ipc": f"0=ipc:{config.ipc_path}",
    }[medium]


def tool(node: Any, verb: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """``cluster tool`` about a member of this process."""
    return run("tool", verb, "--dir", str(node.config.path), *arguments)


def fill(node: Any, segments: int) -> None:
    """So many segments of a mebibyte of log."""
    with ClusterClient.connect(f"0=ipc:{node.config.ipc_path}") as client:
        for _ in range(segments):
            for _ in range(17):
                while client.offer(bytes(63 * 1024)) < 0:
                    client.poll_egress()
        client.await_committed()


def ask(endpoints: str, count: int, tls: TlsFiles | None = None) -> list[bytes]:
    """The answers to so many messages of one session."""
    answers: list[bytes] = []
    with ClusterClient.connect(
        endpoints, lambda session_id, time, payload: answers.append(bytes(payload)), tls=tls
    ) as client:
        for _ in range(count):
            while client.offer(b"?") < 0:
                client.poll_egress()

        def is_answered() -> bool:
            client.poll_egress()
            return len(answers) >= count

        await_that(is_answered, f"{count} answers")
    return answers
