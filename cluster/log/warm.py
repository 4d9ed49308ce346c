"""Compile every kernel, and the busy turn of members, into the cache: once, by set-up or ``cluster compile``.

It needs numba and numpy alone, so set-up begins before the rest is installed.
"""

import importlib
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

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
    *(f"cluster.log.{module}" for module in KERNEL_MODULES),
)


def compile_everything() -> Iterator[str]:
    """Import each module, which compiles what is not cached, on all cores; yields those that are done."""
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        for compiled in as_completed([pool.submit(_compile, module) for module in MODULES]):
            yield compiled.result()


def _compile(module: str) -> str:
    importlib.import_module(module)  # which cannot be sent back
    return module


if __name__ == "__main__":
    list(compile_everything())
