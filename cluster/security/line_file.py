"""A file of whole lines that people read, and that does not grow without an end."""

import errno
import os
import threading
from contextlib import suppress

from cluster.archive.files import open_regular
from cluster.errors import StorageError, StorageErrors


class LineFile:
    """Takes lines from any thread, into a regular file that becomes ``PATH.1`` beyond ``bytes_max``."""

    def __init__(self, path: str, bytes_max: int) -> None:
        """Raises StorageError."""
        self._path = path
        self.bytes_max = bytes_max
        self._is_torn = False  # ends in half a line
        self._lock = threading.RLock()  # a signal's handler may write too
        with StorageErrors(path, "cannot be opened"):
            self._open()

    def append(self, lines: bytes) -> None:
        """Raises OSError when the disk does not take all of it; the file then ends as it did before."""
        with self._lock:
            size = os.fstat(self._fd).st_size
            if size and size + len(lines) > self.bytes_max:
                self._begin_again()
                size = 0
            data = b"\n" + lines if self._is_torn else lines
            try:
                taken = 0
                while taken < len(data):
                    taken += os.write(self._fd, data[taken:])
            except OSError:
                self._cut(size)
                raise
            self._is_torn = False

    def reopen(self) -> None:
        """Go on in the file that has the name now. Raises OSError; the one before stays in use then."""
        with self._lock:
            before = self._fd
            try:
                self._open()
            except StorageError as error:
                raise OSError(errno.EINVAL, str(error)) from None
            os.close(before)

    def _cut(self, size: int) -> None:
        try:
            os.ftruncate(self._fd, size)
        except OSError:
            self._is_torn = True  # the next line must not join what is there

    def _begin_again(self) -> None:
        with suppress(FileNotFoundError):  # moved by somebody, or no new file could be made the last time
            os.replace(self._path, f"{self._path}.1")
        self.reopen()

    def _open(self) -> None:
        path = os.path.realpath(self._path)  # an operator may have logs on another disk
        self._fd = open_regular(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        size = os.fstat(self._fd).st_size
        self._is_torn = size > 0 and os.pread(self._fd, 1, size - 1) != b"\n"

    def close(self) -> None:
        os.close(self._fd)
