"""``cluster up`` as a process of the demo's own: started, asked where it listens, stopped for certain."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

from cluster import ClusterError

START_S = 60
STOP_S = 15
BASE_PORTS = range(9000, 9900, 100)
MEMBERS = 3


class ClusterProcess:
    """A cluster of three on this machine; a context manager that leaves no process running."""

    def __init__(self, directory: Path, service: str, base_port: int | None = None) -> None:
        """Start it; it has a leader then. Raises ClusterError."""
        port = free_base_port() if base_port is None else base_port
        self.directory = directory
        self._again: dict[int, subprocess.Popen[bytes]] = {}  # members that were killed and started again
        self._errors = directory.with_suffix(".err")
        command = [sys.executable, "-m", "cluster", "up", "--json", "--members", str(MEMBERS)]
        command += ["--dir", str(directory), "--service", service, "--base-port", str(port)]
        with self._errors.open("wb") as errors:
            # A session of its own: Ctrl-C is for the demo, which then stops the cluster in order.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        try:
            self.started: dict[str, Any] = json.loads(self._first_line())
        except BaseException:
            self.stop()
            raise

    def _first_line(self) -> bytes:
        stdout = self._process.stdout
        assert stdout is not None
        readable, _, _ = select.select([stdout], [], [], START_S)
        line: bytes = stdout.readline() if readable else b""
        if not line:
            said = self._errors.read_text(errors="replace").strip() or f"nothing within {START_S} s"
            raise ClusterError(f"cluster up did not start: {said}")
        return line

    @property
    def endpoints(self) -> str:
        """By gRPC, as clients do by default."""
        return str(self.started["endpoints"])

    @property
    def ipc_endpoints(self) -> str:
        """By Unix sockets, for clients on this host."""
        return str(self.started["ipcEndpoints"])

    def kill(self, member_id: int) -> None:
        """Kill a member as ``kill -9`` does; the others go on."""
        os.kill(self.started["members"][member_id]["pid"], signal.SIGKILL)

    def start_again(self, member_id: int) -> None:
        """Start a member that was killed, as a person would: by its node.toml."""
        config = Path(self.started["members"][member_id]["dir"]) / "node.toml"
        with self._errors.open("ab") as errors:
            self._again[member_id] = subprocess.Popen(
                [sys.executable, "-m", "cluster", "node", "--config", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )

    def check(self) -> None:
        """Raise ClusterError when the cluster's process is gone, or a member's that was started again."""
        for process in (self._process, *self._again.values()):
            status = process.poll()
            if status is not None:
                said = self._errors.read_text(errors="replace").strip()
                raise ClusterError(f"the cluster ended with status {status} in the middle of it: {said}")

    def stop(self) -> int:
        """End all members in order, by force if that takes too long; returns the worst exit status."""
        return max((_stop(process) for process in (self._process, *self._again.values())), key=abs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _stop(process: subprocess.Popen[bytes]) -> int:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
    return process.wait()


def free_base_port() -> int:
    """A base port of which no member's port is taken: ten apart, three each."""
    for base in BASE_PORTS:
        if all(_is_free(base + 10 * member + port) for member in range(MEMBERS) for port in range(3)):
            return base
    raise ClusterError(f"no free ports for three members between {BASE_PORTS[0]} and {BASE_PORTS[-1]}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
