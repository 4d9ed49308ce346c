"""Between a clustered service (or a tool) and its consensus module: templates 30-43 and 108 (table 2.7)."""

from typing import Annotated

from cluster.protocol.sbe import Ascii, Bool32, Composite, Message, Time, i32, i64, since


class CloseSession(Message, template_id=30):
    cluster_session_id: i64


class ScheduleTimer(Message, template_id=31):
    correlation_id: i64
    deadline: Time


class CancelTimer(Message, template_id=32):
    correlation_id: i64


class ServiceAck(Message, template_id=33):
    """Acks of a service count from ``ack_id`` 0; a snapshot's recording id travels as ``relevant_id``."""

    log_position: i64
    timestamp: Time
    ack_id: i64
    relevant_id: i64
    service_id: i32


class ClusterMembersQuery(Message, template_id=34):
    """``extended`` asks for template 43, otherwise 41 answers."""

    correlation_id: i64
    extended: Annotated[Bool32 | None, since(5)] = None


class RemoveMember(Message, template_id=35):
    """Historic."""

    member_id: i32
    is_passive: Bool32


class JoinLog(Message, template_id=40):
    """Where a service reads the log; ``max_log_position`` is 2**63 - 1 for a live one. Role as `Role`."""

    log_position: i64
    max_log_position: i64
    member_id: i32
    log_session_id: i32
    log_stream_id: i32
    is_startup: Bool32
    role: i32
    is_standby: Annotated[Bool32 | None, since(16)] = None
    log_channel: Ascii = ""


class ClusterMembersResponse(Message, template_id=41):
    correlation_id: i64
    leader_member_id: i32
    active_members: Ascii = ""
    passive_followers: Ascii = ""


class ServiceTerminationPosition(Message, template_id=42):
    log_position: i64
    ack_required: Annotated[Bool32 | None, since(17)] = None


class ExtendedMember(Composite):
    """One member in a ClusterMembersExtendedResponse."""

    leadership_term_id: i64
    log_position: i64
    time_of_last_append_ns: i64
    member_id: i32
    ingress_endpoint: Ascii = ""
    consensus_endpoint: Ascii = ""
    log_endpoint: Ascii = ""
    catchup_endpoint: Ascii = ""
    archive_endpoint: Ascii = ""


class ClusterMembersExtendedResponse(Message, template_id=43):
    correlation_id: i64
    current_time_ns: i64
    leader_member_id: i32
    member_id: i32
    active_members: tuple[ExtendedMember, ...] = ()
    passive_members: tuple[ExtendedMember, ...] = ()


class RequestServiceAck(Message, template_id=108):
    """Named with a small first letter in the schema, and numbered like the consensus stream."""

    log_position: i64
