"""A log buffer's file, mapped: what a publication writes and an image reads (Aeron: LogBuffers)."""

from __future__ import annotations

from cluster.errors import MediaDriverError, RemoteProtocolError
from cluster.media.cnc_file import map_shared
from cluster.protocol.media import LOG_METADATA_LENGTH, LogBufferMetadata, decode_log_metadata


class LogBuffers:
    """Three terms and their metadata in ``buffer``, whose lengths are checked once."""

    def __init__(self, path: str) -> None:
        """Raises MediaDriverError for a file that is not there, or none of a log buffer."""
        try:
            self.buffer = map_shared(path)
        except (OSError, ValueError) as error:
            raise MediaDriverError(f"log buffer {path}: {error}") from None
        if self.buffer.size < LOG_METADATA_LENGTH:
            raise MediaDriverError(f"log buffer {path} has {self.buffer.size} bytes")
        self.address: int = self.buffer.ctypes.data
        self.metadata_offset = self.buffer.size - LOG_METADATA_LENGTH
        try:
            metadata = decode_log_metadata(self.buffer[self.metadata_offset :], self.buffer.size)
        except RemoteProtocolError as error:
            raise MediaDriverError(f"log buffer {path}: {error}") from None
        self.term_length = metadata.term_length
        self.initial_term_id = metadata.initial_term_id
        self.mtu_length = metadata.mtu_length

    @property
    def metadata(self) -> LogBufferMetadata:
        """As it is now."""
        return LogBufferMetadata.decode_record(self.buffer, self.metadata_offset)
