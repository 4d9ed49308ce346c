"""Little-endian loads and stores at any offset of a byte array: the alphabet of the kernels.

A view per field would cost more than the field, so a load is one machine instruction here, inlined into the
kernel. **Nothing checks bounds**: a kernel proves an offset in range before it touches it. With compilation
off (``NUMBA_DISABLE_JIT=1``) or bounds checks on (``NUMBA_BOUNDSCHECK=1``) the same functions are plain code
that asserts its bounds, which is how the tests look for a kernel that did not.

Integers come out as int64, whatever their width in memory. Values are truncated on their way in.
"""

import numpy as np
from llvmlite import ir
from numba import config, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

# The only kinds of arrays that kernels take.
BYTES = types.Array(types.uint8, 1, "C", readonly=True)
BYTES_OUT = types.Array(types.uint8, 1, "C")
WORDS = types.Array(types.int64, 1, "C", readonly=True)
WORDS_OUT = types.Array(types.int64, 1, "C")
I64 = types.int64


def _address(context, builder, array_type, array, offset):  # type: ignore[no-untyped-def]
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [offset])


def _loader(bits: int, signed: bool):  # type: ignore[no-untyped-def]
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


def _storer(bits: int):  # type: ignore[no-untyped-def]
    word = ir.IntType(bits)

    def store(typing_context, buffer, offset, value):  # type: ignore[no-untyped-def]
        def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            address = _address(context, builder, signature.args[0], *arguments[:2])
            value = arguments[2] if bits == 64 else builder.trunc(arguments[2], word)
            builder.store(value, builder.bitcast(address, word.as_pointer())).align = 1
            return context.get_dummy_value()

        return types.void(buffer, types.int64, types.int64), codegen

    return intrinsic(store)


def _copier():  # type: ignore[no-untyped-def]
    def copy(typing_context, target, target_offset, source, source_offset, length):  # type: ignore[no-untyped-def]
        def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            to = _address(context, builder, signature.args[0], *arguments[:2])
            of = _address(context, builder, signature.args[2], *arguments[2:4])
            cgutils.raw_memcpy(builder, to, of, arguments[4], 1)
            return context.get_dummy_value()

        i64 = types.int64
        return types.void(target, i64, source, i64, i64), codegen

    return intrinsic(copy)


def _zeroer():  # type: ignore[no-untyped-def]
    def zero(typing_context, target, offset, length):  # type: ignore[no-untyped-def]
        def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            to = _address(context, builder, signature.args[0], *arguments[:2])
            cgutils.memset(builder, to, arguments[2], 0)
            return context.get_dummy_value()

        return types.void(target, types.int64, types.int64), codegen

    return intrinsic(zero)


if not config.DISABLE_JIT and not config.BOUNDSCHECK:  # type: ignore[attr-defined]
    get_u8, get_u16, get_u32 = _loader(8, False), _loader(16, False), _loader(32, False)
    get_i32, get_i64 = _loader(32, True), _loader(64, True)
    put_u8, put_i32, put_i64 = _storer(8), _storer(32), _storer(64)
    copy_bytes, zero_bytes = _copier(), _zeroer()
else:

    @njit
    def get_u64(buffer, offset, width):  # type: ignore[no-untyped-def]
        assert offset >= 0
        assert offset + width <= buffer.size
        value = np.uint64(0)
        for i in range(width):
            value |= np.uint64(buffer[offset + i]) << np.uint64(8 * i)
        return value

    @njit
    def get_i64(buffer, offset):  # type: ignore[no-untyped-def]
        return int(np.int64(get_u64(buffer, offset, 8)))  # Python integers do not warn when they grow

    @njit
    def get_u32(buffer, offset):  # type: ignore[no-untyped-def]
        return int(np.int64(get_u64(buffer, offset, 4)))  # Python integers do not warn when they grow

    @njit
    def get_i32(buffer, offset):  # type: ignore[no-untyped-def]
        value = get_u32(buffer, offset)
        return value - ((value >> 31) << 32)

    @njit
    def get_u16(buffer, offset):  # type: ignore[no-untyped-def]
        return int(np.int64(get_u64(buffer, offset, 2)))  # Python integers do not warn when they grow

    @njit
    def get_u8(buffer, offset):  # type: ignore[no-untyped-def]
        return int(np.int64(get_u64(buffer, offset, 1)))  # Python integers do not warn when they grow

    @njit
    def _put(buffer, offset, value, width):  # type: ignore[no-untyped-def]
        assert offset >= 0
        assert offset + width <= buffer.size
        for i in range(width):
            buffer[offset + i] = (value >> (8 * i)) & 0xFF

    @njit
    def put_i64(buffer, offset, value):  # type: ignore[no-untyped-def]
        _put(buffer, offset, value, 8)

    @njit
    def put_i32(buffer, offset, value):  # type: ignore[no-untyped-def]
        _put(buffer, offset, value, 4)

    @njit
    def put_u8(buffer, offset, value):  # type: ignore[no-untyped-def]
        _put(buffer, offset, value, 1)

    @njit
    def copy_bytes(target, target_offset, source, source_offset, length):  # type: ignore[no-untyped-def]
        assert min(target_offset, source_offset, length) >= 0
        assert target_offset + length <= target.size
        assert source_offset + length <= source.size
        target[target_offset : target_offset + length] = source[source_offset : source_offset + length]

    @njit
    def zero_bytes(target, offset, length):  # type: ignore[no-untyped-def]
        assert min(offset, length) >= 0
        assert offset + length <= target.size
        target[offset : offset + length] = 0
