"""Loads that acquire and stores that release, for memory that other processes read and write meanwhile.

What was written before a release is seen by whoever acquires it: a frame before its length, a message
before its ring's tail. Offsets are multiples of the word's size. **Nothing checks bounds**, as in
``memory.py``, whose plain twins stand in for these where nothing is compiled.
"""

from cluster.log.compiler import config
from cluster.log.memory import get_i32, get_i64, put_i32, put_i64

if not config.DISABLE_JIT:  # type: ignore[attr-defined]
    from cluster.log.memory_instructions import adder, exchanger, loader, storer

    load_i32, load_i64 = loader(32, True, "acquire"), loader(64, True, "acquire")
    store_i32, store_i64 = storer(32, "release"), storer(64, "release")
    get_and_add_i64, exchange_i64 = adder(), exchanger()
else:
    load_i32, load_i64, store_i32, store_i64 = get_i32, get_i64, put_i32, put_i64

    def get_and_add_i64(buffer, offset, value):  # type: ignore[no-untyped-def]
        before = get_i64(buffer, offset)
        put_i64(buffer, offset, before + value)
        return before

    def exchange_i64(buffer, offset, expected, value):  # type: ignore[no-untyped-def]
        is_expected = get_i64(buffer, offset) == expected
        if is_expected:
            put_i64(buffer, offset, value)
        return is_expected
