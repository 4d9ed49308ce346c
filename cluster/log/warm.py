"""Compile every kernel, and the busy turn of members, into the cache: what set-up does once.

It needs numba and numpy alone, so that it can begin before the rest is installed.
"""

import importlib
import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

# Whatever of this folder has a kernel in it; a test finds those that are missing.
KERNEL_MODULES = (
    "append",
    "atomic",
    "checksum",
    "column_kernels",
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


def compile_everything() -> None:
    """Import them, which compiles what is not cached, by as many processes as there are cores."""
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        for compiling in [pool.submit(_compile, module) for module in MODULES]:
            compiling.result()


def _compile(module: str) -> None:
    importlib.import_module(module)  # which cannot be sent back


if __name__ == "__main__":
    compile_everything()
