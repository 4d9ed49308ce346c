"""Routines and tables of kernels: what is compiled once, and what is handed on as a pointer."""

import sys
from typing import NamedTuple

import numpy as np
import pytest
from numba import config, njit

from cluster.log.kernel import kernel, routine
from cluster.log.memory import I64, WORDS_OUT
from cluster.log.tables import tables_type


class Inner(NamedTuple):
    words: np.ndarray


class Outer(NamedTuple):
    words: np.ndarray
    inner: Inner


INNER = tables_type(Inner, (WORDS_OUT,))
OUTER = tables_type(Outer, (WORDS_OUT, INNER))


@routine
def add(t, number):  # type: ignore[no-untyped-def]
    t.words[0] += number
    return t.words[0]


@routine
def double(t, number):  # type: ignore[no-untyped-def]
    return 2 * number + t.words[0]


@kernel(I64(OUTER, I64))
def add_to_both(t, number):  # type: ignore[no-untyped-def]
    add(t, 1)
    add(t, number)
    return 1000 * add(t, 0) + add(t.inner, 3) if number > 0 else -1


def outer():
    return Outer(np.zeros(2, np.int64), Inner(np.zeros(2, np.int64)))


def test_what_is_stored_into_tables_is_read_again_within_a_kernel_and_after_it():
    tables = outer()
    tables.inner.words[0] = 5
    assert add_to_both(tables, 7) == 8008
    assert (tables.words[0], tables.inner.words[0]) == (8, 8)
    count = sys.getrefcount(tables.words), sys.getrefcount(tables.inner.words)
    assert add_to_both(tables, 1) == 10011
    assert count == (sys.getrefcount(tables.words), sys.getrefcount(tables.inner.words))


def test_a_routine_is_called_from_python_too():
    tables = outer()
    assert add(tables, 4) == 4 == tables.words[0]


if not config.DISABLE_JIT:  # else nothing is compiled

    def test_a_routine_is_compiled_once_for_whatever_values_and_has_no_machine_code_of_its_own():
        called = njit(lambda t, number: double(t, number) + double(t, 3) + double(t, 4))
        assert called(outer(), 2) == 18
        (overload,) = double.overloads.values()
        engine = overload.library._codegen._engine
        assert not engine.is_symbol_defined(overload.fndesc.llvm_func_name)

    def test_a_field_that_is_no_such_array_is_an_error_and_nothing_has_run():
        tables = outer()
        with pytest.raises(TypeError, match="unbox array"):
            add_to_both(tables._replace(inner=Inner(None)), 7)
        assert tables.words[0] == 0
