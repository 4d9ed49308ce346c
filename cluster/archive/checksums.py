"""Checksums of recordings, as Aeron's archive stores them: in each data frame, instead of its session id.

CRC-32 or CRC-32C over payload and alignment padding; padding frames have none. A catalog entry's covers the
descriptor and the padding behind it. Sources: Checksums, RecordingWriter and ArchiveTool of Aeron's
archive.
"""

import zlib
from collections.abc import Callable, Iterator

import numpy as np

from cluster.archive.files import Buffer
from cluster.errors import ConfigurationError
from cluster.protocol.frame import HEADER_LENGTH, TYPE_DATA, align

NAMES = ("crc32", "crc32c")
_ALIASES = {
    "crc32": "crc32",
    "crc-32": "crc32",
    "org.agrona.checksum.crc32": "crc32",
    "io.aeron.archive.checksum.crc32": "crc32",
    "crc32c": "crc32c",
    "crc-32c": "crc32c",
    "org.agrona.checksum.crc32c": "crc32c",
    "io.aeron.archive.checksum.crc32c": "crc32c",
}


def checksum_named(name: str | None) -> "Checksum | None":
    """The checksum of a configuration: our name or Aeron's; None for none.

    Raises ConfigurationError for another name.
    """
    if name is None or name.lower() in ("", "none"):
        return None
    if name.lower() not in _ALIASES:
        raise ConfigurationError(f"checksum {name!r}: expected none, crc32 or crc32c")
    return Checksum(_ALIASES[name.lower()])


def _crc32c_table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F6_3B78 if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _crc32c_table()


def _crc32c(data: bytes) -> int:
    crc = 0xFFFF_FFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFF_FFFF


class Checksum:
    """One algorithm over runs of whole frames."""

    def __init__(self, name: str) -> None:
        assert name in NAMES
        self.name = name
        self._crc: Callable[[bytes], int] = zlib.crc32 if name == "crc32" else _crc32c

    def of_bytes(self, data: bytes) -> int:
        """The checksum as the signed number that files hold."""
        crc = self._crc(data)
        return crc - (1 << 32) if crc >> 31 else crc

    def stored_form(self, data: Buffer) -> np.ndarray:
        """A copy of whole frames with each data frame's session id replaced by its checksum."""
        out = np.frombuffer(data, np.uint8).copy()
        for offset, end in _data_frames(out):
            checksum = self.of_bytes(out[offset + HEADER_LENGTH : end].tobytes())
            out[offset + 12 : offset + 16] = np.frombuffer(
                checksum.to_bytes(4, "little", signed=True), np.uint8
            )
        return out

    def first_mismatch(self, data: np.ndarray) -> int:
        """Offset of the first data frame of the run whose checksum is wrong; -1 if none."""
        for offset, end in _data_frames(data):
            stored = int.from_bytes(data[offset + 12 : offset + 16].tobytes(), "little", signed=True)
            if stored != self.of_bytes(data[offset + HEADER_LENGTH : end].tobytes()):
                return offset
        return -1


def _data_frames(data: np.ndarray) -> Iterator[tuple[int, int]]:
    offset = 0
    while offset < len(data):
        header = data[offset : offset + 8].tobytes()
        end = offset + align(int.from_bytes(header[:4], "little"))
        if int.from_bytes(header[6:8], "little") == TYPE_DATA:
            yield offset, end
        offset = end
