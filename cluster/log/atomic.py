"""Compare-and-set on a word of memory that other processes have mapped, too (Agrona: compareAndSetLong).

An operator's tool, another one, a real ClusterTool and the member itself may all write the same toggle;
whoever changes it has to know that nobody did so in between. Python has no such instruction, so it is one
kernel.
"""

import numpy as np
from numba import types

from cluster.log.kernel import kernel
from cluster.log.memory import BYTES_OUT, I64
from cluster.log.ordered import exchange_i64


@kernel(types.boolean(BYTES_OUT, I64, I64, I64))
def _compare_and_set(buffer, offset, expected, value):  # type: ignore[no-untyped-def]
    return exchange_i64(buffer, offset, expected, value)


def compare_and_set(words: np.ndarray, index: int, expected: int, value: int) -> bool:
    """Set ``words[index]`` if it is what is expected, in one step; returns whether it was.

    ``words`` are int64, aligned as a counter is.
    """
    assert 0 <= index < len(words)
    assert words.ctypes.data % 8 == 0
    return bool(_compare_and_set(words.view(np.uint8), 8 * index, expected, value))
