"""A media driver without a network: its files, made here, and what it would answer.

It takes commands out of the ring, puts answers into the broadcast buffer, and makes counters and log buffers.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from cluster.protocol import cnc
from cluster.protocol.cnc import encode_counter_metadata, encode_counter_value, new_cnc_header, regions
from cluster.protocol.frame import HEADER_LENGTH
from cluster.protocol.media import CLIENT_HEARTBEAT_TYPE, DEFAULT_HEADER_OFFSET, LOG_METADATA_LENGTH

RING, BROADCAST, COUNTERS = 16 * 1024, 16 * 1024, 64
TERM_LENGTH = 64 * 1024
MTU = 1408
OPEN_END = 2**63 - 1


class MadeDriver:
    """Runs when it is told to: ``beat`` is its duty cycle."""

    def __init__(
        self, folder: Path, *, ring: int = RING, broadcast: int = BROADCAST, counters: int = COUNTERS
    ) -> None:
        self.folder = folder
        self.header = new_cnc_header(
            1,
            1,
            to_driver_length=ring + cnc.RING_TRAILER_LENGTH,
            to_clients_length=broadcast + cnc.BROADCAST_TRAILER_LENGTH,
            counters_values_length=counters * cnc.VALUE_LENGTH,
            error_log_length=4096,
        )
        self.path = folder / "cnc.dat"
        self.path.write_bytes(self.header.encode_body().ljust(cnc.file_length(self.header), b"\0"))
        self.file = np.memmap(self.path, np.uint8, "r+")
        self.regions = regions(self.header)
        self.counters = 0
        self._broadcast = broadcast
        self.beat()

    def beat(self, age_ms: int = 0) -> None:
        """The duty cycle ran so long ago."""
        self.put("<q", cnc.consumer_heartbeat_offset(self.header), time.time_ns() // 1_000_000 - age_ms)

    def put(self, form: str, offset: int, *values: int) -> None:
        data = struct.pack(form, *values)
        self.file[offset : offset + len(data)] = np.frombuffer(data, np.uint8)

    def get(self, form: str, offset: int) -> int:
        value: int = struct.unpack_from(form, self.file, offset)[0]
        return value

    # ---- the ring

    def commands(self) -> Iterator[tuple[int, bytes]]:
        """Type and body of each command, which are taken."""
        begin = self.regions.to_driver.offset
        head = self.get("<q", begin + RING + 384)
        while head < self.get("<q", begin + RING + 128):
            at = begin + head % RING
            length, type_id = struct.unpack_from("<ii", self.file, at)
            if type_id != -1:
                yield type_id, self.file[at + 8 : at + length].tobytes()
            head += (length + 7) & ~7
            self.put("<q", begin + RING + 384, head)

    # ---- the broadcast buffer

    def answer(self, type_id: int, body: bytes) -> None:
        """Tell all clients."""
        begin, capacity = self.regions.to_clients.offset, self._broadcast
        tail = self.get("<q", begin + capacity + 8)
        record = len(body) + 8
        to_end = capacity - tail % capacity
        padding = to_end if record > to_end else 0
        end = tail + padding + ((record + 7) & ~7)
        self.put("<q", begin + capacity, end)
        if padding:
            self.put("<ii", begin + tail % capacity, to_end, -1)
        at = begin + (tail + padding) % capacity
        self.file[at + 8 : at + record] = np.frombuffer(body, np.uint8)
        self.put("<ii", at, record, type_id)
        self.put("<q", begin + capacity + 16, tail + padding)
        self.put("<q", begin + capacity + 8, end)

    # ---- counters and log buffers

    def counter(self, type_id: int, key: bytes = b"", value: int = 0) -> int:
        """Allocate one; returns its id."""
        counter_id = self.counters
        self.counters += 1
        metadata = self.regions.counters_metadata.offset + counter_id * cnc.METADATA_LENGTH
        values = self.regions.counters_values.offset + counter_id * cnc.VALUE_LENGTH
        for offset, data in (
            (values, encode_counter_value(value)),
            (metadata, encode_counter_metadata(type_id, key, "made")),
        ):
            self.file[offset : offset + len(data)] = np.frombuffer(data, np.uint8)
        return counter_id

    def value(self, counter_id: int) -> int:
        return self.get("<q", self.regions.counters_values.offset + counter_id * cnc.VALUE_LENGTH)

    def free(self, counter_id: int) -> None:
        self.put("<i", self.regions.counters_metadata.offset + counter_id * cnc.METADATA_LENGTH, -1)

    def heartbeat_counter(self, client_id: int) -> int:
        return self.counter(CLIENT_HEARTBEAT_TYPE, struct.pack("<q", client_id))

    def log_buffer(self, name: str = "log", *, session_id: int = 5, initial_term_id: int = 0) -> Path:
        """The file of a publication that has sent nothing."""
        path = self.folder / name
        path.write_bytes(log_buffer(session_id, initial_term_id))
        return path


def log_buffer(session_id: int = 5, initial_term_id: int = 0) -> bytes:
    """A log buffer in which nothing was written."""
    metadata = bytearray(LOG_METADATA_LENGTH)
    tails = [initial_term_id, initial_term_id - 2, initial_term_id - 1]
    struct.pack_into("<qqq", metadata, 0, *(term_id << 32 for term_id in tails))
    struct.pack_into("<q", metadata, 128, OPEN_END)
    struct.pack_into("<i", metadata, 136, 1)
    struct.pack_into("<iiiii", metadata, 264, initial_term_id, HEADER_LENGTH, MTU, TERM_LENGTH, 4096)
    struct.pack_into(
        "<iBBHiiii", metadata, DEFAULT_HEADER_OFFSET, 0, 0, 0xC0, 1, 0, session_id, 7, initial_term_id
    )
    return bytes(3 * TERM_LENGTH) + bytes(metadata)
