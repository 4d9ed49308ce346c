"""Where files lie that outlive a member: on this host, or wherever pyarrow has a file system for a URI."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from secrets import token_hex
from typing import TYPE_CHECKING

from cluster.errors import ConfigurationError

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_ASIDE = re.compile(r"(.+)\.[0-9a-f]{8}\.tmp")
_URI = re.compile(r"[a-z][a-z0-9+.-]+:/")
# Where credentials are in a URI: a user and a password before the host, as far as the last @ where the
# password is not encoded, and parameters of such names.
_USER = re.compile(r"(?<=://)([^/?#]*|[^/?#]*:[^?#]*)(?=@)")
_SECRET = re.compile(r"(?<=[?&])([^=&]*(?:key|secret|token|pass|sig|cred)[^=&]*)=[^&#]*", re.IGNORECASE)
MASK = "***"


def masked(where: str) -> str:
    """``where`` for people: of a URI without the credentials that it may have."""
    if not _URI.match(where):
        return where
    return _SECRET.sub(rf"\1={MASK}", _USER.sub(MASK, where))


def file_system_of(where: str) -> tuple[FileSystem, str]:
    """File system and path of a path here, or a URI (file, s3, gs, abfs, hdfs). Raises ConfigurationError."""
    import pyarrow as pa
    from pyarrow import fs

    if not _URI.match(where):
        return fs.LocalFileSystem(), os.path.abspath(where)
    try:
        file_system, path = fs.FileSystem.from_uri(where)
    except (pa.ArrowException, OSError, ValueError) as error:
        shown = masked(where)
        why, *_ = str(error).replace(where, shown).splitlines() or [""]
        raise ConfigurationError(
            f"{shown} cannot be opened; expected a path of this host, or a URI of pyarrow.fs (file, s3, gs, "
            f"abfs, hdfs): {why}"
        ) from None  # its text has the credentials
    return file_system, path.rstrip("/")


@contextmanager
def written_aside(
    file_system: FileSystem,
    path: str,
    *,
    is_folder: bool = False,
    is_sibling: Callable[[str], object] = lambda name: False,
) -> Iterator[str]:
    """Where to write what becomes ``path`` in the end, and nobody else writes; nothing is left of it where
    that fails. What a killed process has left on this host, of ``path`` or of names that are siblings, goes.
    """
    from pyarrow.fs import FileType

    aside = f"{path}.{token_hex(4)}.tmp"
    delete: Callable[[str], None] = file_system.delete_file
    try:
        with ExitStack() as locked:
            if file_system.type_name == "local":
                locked.callback(os.close, _locked(aside, is_folder))
                _remove_abandoned(path, is_sibling)
            yield aside
            file_system.move(aside, path)
    except BaseException:
        with suppress(OSError):
            if file_system.get_file_info(aside).type is FileType.Directory:
                delete = file_system.delete_dir
            delete(aside)
        raise


def _locked(aside: str, is_folder: bool) -> int:
    """Make it, and lock it for as long as this process lives. Raises OSError."""
    if is_folder:
        os.mkdir(aside)
    fd = os.open(aside, os.O_RDONLY if is_folder else os.O_RDWR | os.O_CREAT, 0o666)
    with suppress(OSError):  # a file system without locks: then nobody can lock what is left there, either
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return fd


def _remove_abandoned(path: str, is_sibling: Callable[[str], object]) -> None:
    """What nobody has locked."""
    folder, base = os.path.split(path)
    for name in os.listdir(folder):
        made = _ASIDE.fullmatch(name)
        if made is None or not (made[1] == base or is_sibling(made[1])):
            continue
        left = os.path.join(folder, name)
        with suppress(OSError):
            fd = os.open(left, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.isdir(left):
                    shutil.rmtree(left, ignore_errors=True)
                else:
                    os.unlink(left)
            finally:
                os.close(fd)
