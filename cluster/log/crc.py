"""CRC-32 and CRC-32C of a range of bytes, as routines for kernels.

CRC-32C goes by the processor's own instruction, eight bytes a step, where the code is compiled for one that
has it (x86-64 with SSE 4.2, aarch64 with CRC). An instruction takes three cycles and one can begin in each,
so a long range is read as three streams, whose CRCs are joined:

    |--- stream a: 128 ---|--- stream b: 128 ---|--- stream c: 128 ---|  next block
    crc(abc) = shift(shift(crc(a)) ^ crc(b)) ^ crc(c)                    shift: 128 zero bytes follow

Everything else is slicing by 16: sixteen bytes a step through sixteen tables.

Which of both is decided when the kernels are compiled, by the features that numba compiles for. They are,
with the processor's name, part of the key of numba's cache: code that another processor cached is not used.
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
def extend_by_tables(crc, tables, buffer, offset, end):  # type: ignore[no-untyped-def]
    """The checksum of what ``crc`` is of, followed by these bytes; 0 is of none."""
    crc = np.int64(crc ^ 0xFFFF_FFFF)
    while end - offset >= 16:
        a = crc ^ get_u32(buffer, offset)
        b = get_u32(buffer, offset + 4)
        c = get_u32(buffer, offset + 8)
        d = get_u32(buffer, offset + 12)
        # What hangs on the crc comes last, so that the rest is there already.
        crc = np.int64(
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
        offset += 16
    return _extend_bytewise(crc, tables, buffer, offset, end) ^ 0xFFFF_FFFF


def _instruction():  # type: ignore[no-untyped-def]
    """The instruction that extends a CRC-32C by eight bytes, ``(crc, word) -> crc``; None without one."""
    if config.DISABLE_JIT:  # type: ignore[attr-defined]
        return None
    triple, _, features = cpu_target.target_context.codegen().magic_tuple()
    machine, available = triple.partition("-")[0], features.split(",")
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


@routine
def extend_crc_32(crc, buffer, offset, end):  # type: ignore[no-untyped-def]
    """As ``zlib.crc32(data, crc)``."""
    return extend_by_tables(crc, _CRC_32_TABLES, buffer, offset, end)


@routine
def crc_32(buffer, offset, end):  # type: ignore[no-untyped-def]
    return extend_crc_32(0, buffer, offset, end)


crc_32c = _crc_32c_by_instruction if HAS_INSTRUCTION else _crc_32c_by_tables
