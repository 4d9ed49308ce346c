"""CRC-32 and CRC-32C of a range of bytes, as routines for kernels.

CRC-32C goes by the processor's own instruction, eight bytes a step, where the code is compiled for one that
has it (x86-64 with SSE 4.2, aarch64 with CRC). An instruction takes three cycles and one can begin in each,
so a long range is read as three streams, whose CRCs are joined:

    |--- stream a: 128 ---|--- stream b: 128 ---|--- stream c: 128 ---|  next block
    crc(abc) = shift(shift(crc(a)) ^ crc(b)) ^ crc(c)                    shift: 128 zero bytes follow

CRC-32 goes by carry-less multiplication where there is one (x86-64 with PCLMULQDQ): 64 bytes a step are
folded into the next 64, the last 64 into 16, and those are taken by tables.

Everything else is slicing by 16: sixteen bytes a step through sixteen tables.

Which of them is decided when the kernels are compiled, by the features that numba compiles for. They are,
with the processor's name, part of what the cache is checked by: another processor's code is not used.
"""

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.core.registry import cpu_target
from numba.extending import intrinsic

from cluster.log.kernel import routine
from cluster.log.memory import get_i64, get_u8, get_u32

POLYNOMIAL_CRC_32 = 0xEDB8_8320  # reflected, as are all CRCs here
POLYNOMIAL_CRC_32C = 0x82F6_3B78
STREAM_BYTES = 128  # of each of the three in a block


def _tables(polynomial: int) -> np.ndarray:
    """Table k, entry b: what byte b does to a CRC that k more bytes follow."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(polynomial), table >> 1)
    tables = [table]
    for _ in range(15):
        tables.append(_followed_by_zero(tables[-1], table))
    return np.concatenate(tables)


def _followed_by_zero(crcs: np.ndarray, table: np.ndarray) -> np.ndarray:
    return (crcs >> 8) ^ table[crcs & 0xFF]


def _shift_tables(table: np.ndarray, length: int) -> np.ndarray:
    """Table k, entry b: what byte k of a CRC, being b, becomes when ``length`` zero bytes follow."""
    crcs = np.concatenate([np.arange(256, dtype=np.uint32) << np.uint32(8 * k) for k in range(4)])
    for _ in range(length):
        crcs = _followed_by_zero(crcs, table)
    return crcs


_CRC_32_TABLES = _tables(POLYNOMIAL_CRC_32)
CRC_32C_TABLES = _tables(POLYNOMIAL_CRC_32C)
_SHIFT_TABLES = _shift_tables(CRC_32C_TABLES[:256], STREAM_BYTES)


@routine
def _extend_bytewise(crc, tables, buffer, offset, end):  # type: ignore[no-untyped-def]
    while offset < end:
        crc = crc >> 8 ^ np.int64(tables[(crc ^ get_u8(buffer, offset)) & 0xFF])
        offset += 1
    return crc


@routine
def _slice_16(tables, a, b, c, d):  # type: ignore[no-untyped-def]
    """What sixteen bytes, as four words, do to a CRC of 0."""
    # What hangs on the crc before them, a, comes last, so that the rest is there already.
    return np.int64(
        tables[d >> 24 & 0xFF]
        ^ tables[256 + (d >> 16 & 0xFF)]
        ^ tables[512 + (d >> 8 & 0xFF)]
        ^ tables[768 + (d & 0xFF)]
        ^ tables[1024 + (c >> 24 & 0xFF)]
        ^ tables[1280 + (c >> 16 & 0xFF)]
        ^ tables[1536 + (c >> 8 & 0xFF)]
        ^ tables[1792 + (c & 0xFF)]
        ^ tables[2048 + (b >> 24 & 0xFF)]
        ^ tables[2304 + (b >> 16 & 0xFF)]
        ^ tables[2560 + (b >> 8 & 0xFF)]
        ^ tables[2816 + (b & 0xFF)]
        ^ tables[3072 + (a >> 24 & 0xFF)]
        ^ tables[3328 + (a >> 16 & 0xFF)]
        ^ tables[3584 + (a >> 8 & 0xFF)]
        ^ tables[3840 + (a & 0xFF)]
    )


@routine
def _extend_sliced(crc, tables, buffer, offset, end):  # type: ignore[no-untyped-def]
    while end - offset >= 16:
        a = crc ^ get_u32(buffer, offset)
        b = get_u32(buffer, offset + 4)
        c = get_u32(buffer, offset + 8)
        crc = _slice_16(tables, a, b, c, get_u32(buffer, offset + 12))
        offset += 16
    return _extend_bytewise(crc, tables, buffer, offset, end)


@routine
def extend_by_tables(crc, tables, buffer, offset, end):  # type: ignore[no-untyped-def]
    """The checksum of what ``crc`` is of, followed by these bytes; 0 is of none."""
    return _extend_sliced(np.int64(crc ^ 0xFFFF_FFFF), tables, buffer, offset, end) ^ 0xFFFF_FFFF


def _machine() -> tuple[str, list[str]]:
    """What code is compiled for, and what that processor has; nothing where no code is compiled."""
    if config.DISABLE_JIT:  # type: ignore[attr-defined]
        return "", []
    triple, _, features = cpu_target.target_context.codegen().magic_tuple()
    return triple.partition("-")[0], features.split(",")


def _instruction():  # type: ignore[no-untyped-def]
    """The instruction that extends a CRC-32C by eight bytes, ``(crc, word) -> crc``; None without one."""
    machine, available = _machine()
    i32, i64 = ir.IntType(32), ir.IntType(64)
    if machine == "x86_64" and "+crc32" in available:
        name, width = "llvm.x86.sse42.crc32.64.64", i64
    elif machine in ("aarch64", "arm64") and "+crc" in available:
        name, width = "llvm.aarch64.crc32cx", i32
    else:
        return None

    def extend(typing_context, crc, word):  # type: ignore[no-untyped-def]
        def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            function = builder.module.declare_intrinsic(name, (), ir.FunctionType(width, [width, i64]))
            if width is i64:
                return builder.call(function, arguments)
            crc = builder.call(function, [builder.trunc(arguments[0], i32), arguments[1]])
            return builder.zext(crc, i64)

        return types.int64(types.int64, types.int64), codegen

    return intrinsic(extend)


_extend_by_8 = _instruction()
HAS_INSTRUCTION = _extend_by_8 is not None


@routine
def _shift(crc):  # type: ignore[no-untyped-def]
    return np.int64(
        _SHIFT_TABLES[crc & 0xFF]
        ^ _SHIFT_TABLES[256 + (crc >> 8 & 0xFF)]
        ^ _SHIFT_TABLES[512 + (crc >> 16 & 0xFF)]
        ^ _SHIFT_TABLES[768 + (crc >> 24 & 0xFF)]
    )


@routine
def _crc_32c_by_instruction(buffer, offset, end):  # type: ignore[no-untyped-def]
    a = np.int64(0xFFFF_FFFF)
    while end - offset >= 3 * STREAM_BYTES:
        b = c = np.int64(0)
        stream_end = offset + STREAM_BYTES
        while offset < stream_end:
            a = _extend_by_8(a, get_i64(buffer, offset))
            b = _extend_by_8(b, get_i64(buffer, offset + STREAM_BYTES))
            c = _extend_by_8(c, get_i64(buffer, offset + 2 * STREAM_BYTES))
            offset += 8
        a = _shift(_shift(a) ^ b) ^ c
        offset += 2 * STREAM_BYTES
    while end - offset >= 8:
        a = _extend_by_8(a, get_i64(buffer, offset))
        offset += 8
    return _extend_bytewise(a, CRC_32C_TABLES, buffer, offset, end) ^ 0xFFFF_FFFF


@routine
def _crc_32c_by_tables(buffer, offset, end):  # type: ignore[no-untyped-def]
    return extend_by_tables(0, CRC_32C_TABLES, buffer, offset, end)


FOLDED_BYTES = 64  # of a step, in four lanes of 16


def _x_to_the(power: int) -> int:
    """x^power modulo the polynomial, as a factor of a carry-less multiplication of reflected numbers."""
    remainder = 1 << 31
    for _ in range(power):
        remainder = remainder >> 1 ^ (POLYNOMIAL_CRC_32 if remainder & 1 else 0)
    return remainder << 1


def _folding():  # type: ignore[no-untyped-def]
    """``(crc, buffer, offset, end) -> words``: the 16 bytes, as two words, that stand for all; or None.

    They have the CRC, begun with 0, that the bytes have, begun with ``crc``: at least one step, and whole
    steps. Each lane is multiplied by as many powers of x as it is moved, and what comes there is added
    (Gopal and others, Fast CRC Computation Using PCLMULQDQ Instruction, 2009).
    """
    machine, available = _machine()
    if machine != "x86_64" or "+pclmul" not in available:
        return None
    i8, i64 = ir.IntType(8), ir.IntType(64)
    lane = ir.VectorType(i64, 2)
    by_lane = ir.Constant(lane, [_x_to_the(128 + 32), _x_to_the(128 - 32)])
    by_step = ir.Constant(lane, [_x_to_the(4 * 128 + 32), _x_to_the(4 * 128 - 32)])

    def fold(typing_context, crc, buffer, offset, end):  # type: ignore[no-untyped-def]
        def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            crc, array, offset, end = arguments
            data = context.make_array(signature.args[1])(context, builder, array).data
            multiply = builder.module.declare_intrinsic(
                "llvm.x86.pclmulqdq", (), ir.FunctionType(lane, [lane, lane, i8])
            )

            def load(at, place):  # type: ignore[no-untyped-def]
                address = builder.gep(data, [builder.add(at, i64(16 * place))])
                return builder.load(builder.bitcast(address, lane.as_pointer()), align=1)

            def moved(value, factors):  # type: ignore[no-untyped-def]
                low = builder.call(multiply, [value, factors, i8(0x00)])
                return builder.xor(low, builder.call(multiply, [value, factors, i8(0x11)]))

            lanes = [load(offset, place) for place in range(4)]
            first = builder.insert_element(ir.Constant(lane, [0, 0]), crc, ir.IntType(32)(0))
            lanes[0] = builder.xor(lanes[0], first)
            begin = builder.add(offset, i64(FOLDED_BYTES))
            before = builder.block
            test, body, done = (builder.append_basic_block(name) for name in ("test", "body", "done"))
            builder.branch(test)
            builder.position_at_end(test)
            at = builder.phi(i64)
            at.add_incoming(begin, before)
            values = [builder.phi(lane) for _ in lanes]
            for value, incoming in zip(values, lanes):
                value.add_incoming(incoming, before)
            builder.cbranch(builder.icmp_signed("<", at, end), body, done)
            builder.position_at_end(body)
            for place, value in enumerate(values):
                value.add_incoming(builder.xor(moved(value, by_step), load(at, place)), body)
            at.add_incoming(builder.add(at, i64(FOLDED_BYTES)), body)
            builder.branch(test)
            builder.position_at_end(done)
            result = values[0]
            for value in values[1:]:
                result = builder.xor(moved(result, by_lane), value)
            words = [builder.extract_element(result, ir.IntType(32)(i)) for i in range(2)]
            return context.make_tuple(builder, signature.return_type, words)

        words = types.UniTuple(types.int64, 2)
        return words(types.int64, buffer, types.int64, types.int64), codegen

    return intrinsic(fold)


_fold = _folding()
HAS_MULTIPLICATION = _fold is not None


@routine
def _extend_crc_32_by_folding(crc, buffer, offset, end):  # type: ignore[no-untyped-def]
    crc = np.int64(crc ^ 0xFFFF_FFFF)
    if end - offset >= 2 * FOLDED_BYTES:
        folded_end = end - (end - offset) % FOLDED_BYTES
        low, high = _fold(crc, buffer, offset, folded_end)
        crc = _slice_16(_CRC_32_TABLES, low, low >> 32, high, high >> 32)
        offset = folded_end
    return _extend_sliced(crc, _CRC_32_TABLES, buffer, offset, end) ^ 0xFFFF_FFFF


@routine
def _extend_crc_32_by_tables(crc, buffer, offset, end):  # type: ignore[no-untyped-def]
    return extend_by_tables(crc, _CRC_32_TABLES, buffer, offset, end)


# As ``zlib.crc32(data, crc)``.
extend_crc_32 = _extend_crc_32_by_folding if HAS_MULTIPLICATION else _extend_crc_32_by_tables


@routine
def crc_32(buffer, offset, end):  # type: ignore[no-untyped-def]
    return extend_crc_32(0, buffer, offset, end)


crc_32c = _crc_32c_by_instruction if HAS_INSTRUCTION else _crc_32c_by_tables
