"""Records of snapshots: schema 111, templates 100 and 102-107; their order is in docs/formats.md.

What members of ours add to the consensus module's, after its END, is of schema 1111.
"""

from typing import Annotated, Final, TypeAlias

from cluster.protocol.enums import CloseReason, ClusterTimeUnit, SnapshotMark
from cluster.protocol.link import LINK_SCHEMA
from cluster.protocol.sbe import NULL_I64, Ascii, Blob, Message, Time, Version, i32, i64, null, since

CONSENSUS_MODULE_TYPE_ID: Final = 1  # SnapshotMarker.type_id
SERVICE_TYPE_ID: Final = 2

Capacity: TypeAlias = Annotated[i32, null(0)]  # bytes of a ring: message and 8-byte header, aligned to 8


class SnapshotMarker(Message, template_id=100):
    """First and last record of a snapshot; END repeats BEGIN's values except ``mark``."""

    type_id: i64
    log_position: i64
    leadership_term_id: i64
    index: i32
    mark: SnapshotMark
    time_unit: Annotated[ClusterTimeUnit | None, since(4)] = None
    app_version: Annotated[Version, since(4)] = 0


class ClientSession(Message, template_id=102):
    """A session as a service sees it."""

    cluster_session_id: i64
    response_stream_id: i32
    response_channel: Ascii = ""
    encoded_principal: Blob = b""


class ClusterSession(Message, template_id=103):
    """A session as the consensus module sees it; ``close_reason`` is None while it is open."""

    cluster_session_id: i64
    correlation_id: i64
    opened_log_position: i64
    time_of_last_activity: Time
    close_reason: CloseReason | None
    response_stream_id: i32
    response_channel: Ascii = ""


class Timer(Message, template_id=104):
    correlation_id: i64
    deadline: Time


class ConsensusModule(Message, template_id=105):
    """The last three mirror the tracker of service 0.

    The two ids are plain numbers although the schema lets them be null: -2**63, SBE's null, is also the id
    from which service 0 counts.
    """

    next_session_id: i64
    next_service_session_id: Annotated[i64, since(3)] = NULL_I64
    log_service_session_id: Annotated[i64, since(3)] = NULL_I64
    pending_message_capacity: Annotated[Capacity, since(3)] = 0


class ClusterMembers(Message, template_id=106):
    """Historic: readers skip it."""

    member_id: i32
    high_member_id: i32
    cluster_members: Ascii = ""


class PendingMessageTracker(Message, template_id=107):
    """One a service, followed by its pending messages (SessionMessageHeader and payload)."""

    next_service_session_id: i64
    log_service_session_id: i64
    pending_message_capacity: Capacity
    service_id: i32


# ---- ours, after END: what the protocol has no place for. Aeron's readers stop at END.


class SnapshotSession(Message, template_id=50, schema=LINK_SCHEMA):
    """What is known of a session besides its ClusterSession record.

    ``committed_messages`` of it are in the log before the snapshot, the last of them ends at
    ``committed_position``: with that a client goes on where it was.
    """

    cluster_session_id: i64
    committed_messages: i64
    committed_position: i64
    encoded_principal: Blob = b""


class SnapshotRecording(Message, template_id=51, schema=LINK_SCHEMA):
    """The recording of a service that belongs to this snapshot: its length, and CRC-32 of its frames."""

    service_id: i32
    length: i64
    checksum: i64


class SnapshotChecksum(Message, template_id=52, schema=LINK_SCHEMA):
    """Last record: CRC-32 of all frames of this recording before this one's."""

    checksum: i64


class SnapshotAnswer(Message, template_id=53, schema=LINK_SCHEMA):
    """A piece of an answer to a supervised session that its client may lack; pieces follow one another."""

    cluster_session_id: i64
    answer_id: i64
    timestamp: Time
    piece: Blob = b""


class SnapshotAnswered(Message, template_id=56, schema=LINK_SCHEMA):
    """Which message of its session that answer answers, by its number; none without this."""

    cluster_session_id: i64
    answer_id: i64
    number: i64


class SnapshotLane(Message, template_id=54, schema=LINK_SCHEMA):
    """A lane of an application: ``rows`` messages of its ``batch`` were in when its holder opened it.

    ``partition`` -1: the batch was registered with so many ``partitions``. Where nobody holds the lane,
    ``rows`` are all, and ``holder_session_id`` is -1. ``opened_at``: when one of the application's lanes was
    opened last, in cluster time. ``encoded_principal``: whose the application is.
    """

    partition: i32
    partitions: i32
    batch: i64
    rows: i64
    begin_position: i64
    end_position: i64
    first_session_id: i64
    holder_session_id: i64
    opened_at: Time
    application: Blob = b""
    encoded_principal: Blob = b""


class SnapshotConsumer(Message, template_id=55, schema=LINK_SCHEMA):
    """A consumer group: its readers need nothing before ``position``.

    ``reported_at``: when it was reported last, in cluster time. It is kept for ``retention`` from then on, in
    the same unit. ``encoded_principal``: whose the group is.
    """

    position: i64
    reported_at: Time
    retention: i64
    group: Blob = b""
    encoded_principal: Blob = b""
