"""Little-endian loads and stores at any offset of a byte array: the alphabet of the kernels.

A view per field would cost more than the field, so a load is one machine instruction here, inlined into the
kernel. **Nothing checks bounds**: a kernel proves an offset in range before it touches it. With compilation
off (``NUMBA_DISABLE_JIT=1``) or bounds checks on (``NUMBA_BOUNDSCHECK=1``) the same functions are plain code
that asserts its bounds, which is how the tests look for a kernel that did not. Without numba they are
Python's ``struct``, which checks bounds by itself.

Integers come out as int64, whatever their width in memory. Values are truncated on their way in.
"""

import struct

from cluster.log.compiler import HAS_NUMBA, config, njit, types
from cluster.protocol.arrays import np

# The only kinds of arrays that kernels take.
BYTES = types.Array(types.uint8, 1, "C", readonly=True)
BYTES_OUT = types.Array(types.uint8, 1, "C")
WORDS = types.Array(types.int64, 1, "C", readonly=True)
WORDS_OUT = types.Array(types.int64, 1, "C")
I64 = types.int64

if not HAS_NUMBA:

    def _plain(kind):  # type: ignore[no-untyped-def]
        layout = struct.Struct(kind)
        unpack_from, pack_into, mask = layout.unpack_from, layout.pack_into, (1 << 8 * layout.size) - 1
        return lambda buffer, at: unpack_from(buffer, at)[0], lambda buffer, at, value: pack_into(
            buffer, at, value & mask
        )

    get_u8, put_u8 = _plain("<B")
    get_u16, get_u32, get_i32, get_i64 = (_plain(kind)[0] for kind in ("<H", "<I", "<i", "<q"))
    put_i32, put_i64 = _plain("<I")[1], _plain("<Q")[1]

    def copy_bytes(target, target_offset, source, source_offset, length):  # type: ignore[no-untyped-def]
        end = source_offset + length
        memoryview(target)[target_offset : target_offset + length] = memoryview(source)[source_offset:end]

    def zero_bytes(target, offset, length):  # type: ignore[no-untyped-def]
        target[offset : offset + length] = bytes(length)

elif not config.DISABLE_JIT and not config.BOUNDSCHECK:  # type: ignore[attr-defined]
    from cluster.log.memory_instructions import copier, loader, storer, zeroer

    get_u8, get_u16, get_u32 = loader(8, False), loader(16, False), loader(32, False)
    get_i32, get_i64 = loader(32, True), loader(64, True)
    put_u8, put_i32, put_i64 = storer(8), storer(32), storer(64)
    copy_bytes, zero_bytes = copier(), zeroer()
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
