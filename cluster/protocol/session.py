"""Between a client and the cluster: schema 111, templates 1-8, 26 and 27.

Clients write on the ingress stream, the consensus module and the leader's service answer on egress.
"""

from typing import Annotated

from cluster.protocol.enums import AdminResponseCode, EventCode
from cluster.protocol.sbe import Ascii, Blob, Message, Time, Version, i32, i64, since

ENCODED_PRINCIPAL_LENGTH_MAX = 4096


class SessionMessageHeader(Message, template_id=1):
    """In front of application bytes, which begin after the block.

    One template, five places: in ingress ``timestamp`` is free (clients write 0), in log and egress it is the
    cluster time of the append; service to consensus module carries the service id as ``cluster_session_id``;
    in a snapshot it precedes a pending service message.
    """

    leadership_term_id: i64
    cluster_session_id: i64
    timestamp: Time


ANSWER_NUMBER_BITS = 56


def answer_id_of(service_id: int, number: int) -> int:
    """The reserved value of an answer's frame: its number in its session, from 1; 0 unsupervised."""
    return service_id << ANSWER_NUMBER_BITS | number


def split_answer_id(answer_id: int) -> tuple[int, int]:
    """Service id and number."""
    return answer_id >> ANSWER_NUMBER_BITS, answer_id & (1 << ANSWER_NUMBER_BITS) - 1


NO_ROOM = "no input is taken until there is room for more log"  # begins the detail of such an ERROR


class SessionEvent(Message, template_id=2):
    """``detail``: empty for OK, ingress endpoints for REDIRECT, a text for the rest."""

    cluster_session_id: i64
    correlation_id: i64
    leadership_term_id: i64
    leader_member_id: i32
    code: EventCode
    version: Annotated[Version, since(6)] = 0
    leader_heartbeat_timeout_ns: Annotated[i64 | None, since(13)] = None
    detail: Ascii = ""


class SessionConnectRequest(Message, template_id=3):
    """``response_channel`` and ``response_stream_id`` say where egress goes; major(version) must be 0."""

    correlation_id: i64
    response_stream_id: i32
    version: Annotated[Version, since(2)] = 0
    response_channel: Ascii = ""
    encoded_credentials: Blob = b""
    client_info: Annotated[Ascii, since(14)] = ""


class SessionCloseRequest(Message, template_id=4):
    leadership_term_id: i64
    cluster_session_id: i64


class SessionKeepAlive(Message, template_id=5):
    leadership_term_id: i64
    cluster_session_id: i64


class NewLeaderEvent(Message, template_id=6):
    """From the new leader, on the egress it rebuilt; not to be confused with templates 24 and 53."""

    leadership_term_id: i64
    cluster_session_id: i64
    leader_member_id: i32
    ingress_endpoints: Ascii = ""


class Challenge(Message, template_id=7):
    correlation_id: i64
    cluster_session_id: i64
    encoded_challenge: Blob = b""


class ChallengeResponse(Message, template_id=8):
    correlation_id: i64
    cluster_session_id: i64
    encoded_credentials: Blob = b""


class AdminRequest(Message, template_id=26):
    leadership_term_id: i64
    cluster_session_id: i64
    correlation_id: i64
    request_type: i32  # AdminRequestType, or one that is not known here
    payload: Blob = b""


class AdminResponse(Message, template_id=27):
    cluster_session_id: i64
    correlation_id: i64
    request_type: i32  # AdminRequestType, or one that is not known here
    response_code: AdminResponseCode
    message: Ascii = ""
    payload: Blob = b""
