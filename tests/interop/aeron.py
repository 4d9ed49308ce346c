"""Real Aeron, to judge what we write and to write what we read: its tools, its nodes, its clients.

The jar comes by its coordinate through the resolver that Spark uses; the Java sources beside this file are
compiled once. Both are kept in ``build/interop``. Whatever is started is stopped, by its own process id.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from cluster.cli.aeron import VERSION, fetch_jar
from tests.programs import require

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BUILD = ROOT / "build" / "interop"
JVM = [
    "--add-opens",
    "java.base/jdk.internal.misc=ALL-UNNAMED",
    "--add-opens",
    "java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens",
    "java.base/java.util.zip=ALL-UNNAMED",
    "-Xms64m",
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
]
TOOL_SECONDS = 60
START_SECONDS = 90
MARK_SECONDS = 11  # for so long a real member that was killed seems to run, by its mark files
EACH_VERSION = [
    *(pytest.param(old, marks=pytest.mark.slow) for old in ("1.44.1", "1.46.9", "1.49.3")),
    VERSION,
]
SHARED_MEMORY = Path("/dev/shm" if Path("/dev/shm").is_dir() else tempfile.gettempdir())


@cache
def jar(version: str = VERSION) -> Path:
    """Aeron's jar, fetched when it is not there yet."""
    return fetch_jar(_java(), version, BUILD)


@cache
def classes() -> Path:
    """Our Java classes, compiled when a source is newer."""
    folder, done = BUILD / "classes", BUILD / "classes" / ".done"
    sources = sorted((HERE / "java").glob("*.java"))
    if not done.exists() or any(s.stat().st_mtime > done.stat().st_mtime for s in sources):
        folder.mkdir(parents=True, exist_ok=True)
        _run([_javac(), "-nowarn", "-cp", str(jar()), "-d", str(folder), *map(str, sources)])
        done.touch()
    return folder


@cache
def _java() -> str:
    from jobs.session import java_home

    home = java_home()
    return str(Path(home, "bin", "java")) if home else "java"


@cache
def _javac() -> str:
    """The compiler beside the Java that runs, or any; installed where that is possible."""
    beside = Path(os.path.realpath(shutil.which(_java()) or _java())).parent / "javac"
    return str(beside) if beside.exists() else require("javac", "openjdk-17-jdk-headless")


def _run(command: Sequence[str], **options: Any) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, **options)
    assert done.returncode == 0, f"{command[0]}: {done.stdout[-500:]}{done.stderr[-2000:]}"


def _java_command(main: str, *arguments: str, version: str = VERSION) -> list[str]:
    return [_java(), *JVM, "-cp", f"{classes()}:{jar(version)}", main, *arguments]


# ---- tools


@dataclass(frozen=True)
class Said:
    """What a tool printed, and its exit status."""

    status: int
    out: str
    err: str


def cluster_tool(directory: Path, *arguments: str) -> Said:
    """ClusterTool on a cluster directory."""
    return _tool("io.aeron.cluster.ClusterTool", str(directory), *arguments)


def archive_tool(directory: Path, *arguments: str, answer: str = "") -> Said:
    """ArchiveTool on an archive directory; ``answer`` is what the operator types."""
    return _tool("io.aeron.archive.ArchiveTool", str(directory), *arguments, answer=answer)


def _tool(main: str, *arguments: str, answer: str = "") -> Said:
    done = subprocess.run(
        _java_command(main, *arguments),
        input=answer,
        capture_output=True,
        text=True,
        timeout=TOOL_SECONDS,
        check=False,
    )
    return Said(done.returncode, done.stdout, done.stderr)


# ---- nodes and clients


class RealNode:
    """One real member as a process: driver, archive, consensus module and service (java/Node.java).

    ``main`` is another class of ours, java/Backup.java.
    """

    def __init__(
        self,
        directory: Path,
        aeron_dir: Path,
        options: Sequence[str],
        *,
        main: str = "Node",
        version: str = VERSION,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.aeron_dir = aeron_dir
        self._log = directory / "node.log"
        self._errors = directory / "node.err"
        self._begin = self._log.stat().st_size if self._log.exists() else 0
        options = ["--dir", str(directory), "--aeron-dir", str(aeron_dir), "--max-seconds", "300", *options]
        command = _java_command(main, *options, version=version)
        with self._log.open("ab") as out, self._errors.open("ab") as err:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err)

    def lines(self) -> list[bytes]:
        """What it has printed whole in this life of the process."""
        return self._log.read_bytes()[self._begin :].split(b"\n")[:-1]

    @property
    def has_joined(self) -> bool:
        """Whether it has closed its election, in this life of the process."""
        return any(b'"election":"CLOSED"' in line for line in self.lines())

    def await_joined(self) -> None:
        """Until the member has closed its election."""
        deadline = time.monotonic() + START_SECONDS
        while not self.has_joined:
            is_up = self.process.poll() is None
            assert is_up and time.monotonic() < deadline, f"it did not join: {self.errors()}"
            time.sleep(0.05)

    def errors(self) -> str:
        """What the node wrote on standard error."""
        return self._errors.read_text()

    def stop(self, signal_number: int = signal.SIGTERM) -> None:
        """End the process, and wait for it."""
        if self.process.poll() is None:
            self.process.send_signal(signal_number)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(10)
        shutil.rmtree(self.aeron_dir, ignore_errors=True)


@contextmanager
def real_node(directory: Path, *options: str) -> Iterator[RealNode]:
    """A cluster of one real member on ``directory`` (its folders cluster/ and archive/), joined."""
    aeron_dir = Path("/dev/shm" if Path("/dev/shm").is_dir() else directory.parent) / f"interop-{os.getpid()}"
    shutil.rmtree(aeron_dir, ignore_errors=True)
    node = RealNode(directory, aeron_dir, ["--members", "1", *options])
    try:
        node.await_joined()
        yield node
    finally:
        node.stop()


@contextmanager
def real_cluster(directory: Path, *options: str, version: str = VERSION) -> Iterator[list[RealNode]]:
    """Three real members on ``directory``/member-0 to member-2, joined."""
    nodes: list[RealNode] = []
    try:
        nodes += [cluster_node(directory, id_, *options, version=version) for id_ in range(3)]
        for node in nodes:
            node.await_joined()
        yield nodes
    finally:
        for node in nodes:
            node.stop()


def cluster_node(directory: Path, member_id: int, *options: str, version: str = VERSION) -> RealNode:
    """One of the three, started; who calls stops it."""
    aeron_dir = SHARED_MEMORY / f"interop-{os.getpid()}-{member_id}"
    shutil.rmtree(aeron_dir, ignore_errors=True)
    identity = ["--members", "3", "--member-id", str(member_id)]
    return RealNode(directory / f"member-{member_id}", aeron_dir, [*identity, *options], version=version)


def leader_of(nodes: list[RealNode]) -> int:
    """Which of these members leads, once one does."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        for member_id, node in enumerate(nodes):
            if cluster_tool(node.directory / "cluster", "is-leader").status == 0:
                return member_id
        assert time.monotonic() < deadline, "no member leads"


@contextmanager
def media_driver(main: str = "io.aeron.driver.MediaDriver", **more: object) -> Iterator[Path]:
    """A media driver of Aeron's that serves clients on this host; its directory.

    ``main`` is another class that runs one, with settings of its own, ``_`` for the dots in their names.
    """
    aeron_dir = SHARED_MEMORY / f"interop-driver-{os.getpid()}"
    settings = {
        **{name.replace("_", "."): value for name, value in more.items()},
        "aeron.dir": aeron_dir,
        "aeron.threading.mode": "SHARED",
        "aeron.term.buffer.sparse.file": "true",
        "aeron.dir.delete.on.start": "true",
        "aeron.dir.delete.on.shutdown": "true",
    }
    properties = [f"-D{name}={value}" for name, value in settings.items()]
    command = [_java(), *JVM, *properties, "-cp", f"{classes()}:{jar()}", main]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield aeron_dir
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(aeron_dir, ignore_errors=True)


@contextmanager
def real_backup(directory: Path, *options: str, version: str = VERSION) -> Iterator[RealNode]:
    """A real ClusterBackup of ``real_node``, or of a cluster, with the same options."""
    shm = Path("/dev/shm" if Path("/dev/shm").is_dir() else directory.parent)
    backup = RealNode(
        directory, shm / f"interop-backup-{os.getpid()}", options, main="Backup", version=version
    )
    try:
        yield backup
    finally:
        backup.stop()


def workload(directory: Path, *options: str) -> dict[str, Any]:
    """A seeded walk of real client sessions against a node of ``real_node`` with the same options."""
    aeron_dir = Path("/dev/shm" if Path("/dev/shm").is_dir() else directory) / f"interop-client-{os.getpid()}"
    command = _java_command("Workload", "--members", "1", "--aeron-dir", str(aeron_dir), *options)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    finally:
        shutil.rmtree(aeron_dir, ignore_errors=True)
    assert done.returncode == 0, done.stderr[-2000:]
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


@contextmanager
def java_client(main: str, *options: str, version: str = VERSION) -> Iterator[subprocess.Popen[str]]:
    """One of our classes as a process with pipes, and a driver of its own, both by Aeron of that version."""
    aeron_dir = SHARED_MEMORY / f"interop-client-{os.getpid()}"
    command = _java_command(main, "--aeron-dir", str(aeron_dir), *options, version=version)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as client:
        try:
            yield client
        finally:
            client.kill()
            shutil.rmtree(aeron_dir, ignore_errors=True)


# ---- what a service was told


CALLBACKS = {
    "SESSION_MESSAGE": "sessionMessage",
    "TIMER": "timer",
    "SESSION_OPEN": "sessionOpen",
    "SESSION_CLOSE": "sessionClose",
    "NEW_LEADERSHIP_TERM": "newLeadershipTerm",
}
FIELDS = {
    "sessionMessage": ("clusterSessionId", "timestamp", "endPosition", "payload"),
    "timer": ("correlationId", "timestamp"),
    "sessionOpen": ("clusterSessionId", "timestamp", "responseStreamId", "responseChannel"),
    "sessionClose": ("clusterSessionId", "timestamp", "closeReason"),
    "newLeadershipTerm": (
        "leadershipTermId",
        "timestamp",
        "termBaseLogPosition",
        "leaderMemberId",
        "appVersion",
    ),
}


def told_by(record: Path) -> tuple[int, list[tuple[Any, ...]]]:
    """From which position on a real service was told the log (its ``--record`` file), and what."""
    callbacks = [json.loads(line) for line in record.read_text().splitlines()]
    assert callbacks[0]["callback"] == "start"
    told = [_as_told(each["callback"], each) for each in callbacks if each["callback"] in FIELDS]
    return callbacks[0]["logPosition"], told


def entries_as_told(entries: Iterator[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Entries of a LogReader as a service would be told them, in the form of ``told_by``."""
    told = []
    for entry in entries:
        if entry["entryType"] in CALLBACKS:
            fields = entry | {"timestamp": entry["clusterTime"]}
            if "payload" in entry:
                fields["payload"] = entry["payload"].hex()
            told.append(_as_told(CALLBACKS[entry["entryType"]], fields))
    return told


def _as_told(callback: str, fields: dict[str, Any]) -> tuple[Any, ...]:
    session = fields.get("clusterSessionId")
    if session is not None and session < 0:
        fields = fields | {"clusterSessionId": None}  # from a service of the cluster
    return callback, *(fields.get(name) for name in FIELDS[callback])
