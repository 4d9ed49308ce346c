"""The processes of Spark: a standalone master with a worker, and the application that comes and goes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

import pyspark

from benchmarks.real_members import ROOT
from jobs.session import java_home

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
LINES_SHOWN = 40
EXECUTOR, DAEMON = "CoarseGrainedExecutorBackend", "pyspark.daemon"


def children(pid: int) -> list[int]:
    """Processes that this one has started and that run."""
    found = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += [int(child) for child in path.read_text().split()]
    return found


def below(pid: int) -> Iterator[int]:
    """All that come from it."""
    for child in children(pid):
        yield child
        yield from below(child)


def command_of(pid: int) -> str:
    """Its command line; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def send_signal(number: signal.Signals, *pids: int) -> None:
    """To those of them that are there."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


class RealSpark:
    """A context manager; whatever runs at its end is killed."""

    def __init__(
        self, folder: Path, options: Mapping[str, str] | None = None, queries: Sequence[str] = ()
    ) -> None:
        """``options``: how the application of ``start`` reaches the members; ``queries`` are what it runs."""
        self._folder = folder
        self._arguments = [str(folder), json.dumps(options), *queries]
        self._log: IO[str] = (folder / "spark.log").open("a")
        self._started: list[subprocess.Popen[str]] = []
        self.application: subprocess.Popen[str] | None = None

    def start(self, port: int) -> None:
        """Master, worker and application; the master listens at ``port``."""
        address, (self._worker,) = self.start_cluster(port, workers=1, cores=4)  # for two applications
        program = [sys.executable, "-m", "benchmarks.kills.application"]
        self._command = [*program, address, *self._arguments]
        self.start_application()

    def start_cluster(
        self, port: int, workers: int, cores: int = 2
    ) -> tuple[str, list[subprocess.Popen[str]]]:
        """A master that listens at ``port``, and workers of so many cores; (the address, the workers).

        Each is at a loopback address of its own, so that Spark takes them for hosts.
        """
        address = f"spark://127.0.0.1:{port}"
        deploy = "org.apache.spark.deploy"
        master = [f"{deploy}.master.Master", "--host", "127.0.0.1", "--webui-port", "0"]
        self._spawn(str(SPARK_CLASS), *master, "--port", str(port))
        worker = [f"{deploy}.worker.Worker", "--webui-port", "0", "--cores", str(cores), "--memory", "4g"]
        worker += ["--work-dir", str(self._folder / "work")]
        hosts = [f"127.0.0.{number}" for number in range(1, workers + 1)]
        return address, [self._spawn(str(SPARK_CLASS), *worker, "--host", host, address) for host in hosts]

    def start_application(self) -> None:
        self.application = self._spawn(*self._command)

    def driver(self) -> list[int]:
        """The driver's Python, its JVM and what that has started."""
        assert self.application is not None
        return [self.application.pid, *below(self.application.pid)]

    def kill_driver(self) -> int:
        """The driver's Python and its JVM at once. Its executors go on until they notice."""
        assert self.application is not None
        pids = [self.application.pid, *children(self.application.pid)]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        self.application.wait()
        self._started.remove(self.application)
        return pids[-1]

    def executors(self) -> list[int]:
        return [pid for pid in below(self._worker.pid) if EXECUTOR in command_of(pid)]

    def workers(self) -> list[int]:
        """Python processes that run the executors' tasks, or wait for one."""
        forkers = (pid for executor in self.executors() for pid in children(executor))
        return [pid for forker in forkers if DAEMON in command_of(forker) for pid in children(forker)]

    def last_lines(self) -> str:
        """What master, worker and drivers wrote last, without what goes well."""
        lines = (self._folder / "spark.log").read_text(errors="replace").splitlines()
        return "\n".join([line for line in lines if " INFO " not in line][-LINES_SHOWN:])

    def _spawn(self, *command: str) -> subprocess.Popen[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("CLUSTER_")}
        environment |= {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, "SPARK_NO_DAEMONIZE": "1"}
        environment["SPARK_MASTER_OPTS"] = "-Dspark.deploy.maxExecutorRetries=-1"
        if home := java_home():
            environment["JAVA_HOME"] = home
        process = subprocess.Popen(
            command, stdout=self._log, stderr=self._log, text=True, cwd=self._folder, env=environment
        )
        self._started.append(process)
        return process

    def close(self) -> None:
        for process in self._started:
            send_signal(signal.SIGKILL, process.pid, *below(process.pid))
            process.wait()
        self._log.close()
