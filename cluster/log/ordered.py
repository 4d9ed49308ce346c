"""Loads that acquire and stores that release, for memory that other processes read and write meanwhile.

What was written before a release is seen by whoever acquires it: a frame before its length, a message
before its ring's tail. Offsets are multiples of the word's size. **Nothing checks bounds**, as in
``memory.py``, whose plain twins stand in for these where nothing is compiled.
"""

from llvmlite import ir
from numba import config, types
from numba.extending import intrinsic

from cluster.log.memory import get_i32, get_i64, put_i32, put_i64


def _address(context, builder, bits, array_type, array, offset):  # type: ignore[no-untyped-def]
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [offset]), ir.IntType(bits).as_pointer())


def _acquiring(bits: int):  # type: ignore[no-untyped-def]
    def load(typing_context, buffer, offset):  # type: ignore[no-untyped-def]
        def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            address = _address(context, builder, bits, signature.args[0], *arguments)
            value = builder.load_atomic(address, "acquire", bits // 8)
            return value if bits == 64 else builder.sext(value, ir.IntType(64))

        return types.int64(buffer, types.int64), codegen

    return intrinsic(load)


def _releasing(bits: int):  # type: ignore[no-untyped-def]
    def store(typing_context, buffer, offset, value):  # type: ignore[no-untyped-def]
        def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            address = _address(context, builder, bits, signature.args[0], *arguments[:2])
            word = arguments[2] if bits == 64 else builder.trunc(arguments[2], ir.IntType(bits))
            builder.store_atomic(word, address, "release", bits // 8)
            return context.get_dummy_value()

        return types.void(buffer, types.int64, types.int64), codegen

    return intrinsic(store)


def _adder():  # type: ignore[no-untyped-def]
    def add(typing_context, buffer, offset, value):  # type: ignore[no-untyped-def]
        def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            address = _address(context, builder, 64, signature.args[0], *arguments[:2])
            return builder.atomic_rmw("add", address, arguments[2], "seq_cst")

        return types.int64(buffer, types.int64, types.int64), codegen

    return intrinsic(add)


def _exchanger():  # type: ignore[no-untyped-def]
    def exchange(typing_context, buffer, offset, expected, value):  # type: ignore[no-untyped-def]
        def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            address = _address(context, builder, 64, signature.args[0], *arguments[:2])
            result = builder.cmpxchg(address, *arguments[2:], "seq_cst", "seq_cst")
            return builder.extract_value(result, 1)

        return types.boolean(buffer, types.int64, types.int64, types.int64), codegen

    return intrinsic(exchange)


if not config.DISABLE_JIT:  # type: ignore[attr-defined]
    load_i32, load_i64 = _acquiring(32), _acquiring(64)
    store_i32, store_i64 = _releasing(32), _releasing(64)
    get_and_add_i64, exchange_i64 = _adder(), _exchanger()
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
