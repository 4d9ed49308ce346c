"""Waiting for images: compiled code that sleeps and looks, while other threads have Python's lock.

A media driver wakes nobody. So a wait looks at images at intervals, which are short while frames are due.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from cluster.log.calls import address_of, call_at, function_address, i32_at
from cluster.log.kernel import kernel
from cluster.log.memory import I64, WORDS, WORDS_OUT
from cluster.media.image import Image

NO_DESCRIPTOR = -1
STEP_NS, DUE_STEP_NS = 500_000, 1_000  # between two looks, and as much more as the system's timers are coarse
_CLOCK_MONOTONIC = 1
_POLLIN = 1
_FUNCTIONS = function_address("clock_gettime"), function_address("ppoll")


@kernel(I64(WORDS, WORDS_OUT, I64, I64, I64, I64, I64), nogil=True)
def _await_frames(lengths, words, step, timeout, descriptor, clock, poll):  # type: ignore[no-untyped-def]
    """``words`` are of C: what is polled, for how long, and the time."""
    words[0] = descriptor & 0xFFFF_FFFF | _POLLIN << 32
    words[1] = 0
    began = -1
    while True:
        for each in lengths:
            if i32_at(each) > 0:
                return 1
        call_at(clock, _CLOCK_MONOTONIC, address_of(words, 3))
        now = words[3] * 1_000_000_000 + words[4]
        if began < 0:
            began = now
        if now - began >= timeout:
            return 0
        words[2] = min(step, timeout)
        if call_at(poll, address_of(words, 0), 1, address_of(words, 1), 0) & 0xFFFF_FFFF:
            return 1


def await_frames(
    images: Iterable[Image], timeout_s: float, descriptor: int = NO_DESCRIPTOR, *, is_due: bool = False
) -> bool:
    """Wait until an image has frames, or the descriptor is readable; False if it took ``timeout_s``."""
    images = tuple(images)  # which keep their memory
    lengths = np.array([image.next_length_address for image in images], np.int64)
    bounds = DUE_STEP_NS if is_due else STEP_NS, int(timeout_s * 1e9)
    return bool(_await_frames(lengths, np.zeros(5, np.int64), *bounds, descriptor, *_FUNCTIONS))
