"""numba, or nothing of it where it is not installed: then kernels are the Python that they are written as."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numba import config, njit, types
else:
    try:
        from numba import config, njit, types
    except ImportError:

        class _Uncompiled:
            """Of every type and every signature."""

            def __call__(self, *arguments: object, **options: object) -> _Uncompiled:
                return self

            def __getattr__(self, name: str) -> _Uncompiled:
                return self

        class config:
            DISABLE_JIT = True

        types = _Uncompiled()

        def njit(function: Callable[..., Any] | None = None, **options: object) -> Callable[..., Any]:
            return (lambda decorated: decorated) if function is None else function


__all__ = ["config", "njit", "types"]
