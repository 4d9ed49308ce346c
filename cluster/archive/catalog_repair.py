"""What one flipped bit has made of a catalog is put back, before anything in it is believed.

    file header                      constant, but for the next recording id, which no entry has
    an entry's length, descriptor    by its checksum (flipped_bit.py)
    an entry's state                 one of three numbers; where it may have been two of them, INVALID
    what follows the last entry      a length and nothing else is no entry

Aeron does not renew an entry's checksum with every change, and a power cut may leave ours half done. So a
wrong one that no single bit explains is no damage.
"""

from collections.abc import Iterator
from typing import NamedTuple

from cluster.archive.catalog_checksum import descriptor_checksum
from cluster.archive.flipped_bit import LENGTH_MAX, flipped_bit
from cluster.errors import LogDamaged
from cluster.log.checksum import Checksum
from cluster.protocol.catalog import (
    CHECKSUM_OFFSET,
    HEADER_LENGTH,
    NEXT_RECORDING_ID_OFFSET,
    STATE_OFFSET,
    RecordingDescriptor,
    decode_catalog_header,
    first_entry_offset,
    new_catalog_header,
)
from cluster.protocol.enums import RecordingState

_RECORDING_ID_OFFSET = HEADER_LENGTH + RecordingDescriptor.offset_of("recording_id")
_ENTRY_LENGTH_MIN = HEADER_LENGTH + RecordingDescriptor.BLOCK_LENGTH


class PutBack(NamedTuple):
    """Bytes that belong at ``offset`` of the file, and what was wrong with those that were there."""

    offset: int
    data: bytes
    what: str


def put_back_flips(catalog: bytearray) -> list[PutBack]:
    """Change the bytes of a catalog to what they were; return what that took."""
    found: list[PutBack] = []

    def put(offset: int, data: bytes, what: str) -> None:
        found.append(PutBack(offset, data, what))
        catalog[offset : offset + len(data)] = data

    if (header := _header_of(catalog)) is not None:
        put(0, header, "a bit of the header had flipped, it was put back")
    offset = first_entry_offset(decode_catalog_header(catalog))
    last_id = -1
    while offset + _ENTRY_LENGTH_MIN <= len(catalog):
        if (entry := _entry_at(catalog, offset)) is not None:
            put(offset, entry, "a bit of the entry had flipped, it was put back by the entry's checksum")
        length = _number(catalog, offset)
        if length > 0 and not any(catalog[offset + STATE_OFFSET : offset + _ENTRY_LENGTH_MIN]):
            put(offset, bytes(4), "a bit after the last entry had flipped, it was put back")
            break
        if length <= 0:
            break
        state = _number(catalog, offset + STATE_OFFSET)
        if state not in list(RecordingState) and (known := _state_before(state)) is not None:
            put(offset + STATE_OFFSET, known.to_bytes(4, "little"), f"state {state}, counts as {known.name}")
        last_id = max(last_id, _number(catalog, offset + _RECORDING_ID_OFFSET, 8))
        offset += HEADER_LENGTH + length
    next_id = _number(catalog, NEXT_RECORDING_ID_OFFSET, 8)
    if next_id <= last_id:
        what = f"next recording id {next_id}, but {last_id} is taken: it counts as {last_id + 1}"
        put(NEXT_RECORDING_ID_OFFSET, (last_id + 1).to_bytes(8, "little"), what)
    return found


def _number(catalog: bytes | bytearray, offset: int, length: int = 4) -> int:
    return int.from_bytes(catalog[offset : offset + length], "little", signed=True)


def _header_of(catalog: bytearray) -> bytes | None:
    """The file's header as it was; None where it can be read, or more than one bit is wrong."""
    try:
        decode_catalog_header(catalog)
    except LogDamaged:
        expected = new_catalog_header(_number(catalog, NEXT_RECORDING_ID_OFFSET, 8)).encode_body()
        differing = int.from_bytes(expected) ^ int.from_bytes(catalog[:HEADER_LENGTH])
        return expected if differing.bit_count() == 1 else None
    return None


def _entry_at(catalog: bytearray, offset: int) -> bytes | None:
    """The bytes from an entry on, as they were; None where its checksum is right, or 0, or shows nothing."""
    data = bytes(catalog[offset : offset + HEADER_LENGTH + LENGTH_MAX])
    if _number(data, CHECKSUM_OFFSET) == 0 or _is_right(data):
        return None
    turned = (_turned(data, bit) for bit in _suspects(data))
    return next(filter(_is_right, turned), None)


def _turned(data: bytes, bit: int) -> bytes:
    turned = bytearray(data)
    turned[bit // 8] ^= 1 << bit % 8
    return bytes(turned)


def _suspects(entry: bytes) -> Iterator[int]:
    """If one bit of an entry has flipped, it is among these: of its length, its checksum or its body."""
    yield from range(32)
    body, checksum = _body(entry), _number(entry, CHECKSUM_OFFSET)
    for kind in Checksum:
        difference = (descriptor_checksum(kind, body) ^ checksum) & 0xFFFF_FFFF
        if difference.bit_count() == 1:
            yield 8 * CHECKSUM_OFFSET + difference.bit_length() - 1
        if (bit := flipped_bit(kind, body, checksum)) is not None:
            yield 8 * HEADER_LENGTH + bit


def _body(entry: bytes) -> bytes:
    """What an entry's checksum covers; empty where the length cannot be."""
    length = _number(entry, 0)
    return entry[HEADER_LENGTH : HEADER_LENGTH + length] if 0 < length <= len(entry) - HEADER_LENGTH else b""


def _is_right(entry: bytes) -> bool:
    body, checksum = _body(entry), _number(entry, CHECKSUM_OFFSET)
    return body != b"" and any(descriptor_checksum(kind, body) == checksum for kind in Checksum)


def _state_before(state: int) -> RecordingState | None:
    """The state of which one bit has flipped; None where none is that near."""
    near = [known for known in RecordingState if ((state ^ known) & 0xFFFF_FFFF).bit_count() == 1]
    return near[0] if len(near) == 1 else RecordingState.INVALID if near else None
