"""Modules that run as processes and need not import anything: forked off one that has it all.

    test --fork, exec--> server     imports every module of ``cluster`` once, and loads the kernels
         --a request-->             module, arguments, directory, environment, three descriptors
                      --fork--> a process that hands itself on
                                --fork--> the module, which thereby becomes the test's own child

What is so started is a process like any other, but for its birth and its end: it costs a hundredth of a
second in the place of one or more. An interpreter that ends takes all of its modules apart, and so copies
what it shared until then: a tenth of a second. What a new interpreter would do differently is for tests that
start one.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PR_SET_CHILD_SUBREAPER = 36
REQUEST_BYTES_MAX = 1 << 20
# Imported by the command that needs them: pyarrow has a thread, which no fork takes along.
LEFT_OUT = ("cluster.log.columns", "cluster.backup.", "cluster.node.backup_")
RUN = ("cluster.__main__", "cluster.testing.worker")  # and so not imported before
_ONE_AT_A_TIME = threading.Lock()


class Forked(subprocess.Popen[str]):
    """As ``Popen`` of ``python -m`` with a module and its arguments, in text, with pipes to it."""

    def __init__(
        self, arguments: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] = os.environ
    ) -> None:
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        super().__init__(list(arguments), cwd=cwd or Path.cwd(), env=env, text=True, **pipes)

    def _execute_child(self, args: Any, executable: Any, preexec_fn: Any, *options: Any) -> None:
        _, _, cwd, env, _, _, _, p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite, *_ = options
        umask = os.umask(0)
        os.umask(umask)
        request = {"arguments": args, "cwd": str(cwd), "env": dict(env), "umask": umask}
        try:
            with _ONE_AT_A_TIME:
                server = _server()
                socket.send_fds(server, [json.dumps(request).encode()], [p2cread, c2pwrite, errwrite])
                answer = server.recv(64)
        finally:
            self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)
        assert answer, "the process that commands are forked off is gone"
        self.pid = int(answer)
        self._child_created = True


@cache
def _server() -> socket.socket:
    """Where the process takes requests; it ends when its tests do."""
    # What is orphaned below us becomes our child, so that its status is ours to take.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        ours.setsockopt(socket.SOL_SOCKET, option, REQUEST_BYTES_MAX)
    with theirs:
        subprocess.Popen(
            [sys.executable, "-m", "tests.node.forked", str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            pass_fds=[theirs.fileno()],
        )
    return ours


def serve(requests: socket.socket) -> None:
    """Return in each process that was asked for, ready to run its module; the server ends here."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Ahead of what site finds come the working directory and what PYTHONPATH names.
    found = sys.path[1 + len(os.environ["PYTHONPATH"].split(os.pathsep)) :]
    while True:
        data, descriptors, _, _ = socket.recv_fds(requests, REQUEST_BYTES_MAX, 3)
        if not data:
            os._exit(0)
        between, told = os.pipe()
        if (child := os.fork()) == 0:
            if (command := os.fork()) != 0:
                os.write(told, b"%d" % command)
                os._exit(0)
            for descriptor in (between, told, requests.detach()):
                os.close(descriptor)
            return _become(json.loads(data), descriptors, found)
        os.waitpid(child, 0)
        requests.send(os.read(between, 64))
        for descriptor in (between, told, *descriptors):
            os.close(descriptor)


def _become(request: dict[str, Any], descriptors: list[int], found: list[str]) -> None:
    """Be as an interpreter that was started so."""
    for standard, descriptor in enumerate(descriptors):
        os.dup2(descriptor, standard)
        os.close(descriptor)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(request["cwd"])
    os.umask(request["umask"])
    os.environ.clear()
    os.environ.update(request["env"])
    named = os.environ.get("PYTHONPATH")
    sys.path[:] = [request["cwd"], *(named.split(os.pathsep) if named else ()), *found]
    sys.argv[:] = request["arguments"]


def run(module: str) -> int:
    """Run a module as ``python -m`` does; the exit status. What it raises beside that is raised."""
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        return end.code or 0
    return 0


def end_at_once(status: int) -> None:
    """End this process, in the interpreter's order, but leave its objects to the system."""
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads
    atexit._run_exitfuncs()
    try:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except OSError:
        sys.exit(status)  # whoever read it has gone; the interpreter has a word and a status for that
    os._exit(status)


def _import_all() -> None:
    import cluster
    from cluster.log.append import message_end_position
    from cluster.log.frames import LogParams

    for module in pkgutil.walk_packages(cluster.__path__, "cluster."):
        if not module.name.startswith((*LEFT_OUT, *RUN)):
            importlib.import_module(module.name)
    message_end_position(0, 64, LogParams(65_536, 1408, 0, 0))  # the first call of a kernel takes long


if __name__ == "__main__":
    _import_all()
    gc.collect()
    gc.freeze()
    serve(socket.socket(fileno=int(sys.argv[1])))
    end_at_once(run(sys.argv[0]))
