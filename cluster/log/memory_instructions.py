"""Loads and stores of ``memory.py`` and ``ordered.py`` as single machine instructions."""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


def _address(context, builder, array_type, array, offset):  # type: ignore[no-untyped-def]
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [offset])


def _word(bits, context, builder, signature, array, offset):  # type: ignore[no-untyped-def]
    address = _address(context, builder, signature.args[0], array, offset)
    return builder.bitcast(address, ir.IntType(bits).as_pointer())


def loader(bits: int, signed: bool, ordering: str = ""):  # type: ignore[no-untyped-def]
    def load(typing_context, buffer, offset):  # type: ignore[no-untyped-def]
        def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            word = _word(bits, context, builder, signature, *arguments)
            if ordering:
                value = builder.load_atomic(word, ordering, bits // 8)
            else:
                value = builder.load(word)
                value.align = 1
            if bits == 64:
                return value
            return (builder.sext if signed else builder.zext)(value, ir.IntType(64))

        return types.int64(buffer, types.int64), codegen

    return intrinsic(load)


def storer(bits: int, ordering: str = ""):  # type: ignore[no-untyped-def]
    def store(typing_context, buffer, offset, value):  # type: ignore[no-untyped-def]
        def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            word = _word(bits, context, builder, signature, *arguments[:2])
            value = arguments[2] if bits == 64 else builder.trunc(arguments[2], ir.IntType(bits))
            if ordering:
                builder.store_atomic(value, word, ordering, bits // 8)
            else:
                builder.store(value, word).align = 1
            return context.get_dummy_value()

        return types.void(buffer, types.int64, types.int64), codegen

    return intrinsic(store)


def copier():  # type: ignore[no-untyped-def]
    def copy(typing_context, target, target_offset, source, source_offset, length):  # type: ignore[no-untyped-def]
        def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            to = _address(context, builder, signature.args[0], *arguments[:2])
            of = _address(context, builder, signature.args[2], *arguments[2:4])
            cgutils.raw_memcpy(builder, to, of, arguments[4], 1)
            return context.get_dummy_value()

        i64 = types.int64
        return types.void(target, i64, source, i64, i64), codegen

    return intrinsic(copy)


def zeroer():  # type: ignore[no-untyped-def]
    def zero(typing_context, target, offset, length):  # type: ignore[no-untyped-def]
        def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            to = _address(context, builder, signature.args[0], *arguments[:2])
            cgutils.memset(builder, to, arguments[2], 0)
            return context.get_dummy_value()

        return types.void(target, types.int64, types.int64), codegen

    return intrinsic(zero)


def adder():  # type: ignore[no-untyped-def]
    def add(typing_context, buffer, offset, value):  # type: ignore[no-untyped-def]
        def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            word = _word(64, context, builder, signature, *arguments[:2])
            return builder.atomic_rmw("add", word, arguments[2], "seq_cst")

        return types.int64(buffer, types.int64, types.int64), codegen

    return intrinsic(add)


def exchanger():  # type: ignore[no-untyped-def]
    def exchange(typing_context, buffer, offset, expected, value):  # type: ignore[no-untyped-def]
        def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            word = _word(64, context, builder, signature, *arguments[:2])
            result = builder.cmpxchg(word, *arguments[2:], "seq_cst", "seq_cst")
            return builder.extract_value(result, 1)

        return types.boolean(buffer, types.int64, types.int64, types.int64), codegen

    return intrinsic(exchange)
