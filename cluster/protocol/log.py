"""Entries of the Log besides session messages: schema 111, templates 20-25."""

from typing import Annotated

from cluster.protocol.enums import ChangeType, CloseReason, ClusterAction, ClusterTimeUnit
from cluster.protocol.sbe import Ascii, Blob, Message, Time, Version, i32, i64, since


class TimerEvent(Message, template_id=20):
    """A timer that expired on the leader."""

    leadership_term_id: i64
    correlation_id: i64
    timestamp: Time


class SessionOpenEvent(Message, template_id=21):
    """Mind the order: the correlation id comes before the session id."""

    leadership_term_id: i64
    correlation_id: i64
    cluster_session_id: i64
    timestamp: Time
    response_stream_id: i32
    response_channel: Ascii = ""
    encoded_principal: Blob = b""


class SessionCloseEvent(Message, template_id=22):
    leadership_term_id: i64
    cluster_session_id: i64
    timestamp: Time
    close_reason: CloseReason


class ClusterActionRequest(Message, template_id=23):
    """``log_position`` is the end of the frame that carries it; ``flags`` as `ClusterActionFlags`."""

    leadership_term_id: i64
    log_position: i64
    timestamp: Time
    action: ClusterAction
    flags: Annotated[i32 | None, since(11)] = None


class NewLeadershipTermEvent(Message, template_id=24):
    """First frame of a leadership term: ``term_base_log_position`` its start, ``log_position`` its end."""

    leadership_term_id: i64
    log_position: i64
    timestamp: Time
    term_base_log_position: i64
    leader_member_id: i32
    log_session_id: i32
    time_unit: Annotated[ClusterTimeUnit | None, since(4)] = None
    app_version: Annotated[Version, since(4)] = 0


class MembershipChangeEvent(Message, template_id=25):
    """Historic: nothing writes it any more, readers skip it."""

    leadership_term_id: i64
    log_position: i64
    timestamp: Time
    leader_member_id: i32
    cluster_size: i32
    change_type: ChangeType
    member_id: i32
    cluster_members: Ascii = ""
