"""Files that an operator names: secrets, certificates, rights. They may be links, as Kubernetes makes them.

What a link leads to is what counts: a regular file of root or of this user, that not everybody may write.
Anything else is refused at once; a fifo holds nobody up.
"""

import os
import stat
from pathlib import Path

from cluster.errors import ConfigurationError

BYTES_MAX = 16 * 1024 * 1024


def read_named_file(path: str | Path, bytes_max: int = BYTES_MAX) -> bytes:
    """All of the file. Raises ConfigurationError, which begins with the path and shows no content."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            _check(path, os.fstat(fd))
            with open(fd, "rb", closefd=False) as file:
                data = file.read(bytes_max + 1)
        finally:
            os.close(fd)
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from None
    if len(data) > bytes_max:
        raise ConfigurationError(f"{path}: expected at most {bytes_max} bytes")
    return data


def _check(path: str | Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise ConfigurationError(f"{path}: is no regular file, expected one, or a link to one")
    if found.st_uid not in (0, os.geteuid()):
        raise ConfigurationError(f"{path}: is of user {found.st_uid}, expected {os.geteuid()} or root")
    if found.st_mode & stat.S_IWOTH:
        mode = stat.S_IMODE(found.st_mode)
        raise ConfigurationError(f"{path}: everybody may write it (mode {mode:04o}), expected at most 0664")


def signature(path: str | Path) -> tuple[int, ...]:
    """What changes when the file is written or replaced, or its link moves; empty without a file."""
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
