"""Little-endian loads and stores at any offset of a byte array: the alphabet of the kernels.

A view per field would cost more than the field, so a load is one machine instruction here, inlined into the
kernel. **Nothing checks bounds**: a kernel proves an offset in range before it touches it. With compilation
off (``NUMBA_DISABLE_JIT=1``), and without numba, the same functions are Python's ``struct``, which does check
bounds: that is how the tests look for a kernel that did not.

Integers come out as int64, whatever their width in memory. Values are truncated on their way in.
"""

import struct

from cluster.log.compiler import config, types

# The only kinds of arrays that kernels take.
BYTES = types.Array(types.uint8, 1, "C", readonly=True)
BYTES_OUT = types.Array(types.uint8, 1, "C")
WORDS = types.Array(types.int64, 1, "C", readonly=True)
WORDS_OUT = types.Array(types.int64, 1, "C")
I64 = types.int64

if not config.DISABLE_JIT:  # type: ignore[attr-defined]
    from cluster.log.memory_instructions import copier, loader, storer, zeroer

    get_u8, get_u16, get_u32 = loader(8, False), loader(16, False), loader(32, False)
    get_i32, get_i64 = loader(32, True), loader(64, True)
    put_u8, put_i32, put_i64 = storer(8), storer(32), storer(64)
    copy_bytes, zero_bytes = copier(), zeroer()
else:

    def _plain(kind):  # type: ignore[no-untyped-def]
        layout = struct.Struct(kind)
        unpack_from, pack_into, mask = layout.unpack_from, layout.pack_into, (1 << 8 * layout.size) - 1

        def get(buffer, at):  # type: ignore[no-untyped-def]
            assert at >= 0  # else it is counted from the end
            return unpack_from(buffer, at)[0]

        def put(buffer, at, value):  # type: ignore[no-untyped-def]
            assert at >= 0
            pack_into(buffer, at, int(value) & mask)

        return get, put

    get_u8, put_u8 = _plain("<B")
    get_u16, get_u32, get_i32, get_i64 = (_plain(kind)[0] for kind in ("<H", "<I", "<i", "<q"))
    put_i32, put_i64 = _plain("<I")[1], _plain("<Q")[1]

    def copy_bytes(target, target_offset, source, source_offset, length):  # type: ignore[no-untyped-def]
        assert min(target_offset, source_offset, length) >= 0
        end = source_offset + length
        assert end <= len(source)
        memoryview(target)[target_offset : target_offset + length] = memoryview(source)[source_offset:end]

    def zero_bytes(target, offset, length):  # type: ignore[no-untyped-def]
        assert min(offset, length) >= 0
        memoryview(target)[offset : offset + length] = bytes(length)
