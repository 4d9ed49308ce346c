"""Ways to make the end of a log durable, beside each other: alone, and three writers on one disk.

Each appends to a file whose blocks are written already, as a recording's are, and returns when the bytes
survive a power cut. ``fdatasync`` is what members do. ``new blocks`` is the same without zeros written ahead.
``io_uring`` hands over the write and its fdatasync linked, in one call. O_DIRECT goes by whole pages: the
page that was begun is written again.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.failover import quantile
from benchmarks.options import Options

PAGE = 4096
FILE_BYTES = 64 << 20
APPENDS = {192: 2_000, 64 * 1024: 500}  # times, by bytes: one message of 100, and a full turn of batches
WRITERS = (1, 3)

Append = Callable[[int, int], None]  # offset, length


def run(options: Options) -> Iterator[dict[str, Any]]:
    """A figure for each way, size and number of writers, round by round; of writers the mean."""
    for number in range(options.rounds):
        for writers in WRITERS:
            for size, times in APPENDS.items():
                for way in WAYS:
                    with tempfile.TemporaryDirectory(prefix="cluster-bench-", dir=os.getcwd()) as folder:
                        found = _measure(way, Path(folder), writers, size, times)
                    yield {"round": number, "way": way, "writers": writers, "bytes": size} | found


def _measure(way: str, folder: Path, writers: int, size: int, times: int) -> dict[str, Any]:
    context = get_context("spawn")
    with context.Pool(writers) as pool:
        work = [(way, str(folder / f"log-{i}"), size, times) for i in range(writers)]
        results = pool.starmap(_append, work, chunksize=1)
    if any(result is None for result in results):
        return {"refused": True}
    mean = [sum(column) / writers for column in zip(*results)]
    return {"p50_us": round(mean[0], 1), "p99_us": round(mean[1], 1), "cpu_us": round(mean[2], 1)}


def _append(way: str, path: str, size: int, times: int) -> tuple[float, float, float] | None:
    """p50 and p99 of an append in µs, and its processor time; None where the system does not offer it."""
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(file, 0, FILE_BYTES)
    if way != "new blocks":
        for offset in range(0, FILE_BYTES, 1 << 20):
            os.pwrite(file, bytes(1 << 20), offset)
    os.fsync(file)
    try:
        append = WAYS[way](file, path)
        append(0, size)
    except OSError:
        return None
    spent: list[float] = []
    cpu_began = time.process_time()
    for i in range(1, times + 1):
        began = time.perf_counter_ns()
        append(i * size, size)
        spent.append((time.perf_counter_ns() - began) / 1000)
    cpu_us = (time.process_time() - cpu_began) / times * 1e6
    return quantile(spent, 0.5), quantile(spent, 0.99), cpu_us


def _fdatasync(file: int, path: str) -> Append:
    data = memoryview(os.urandom(max(APPENDS)))

    def append(offset: int, length: int) -> None:
        os.pwrite(file, data[:length], offset)
        os.fdatasync(file)

    return append


def _rwf_dsync(file: int, path: str) -> Append:
    data = memoryview(os.urandom(max(APPENDS)))

    def append(offset: int, length: int) -> None:
        os.pwritev(file, [data[:length]], offset, os.RWF_DSYNC)

    return append


def _direct(flags: int) -> Callable[[int, str], Append]:
    def opened(file: int, path: str) -> Append:
        direct = os.open(path, os.O_RDWR | os.O_DIRECT)
        data = mmap.mmap(-1, max(APPENDS) + 2 * PAGE)  # page by page in memory, too
        data.write(os.urandom(len(data)))
        view = memoryview(data)

        def append(offset: int, length: int) -> None:
            begin = offset // PAGE * PAGE
            end = -(-(offset + length) // PAGE) * PAGE
            os.pwritev(direct, [view[: end - begin]], begin, flags)
            if not flags:
                os.fdatasync(direct)

        return append

    return opened


_SETUP, _ENTER = 425, 426  # system calls, the same on each architecture
_WRITE, _FSYNC, _LINK, _DATASYNC, _GETEVENTS = 23, 3, 4, 1, 1
_RINGS_AT, _SQES_AT, _SQE = 0, 0x1000_0000, 64


def _io_uring(file: int, path: str) -> Append:
    """Two entries a call, on a ring of four: the rings' layout is told by the setup (``io_uring_params``)."""
    libc = ctypes.CDLL(None, use_errno=True)

    def call(*arguments: Any) -> int:
        result = int(libc.syscall(*arguments))
        if result < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return result

    params = ctypes.create_string_buffer(120)
    ring = call(_SETUP, 4, params)
    (features,) = struct.unpack_from("<I", params.raw, 20)
    assert features & 1, "one mapping for both rings"
    _, sq_tail, sq_mask, _, _, _, sq_array = struct.unpack_from("<7I", params.raw, 40)
    cq_head, cq_tail, cq_mask, _, _, cqes = struct.unpack_from("<6I", params.raw, 80)
    rings = mmap.mmap(ring, PAGE, offset=_RINGS_AT)
    entries = mmap.mmap(ring, PAGE, offset=_SQES_AT)
    data = ctypes.create_string_buffer(os.urandom(max(APPENDS)), max(APPENDS))
    words = memoryview(rings).cast("I")

    def append(offset: int, length: int) -> None:
        tail = words[sq_tail // 4]
        write = (_WRITE, _LINK, 0, file, offset, ctypes.addressof(data), length, 0, 1)
        sync = (_FSYNC, 0, 0, file, 0, 0, 0, _DATASYNC, 2)
        for i, entry in enumerate((write, sync)):
            at = (tail + i) & words[sq_mask // 4]
            struct.pack_into("<BBHiQQIIQ24x", entries, at * _SQE, *entry)
            words[sq_array // 4 + at] = at
        words[sq_tail // 4] = tail + 2
        call(_ENTER, ring, 2, 2, _GETEVENTS, None, 0)
        while words[cq_head // 4] != words[cq_tail // 4]:
            head = words[cq_head // 4]
            (result,) = struct.unpack_from("<i", rings, cqes + (head & words[cq_mask // 4]) * 16 + 8)
            words[cq_head // 4] = head + 1
            if result < 0:
                raise OSError(-result, os.strerror(-result))

    return append


WAYS: dict[str, Callable[[int, str], Append]] = {
    "fdatasync": _fdatasync,
    "new blocks": _fdatasync,
    "RWF_DSYNC": _rwf_dsync,
    "O_DIRECT, fdatasync": _direct(0),
    "O_DIRECT, RWF_DSYNC": _direct(os.RWF_DSYNC),
    "io_uring": _io_uring,
}
