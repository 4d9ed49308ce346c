"""What a client and an Aeron archive say to each other about its recordings: schema 101.

Only what reading needs. A request carries the id of the control session and a correlation id of the client's,
which comes back in its ``ControlResponse``. Source: aeron-archive-codecs.xml of Aeron. No I/O here.
"""

import struct
from enum import IntEnum
from typing import Annotated, Final, NamedTuple

from cluster.errors import RemoteProtocolError
from cluster.protocol.catalog import RecordingDescriptor
from cluster.protocol.sbe import (
    HEADER_LENGTH,
    NULL_I32,
    NULL_I64,
    Ascii,
    Blob,
    Buffer,
    Message,
    Schema,
    Version,
    decode_with,
    i32,
    i64,
    read_header,
    since,
)
from cluster.protocol.versions import semantic_version

ARCHIVE: Final = Schema("archive", 101, 12)
ARCHIVE_CONTROL_VERSION: Final = semantic_version(1, 11, 0)
RECORDING_DESCRIPTOR_TEMPLATE: Final = 22


class ControlResponseCode(IntEnum):
    """What became of a request."""

    OK = 0
    ERROR = 1
    RECORDING_UNKNOWN = 2
    SUBSCRIPTION_UNKNOWN = 3


class ControlResponse(Message, template_id=1, schema=ARCHIVE):
    """``relevant_id`` is what was asked for, or an error code."""

    control_session_id: i64
    correlation_id: i64
    relevant_id: i64
    code: ControlResponseCode
    version: Annotated[i32 | None, since(4)] = None
    error_message: Ascii = ""


class CloseSessionRequest(Message, template_id=3, schema=ARCHIVE):
    control_session_id: i64


class ReplayRequest(Message, template_id=6, schema=ARCHIVE):
    """Sends what is recorded from ``position`` on; the low half of ``relevant_id`` is the session id."""

    control_session_id: i64
    correlation_id: i64
    recording_id: i64
    position: i64
    length: i64
    replay_stream_id: i32
    file_io_max_length: Annotated[i32, since(7)] = NULL_I32
    replay_token: Annotated[i64, since(10)] = NULL_I64
    replay_channel: Ascii = ""


class StopReplayRequest(Message, template_id=7, schema=ARCHIVE):
    control_session_id: i64
    correlation_id: i64
    replay_session_id: i64


class ListRecordingsRequest(Message, template_id=8, schema=ARCHIVE):
    """Answered by descriptors, and by RECORDING_UNKNOWN when there are fewer."""

    control_session_id: i64
    correlation_id: i64
    from_recording_id: i64
    record_count: i32


class ListRecordingRequest(Message, template_id=10, schema=ARCHIVE):
    control_session_id: i64
    correlation_id: i64
    recording_id: i64


class ListRecordingsForUriRequest(Message, template_id=9, schema=ARCHIVE):
    """As ``ListRecordingsRequest``, of a stream and of channels that have ``channel`` in them."""

    control_session_id: i64
    correlation_id: i64
    from_recording_id: i64
    record_count: i32
    stream_id: i32
    channel: Ascii = ""


class RecordingPositionRequest(Message, template_id=12, schema=ARCHIVE):
    """The answer's ``relevant_id`` is how far the recording is; -1 when nothing is recorded now."""

    control_session_id: i64
    correlation_id: i64
    recording_id: i64


class StopPositionRequest(Message, template_id=15, schema=ARCHIVE):
    """The answer's ``relevant_id`` is where the recording was stopped, -1 while it is written."""

    control_session_id: i64
    correlation_id: i64
    recording_id: i64


class FindLastMatchingRecordingRequest(Message, template_id=16, schema=ARCHIVE):
    """The answer's ``relevant_id`` is the newest recording of these, or -1."""

    control_session_id: i64
    correlation_id: i64
    min_recording_id: i64
    session_id: i32
    stream_id: i32
    channel: Ascii = ""


class BoundedReplayRequest(Message, template_id=18, schema=ARCHIVE):
    """As ``ReplayRequest``, up to a counter."""

    control_session_id: i64
    correlation_id: i64
    recording_id: i64
    position: i64
    length: i64
    limit_counter_id: i32
    replay_stream_id: i32
    file_io_max_length: Annotated[i32, since(7)] = NULL_I32
    replay_token: Annotated[i64, since(10)] = NULL_I64
    replay_channel: Ascii = ""


class StopAllReplaysRequest(Message, template_id=19, schema=ARCHIVE):
    """Those of a recording, or of all (-1)."""

    control_session_id: i64
    correlation_id: i64
    recording_id: i64


class StartPositionRequest(Message, template_id=52, schema=ARCHIVE):
    control_session_id: i64
    correlation_id: i64
    recording_id: i64


class AuthConnectRequest(Message, template_id=58, schema=ARCHIVE):
    correlation_id: i64
    response_stream_id: i32
    version: Version
    response_channel: Ascii
    encoded_credentials: Blob
    client_info: Annotated[Ascii, since(12)] = ""


class ArchiveChallenge(Message, template_id=59, schema=ARCHIVE):
    """The archive wants other credentials than those of the request, or any."""

    control_session_id: i64
    correlation_id: i64
    version: Version
    encoded_challenge: Blob = b""


class ArchiveChallengeResponse(Message, template_id=60, schema=ARCHIVE):
    control_session_id: i64
    correlation_id: i64
    encoded_credentials: Blob


class ArchiveKeepAliveRequest(Message, template_id=61, schema=ARCHIVE):
    control_session_id: i64
    correlation_id: i64


class MaxRecordedPositionRequest(Message, template_id=67, schema=ARCHIVE):
    """As ``RecordingPositionRequest``, or as ``StopPositionRequest`` of one that is not written."""

    control_session_id: i64
    correlation_id: i64
    recording_id: i64


class ArchiveIdRequest(Message, template_id=68, schema=ARCHIVE):
    control_session_id: i64
    correlation_id: i64


class ArchiveErrorCode(IntEnum):
    """``relevant_id`` of an ERROR (Aeron: ArchiveException)."""

    GENERIC = 0
    UNKNOWN_RECORDING = 5
    MAX_REPLAYS = 7
    AUTHENTICATION_REJECTED = 10
    UNAUTHORISED_ACTION = 13
    EMPTY_RECORDING = 15
    INVALID_POSITION = 16


ArchiveAnswer = ControlResponse | RecordingDescriptor | ArchiveChallenge


def decode_archive_answer(message: Buffer) -> ArchiveAnswer | None:
    """What an archive answers; None for pings and signals. Raises RemoteProtocolError."""
    block_length, template_id, schema_id, version = read_header(message, 0, len(message))
    if (template_id, schema_id) == (RECORDING_DESCRIPTOR_TEMPLATE, ARCHIVE.id):
        descriptor, _ = RecordingDescriptor.decode_body(
            message, HEADER_LENGTH, len(message), block_length, version
        )
        return descriptor
    answer = decode_with({ARCHIVE.id: ARCHIVE}, message, 0, None)
    if answer is None or isinstance(answer, ControlResponse | ArchiveChallenge):
        return answer
    raise RemoteProtocolError(f"an archive's answer is a {type(answer).__name__}, which only clients send")


def encode_descriptor(descriptor: RecordingDescriptor, control_session_id: int, correlation_id: int) -> bytes:
    """A recording as it is listed."""
    named = descriptor.replace(control_session_id=control_session_id, correlation_id=correlation_id)
    header = struct.pack(
        "<4H", descriptor.BLOCK_LENGTH, RECORDING_DESCRIPTOR_TEMPLATE, ARCHIVE.id, ARCHIVE.version
    )
    return header + named.encode_body()


class UnservedRequest(NamedTuple):
    """A request of a session that only an archive that is written to serves, or none."""

    control_session_id: int
    correlation_id: int


ArchiveRequest = Message | UnservedRequest
_SESSION_AND_CORRELATION = struct.Struct("<qq")


def decode_archive_request(message: Buffer) -> ArchiveRequest:
    """What a client asks of an archive. Raises RemoteProtocolError."""
    found = decode_with({ARCHIVE.id: ARCHIVE}, message, 0, None)
    if found is not None:
        return found
    if len(message) < HEADER_LENGTH + _SESSION_AND_CORRELATION.size:
        raise RemoteProtocolError(f"a request to an archive of {len(message)} bytes")
    return UnservedRequest(*_SESSION_AND_CORRELATION.unpack_from(message, HEADER_LENGTH))
