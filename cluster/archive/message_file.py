"""Small files of ours: a body and its CRC-32 (u32). Most hold a message of schema 1111, header included."""

import struct
import zlib
from contextlib import closing
from typing import TypeVar

from cluster.archive.files import Files, read_at_rest, replace
from cluster.errors import LogDamaged, RemoteProtocolError, StorageErrors
from cluster.protocol import decode
from cluster.protocol.sbe import Message

_CRC = struct.Struct("<I")
_Message = TypeVar("_Message", bound=Message)


def read_checked(files: Files, path: str) -> bytes | None:
    """The bytes before the CRC, None without the file. Raises LogDamaged, StorageError."""
    with StorageErrors(path, "reading failed"):
        if not files.exists(path):
            return None
        with closing(files.open(path)) as file:
            data = read_at_rest(file, file.size())
    body, crc = data[: -_CRC.size], data[-_CRC.size :]
    if crc != _CRC.pack(zlib.crc32(body)):
        raise LogDamaged(path, 0, "its checksum is not that of its bytes")
    return body


def store_checked(files: Files, path: str, body: bytes) -> None:
    """Replace the file, in one step. Raises StorageError."""
    replace(files, path, body + _CRC.pack(zlib.crc32(body)))


def read_stored_message(files: Files, path: str, kind: type[_Message]) -> _Message | None:
    """What the file holds, None without the file. Raises LogDamaged, StorageError."""
    body = read_checked(files, path)
    if body is None:
        return None
    try:
        message = decode(body)
    except RemoteProtocolError as error:
        raise LogDamaged(path, 0, str(error)) from None
    if not isinstance(message, kind):
        raise LogDamaged(path, 0, f"it holds no {kind.__name__}")
    return message


def store_message(files: Files, path: str, message: Message) -> None:
    """Replace it, in one step. Raises StorageError."""
    store_checked(files, path, message.encode())
