"""The checksum of a catalog entry, and the names of checksums in a configuration.

It covers the descriptor and the padding after it, and is 0 where the frames of the recording hold none. The
checksums themselves, and their place in frames, are in ``cluster/log/checksum.py``; ``frame_checksum.py``
finds which of them the frames of a recording hold. Sources: Checksums and ArchiveTool of Aeron's archive.
"""

import numpy as np

from cluster.errors import ConfigurationError
from cluster.log.checksum import Checksum, compute
from cluster.protocol.catalog import CatalogEntry

_NAMES = {
    "crc32": Checksum.CRC_32,
    "crc-32": Checksum.CRC_32,
    "org.agrona.checksum.crc32": Checksum.CRC_32,
    "io.aeron.archive.checksum.crc32": Checksum.CRC_32,
    "crc32c": Checksum.CRC_32C,
    "crc-32c": Checksum.CRC_32C,
    "org.agrona.checksum.crc32c": Checksum.CRC_32C,
    "io.aeron.archive.checksum.crc32c": Checksum.CRC_32C,
}
NAMES = {None: "none", Checksum.CRC_32: "crc32", Checksum.CRC_32C: "crc32c"}


def checksum_named(name: str | None) -> Checksum | None:
    """The checksum by our short name or one of Aeron's; None for none. Raises ConfigurationError."""
    if name is None or name.lower() in ("", "none"):
        return None
    if name.lower() not in _NAMES:
        raise ConfigurationError(f"checksum {name!r}: expected none, crc32 or crc32c")
    return _NAMES[name.lower()]


def descriptor_checksum(checksum: Checksum, data: bytes) -> int:
    """Of a catalog entry's descriptor and padding."""
    return compute(checksum, np.frombuffer(data, np.uint8), 0, len(data))


def entry_checksum(entry: CatalogEntry, data: bytes, stale: Checksum) -> Checksum | None:
    """What a catalog entry says that its frames hold; ``data`` is its descriptor with the padding.

    ``stale`` where the entry has a checksum that is wrong by either kind: a crash came within a change of it.
    """
    if entry.header.checksum == 0:
        return None
    kinds = (kind for kind in Checksum if descriptor_checksum(kind, data) == entry.header.checksum)
    return next(kinds, stale)
