"""Between a member and a service in a process of its own, over a Unix socket: schema 1112.

    service                                            member
      ServiceHello                       ---->
                                         <----   ServiceStart: what it is, and where it starts
                                         <----   LogJoin, LogClose, stream 104; LogLimit as commit-pos moves
      stream 105, ServiceAnswers, ServicePosition ---->    in the order of the log
      SnapshotBegin                      ---->
                                         <----   SnapshotReserved
      ServiceSnapshot, when it is written ---->
      ServiceRaised, ServiceEnd          ---->

Messages of streams 104 and 105 are Aeron's own, each in a frame of its stream; the reserved value of a frame
of stream 105 is the place in the log where the message was offered. Both ends are of one installation: no
other version is understood. Texts are UTF-8.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from cluster.protocol import streams
from cluster.protocol.frame import frame
from cluster.protocol.sbe import Ascii, Blob, Bool32, Buffer, Message, Schema, Version, decode_with, i32, i64

SERVICE_LINK_SCHEMA: Final = Schema("service link", 1112, 1)
SERVICE_LINK_VERSION: Final = 3 << 16  # 3.0.0
_SCHEMAS: Final = {SERVICE_LINK_SCHEMA.id: SERVICE_LINK_SCHEMA}

FRAME_LENGTH_MAX: Final = 32 * 1024 * 1024  # a message of the longest log, and what is around it


class ServiceHello(Message, template_id=1, schema=SERVICE_LINK_SCHEMA):
    """First frame of the service's process."""

    service_id: i32
    pid: i32
    protocol_version: Version


class ServiceStart(Message, template_id=2, schema=SERVICE_LINK_SCHEMA):
    """What the service is, and where it starts: as RecoveryState, with its own snapshot's recording."""

    cluster_id: i32
    member_id: i32
    leadership_term_id: i64  # -1: without a snapshot
    log_position: i64
    timestamp: i64
    snapshot_recording_id: i64
    max_message_length: i64  # bytes
    cycle_threshold_ns: i64
    log_fragment_limit: i32
    app_version: Version
    is_responder: Bool32
    name: Blob
    archive_directory: Blob
    cluster_directory: Blob


class LogJoin(Message, template_id=3, schema=SERVICE_LINK_SCHEMA):
    """A JoinLog, and the recording that holds its log; ``checksum`` is that of its frames, 0 for none."""

    recording_id: i64
    checksum: i64
    join: Blob


class LogClose(Message, template_id=4, schema=SERVICE_LINK_SCHEMA):
    """The joined log ends at ``log_position``."""

    log_position: i64


class LogLimit(Message, template_id=5, schema=SERVICE_LINK_SCHEMA):
    """The log is committed to ``log_position``: of the logs that were joined before, so much may be read."""

    log_position: i64


class SnapshotReserved(Message, template_id=6, schema=SERVICE_LINK_SCHEMA):
    """Where the snapshot is to be written: nowhere without ``descriptor``, with ``why`` for a fault."""

    checksum: i64
    file_sync_level: i32
    descriptor: Blob
    why: Blob = b""


class ServicePosition(Message, template_id=10, schema=SERVICE_LINK_SCHEMA):
    """All of the log up to ``log_position`` is processed, and what came of it was sent before this."""

    log_position: i64
    max_cycle_time_ns: i64
    cycle_time_exceeded: i64


class ServiceAnswers(Message, template_id=11, schema=SERVICE_LINK_SCHEMA):
    """Answers to clients: i64 columns, by ``answers_messages``; the bytes."""

    leadership_term_id: i64
    columns: Blob
    payloads: Blob


class SnapshotBegin(Message, template_id=12, schema=SERVICE_LINK_SCHEMA):
    """The service has come to the snapshot at ``log_position``; what it sent before came before it."""

    log_position: i64


class ServiceRaised(Message, template_id=15, schema=SERVICE_LINK_SCHEMA):
    """An error of a callback, with the fields of ServiceError; without ``callback`` of the container."""

    log_position: i64
    cluster_session_id: i64  # -1: none
    is_reported: Bool32
    callback: Ascii
    cause: Ascii
    place: Blob
    text: Blob
    trace: Blob


class ServiceEnd(Message, template_id=16, schema=SERVICE_LINK_SCHEMA):
    """The process ends, and why; ``is_damage``: what it read of the member's files is damaged."""

    is_damage: Bool32
    why: Blob


def decode_service_link(buffer: Buffer, offset: int, length: int) -> Message | None:
    """A message of this schema. Raises RemoteProtocolError for what is none."""
    return decode_with(_SCHEMAS, buffer, offset, length)


def request_frame(message: bytes, log_position: int) -> bytes:
    """A message of stream 105 that was offered at this place in the log."""
    return frame(message, session_id=0, stream_id=streams.CONSENSUS_MODULE, reserved_value=log_position)


def answers_messages(
    leadership_term_id: int, columns: np.ndarray, buffer: np.ndarray, length_max: int
) -> Iterator[ServiceAnswers]:
    """Answers as messages with about ``length_max`` bytes of columns and payloads each, or one answer.

    ``columns`` has rows of session ids, timestamps, offsets in ``buffer``, lengths, answer ids, and numbers
    of the messages that are answered.
    """
    offsets, lengths = columns[2], columns[3]
    begin, end = int(offsets.min()), int((offsets + lengths).max())
    rows = len(offsets)
    if columns.nbytes + end - begin > length_max and rows > 1:
        half = rows // 2
        yield from answers_messages(leadership_term_id, columns[:, :half], buffer, length_max)
        yield from answers_messages(leadership_term_id, columns[:, half:], buffer, length_max)
        return
    moved = columns.copy()
    moved[2] -= begin
    yield ServiceAnswers(leadership_term_id, moved.tobytes(), buffer[begin:end].tobytes())
