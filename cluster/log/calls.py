"""Calls of compiled code into the operating system and OpenSSL, or whatever stands for them, by addresses.

A kernel that is handed a table of addresses decides nothing about where its calls go: production hands it
libc's, and those of the OpenSSL that Python's own ``ssl`` uses; the simulator its own. All arguments and
results are 64-bit integers; pointers are addresses of arrays that the caller of the kernel keeps. Where the
C function returns int, the lower half of the result counts. Without compilation an "address" is the key of a
Python function in ``PLAIN``.
"""

import ctypes
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from cluster.log.kernel import routine
from cluster.log.memory import get_i64
from cluster.log.openssl import LIBRARY as OPENSSL

# Places in a table of calls, with the C function that each is.
WAIT = 0  # int epoll_wait(int epoll, struct epoll_event *events, int events_max, int timeout_ms)
CLOCK = 1  # int clock_gettime(clockid_t clock, struct timespec *time)
RECEIVE = 2  # ssize_t recv(int socket, void *buffer, size_t length, int flags)
SEND = 3  # ssize_t writev(int socket, const struct iovec *pieces, int count)
WRITE = 4  # ssize_t pwrite(int file, const void *buffer, size_t length, off_t offset)
SYNC_DATA = 5  # int fdatasync(int file)
SYNC = 6  # int fsync(int file)
SYNC_RANGE = 7  # int sync_file_range(int file, off_t offset, off_t length, unsigned flags)
ERROR_NUMBER = 8  # int *__errno_location(void)
TLS_READ = 9  # int SSL_read(SSL *tls, void *buffer, int length)
TLS_WRITE = 10  # int SSL_write(SSL *tls, const void *buffer, int length)
TLS_ERROR = 11  # int SSL_get_error(const SSL *tls, int returned)
TLS_INCOMING = 12  # BIO *SSL_get_rbio(const SSL *tls)
TLS_OUTGOING = 13  # BIO *SSL_get_wbio(const SSL *tls)
BIO_READ = 14  # int BIO_read(BIO *bio, void *buffer, int length)
BIO_WRITE = 15  # int BIO_write(BIO *bio, const void *buffer, int length)
BIO_CONTROL = 16  # long BIO_ctrl(BIO *bio, int command, long number, void *pointer)
TLS_CLEAR_ERRORS = 17  # void ERR_clear_error(void)
CALLS = 18
MONOTONIC = 1  # CLOCK_MONOTONIC

_NAMES = {
    WAIT: "epoll_wait",
    CLOCK: "clock_gettime",
    RECEIVE: "recv",
    SEND: "writev",
    WRITE: "pwrite64",
    SYNC_DATA: "fdatasync",
    SYNC: "fsync",
    SYNC_RANGE: "sync_file_range",
    ERROR_NUMBER: "__errno_location",
}
_TLS_NAMES = {
    TLS_READ: "SSL_read",
    TLS_WRITE: "SSL_write",
    TLS_ERROR: "SSL_get_error",
    TLS_INCOMING: "SSL_get_rbio",
    TLS_OUTGOING: "SSL_get_wbio",
    BIO_READ: "BIO_read",
    BIO_WRITE: "BIO_write",
    BIO_CONTROL: "BIO_ctrl",
    TLS_CLEAR_ERRORS: "ERR_clear_error",
}

PLAIN: dict[int, Callable[..., int]] = {}

_INT = ir.IntType(64)
_LIBRARY = ctypes.CDLL(None)


def function_address(name: str, library: ctypes.CDLL = _LIBRARY) -> int:
    """Where this function of a library, the C library's, is. Raises AttributeError where there is none."""
    function = getattr(library, name)
    function.restype = ctypes.c_int64
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    if config.DISABLE_JIT:  # type: ignore[attr-defined]
        PLAIN[address] = lambda *values: int(function(*map(ctypes.c_int64, values)))
    return address


class Calls(Protocol):
    """What compiled code reaches the world by."""

    table: np.ndarray  # addresses

    def raise_failure(self) -> None:
        """Raise what a call met that is no error of the operating system."""


class SystemCalls:
    """The C library's and OpenSSL's. A call that they lack has the address 0."""

    def __init__(self) -> None:
        self.table = np.zeros(CALLS, np.int64)
        for library, names in ((_LIBRARY, _NAMES), (OPENSSL, _TLS_NAMES)):
            for place, name in names.items():
                if hasattr(library, name):
                    self.table[place] = function_address(name, library)

    def raise_failure(self) -> None:
        """Nothing can be raised within a call."""


SYSTEM_CALLS = SystemCalls()


def _call_at(typing_context, address, *arguments):  # type: ignore[no-untyped-def]
    def codegen(context, builder, signature, values):  # type: ignore[no-untyped-def]
        function_type = ir.FunctionType(_INT, [_INT] * len(arguments))
        function = builder.inttoptr(values[0], function_type.as_pointer())
        return builder.call(function, cgutils.unpack_tuple(builder, values[1]))

    return types.int64(types.int64, types.Tuple([types.int64] * len(arguments))), codegen


def _address_of(typing_context, array, offset):  # type: ignore[no-untyped-def]
    def codegen(context, builder, signature, values):  # type: ignore[no-untyped-def]
        data = context.make_array(signature.args[0])(context, builder, values[0]).data
        return builder.ptrtoint(builder.gep(data, [values[1]]), _INT)

    return types.int64(array, types.int64), codegen


def _i32_at(typing_context, address):  # type: ignore[no-untyped-def]
    def codegen(context, builder, signature, values):  # type: ignore[no-untyped-def]
        word = ir.IntType(32)
        return builder.sext(builder.load(builder.inttoptr(values[0], word.as_pointer())), _INT)

    return types.int64(types.int64), codegen


if not config.DISABLE_JIT:  # type: ignore[attr-defined]
    call_at: Any = intrinsic(_call_at)
    address_of: Any = intrinsic(_address_of)
    i32_at: Any = intrinsic(_i32_at)
else:

    def call_at(address, *arguments):  # type: ignore[no-untyped-def]
        return PLAIN[int(address)](*map(int, arguments))

    def address_of(array, offset):  # type: ignore[no-untyped-def]
        return array.ctypes.data + int(offset) * array.itemsize

    def i32_at(address):  # type: ignore[no-untyped-def]
        return ctypes.c_int32.from_address(int(address)).value


@routine
def error_number(calls):  # type: ignore[no-untyped-def]
    """Of the call before, which failed."""
    return i32_at(call_at(calls[ERROR_NUMBER]))


def _view(array_type: types.Array) -> Any:
    """An intrinsic that makes an array of ``length`` items at an address."""

    def view(typing_context, address, length):  # type: ignore[no-untyped-def]
        def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            array = context.make_array(array_type)(context, builder)
            item_size = context.get_abi_sizeof(context.get_data_type(array_type.dtype))
            size = ir.Constant(arguments[1].type, item_size)
            populate_array(
                array,
                data=builder.inttoptr(arguments[0], array.data.type),
                shape=[arguments[1]],
                strides=[size],
                itemsize=size,
                meminfo=None,
            )
            return array._getvalue()

        return array_type(types.int64, types.int64), codegen

    return intrinsic(view)


def viewer(dtype: np.dtype, array_type: types.Array) -> Any:
    """A function that compiled code calls: the array of ``length`` items at an address."""
    if not config.DISABLE_JIT:  # type: ignore[attr-defined]
        return _view(array_type)

    def view(address, length):  # type: ignore[no-untyped-def]
        memory = (ctypes.c_uint8 * (int(length) * dtype.itemsize)).from_address(int(address))
        array = np.frombuffer(memoryview(memory), dtype)
        array.flags.writeable = array_type.mutable
        return array

    return view


@routine
def read_monotonic(calls, out, at):  # type: ignore[no-untyped-def]
    """The monotonic clock in nanoseconds, by a struct timespec at ``out[at]``."""
    call_at(calls[CLOCK], MONOTONIC, address_of(out, at))
    return get_i64(out, at) * 1_000_000_000 + get_i64(out, at + 8)
