"""Where files lie that outlive a member: on this host, or wherever pyarrow has a file system for a URI."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from cluster.errors import ConfigurationError

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_URI = re.compile(r"[a-z][a-z0-9+.-]+:/")


def file_system_of(where: str) -> tuple[FileSystem, str]:
    """The file system of a path here, or of a URI of pyarrow (file, s3, gs, abfs, hdfs), and the path in it.

    Raises ConfigurationError for a URI that pyarrow does not know.
    """
    import pyarrow as pa
    from pyarrow import fs

    if not _URI.match(where):
        return fs.LocalFileSystem(), os.path.abspath(where)
    try:
        file_system, path = fs.FileSystem.from_uri(where)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ConfigurationError(
            f"{where} cannot be opened; expected a path of this host, or a URI of pyarrow.fs (file, s3, gs, "
            f"abfs, hdfs): {error}"
        ) from error
    return file_system, path.rstrip("/")
