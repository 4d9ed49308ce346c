"""archive.catalog: what an archive holds, one descriptor a recording.

    0                 32                                          next multiple of alignment after entry
    | catalog header  | entry                                          | entry ...      | length <= 0: end
    | 32 bytes        | descriptor header 32 | descriptor 80 + strings | pad

SBE bodies of schema 101 (templates 20, 21, 22) without message headers. The header's ``length`` of an entry
counts descriptor and padding, so that the next entry begins at entry + 32 + length. A catalog with
alignment 0 is of an old kind: entries at multiples of 1,024, the first at 1,024.
Source: Catalog and aeron-archive-codecs.xml of Aeron's archive. Nothing here does I/O.
"""

import re
from collections.abc import Callable, Iterator
from typing import Annotated, Final, NamedTuple

from cluster.errors import LogDamaged
from cluster.protocol.enums import RecordingState
from cluster.protocol.frame import align
from cluster.protocol.sbe import NULL_POSITION as NULL_POSITION
from cluster.protocol.sbe import Ascii, Buffer, Composite, Version, at, i8, i32, i64
from cluster.protocol.versions import ARCHIVE_VERSION, check_major

CATALOG_FILE_NAME: Final = "archive.catalog"
CATALOG_CAPACITY_DEFAULT: Final = 1024 * 1024
ALIGNMENT_DEFAULT: Final = 64
LEGACY_ALIGNMENT: Final = 1024
NULL_TIMESTAMP: Final = -1


class CatalogHeader(Composite, block_length=32):
    """First 32 bytes of the file."""

    version: Version
    length: i32  # of this header: 32
    next_recording_id: i64
    alignment: i32
    reserved: Annotated[i8, at(31)] = 0


class RecordingDescriptorHeader(Composite, block_length=32):
    """First 32 bytes of an entry."""

    length: i32  # of the entry without these 32 bytes, padding included
    state: RecordingState
    checksum: i32  # over ``length`` bytes after this header; 0 without checksums
    reserved: Annotated[i8, at(31)] = 0


class RecordingDescriptor(Composite):
    """Timestamps are epoch milliseconds; ``stop_*`` are -1 while it is written or after an unclean stop."""

    control_session_id: i64
    correlation_id: i64
    recording_id: i64
    start_timestamp: i64
    stop_timestamp: i64
    start_position: i64
    stop_position: i64
    initial_term_id: i32
    segment_file_length: i32
    term_buffer_length: i32
    mtu_length: i32
    session_id: i32  # of the latest extension
    stream_id: i32
    stripped_channel: Ascii
    original_channel: Ascii
    source_identity: Ascii


assert CatalogHeader.BLOCK_LENGTH == RecordingDescriptorHeader.BLOCK_LENGTH == 32
assert RecordingDescriptor.BLOCK_LENGTH == 80
HEADER_LENGTH: Final = 32  # of the catalog, and of each entry


class CatalogEntry(NamedTuple):
    """A descriptor and where it lies; ``offset`` is the file offset of its 32-byte header."""

    offset: int
    header: RecordingDescriptorHeader
    descriptor: RecordingDescriptor

    @property
    def end(self) -> int:
        """File offset after the entry, excluded; there the next one begins."""
        return self.offset + HEADER_LENGTH + self.header.length

    @property
    def is_valid(self) -> bool:
        return self.header.state is RecordingState.VALID

    def field_offset(self, name: str) -> int:
        """File offset of a descriptor's field, to update it in place."""
        return self.offset + HEADER_LENGTH + RecordingDescriptor.offset_of(name)


STATE_OFFSET: Final = RecordingDescriptorHeader.offset_of("state")
CHECKSUM_OFFSET: Final = RecordingDescriptorHeader.offset_of("checksum")
NEXT_RECORDING_ID_OFFSET: Final = CatalogHeader.offset_of("next_recording_id")


def new_catalog_header(next_recording_id: int = 0) -> CatalogHeader:
    """Header of a catalog that we write."""
    return CatalogHeader(ARCHIVE_VERSION, HEADER_LENGTH, next_recording_id, ALIGNMENT_DEFAULT)


def decode_catalog_header(buffer: Buffer) -> CatalogHeader:
    """Header at the start of ``buffer``; LogDamaged for another version or a strange length or alignment."""
    header = CatalogHeader.decode_record(buffer)
    check_major(header.version, ARCHIVE_VERSION, 0, "catalog")
    if header.length != HEADER_LENGTH:
        raise LogDamaged(None, 4, f"catalog header length {header.length}, expected {HEADER_LENGTH}")
    if header.alignment < 0 or header.alignment & (header.alignment - 1):
        raise LogDamaged(None, 16, f"catalog alignment {header.alignment}, expected a power of two or 0")
    return header


def first_entry_offset(header: CatalogHeader) -> int:
    """File offset of the first entry."""
    return HEADER_LENGTH if header.alignment else LEGACY_ALIGNMENT


def decode_entries(buffer: Buffer, header: CatalogHeader) -> Iterator[CatalogEntry]:
    """Entries of the whole file, in order. Raises LogDamaged at the first that is none."""
    offset = first_entry_offset(header)
    while offset + HEADER_LENGTH <= len(buffer):
        entry = decode_catalog_entry(buffer, offset)
        if entry is None:
            return
        yield entry
        offset = entry.end


def decode_catalog_entry(buffer: Buffer, offset: int) -> CatalogEntry | None:
    """The entry whose header is at ``offset``; None where the catalog ends."""
    length = int.from_bytes(bytes(buffer[offset : offset + 4]), "little", signed=True)
    if length <= 0:
        return None
    header = RecordingDescriptorHeader.decode_record(buffer, offset)
    begin = offset + HEADER_LENGTH
    if begin + length > len(buffer):
        raise LogDamaged(
            None, offset, f"catalog entry of {length} bytes, {len(buffer) - begin} are left in the file"
        )
    return CatalogEntry(offset, header, RecordingDescriptor.decode_record(buffer, begin, begin + length))


def encode_catalog_entry(
    descriptor: RecordingDescriptor,
    *,
    alignment: int = ALIGNMENT_DEFAULT,
    state: RecordingState = RecordingState.VALID,
    checksum: Callable[[bytes], int] | None = None,
) -> bytes:
    """The whole entry; ``checksum`` gives the i32 (as a signed number) over descriptor and padding."""
    body = descriptor.encode_body()
    length = align(HEADER_LENGTH + len(body), alignment or LEGACY_ALIGNMENT) - HEADER_LENGTH
    body = body.ljust(length, b"\0")
    header = RecordingDescriptorHeader(length, state, checksum(body) if checksum else 0)
    return header.encode_body() + body


_SEGMENT_FILE_NAME = re.compile(r"(0|[1-9][0-9]*)-(0|[1-9][0-9]*)\.rec")  # plain decimals, no leading zeros


def segment_file_name(recording_id: int, segment_base_position: int) -> str:
    """Name of the file that holds a recording's bytes from ``segment_base_position`` on."""
    return f"{recording_id}-{segment_base_position}.rec"


def parse_segment_file_name(name: str) -> tuple[int, int] | None:
    """(recording id, base position), or None for any other file's name."""
    match = _SEGMENT_FILE_NAME.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None
