"""Which checksum an archive is configured with, and what a recording's own bytes tell about it.

The checksums themselves, and where they stand in frames, are in ``cluster/log/checksum.py``. A catalog
entry's covers the descriptor and the padding behind it. Sources: Checksums and ArchiveTool of Aeron's
archive.
"""

import numpy as np

from cluster.errors import ConfigurationError
from cluster.log.checksum import Checksum, compute, verify_checksums
from cluster.log.scan import scan
from cluster.protocol.frame import TYPE_DATA, align

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
DETECTION_FRAMES = 8


def checksum_named(name: str | None) -> Checksum | None:
    """The checksum of a configuration, by our short name or one of Aeron's; None for none.

    Raises ConfigurationError for another name.
    """
    if name is None or name.lower() in ("", "none"):
        return None
    if name.lower() not in _NAMES:
        raise ConfigurationError(f"checksum {name!r}: expected none, crc32 or crc32c")
    return _NAMES[name.lower()]


def record_checksum(checksum: Checksum, data: bytes) -> int:
    """Of a catalog entry's descriptor and padding."""
    return compute(checksum, np.frombuffer(data, np.uint8), 0, len(data))


def detect_checksum(run: np.ndarray) -> Checksum | None:
    """The checksum that the first data frames of a run hold in place of session ids; None when they hold
    none.

    One frame in 2**32 would look so by chance; a frame that is damaged does not hide the others.
    """
    end = scan(run, 0, len(run))
    offset = seen = 0
    while offset < end and seen < DETECTION_FRAMES:
        frame_end = offset + align(int.from_bytes(run[offset : offset + 4].tobytes(), "little"))
        if int.from_bytes(run[offset + 6 : offset + 8].tobytes(), "little") == TYPE_DATA:
            seen += 1
            for checksum in Checksum:
                if verify_checksums(checksum, run, offset, frame_end) == frame_end:
                    return checksum
        offset = frame_end
    return None
