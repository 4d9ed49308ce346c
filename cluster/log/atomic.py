"""Compare-and-set on a word of memory that other processes have mapped, too (Agrona: compareAndSetLong).

An operator's tool, another one, a real ClusterTool and the member itself may all write the same toggle;
whoever changes it has to know that nobody did so in between. Python has no such instruction, so it is one
kernel.
"""

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.extending import intrinsic

from cluster.log.kernel import kernel
from cluster.log.memory import I64, WORDS_OUT


def _compare_exchange(typing_context, words, index, expected, value):  # type: ignore[no-untyped-def]
    def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        array, index, expected, value = arguments
        data = context.make_array(signature.args[0])(context, builder, array).data
        address = builder.bitcast(builder.gep(data, [index]), ir.IntType(64).as_pointer())
        exchanged = builder.cmpxchg(address, expected, value, "seq_cst", "seq_cst")
        return builder.extract_value(exchanged, 1)

    return types.boolean(words, I64, I64, I64), codegen


if config.DISABLE_JIT:  # type: ignore[attr-defined]

    def compare_exchange(words, index, expected, value):  # type: ignore[no-untyped-def]
        is_expected = words[index] == expected
        if is_expected:
            words[index] = value
        return is_expected

else:
    compare_exchange = intrinsic(_compare_exchange)  # type: ignore[assignment]


@kernel(types.boolean(WORDS_OUT, I64, I64, I64))
def _compare_and_set(words, index, expected, value):  # type: ignore[no-untyped-def]
    return compare_exchange(words, index, expected, value)


def compare_and_set(words: np.ndarray, index: int, expected: int, value: int) -> bool:
    """Set ``words[index]`` if it is what is expected, in one step; returns whether it was.

    ``words`` are int64, aligned as a counter is.
    """
    assert 0 <= index < len(words)
    assert words.ctypes.data % 8 == 0
    return bool(_compare_and_set(words, index, expected, value))
