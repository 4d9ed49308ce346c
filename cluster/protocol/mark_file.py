"""Mark files: who owns a directory, and since when it lives. Of cluster components and of the archive.

    0                 8          136                      8192
    | message header  | block    | strings (u32 + ASCII)  | distinct error log, errorBufferLength bytes
    | 128,200,110|100,2 | 128 bytes

SBE messages: schema 110 (cluster) or 100 (archive), template 200. Files of the oldest kind have no message
header: the block begins at 0 (`is_legacy`). ``version`` is 0 until the owner is ready, -1 when its start
failed; the activity timestamp is refreshed every second, -1 after an orderly end, 2**63 - 1 during a start.
Where Aeron leaves the end of a cluster mark file's block unused, ours has a checksum of its owner.
Sources: ClusterMarkFile, ArchiveMarkFile, aeron-cluster-mark-codecs.xml, aeron-archive-mark-codecs.xml.
"""

import struct
import zlib
from typing import Annotated, Final, TypeAlias, TypeVar

from cluster.errors import ConfigurationError, LogDamaged
from cluster.protocol import sbe
from cluster.protocol.enums import ClusterComponentType
from cluster.protocol.frame import align
from cluster.protocol.recording_log import SEAL, SEAL_MAGIC
from cluster.protocol.sbe import Ascii, Buffer, Message, Schema, Version, at, i32, i64, null, since
from cluster.protocol.versions import ARCHIVE_VERSION, MARK_FILE_VERSION, check_major

CLUSTER_MARK_FILE_NAME: Final = "cluster-mark.dat"
ARCHIVE_MARK_FILE_NAME: Final = "archive-mark.dat"
MARK_FILE_HEADER_LENGTH: Final = 8192
ERROR_BUFFER_LENGTH: Final = 1024 * 1024
PAGE_SIZE: Final = 4096

VERSION_NOT_READY: Final = 0
VERSION_FAILED: Final = -1
TERMINATED: Final = -1  # as activity timestamp
ACTIVATING: Final = 2**63 - 1
LIVENESS_TIMEOUT_MS: Final = 10_000  # a younger activity timestamp says that the owner lives

CLUSTER_MARK: Final = Schema("cluster mark file", 110, 2)
ARCHIVE_MARK: Final = Schema("archive mark file", 100, 2)

Length: TypeAlias = Annotated[i32, null(0)]
_OWNER = struct.Struct("<ii")
OWNER_SEAL_OFFSET: Final = sbe.HEADER_LENGTH + 128 - SEAL.size


def service_mark_file_name(service_id: int) -> str:
    """Name of a service container's mark file."""
    return f"cluster-mark-service-{service_id}.dat"


class ClusterMarkFileHeader(Message, template_id=200, schema=CLUSTER_MARK, block_length=128):
    """Of consensus module, service container or backup; -1 in what does not apply. Times in epoch ms."""

    version: Version
    component_type: ClusterComponentType
    activity_timestamp: i64
    start_timestamp: i64
    pid: i64
    candidate_term_id: i64  # -1: it lives in node-state.dat since
    archive_stream_id: i32
    service_stream_id: i32
    consensus_module_stream_id: i32
    ingress_stream_id: i32
    member_id: i32
    service_id: i32
    header_length: i32
    error_buffer_length: i32
    cluster_id: i32
    aeron_directory: Ascii = ""
    control_channel: Ascii = ""
    ingress_channel: Ascii = ""
    service_name: Ascii = ""
    authenticator: Ascii = ""
    services_cluster_dir: Annotated[Ascii, since(1)] = ""


class ArchiveMarkFileHeader(Message, template_id=200, schema=ARCHIVE_MARK, block_length=128):
    """Of an archive. Times in epoch ms."""

    version: Version
    activity_timestamp: Annotated[i64, at(8)]
    start_timestamp: i64
    pid: i64
    control_stream_id: i32
    local_control_stream_id: i32
    events_stream_id: i32
    header_length: Annotated[Length, since(1)] = 0
    error_buffer_length: Annotated[Length, since(1)] = 0
    archive_id: Annotated[i64, at(56), null(-1), since(2)] = -1
    control_channel: Ascii = ""
    local_control_channel: Ascii = ""
    events_channel: Ascii = ""
    aeron_directory: Ascii = ""


MarkFileHeader: TypeAlias = ClusterMarkFileHeader | ArchiveMarkFileHeader
AnyHeader = TypeVar("AnyHeader", ClusterMarkFileHeader, ArchiveMarkFileHeader)


def field_offset(header: type[MarkFileHeader], name: str) -> int:
    """File offset of a field of a file with message header, to update it in place."""
    return sbe.HEADER_LENGTH + header.offset_of(name)


ACTIVITY_TIMESTAMP_OFFSET: Final = field_offset(ClusterMarkFileHeader, "activity_timestamp")
assert ACTIVITY_TIMESTAMP_OFFSET == field_offset(ArchiveMarkFileHeader, "activity_timestamp") == 16


def mark_file_length(error_buffer_length: int = ERROR_BUFFER_LENGTH) -> int:
    """Length of the whole file."""
    return align(MARK_FILE_HEADER_LENGTH + error_buffer_length, PAGE_SIZE)


def is_legacy(header: type[MarkFileHeader], buffer: Buffer) -> bool:
    """Whether the file in ``buffer`` has no message header, as the oldest files."""
    if len(buffer) < sbe.HEADER_LENGTH:
        return False
    _, template_id, schema_id, _ = sbe.read_header(buffer, 0, len(buffer))
    return template_id != header.TEMPLATE_ID or schema_id != header.SCHEMA.id


def owner_seal(cluster_id: int, member_id: int) -> bytes:
    """What stands at ``OWNER_SEAL_OFFSET`` of a cluster mark file of ours."""
    return SEAL.pack(SEAL_MAGIC, zlib.crc32(_OWNER.pack(cluster_id, member_id)))


def check_owner(buffer: Buffer, header: ClusterMarkFileHeader) -> None:
    """Raise LogDamaged where the checksum in the file is of another owner than its ``header`` says."""
    expected = owner_seal(header.cluster_id, header.member_id)
    found = bytes(buffer[OWNER_SEAL_OFFSET : OWNER_SEAL_OFFSET + len(expected)])
    if found[:4] == expected[:4] and found != expected:
        what = f"member {header.member_id} of cluster {header.cluster_id}, but the checksum is another's"
        raise LogDamaged(None, field_offset(ClusterMarkFileHeader, "member_id"), what)


def decode_cluster_mark_file(buffer: Buffer) -> ClusterMarkFileHeader:
    """Header of the file, or of its first 8,192 bytes. Raises LogDamaged."""
    return _decode(ClusterMarkFileHeader, buffer, MARK_FILE_VERSION)


def decode_archive_mark_file(buffer: Buffer) -> ArchiveMarkFileHeader:
    """As `decode_cluster_mark_file`, of an archive."""
    return _decode(ArchiveMarkFileHeader, buffer, ARCHIVE_VERSION)


def _decode(header: type[AnyHeader], buffer: Buffer, expected_version: int) -> AnyHeader:
    limit = min(len(buffer), MARK_FILE_HEADER_LENGTH)
    if is_legacy(header, buffer):
        offset, block_length, version = 0, header.BLOCK_LENGTH, 0
    else:
        if limit < sbe.HEADER_LENGTH:
            raise LogDamaged(None, 0, f"{limit} bytes, no mark file is that short")
        offset = sbe.HEADER_LENGTH
        block_length, _, _, version = sbe.read_header(buffer, 0, limit)
    # First of all the version: what another one means by the rest is not ours to guess.
    if offset + 4 <= limit:
        found = int.from_bytes(bytes(buffer[offset : offset + 4]), "little", signed=True)
        if found not in (VERSION_NOT_READY, VERSION_FAILED):
            check_major(found, expected_version, offset, "mark file")
    return header.decode_record(buffer, offset, limit, block_length, version)


def encode_mark_file_header(header: MarkFileHeader) -> bytes:
    """The first 8,192 bytes of the file. Raises ConfigurationError when its strings do not fit."""
    data = header.encode()
    if len(data) > MARK_FILE_HEADER_LENGTH:
        raise ConfigurationError(
            f"channels and directories of a mark file take {len(data)} bytes, at most "
            f"{MARK_FILE_HEADER_LENGTH} fit: shorten them"
        )
    return data.ljust(MARK_FILE_HEADER_LENGTH, b"\0")


def seal_mark_file_header(header: MarkFileHeader) -> bytes:
    """As `encode_mark_file_header`, with the checksum of its owner in a cluster mark file."""
    data = bytearray(encode_mark_file_header(header))
    if isinstance(header, ClusterMarkFileHeader):
        seal = owner_seal(header.cluster_id, header.member_id)
        data[OWNER_SEAL_OFFSET : OWNER_SEAL_OFFSET + len(seal)] = seal
    return bytes(data)
