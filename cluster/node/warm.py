"""Compile every kernel, and the busy turn of members, into numba's cache: what set-up does once."""

import importlib
import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from cluster.log.warm import KERNEL_MODULES

TURN = "cluster.member.busy.turn"
# The turn takes longest, and needs these modules, which other processes therefore compile last.
OF_THE_TURN = {"checksum", "deliver", "follow", "ingress", "runs", "scan", "session_frames", "message_calls"}
MODULES = (
    TURN,
    *(f"cluster.log.{name}" for name in sorted(KERNEL_MODULES, key=OF_THE_TURN.__contains__)),
)


def compile_everything() -> None:
    """Compile, or load what is cached, in this process."""
    for module in MODULES:
        importlib.import_module(module)


def compile_in_parallel() -> None:
    """The same by as many processes as there are cores, for the cache alone."""
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        for compiling in [pool.submit(_compile, module) for module in MODULES]:
            compiling.result()


def _compile(module: str) -> None:
    importlib.import_module(module)  # which cannot be sent back


if __name__ == "__main__":
    compile_in_parallel()
