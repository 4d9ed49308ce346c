"""Loads and stores of ``memory.py`` as single machine instructions."""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


def _address(context, builder, array_type, array, offset):  # type: ignore[no-untyped-def]
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [offset])


def loader(bits: int, signed: bool):  # type: ignore[no-untyped-def]
    word = ir.IntType(bits)

    def load(typing_context, buffer, offset):  # type: ignore[no-untyped-def]
        def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            address = _address(context, builder, signature.args[0], *arguments)
            value = builder.load(builder.bitcast(address, word.as_pointer()))
            value.align = 1
            if bits == 64:
                return value
            return (builder.sext if signed else builder.zext)(value, ir.IntType(64))

        return types.int64(buffer, types.int64), codegen

    return intrinsic(load)


def storer(bits: int):  # type: ignore[no-untyped-def]
    word = ir.IntType(bits)

    def store(typing_context, buffer, offset, value):  # type: ignore[no-untyped-def]
        def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            address = _address(context, builder, signature.args[0], *arguments[:2])
            value = arguments[2] if bits == 64 else builder.trunc(arguments[2], word)
            builder.store(value, builder.bitcast(address, word.as_pointer())).align = 1
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
