"""Compile every kernel, and the busy turn of members, into the cache, once.

Set-up does it, ``cluster compile``, or a first ``cluster up``, ``demo`` or ``node``.

    compile_everything() --a byte for each module--> processes, one on each core
                         <----when it is compiled---

It needs numba and numpy alone, so set-up begins before the rest is installed.
"""

import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence

# Whatever of this folder has a kernel in it; a test finds those that are missing.
KERNEL_MODULES = (
    "append",
    "atomic",
    "checksum",
    "column_kernels",
    "connection_table",
    "deliver",
    "entry_filter",
    "follow",
    "ingress",
    "json_objects",
    "kept_frames",
    "message_calls",
    "message_numbers",
    "resend",
    "runs",
    "scan",
    "session_frames",
    "session_table",
    "timer_table",
)

# The turn takes longest, so it begins first.
MODULES = (
    "cluster.member.busy.turn",
    "cluster.media.aeron",
    "cluster.media.frame_wait",
    "cluster.aeron.session_runs",
    *(f"cluster.log.{module}" for module in KERNEL_MODULES),
)


def compile_everything() -> Iterator[str]:
    """Import each module, which compiles what is not cached, on all cores; yields those that are done.

    Raises ChildProcessError when a process fails; what it prints is on standard error.
    """
    tasks, to_workers = os.pipe()
    from_workers, done = os.pipe()
    os.write(to_workers, bytes(range(len(MODULES))))
    os.close(to_workers)
    # -P: what lies in the working directory is not meant by these names.
    command = [sys.executable, "-P", "-m", "cluster.log.warm", str(tasks), str(done), *MODULES]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    workers = [
        subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, pass_fds=(tasks, done))
        for _ in os.sched_getaffinity(0)
    ]
    os.close(tasks)
    os.close(done)
    compiled = b""
    try:
        while module := os.read(from_workers, 1):
            compiled += module
            yield MODULES[module[0]]
    finally:
        os.close(from_workers)
        for worker in workers:
            worker.terminate()
            worker.wait()
    if missing := [module for i, module in enumerate(MODULES) if i not in compiled]:
        raise ChildProcessError(f"kernels of {', '.join(missing)} could not be compiled")


def _compile(tasks: int, done: int, modules: Sequence[str]) -> None:
    """Import modules, whose numbers come one by one, in a process of its own."""
    from cluster.log import kernel_cache

    kernel_cache.printed.add(kernel_cache.COMPILES)  # by whoever started us
    for number in (signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    while module := os.read(tasks, 1):
        importlib.import_module(modules[module[0]])
        os.write(done, module)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _compile(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
    else:
        list(compile_everything())
