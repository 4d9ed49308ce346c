"""Where the compiled code of kernels is kept: the one file of this folder that touches a disk.

numba's own cache needs a folder that it can write, takes a file that was cut for code, and lets processes
that start at once compile the same kernel each. Here code is read where the package has it, and kept in the
first folder that can be written: ``__pycache__``, the user's cache, a private folder for temporary files. A
file begins with a digest over its code and all that the code depends on: the kernel's signature and
sources, numba's version, the processor. What is cut, damaged, stale or another processor's has another
digest. It is compiled again and replaced, by one process; others that need it meanwhile wait, but not for
one that is stopped.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import pickle
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import numba
from numba.core import caching, compiler, config
from numba.core.serialize import dumps

DIGEST_LENGTH = 32

# Longer than the largest kernel takes. Who has waited for as long goes on to the next folder.
LOCK_TIMEOUT_S = 120.0
LOCK_POLL_S = 0.01

COMPILES = "compiling kernels, once per installation"
printed: set[str] = set()  # beginnings of lines that this process need not print again

# Called once by a process that misses a kernel, with the folder for it; it may have all kernels compiled.
before_compiling: Callable[[str], None] | None = None


class KernelCache(caching.NullCache):
    """The cache of one kernel, in numba's place for it; ``fingerprint`` is that of its sources."""

    def __init__(self, function: Callable[..., Any], fingerprint: int) -> None:
        self._name = (
            f"{function.__module__.rpartition('.')[2]}.{function.__name__}.{sys.implementation.cache_tag}"
        )
        self._folder = os.path.dirname(os.path.abspath(function.__code__.co_filename))
        self._compiled = fingerprint, function.__qualname__, function.__code__.co_firstlineno
        self._stamp = b""
        self._path = ""  # where the code goes that is compiled now,
        self._descriptor = -1  # and the locked file that becomes it

    @property
    def cache_path(self) -> str:
        """The package's folder for it, or the one that NUMBA_CACHE_DIR names."""
        return next(self._folders(to_write=False))

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The kept code; None where this process is to compile it, after which comes ``save_overload``."""
        processor = target_context.codegen().magic_tuple()
        self._stamp = repr((numba.__version__, self._compiled, sig, processor)).encode()
        name = f"{self._name}.{hashlib.sha256(repr(processor).encode()).hexdigest()[:8]}.nbc"
        paths = (os.path.join(folder, name) for folder in self._folders(to_write=False))
        data = next((data for path in paths if (data := self._read(path)) is not None), None)
        if data is None:
            data = self._read_or_lock(name)
        return None if data is None else compiler.CompileResult._rebuild(target_context, *pickle.loads(data))

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep what was compiled. A disk that does not take it is reported: it fails nothing."""
        assert not data.library.has_dynamic_globals, "an address in it is this process's alone"
        if self._descriptor < 0:
            return
        code = dumps(data._reduce())
        try:
            with open(self._descriptor, "wb", closefd=False) as file:
                file.truncate()
                file.write(hashlib.sha256(self._stamp + code).digest() + code)
                file.flush()
                os.fsync(self._descriptor)
            os.replace(f"{self._path}.new", self._path)
        except OSError as error:
            _say(f"its kernels are compiled again by each process: {error.strerror}: {self._path}")

    def release(self) -> None:
        """Let others that wait for this kernel go on, whether it was compiled or not."""
        if self._descriptor >= 0:
            if _is_open_file(self._descriptor, f"{self._path}.new"):
                os.unlink(f"{self._path}.new")
            os.close(self._descriptor)
            self._descriptor = -1

    def _folders(self, to_write: bool) -> Iterator[str]:
        """One after the other, so that nothing looks for a temporary one where another has the code."""
        below = f"{os.path.basename(self._folder)}_{hashlib.sha256(self._folder.encode()).hexdigest()[:16]}"
        if config.CACHE_DIR:  # type: ignore[attr-defined]  # untyped in numba
            yield os.path.join(config.CACHE_DIR, below)  # type: ignore[attr-defined]
            return
        yield os.path.join(self._folder, "__pycache__")
        users = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        if os.path.isabs(users):
            yield os.path.join(users, "numba", below)
        with contextlib.suppress(OSError):  # no temporary file can be made
            temporary = os.path.join(tempfile.gettempdir(), f"kernels-{os.getuid()}-{below}")
            if to_write:
                os.makedirs(temporary, 0o700, exist_ok=True)
            if _is_private(temporary):
                yield temporary

    def _read(self, path: str) -> bytes | None:
        try:
            with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
                data = file.read()
        except OSError:
            return None
        digest, code = data[:DIGEST_LENGTH], data[DIGEST_LENGTH:]
        return code if digest == hashlib.sha256(self._stamp + code).digest() else None

    def _read_or_lock(self, name: str) -> bytes | None:
        """Lock the file that takes the code; the code itself if another process has compiled it meanwhile."""
        global before_compiling
        why = "there is no folder"
        for folder in self._folders(to_write=True):
            self._path = os.path.join(folder, name)
            try:
                os.makedirs(folder, exist_ok=True)
                while self._descriptor < 0:
                    self._lock(f"{self._path}.new")
                    code = self._read(self._path)
                    if code is not None:
                        self.release()
                        return code
            except OSError as error:
                why = f"{error.strerror}: {folder}"
                continue
            if before_compiling is None:
                _say(f"{COMPILES}, into {folder}")
                return None
            self.release()
            called, before_compiling = before_compiling, None
            called(folder)
            return self._read_or_lock(name)
        _say(f"compiling kernels for this process alone: {why}")
        return None

    def _lock(self, path: str) -> None:
        """Wait for whoever has the file; whether it became code meanwhile is for the caller to see."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        descriptor = os.open(path, flags, 0o644)
        try:
            _wait_for_lock(descriptor)
            if _is_open_file(descriptor, path):
                self._descriptor = descriptor
        finally:
            if self._descriptor < 0:
                os.close(descriptor)


def _wait_for_lock(descriptor: int) -> None:
    deadline = time.monotonic() + LOCK_TIMEOUT_S
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise TimeoutError(errno.ETIMEDOUT, "another process has locked it") from None
        except OSError:
            return  # a file system without locks: each compiles
        time.sleep(LOCK_POLL_S)


def _is_private(folder: str) -> bool:
    """Whether nobody else can have put code there."""
    try:
        status = os.lstat(folder)
    except OSError:
        return False
    return status.st_uid == os.getuid() and status.st_mode & 0o170022 == 0o040000


def _is_open_file(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except OSError:
        return False


def _say(text: str) -> None:
    """One line of a kind for all kernels of a process."""
    kind = text.partition(":")[0].partition(", into ")[0]
    if kind not in printed and sys.stderr is not None:
        printed.add(kind)
        with contextlib.suppress(OSError, ValueError):
            print(f"cluster: {text}", file=sys.stderr, flush=True)
