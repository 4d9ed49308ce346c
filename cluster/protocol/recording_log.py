"""recording.log: the leadership terms of a member's log, and its snapshots. No file header, no SBE header.

    0      8      16     24     32     40   44   48                     64
    |recId |termId|base  |logPos|time  |svc |type| archive endpoint of a standby snapshot, else unspecified

Entries lie back to back at multiples of 64, in the order they were appended; a reader keeps them sorted
(`sort_key`). An entry is closed or made invalid in place; the file never shrinks. Where Aeron leaves the
bytes from 48 on to chance, ours holds a checksum of the entry (`seal_entry`).
Source: RecordingLog of Aeron Cluster. Nothing here does I/O.
"""

import struct
import zlib
from collections.abc import Iterable, Iterator
from enum import Enum, auto
from typing import Any, Final, NamedTuple, Self

from cluster.errors import LocalProtocolError, LogDamaged
from cluster.protocol.enums import RecordingLogEntryType
from cluster.protocol.frame import align
from cluster.protocol.sbe import NULL_POSITION as NULL_POSITION
from cluster.protocol.sbe import Ascii, Buffer, Composite, i32, i64

RECORDING_LOG_FILE_NAME: Final = "recording.log"
ENTRY_ALIGNMENT: Final = 64
ENTRY_LENGTH_MAX: Final = 4096
ENDPOINT_LENGTH_MAX: Final = ENTRY_LENGTH_MAX - 52
INVALID_FLAG: Final = 1 << 31
REMOVED: Final = -1  # as type: skipped, but it still counts for the entry index
CONSENSUS_MODULE_SERVICE_ID: Final = -1

TERM = RecordingLogEntryType.TERM
SNAPSHOT = RecordingLogEntryType.SNAPSHOT
STANDBY_SNAPSHOT = RecordingLogEntryType.STANDBY_SNAPSHOT


class EntryRecord(Composite):
    """The 48 bytes that every entry begins with."""

    recording_id: i64
    leadership_term_id: i64
    term_base_log_position: i64
    log_position: i64
    timestamp: i64
    service_id: i32
    entry_type: i32


class StandbyTail(Composite):
    """What follows them in a standby snapshot's entry."""

    archive_endpoint: Ascii


assert EntryRecord.BLOCK_LENGTH == 48
# After them in our entries, and at the end of those for standby snapshots that have room: magic, slot (the
# entry's offset / 64), CRC-32 of all before it. Aeron writes there what its buffer has left of some other
# entry: that sum names another slot.
SEAL = struct.Struct("<II")
_CHECKSUM = struct.Struct("<I")
_SEAL_LENGTH: Final = SEAL.size + _CHECKSUM.size
SEAL_MAGIC: Final = 0x4C41_4553  # "SEAL"; as the length of an endpoint it is out of bounds
assert EntryRecord.BLOCK_LENGTH + _SEAL_LENGTH <= ENTRY_ALIGNMENT
ENTRY_TYPE_OFFSET: Final = EntryRecord.offset_of("entry_type")  # in an entry, to remove it
ENTRY_LENGTH_MIN: Final = 49  # a reader stops where fewer bytes are left


class RecordingLogEntry(NamedTuple):
    """One term, or one recording of a snapshot.

    Of a term: ``log_position`` is its end, excluded, -1 while it is open; ``timestamp`` its start in cluster
    time. Of a snapshot: the position it was taken at, and the timestamp of that action; ``service_id`` is
    -1 for the consensus module. ``entry_index`` counts entries of the file, removed ones included;
    ``offset`` is the file offset; both are -1 for an entry that is in no file.
    """

    recording_id: int
    leadership_term_id: int
    term_base_log_position: int
    log_position: int
    timestamp: int
    service_id: int
    entry_type: RecordingLogEntryType
    archive_endpoint: str = ""
    is_valid: bool = True
    entry_index: int = -1
    offset: int = -1

    @classmethod
    def of(cls, record: Any, entry_type: RecordingLogEntryType, **more: Any) -> Self:
        """Of a record whose first six fields are those of an entry."""
        fields: Any = (*record[:6], entry_type)
        return cls(*fields, **more)

    @property
    def length(self) -> int:
        """Bytes that it takes in the file."""
        if self.entry_type is not STANDBY_SNAPSHOT:
            return ENTRY_ALIGNMENT
        return align(52 + len(self.archive_endpoint), ENTRY_ALIGNMENT)


class Seal(Enum):
    """What an entry's checksum says of it."""

    RIGHT = auto()
    NONE = auto()  # Aeron's, or of a version of ours that wrote none
    OUTDATED = auto()  # Aeron has changed the entry in place: a term that was open, a snapshot that was valid


def decode_recording_log(buffer: Buffer) -> Iterator[RecordingLogEntry]:
    """Entries of the file in order, without those removed. Raises LogDamaged at the first that is none."""
    offset = index = 0
    while offset + ENTRY_LENGTH_MIN <= len(buffer):
        entry = decode_recording_log_entry(buffer, offset, index)
        if entry is None:
            offset += ENTRY_ALIGNMENT
        else:
            yield entry
            offset += entry.length
        index += 1


def decode_recording_log_entry(
    buffer: Buffer, offset: int, entry_index: int = -1
) -> RecordingLogEntry | None:
    """The entry at ``offset``; None when it was removed."""
    record = EntryRecord.decode_record(buffer, offset)
    if record.entry_type == REMOVED:
        return None
    is_valid = record.entry_type & INVALID_FLAG == 0
    code = record.entry_type & (INVALID_FLAG - 1)
    if code not in (TERM, SNAPSHOT, STANDBY_SNAPSHOT):
        raise LogDamaged(None, offset + ENTRY_TYPE_OFFSET, f"entry type {code}, expected 0, 1 or 2")
    entry_type = RecordingLogEntryType(code)
    endpoint = ""
    if entry_type is STANDBY_SNAPSHOT:
        limit = min(len(buffer), offset + ENTRY_LENGTH_MAX)
        endpoint = StandbyTail.decode_record(
            buffer, offset + EntryRecord.BLOCK_LENGTH, limit
        ).archive_endpoint
    return RecordingLogEntry.of(
        record,
        entry_type,
        archive_endpoint=endpoint,
        is_valid=is_valid,
        entry_index=entry_index,
        offset=offset,
    )


def encode_recording_log_entry(entry: RecordingLogEntry) -> bytes:
    """The whole entry with zeros up to its aligned length; its index and offset are not in the bytes."""
    code = int(entry.entry_type) if entry.is_valid else entry.entry_type - INVALID_FLAG
    data = EntryRecord(*entry[:6], code).encode_body()
    if entry.entry_type is STANDBY_SNAPSHOT:
        length = len(entry.archive_endpoint)
        if not 0 < length <= ENDPOINT_LENGTH_MAX:
            raise LocalProtocolError(
                f"archive endpoint of {length} bytes, expected 1 to {ENDPOINT_LENGTH_MAX}"
            )
        data += StandbyTail(entry.archive_endpoint).encode_body()
    return data.ljust(align(len(data), ENTRY_ALIGNMENT), b"\0")


def seal_entry(entry: RecordingLogEntry) -> bytes:
    """As `encode_recording_log_entry`, with the checksum that belongs to the entry at its ``offset``."""
    data = encode_recording_log_entry(entry)
    offset = _seal_offset(entry)
    if offset is None:
        return data
    head = data[:offset] + SEAL.pack(SEAL_MAGIC, entry.offset // ENTRY_ALIGNMENT)
    return (head + _CHECKSUM.pack(zlib.crc32(head))).ljust(len(data), b"\0")


def _seal_offset(entry: RecordingLogEntry) -> int | None:
    """Where in an entry its checksum begins; None where a standby's endpoint leaves no room."""
    if entry.entry_type is not STANDBY_SNAPSHOT:
        return EntryRecord.BLOCK_LENGTH
    offset = entry.length - _SEAL_LENGTH
    return offset if EntryRecord.BLOCK_LENGTH + 4 + len(entry.archive_endpoint) <= offset else None


def seal_of(buffer: Buffer, entry: RecordingLogEntry) -> Seal:
    """What the checksum of ``entry`` covers. Raises LogDamaged for one that is wrong, and not outdated."""
    offset = _seal_offset(entry)
    if offset is None:
        return Seal.NONE
    seal = slice(offset, offset + _SEAL_LENGTH)
    found = bytes(buffer[entry.offset : entry.offset + entry.length])[seal]
    expected = seal_entry(entry)[seal]
    if found[: SEAL.size] != expected[: SEAL.size]:
        return Seal.NONE
    if found == expected:
        return Seal.RIGHT
    is_term = entry.entry_type is TERM
    before = entry._replace(log_position=NULL_POSITION) if is_term else entry._replace(is_valid=True)
    if found == seal_entry(before)[seal]:
        return Seal.OUTDATED
    raise LogDamaged(None, entry.offset, f"checksum mismatch in the entry of term {entry.leadership_term_id}")


_SORT_RANK = {TERM: 0, STANDBY_SNAPSHOT: 1, SNAPSHOT: 2}


def sort_key(entry: RecordingLogEntry) -> tuple[int, ...]:
    """Order in memory: by term and base; a term first; snapshots by position, services from the highest id
    down to 0 and then the consensus module, so that a snapshot is a run that ends with its -1 entry."""
    common = (entry.leadership_term_id, entry.term_base_log_position, _SORT_RANK[entry.entry_type])
    if entry.entry_type is TERM:
        return (*common, entry.entry_index, 0)
    return (*common, entry.log_position, -entry.service_id)


def sort_entries(entries: Iterable[RecordingLogEntry]) -> list[RecordingLogEntry]:
    """Stable sort by `sort_key`."""
    return sorted(entries, key=sort_key)
