"""How a kernel is compiled: for one signature, at import of its module, into a cache that cannot be stale.

A kernel has constants and functions of other modules compiled into it: after an update that moves a field of
a frame, cached kernels elsewhere would go on with the old place and write wrong logs. So the modules
that kernels share are part of what the cache is checked by (``kernel_cache.py``).
"""

import pkgutil
import zlib
from collections.abc import Callable, Sequence
from typing import Any

from cluster.log.compiler import config, njit

# Every module that the kernels of this folder take constants or functions from.
SHARED_MODULES = (
    "cluster.log.kernel",
    "cluster.log.compiler",
    "cluster.log.routine_code",
    "cluster.log.tables",
    "cluster.log.memory",
    "cluster.log.memory_instructions",
    "cluster.log.ordered",
    "cluster.log.crc",
    "cluster.log.frames",
    "cluster.log.append",
    "cluster.log.session_frames",
    "cluster.log.session_table",
    "cluster.log.message_columns",
    "cluster.log.calls",
    "cluster.log.connection_table",
    "cluster.protocol.declare",
    "cluster.protocol.frame",
    "cluster.protocol.sbe",
    "cluster.protocol.session",
    "cluster.protocol.streams",
)


def _fingerprint(modules: Sequence[str], fingerprint: int = 0) -> int:
    for package, _, module in (name.rpartition(".") for name in modules):
        fingerprint = zlib.crc32(pkgutil.get_data(package, f"{module}.py") or b"", fingerprint)
    return fingerprint


_FINGERPRINT = _fingerprint(SHARED_MODULES)

# Kernels allocate nothing and outlive no argument, so they need no reference counts: counting costs atomic
# operations for each array of each call, of the kernel and of all that was not inlined into it (three
# quarters of the time of ``column_kernels.fill_rows``, a fifth of any kernel's dispatch).
# Nothing calls them as C functions.
_OPTIONS: dict[str, Any] = {"_nrt": False, "no_cfunc_wrapper": True}


def routine(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that kernels call: compiled into each of them, not by itself."""
    if config.DISABLE_JIT:  # type: ignore[attr-defined]
        return function
    from cluster.log.routine_code import Routine, RoutineCompiler  # which need numba

    options = {**_OPTIONS, "no_cpython_wrapper": True, "pipeline_class": RoutineCompiler}
    dispatcher = njit(**options)(function)
    dispatcher.__class__ = Routine
    return dispatcher


def as_python(function: Callable[..., Any]) -> Callable[..., Any]:
    """A routine for Python, which calls it over the memory of tables (``array.data``)."""
    return getattr(function, "py_func", function)


def kernel(
    signature: Any, *, modules: Sequence[str] = (), nogil: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compile the function for exactly this signature, cached; other arguments are a TypeError when called.

    ``modules`` are compiled into it beside those that all kernels share, by their full names. With ``nogil``
    other threads run meanwhile. With NUMBA_DISABLE_JIT=1 the function itself, as plain Python.
    """

    def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
        dispatcher = njit(nogil=nogil, **_OPTIONS)(function)
        if not config.DISABLE_JIT:  # type: ignore[attr-defined]
            assert function.__closure__ is None, "the cache cannot see what it closes over change"
            fingerprint = _fingerprint((function.__module__, *modules), _FINGERPRINT)
            from cluster.log.kernel_cache import KernelCache  # which needs numba

            # Not numba's cache, whose reading prepares for compiling first: 0.2 s of CPU of each process.
            cache = dispatcher._cache = KernelCache(function, fingerprint)  # type: ignore[attr-defined]
            try:
                dispatcher.compile(signature)
            finally:
                cache.release()
            dispatcher.disable_compile()
        return dispatcher

    return compiled
