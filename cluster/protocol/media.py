"""What a client and a media driver say to each other, and the metadata of the log buffers that they share.

Commands go into the to-driver ring of cnc.dat, answers come out of its broadcast buffer: a type id of the
record, and one of the bodies below. Nothing is padded but the log file's name in ``ON_AVAILABLE_IMAGE``.

A log buffer is a file of three terms and, in its last 4,096 bytes, ``LogBufferMetadata``:

    | term 0 | term 1 | term 2 | metadata |        position p lies in term (p / term length) % 3

Sources: command/*Flyweight, DriverProxy, DriverEventsAdapter and LogBufferDescriptor of Aeron. No I/O here.
"""

from typing import Annotated, Final, NamedTuple

from cluster.errors import RemoteProtocolError
from cluster.protocol.frame import (
    FRAME_ALIGNMENT,
    HEADER_LENGTH,
    MTU_MAX,
    TERM_LENGTH_MAX,
    TERM_LENGTH_MIN,
    align,
)
from cluster.protocol.sbe import Ascii, Buffer, Composite, at, i32, i64

# Types of commands.
ADD_EXCLUSIVE_PUBLICATION: Final = 0x03
REMOVE_PUBLICATION: Final = 0x02
ADD_SUBSCRIPTION: Final = 0x04
REMOVE_SUBSCRIPTION: Final = 0x05
CLIENT_CLOSE: Final = 0x0B
ADD_SENT_DESTINATION: Final = 0x07  # of a publication
ADD_DESTINATION: Final = 0x0C  # of a subscription
REMOVE_DESTINATION: Final = 0x0D

# Types of answers.
ON_ERROR: Final = 0x0F01
ON_AVAILABLE_IMAGE: Final = 0x0F02
ON_OPERATION_SUCCESS: Final = 0x0F04
ON_UNAVAILABLE_IMAGE: Final = 0x0F05
ON_EXCLUSIVE_PUBLICATION_READY: Final = 0x0F06
ON_SUBSCRIPTION_READY: Final = 0x0F07
ON_CLIENT_TIMEOUT: Final = 0x0F0A

CLIENT_HEARTBEAT_TYPE: Final = 11  # of the counter that a client keeps alive; key: i64 client id
LOCAL_SOCKET_ADDRESS_TYPE: Final = 14  # key: i32 channel status counter, i32 length, text
PADDING_RECORD: Final = -1  # type of what fills a ring or a broadcast buffer up to its end

TERMS: Final = 3
LOG_METADATA_LENGTH: Final = 4096
DEFAULT_HEADER_OFFSET: Final = 320  # in the metadata


class CorrelatedCommand(Composite):
    """How each command begins; all of CLIENT_CLOSE, whose correlation id is -1."""

    client_id: i64
    correlation_id: i64


class AddPublication(Composite):
    """Asks for a publication."""

    client_id: i64
    correlation_id: i64
    stream_id: i32
    channel: Ascii


class AddSubscription(Composite):
    """Asks for a subscription."""

    client_id: i64
    correlation_id: i64
    registration_correlation_id: i64  # -1
    stream_id: i32
    channel: Ascii


class RemovePublication(Composite):
    """Lets go of a publication; bit 0 of the flags would revoke it."""

    client_id: i64
    correlation_id: i64
    registration_id: i64
    flags: i64 = 0


class RemoveSubscription(Composite):
    """Lets go of a subscription."""

    client_id: i64
    correlation_id: i64
    registration_id: i64


class DestinationCommand(Composite):
    """Has a subscription of manual control listen at a channel, or listen there no more.

    With ADD_SENT_DESTINATION: has a publication of manual control send there, too.
    """

    client_id: i64
    correlation_id: i64
    registration_id: i64
    channel: Ascii


class OnError(Composite):
    """The command of ``correlation_id`` was refused."""

    correlation_id: i64
    error_code: i32
    message: Ascii


class OnOperationSuccess(Composite):
    """The command of ``correlation_id`` was carried out."""

    correlation_id: i64


class OnPublicationReady(Composite):
    """A publication is there."""

    correlation_id: i64
    registration_id: i64
    session_id: i32
    stream_id: i32
    position_limit_counter_id: i32
    channel_status_counter_id: i32
    log_file: Ascii


class OnSubscriptionReady(Composite):
    """A subscription is there; ``channel_status_counter_id`` is -1 for ipc."""

    correlation_id: i64
    channel_status_counter_id: i32


class _ImageBlock(Composite):
    correlation_id: i64
    session_id: i32
    stream_id: i32
    subscription_registration_id: i64
    subscriber_position_counter_id: i32
    log_file: Ascii


class OnAvailableImage(NamedTuple):
    """A publication has met the subscription of ``subscription_registration_id``."""

    correlation_id: int
    session_id: int
    stream_id: int
    subscription_registration_id: int
    subscriber_position_counter_id: int
    log_file: str
    source_identity: str


class OnUnavailableImage(Composite):
    """The image of ``correlation_id`` is gone."""

    correlation_id: i64
    subscription_registration_id: i64
    stream_id: i32


class OnClientTimeout(Composite):
    """The driver has given the client up, and all that it had."""

    client_id: i64


DriverEvent = (
    OnError
    | OnOperationSuccess
    | OnPublicationReady
    | OnSubscriptionReady
    | OnAvailableImage
    | OnUnavailableImage
    | OnClientTimeout
)

_ANSWERS: dict[int, type[Composite]] = {
    ON_ERROR: OnError,
    ON_OPERATION_SUCCESS: OnOperationSuccess,
    ON_EXCLUSIVE_PUBLICATION_READY: OnPublicationReady,
    ON_SUBSCRIPTION_READY: OnSubscriptionReady,
    ON_UNAVAILABLE_IMAGE: OnUnavailableImage,
    ON_CLIENT_TIMEOUT: OnClientTimeout,
}


def decode_driver_event(type_id: int, body: Buffer) -> DriverEvent | None:
    """What a record of the broadcast buffer says; None of types for others. Raises RemoteProtocolError."""
    if type_id == ON_AVAILABLE_IMAGE:
        return _decode_available_image(body)
    answer = _ANSWERS.get(type_id)
    if answer is None:
        return None
    event, _ = answer.decode_body(body, 0, len(body), answer.BLOCK_LENGTH, 0)
    return event  # type: ignore[return-value]  # one of the union's, by the table


def _decode_available_image(body: Buffer) -> OnAvailableImage:
    block, end = _ImageBlock.decode_body(body, 0, len(body), _ImageBlock.BLOCK_LENGTH, 0)
    begin = align(end, 4)
    source, _ = _Text.decode_body(body, begin, len(body), 0, 0)
    return OnAvailableImage(
        block.correlation_id,
        block.session_id,
        block.stream_id,
        block.subscription_registration_id,
        block.subscriber_position_counter_id,
        block.log_file,
        source.text,
    )


class _Text(Composite):
    text: Ascii


class LogBufferMetadata(Composite, block_length=LOG_METADATA_LENGTH):
    """The last 4,096 bytes of a log buffer's file, without the three tails at its beginning."""

    active_term_count: Annotated[i32, at(24)]
    end_of_stream_position: Annotated[i64, at(128)]  # 2**63 - 1 while it is open
    is_connected: Annotated[i32, at(136)]
    correlation_id: Annotated[i64, at(256)]
    initial_term_id: Annotated[i32, at(264)]
    default_header_length: Annotated[i32, at(268)]
    mtu_length: Annotated[i32, at(272)]
    term_length: Annotated[i32, at(276)]
    page_size: Annotated[i32, at(280)]


def decode_log_metadata(metadata: Buffer, file_length: int) -> LogBufferMetadata:
    """The metadata of a log buffer in ``file_length`` bytes. Raises RemoteProtocolError."""
    found, _ = LogBufferMetadata.decode_body(metadata, 0, len(metadata), LOG_METADATA_LENGTH, 0)
    term, page, mtu = found.term_length, found.page_size, found.mtu_length
    if not TERM_LENGTH_MIN <= term <= TERM_LENGTH_MAX or term & (term - 1):
        raise RemoteProtocolError(f"a log buffer of term length {term}, expected a power of two from 64 KiB")
    if page < LOG_METADATA_LENGTH or page & (page - 1):
        raise RemoteProtocolError(f"a log buffer of page size {page}, expected a power of two from 4096")
    if file_length != align(TERMS * term + LOG_METADATA_LENGTH, page):
        raise RemoteProtocolError(f"a log buffer of {file_length} bytes for terms of {term}")
    if found.default_header_length != HEADER_LENGTH:
        raise RemoteProtocolError(f"a frame header of {found.default_header_length} bytes, expected 32")
    if not HEADER_LENGTH < mtu <= MTU_MAX or mtu % FRAME_ALIGNMENT:
        raise RemoteProtocolError(f"an MTU of {mtu}, expected a multiple of 32 up to {MTU_MAX}")
    return found
