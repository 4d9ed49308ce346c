"""cnc.dat, the file that a media driver shares with its clients: where its regions lie, and its counters.

    0        128              + h[4]            + h[8]              + h[12]           + h[16]
    | header | to-driver ring | to-clients      | counters metadata | counters values | error log | to a page
    |        | buffer         | broadcast buffer| 512 a counter     | 128 a counter   |

h[n] is the i32 at offset n of the header: each region's length. The version at offset 0 is 0 until the file
is ready, and written last. Counter ``n`` has its metadata at n * 512 and its value at n * 128 of the regions.
Sources: CncFileDescriptor of Aeron; CountersReader, RingBufferDescriptor and BroadcastBufferDescriptor of
Agrona. What counters there are is in ``counter_types``; nothing here does I/O.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from cluster.errors import LocalProtocolError, LogDamaged
from cluster.protocol.enums import CounterState
from cluster.protocol.frame import align
from cluster.protocol.sbe import Buffer, Composite, Version, i32, i64
from cluster.protocol.versions import CNC_VERSION, check_major

CNC_FILE_NAME: Final = "cnc.dat"
PAGE_SIZE: Final = 4096

RING_TRAILER_LENGTH: Final = 768
BROADCAST_TRAILER_LENGTH: Final = 128
METADATA_LENGTH: Final = 512  # of one counter
VALUE_LENGTH: Final = 128
KEY_LENGTH_MAX: Final = 112
LABEL_LENGTH_MAX: Final = 380
NOT_FREE_FOR_REUSE: Final = 2**63 - 1  # deadline of an allocated counter

# Lengths that the Java driver chooses, trailers included.
TO_DRIVER_LENGTH: Final = 1024 * 1024 + RING_TRAILER_LENGTH
TO_CLIENTS_LENGTH: Final = 1024 * 1024 + BROADCAST_TRAILER_LENGTH
COUNTERS_VALUES_LENGTH: Final = 8 * 1024 * 1024
ERROR_LOG_LENGTH: Final = 4 * 1024 * 1024
CLIENT_LIVENESS_TIMEOUT_NS: Final = 10_000_000_000
DRIVER_TIMEOUT_MS: Final = 10_000  # an older heartbeat says that the driver is gone


class CncHeader(Composite, block_length=128):
    """First 128 bytes of the file."""

    version: Version
    to_driver_length: i32
    to_clients_length: i32
    counters_metadata_length: i32
    counters_values_length: i32
    error_log_length: i32
    client_liveness_timeout_ns: i64
    start_timestamp: i64  # of the driver, epoch ms
    pid: i64
    file_page_size: i32


class Region(NamedTuple):
    """Part of the file: from ``offset``, ``length`` bytes."""

    offset: int
    length: int

    @property
    def end(self) -> int:
        return self.offset + self.length

    def of(self, buffer: Any) -> Any:
        """The region's slice of the whole file."""
        return buffer[self.offset : self.end]


class Regions(NamedTuple):
    """The five regions, in file order."""

    to_driver: Region
    to_clients: Region
    counters_metadata: Region
    counters_values: Region
    error_log: Region


def new_cnc_header(
    start_timestamp: int,
    pid: int,
    *,
    to_driver_length: int = TO_DRIVER_LENGTH,
    to_clients_length: int = TO_CLIENTS_LENGTH,
    counters_values_length: int = COUNTERS_VALUES_LENGTH,
    error_log_length: int = ERROR_LOG_LENGTH,
) -> CncHeader:
    """Header of a file that we write, ready at once: publish it by a rename, or its version last."""
    return CncHeader(
        version=CNC_VERSION,
        to_driver_length=to_driver_length,
        to_clients_length=to_clients_length,
        counters_metadata_length=counters_values_length // VALUE_LENGTH * METADATA_LENGTH,
        counters_values_length=counters_values_length,
        error_log_length=error_log_length,
        client_liveness_timeout_ns=CLIENT_LIVENESS_TIMEOUT_NS,
        start_timestamp=start_timestamp,
        pid=pid,
        file_page_size=PAGE_SIZE,
    )


def regions(header: CncHeader) -> Regions:
    """Where the five regions lie."""
    found, offset = [], CncHeader.BLOCK_LENGTH
    for length in (
        header.to_driver_length,
        header.to_clients_length,
        header.counters_metadata_length,
        header.counters_values_length,
        header.error_log_length,
    ):
        found.append(Region(offset, length))
        offset += length
    return Regions(*found)


def file_length(header: CncHeader) -> int:
    """Length of the whole file: up to the end of the last region's page."""
    return align(regions(header).error_log.end, header.file_page_size or PAGE_SIZE)


def decode_cnc_header(buffer: Buffer, length_of_file: int | None = None) -> CncHeader:
    """The header, for a file of ``length``; of version 0 it is not ready. Raises LogDamaged."""
    header = CncHeader.decode_record(buffer)
    if header.version == 0:
        return header
    check_major(header.version, CNC_VERSION, 0, "cnc.dat")
    length = len(buffer) if length_of_file is None else length_of_file
    found = regions(header)
    for name, region in found._asdict().items():
        if region.length < 0 or region.end > length:
            raise LogDamaged(None, 4, f"region {name} ends at {region.end}, the file has {length} bytes")
    if header.counters_metadata_length < header.counters_values_length // VALUE_LENGTH * METADATA_LENGTH:
        raise LogDamaged(
            None,
            CncHeader.offset_of("counters_metadata_length"),
            f"counters metadata of {header.counters_metadata_length} bytes "
            f"for values of {header.counters_values_length}",
        )
    for field, unit in (
        ("counters_values_length", VALUE_LENGTH),
        ("counters_metadata_length", METADATA_LENGTH),
    ):
        if getattr(header, field) % unit:
            text = f"{field} {getattr(header, field)}, expected a multiple of {unit}"
            raise LogDamaged(None, CncHeader.offset_of(field), text)
    return header


COUNTER_METADATA = np.dtype(
    [
        ("state", "<i4"),  # CounterState, stored last
        ("type_id", "<i4"),
        ("free_for_reuse_deadline", "<i8"),  # epoch ms
        ("key", "u1", (KEY_LENGTH_MAX,)),
        ("label_length", "<i4"),
        ("label", "u1", (LABEL_LENGTH_MAX,)),
    ]
)
COUNTER_VALUE = np.dtype(
    [
        ("value", "<i8"),
        ("registration_id", "<i8"),
        ("owner_id", "<i8"),  # id of the client that allocated it
        ("reference_id", "<i8"),
        ("padding", "u1", (96,)),
    ]
)
assert COUNTER_METADATA.itemsize == METADATA_LENGTH
assert COUNTER_VALUE.itemsize == VALUE_LENGTH
RECORDS_PER_LOOK = 128
LABEL_LENGTH_OFFSET: Final = 128  # in a metadata record
KEY_OFFSET: Final = 16

# Distances from the end of the data area (a power of two) of each buffer; the words between are padding
# that keeps two writers off one cache line.
RING_BUFFER_TRAILER = np.dtype(
    {
        "names": [
            "tail_position",
            "head_cache_position",
            "head_position",
            "correlation_id",
            "consumer_heartbeat",  # epoch ms of the driver's last duty cycle: old or 0 means dead
        ],
        "formats": ["<i8"] * 5,
        "offsets": [128, 256, 384, 512, 640],
        "itemsize": RING_TRAILER_LENGTH,
    }
)


def ring_trailer_offset(header: CncHeader) -> int:
    """File offset of the to-driver ring's trailer; its fields as in `RING_BUFFER_TRAILER`."""
    return regions(header).to_driver.end - RING_TRAILER_LENGTH


def consumer_heartbeat_offset(header: CncHeader) -> int:
    """File offset of the driver's heartbeat, an i64 of epoch ms."""
    assert RING_BUFFER_TRAILER.fields is not None
    return ring_trailer_offset(header) + int(RING_BUFFER_TRAILER.fields["consumer_heartbeat"][1])


class CounterRecord(NamedTuple):
    """One counter as read at one moment; ``key`` is all 112 bytes."""

    counter_id: int
    state: int
    type_id: int
    key: bytes
    label: str
    value: int
    registration_id: int
    owner_id: int
    reference_id: int
    free_for_reuse_deadline: int

    @property
    def is_allocated(self) -> bool:
        return self.state == CounterState.ALLOCATED


def decode_counters(metadata: Buffer, values: Buffer) -> Iterator[CounterRecord]:
    """Counters from both regions, reclaimed ones too, up to the first record that was never used."""
    count = min(len(metadata) // METADATA_LENGTH, len(values) // VALUE_LENGTH)
    metadata_records = np.frombuffer(metadata, COUNTER_METADATA, count)
    for first in range(0, count, RECORDS_PER_LOOK):  # of a large file most was never written
        unused = np.flatnonzero(
            metadata_records["state"][first : first + RECORDS_PER_LOOK] == CounterState.UNUSED
        )
        if len(unused):
            count = first + int(unused[0])
            break
    metadata_records = metadata_records[:count].copy()
    value_records = np.frombuffer(values, COUNTER_VALUE, count)
    lengths = np.clip(metadata_records["label_length"], 0, LABEL_LENGTH_MAX)
    columns = (
        metadata_records["state"].tolist(),
        metadata_records["type_id"].tolist(),
        map(bytes, metadata_records["key"]),
        (
            bytes(label[:length]).decode("latin-1")
            for label, length in zip(metadata_records["label"], lengths.tolist(), strict=True)
        ),
        *(value_records[name].tolist() for name in ("value", "registration_id", "owner_id", "reference_id")),
        metadata_records["free_for_reuse_deadline"].tolist(),
    )
    return map(CounterRecord, range(count), *columns)


def encode_counter_metadata(
    type_id: int,
    key: bytes,
    label: str,
    *,
    state: CounterState = CounterState.ALLOCATED,
    free_for_reuse_deadline: int = NOT_FREE_FOR_REUSE,
) -> bytes:
    """The 512 bytes of a counter's metadata. Store its first four bytes last where readers may look.

    A label too long is cut; a key too long raises LocalProtocolError.
    """
    if len(key) > KEY_LENGTH_MAX:
        raise LocalProtocolError(f"counter key of {len(key)} bytes, at most {KEY_LENGTH_MAX}")
    text = label.encode("ascii", "replace")[:LABEL_LENGTH_MAX]
    record = np.zeros(1, COUNTER_METADATA)
    record["state"] = state
    record["type_id"] = type_id
    record["free_for_reuse_deadline"] = free_for_reuse_deadline
    record["key"][0, : len(key)] = np.frombuffer(key, np.uint8)
    record["label_length"] = len(text)
    record["label"][0, : len(text)] = np.frombuffer(text, np.uint8)
    return record.tobytes()


def encode_counter_value(
    value: int = 0, registration_id: int = 0, owner_id: int = 0, reference_id: int = 0
) -> bytes:
    """The 128 bytes of a counter's value record."""
    record = np.zeros(1, COUNTER_VALUE)
    record["value"] = value
    record["registration_id"] = registration_id
    record["owner_id"] = owner_id
    record["reference_id"] = reference_id
    return record.tobytes()
