"""One history of many that a process plays."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Collection
from unittest.mock import patch

from cluster.archive import sync_proof
from tests.simulation.history import STEPS_MAX, History, Result

_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc


def play(history: History) -> Result:
    """In whatever process; single frames soon are too many for the proof file."""
    with patch.object(sync_proof, "SINGLE_FRAMES_MIN", 2):
        return history.run()


def run_seed(
    seed: int,
    only_faults: Collection[str] = (),
    is_compiled: bool | None = None,
    services_apart: bool | None = None,
    steps_max: int = STEPS_MAX,
) -> Result:
    """Play the history of a seed, and give back its memory."""
    history = History(
        seed,
        only_faults=only_faults,
        is_compiled=is_compiled,
        services_apart=services_apart,
        steps_max=steps_max,
    )
    result = play(history)
    gc.collect()  # agents and sockets refer to each other, and hold large buffers
    if _TRIM is not None:
        _TRIM(0)  # their memory lies between what is still in use, and would add up to gigabytes
    return result
