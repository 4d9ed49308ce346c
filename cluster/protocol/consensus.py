"""Between members: schema 111, templates 50-57, 75 and 76, on the consensus stream."""

from typing import Annotated

from cluster.protocol.sbe import Ascii, Bool32, Message, Time, Version, i32, i64, since, u8


class CanvassPosition(Message, template_id=50):
    """Where a member's log ends, and in which term, while it looks for a leader."""

    log_leadership_term_id: i64
    log_position: i64
    leadership_term_id: i64
    follower_member_id: i32
    protocol_version: Annotated[Version, since(9)] = 0


class RequestVote(Message, template_id=51):
    log_leadership_term_id: i64
    log_position: i64
    candidate_term_id: i64
    candidate_member_id: i32
    protocol_version: Annotated[Version, since(9)] = 0


class Vote(Message, template_id=52):
    candidate_term_id: i64
    log_leadership_term_id: i64
    log_position: i64
    candidate_member_id: i32
    follower_member_id: i32
    vote: Bool32


class NewLeadershipTerm(Message, template_id=53):
    """``next_*`` describe the term after ``log_leadership_term_id`` in the leader's recording log.

    During an election without such an entry they are (new term id, leader's append position, -1).
    """

    log_leadership_term_id: i64
    next_leadership_term_id: i64
    next_term_base_log_position: i64
    next_log_position: i64
    leadership_term_id: i64
    term_base_log_position: i64
    log_position: i64
    leader_recording_id: i64
    timestamp: Time
    leader_member_id: i32
    log_session_id: i32
    app_version: Version
    is_startup: Bool32
    commit_position: Annotated[i64 | None, since(15)] = None


class AppendPosition(Message, template_id=54):
    """How far a follower's log is safe; ``flags`` as `AppendPositionFlags`, None from older members."""

    leadership_term_id: i64
    log_position: i64
    follower_member_id: i32
    flags: Annotated[u8 | None, since(8)] = None


class CommitPosition(Message, template_id=55):
    """How far the log is committed; also the leader's heartbeat."""

    leadership_term_id: i64
    log_position: i64
    leader_member_id: i32


class CatchupPosition(Message, template_id=56):
    leadership_term_id: i64
    log_position: i64
    follower_member_id: i32
    catchup_endpoint: Ascii = ""


class StopCatchup(Message, template_id=57):
    leadership_term_id: i64
    follower_member_id: i32


class TerminationPosition(Message, template_id=75):
    leadership_term_id: i64
    log_position: i64


class TerminationAck(Message, template_id=76):
    leadership_term_id: i64
    log_position: i64
    member_id: i32


def sender_of(message: Message) -> int | None:
    """The member that the message says it is from; None when it does not say."""
    match message:
        case CanvassPosition() | AppendPosition() | CatchupPosition() | Vote():
            return message.follower_member_id
        case RequestVote():
            return message.candidate_member_id
        case NewLeadershipTerm() | CommitPosition():
            return message.leader_member_id
        case TerminationAck():
            return message.member_id
    return None
