"""promises.dat: whether a member knows what it has promised, and whom it knows to have forgotten.

A PromiseStatement of schema 1111 with its header, as it is sent to others, and the CRC-32 of that (u32). A
directory without it is new, or older than it.
"""

import struct
import zlib

from cluster.archive.files import Files, read_at_rest, replace
from cluster.errors import LogDamaged, RemoteProtocolError, StorageError
from cluster.protocol import decode
from cluster.protocol.link import PromiseStatement

PROMISES_FILE_NAME = "promises.dat"
_CRC = struct.Struct("<I")


def read_promises(files: Files, directory: str) -> PromiseStatement | None:
    """The statement in a cluster directory, None without one. Raises LogDamaged, StorageError."""
    path = f"{directory}/{PROMISES_FILE_NAME}"
    try:
        if not files.exists(path):
            return None
        file = files.open(path)
        try:
            data = read_at_rest(file, file.size())
        finally:
            file.close()
    except OSError as error:
        raise StorageError(path, error.errno, "reading failed") from error
    body, crc = data[: -_CRC.size], data[-_CRC.size :]
    if crc != _CRC.pack(zlib.crc32(body)):
        raise LogDamaged(path, 0, "its checksum is not that of its bytes")
    try:
        statement = decode(body)
    except RemoteProtocolError as error:
        raise LogDamaged(path, 0, str(error)) from None
    if not isinstance(statement, PromiseStatement):
        raise LogDamaged(path, 0, "it holds no PromiseStatement")
    return statement


def write_promises(files: Files, directory: str, statement: PromiseStatement) -> None:
    """Replace it, in one step. Raises StorageError."""
    body = statement.encode()
    replace(files, f"{directory}/{PROMISES_FILE_NAME}", body + _CRC.pack(zlib.crc32(body)))
