"""Code of routines: linked into that of their kernels, which alone is optimised and becomes machine code.

numba would optimise a routine together with all that it calls, make machine code of it, and do both again for
whatever calls it.
"""

from typing import Any

from numba import jit, types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.registry import CPUDispatcher


class _NoEngine:
    """In place of what runs machine code."""

    @staticmethod
    def set_env(name: str, environment: Any) -> None:
        pass


class _RoutineCode(JITCodeLibrary):
    codegen = _NoEngine

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        self._ensure_finalized()
        return 0  # there is none


class RoutineCompiler(Compiler):
    """What ``njit`` takes as its ``pipeline_class``."""

    def __init__(self, typing_context: Any, target_context: Any, library: None, *others: Any) -> None:
        code = _RoutineCode(target_context.codegen(), "routine")
        super().__init__(typing_context, target_context, code, *others)


class Routine(CPUDispatcher):
    """Of ``RoutineCompiler``: there is no way into its code from Python."""

    in_python: Any = None  # the function, compiled once more with that

    def __call__(self, *arguments: Any) -> Any:
        if self.in_python is None:
            self.in_python = jit(**{**self.targetoptions, "no_cpython_wrapper": False})(self.py_func)
        return self.in_python(*arguments)

    def get_call_template(self, arguments: Any, named: Any) -> Any:
        """One code for all values of an argument, constants too."""
        return super().get_call_template(
            [types.unliteral(a) for a in arguments], {k: types.unliteral(a) for k, a in named.items()}
        )
