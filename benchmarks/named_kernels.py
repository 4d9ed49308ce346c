"""The cluster's commands in processes whose compiled functions perf knows by name.

    python -m benchmarks.named_kernels up --dir …        as python -m cluster

perf looks for names of code that has no file in /tmp/perf-PID.map. numba keeps what it has compiled as ELF
objects with symbols; where each object lies in memory is told by one of its functions.
"""

from __future__ import annotations

import atexit
import os
import struct
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from numba.core.codegen import CodeLibrary

_SYMBOL_TABLE, _FUNCTION = 2, 2  # types of a section and of a symbol


def map_path(pid: int) -> Path:
    """Where perf looks for the names of a process."""
    return Path(f"/tmp/perf-{pid}.map")


_images: list[tuple[Any, bytes]] = []  # libraries and their objects, which numba drops once they are loaded


def keep_images() -> None:
    """To be called before kernels are loaded."""
    keep = CodeLibrary._set_compiled_object

    def kept(library: Any, image: bytes) -> None:
        _images.append((library, image))
        keep(library, image)

    CodeLibrary._set_compiled_object = kept


def names_of_kernels() -> str:
    """Lines of address, size and name, of all kernels that were loaded."""
    return "".join(sorted({line for library, image in _images for line in _names_of(library, image)}))


def _names_of(library: Any, image: bytes) -> Iterator[str]:
    engine = library.codegen._engine._ee
    symbols = list(_functions(image))
    # A function that several libraries have is told of one of them, so most of a section's say where it is.
    found = Counter(
        (section, address - offset)
        for section, name, offset, _ in symbols
        if (address := engine.get_function_address(name))
    )
    bases = dict(place for place, _ in reversed(found.most_common()))
    for section, name, offset, size in symbols:
        if section in bases:
            yield f"{bases[section] + offset:x} {size:x} {_readable(name)}\n"


def _functions(image: bytes) -> Iterator[tuple[int, str, int, int]]:
    """Section, name, offset and size of each function of an ELF object of 64 bits."""
    (sections_at,) = struct.unpack_from("<Q", image, 0x28)
    length, count = struct.unpack_from("<HH", image, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", image, sections_at + length * i) for i in range(count)]
    for _, kind, _, _, at, size, strings, *_ in sections:
        for offset in range(at, at + size, 24) if kind == _SYMBOL_TABLE else ():
            name, info, _, section, value, extent = struct.unpack_from("<IBBHQQ", image, offset)
            if info & 15 == _FUNCTION and extent:
                begin = sections[strings][4] + name
                yield section, image[begin : image.index(b"\0", begin)].decode(), value, extent


def _readable(name: str) -> str:
    """Numba's ``_ZN7cluster3log6append10append_runB…`` is ``cluster.log.append.append_run``."""
    parts, rest = [], name.removeprefix("_ZN")
    while rest[:1].isdigit():
        digits = len(rest) - len(rest.lstrip("0123456789"))
        length = int(rest[:digits])
        parts.append(rest[digits : digits + length])
        rest = rest[digits + length :]
    return ".".join(parts) or name


def main() -> int:
    keep_images()
    from cluster.cli.main import main as cluster
    from cluster.node import process  # noqa: F401  # with the kernels that members have

    names = ""

    def collect() -> None:
        nonlocal names
        names = names or names_of_kernels()

    def write() -> None:
        path = map_path(os.getpid())
        path.write_text(names)
        atexit.register(_remove, path)

    os.register_at_fork(before=collect, after_in_child=write)
    return cluster()


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()


if __name__ == "__main__":
    sys.exit(main())
