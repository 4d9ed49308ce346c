"""node-state.dat: the candidate term below which a member may never go.

    0              8                        24                     48                      64
    | version, pad | 24, 301, 112, 10 | 40 | candidate term, time, | 0, 304, 112, 10 | 16  | magic, CRC-32 of
    |              | frame header     |    | log position          | footer                | the 64 bytes

The last 8 bytes are ours: Aeron reads no further than the footer, and has zeros there. Zeros follow up to
1 MiB.

SBE schema 112, whose message header takes 16 bytes (a frame length and padding more than elsewhere); the
first 8 bytes are the body of template 300 without a header. The next frame is at offset + frame length
aligned to 8; template 304 or a frame length of 0 ends the file. Template 303 (members) is never written.
Source: NodeStateFile and aeron-cluster-node-state-codecs.xml of Aeron Cluster. Nothing here does I/O.
"""

import zlib
from typing import Final, NamedTuple

from cluster.errors import LogDamaged
from cluster.protocol.frame import align
from cluster.protocol.recording_log import SEAL, SEAL_MAGIC
from cluster.protocol.sbe import Buffer, Composite, Version, i32, i64, u16
from cluster.protocol.versions import MARK_FILE_VERSION, check_major

NODE_STATE_FILE_NAME: Final = "node-state.dat"
NODE_STATE_FILE_LENGTH: Final = 1024 * 1024
SCHEMA_ID: Final = 112
SCHEMA_VERSION: Final = 10
CANDIDATE_TERM_TEMPLATE_ID: Final = 301
FOOTER_TEMPLATE_ID: Final = 304
FRAME_ALIGNMENT: Final = 8


class NodeStateHeader(Composite):
    """First 8 bytes."""

    version: Version
    padding: i32 = 0


class FrameHeader(Composite):
    """In front of each record; ``frame_length`` counts it too."""

    block_length: u16
    template_id: u16
    schema_id: u16
    version: u16
    frame_length: i32
    padding: i32 = 0


class CandidateTerm(Composite):
    """What the file is for. ``timestamp`` is epoch ms of the update; the term only ever grows."""

    candidate_term_id: i64  # -1: never voted nor stood
    timestamp: i64
    log_position: i64


class NodeState(NamedTuple):
    """The candidate term, and the file offset of ``candidate_term_id``."""

    candidate_term: CandidateTerm
    offset: int


NEW_CANDIDATE_TERM: Final = CandidateTerm(-1, -1, -1)
assert NodeStateHeader.BLOCK_LENGTH == 8
assert FrameHeader.BLOCK_LENGTH == 16
assert CandidateTerm.BLOCK_LENGTH == 24
CANDIDATE_TERM_OFFSET: Final = NodeStateHeader.BLOCK_LENGTH + FrameHeader.BLOCK_LENGTH  # as we write it


def encode_node_state(candidate_term: CandidateTerm) -> bytes:
    """The first 64 bytes of the file; zeros follow."""
    length = FrameHeader.BLOCK_LENGTH + CandidateTerm.BLOCK_LENGTH
    records = (
        NodeStateHeader(MARK_FILE_VERSION),
        FrameHeader(
            CandidateTerm.BLOCK_LENGTH, CANDIDATE_TERM_TEMPLATE_ID, SCHEMA_ID, SCHEMA_VERSION, length
        ),
        candidate_term,
        FrameHeader(0, FOOTER_TEMPLATE_ID, SCHEMA_ID, SCHEMA_VERSION, FrameHeader.BLOCK_LENGTH),
    )
    return b"".join(record.encode_body() for record in records)


def seal_node_state(candidate_term: CandidateTerm) -> bytes:
    """As `encode_node_state`, with a checksum after it."""
    data = encode_node_state(candidate_term)
    return data + SEAL.pack(SEAL_MAGIC, zlib.crc32(data))


def is_sealed(buffer: Buffer) -> bool:
    """Whether the file has a right checksum; False without one. Raises LogDamaged for a wrong one."""
    begin = CANDIDATE_TERM_OFFSET + CandidateTerm.BLOCK_LENGTH + FrameHeader.BLOCK_LENGTH
    seal = bytes(buffer[begin : begin + SEAL.size]).ljust(SEAL.size, b"\0")
    magic, checksum = SEAL.unpack(seal)
    if magic != SEAL_MAGIC:
        return False
    if checksum != zlib.crc32(buffer[:begin]):
        raise LogDamaged(None, CANDIDATE_TERM_OFFSET, "checksum mismatch in the node state")
    return True


def decode_node_state(buffer: Buffer) -> NodeState:
    """The state in the whole file. Raises LogDamaged when it lacks its record or its footer."""
    header = NodeStateHeader.decode_record(buffer)
    check_major(header.version, MARK_FILE_VERSION, 0, "node state")
    found: NodeState | None = None
    offset = NodeStateHeader.BLOCK_LENGTH
    while True:
        frame = FrameHeader.decode_record(buffer, offset)
        if frame.frame_length == 0:
            raise LogDamaged(None, offset, "node state ends without a footer")
        if frame.schema_id != SCHEMA_ID or frame.frame_length < FrameHeader.BLOCK_LENGTH:
            raise LogDamaged(
                None,
                offset,
                f"schema {frame.schema_id} and frame length {frame.frame_length}, "
                f"expected schema {SCHEMA_ID} and a length of 16 or more",
            )
        if frame.template_id == FOOTER_TEMPLATE_ID:
            break
        if frame.template_id == CANDIDATE_TERM_TEMPLATE_ID:
            begin, limit = offset + FrameHeader.BLOCK_LENGTH, min(offset + frame.frame_length, len(buffer))
            found = NodeState(
                CandidateTerm.decode_record(buffer, begin, limit, frame.block_length, frame.version), begin
            )
        offset += align(frame.frame_length, FRAME_ALIGNMENT)
    if found is None:
        raise LogDamaged(None, offset, "node state has no candidate term before its footer")
    return found
