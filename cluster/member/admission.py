"""Which messages of other members are accepted; one that cannot be right is reported and dropped here.

docs/architecture.md, "What members take from each other", lists them.

A link belongs to one member, which may speak only for itself. A term has one leader, and no log is longer
than its terms can count. A term is accepted only if it is near those that other members report (promises.py).
A message that is merely late, of an earlier term or request, is no fault: its handler ignores it. Elections
and streams trust everything else, as Raft does.
"""

from collections.abc import Callable
from dataclasses import dataclass

from cluster.consensus.context import NULL_POSITION, NULL_VALUE
from cluster.consensus.quorum import is_position
from cluster.consensus.replica import ReplicatedState
from cluster.log.kernel import as_python
from cluster.member.disk.promise_keeper import PromiseKeeper
from cluster.member.log.member_log import MemberLog
from cluster.member.services.termination import Termination
from cluster.member.status import MemberStatus
from cluster.protocol.consensus import (
    AppendPosition,
    CanvassPosition,
    CatchupPosition,
    CommitPosition,
    NewLeadershipTerm,
    RequestVote,
    StopCatchup,
    TerminationAck,
    TerminationPosition,
    Vote,
    sender_of,
)
from cluster.protocol.frame import is_mtu, is_term_length
from cluster.protocol.link import (
    CatchupProgress,
    ClockReply,
    ClockRequest,
    EndOfStream,
    LinkError,
    LogGeometry,
    LogImage,
    LogRangeRequest,
    PromiseStatement,
    RecordingBlock,
    RecordingFetch,
    ReplicationRequest,
    ServicesAway,
    SnapshotDigest,
    SnapshotOffer,
    SnapshotRequest,
    TakenAnswers,
    TransferLeadership,
)
from cluster.protocol.link_histories import TermEvents
from cluster.protocol.sbe import Message
from cluster.protocol.session import ChallengeResponse

# What its sender says of a log that it has or leads.
_POSITIONS: dict[type[Message], tuple[str, ...]] = {
    CanvassPosition: ("log_position",),
    RequestVote: ("log_position",),
    Vote: ("log_position",),
    NewLeadershipTerm: ("term_base_log_position", "log_position"),
    CatchupPosition: ("log_position",),
    TerminationPosition: ("log_position",),
    TerminationAck: ("log_position",),
    ReplicationRequest: ("from_position",),
    LogImage: ("join_position",),
    SnapshotDigest: ("log_position",),
    TransferLeadership: ("log_position",),
}
_TERMS = ("candidate_term_id", "leadership_term_id", "log_leadership_term_id")
_OTHERS = (
    TermEvents,
    PromiseStatement,  # its terms are measured with those of others
    CatchupProgress,
    AppendPosition,
    CommitPosition,
    StopCatchup,
    LogGeometry,
    EndOfStream,
    ClockRequest,
    ClockReply,
    ServicesAway,
    LogRangeRequest,
    RecordingFetch,
    RecordingBlock,
    SnapshotRequest,
    SnapshotOffer,
    LinkError,
    TakenAnswers,
    ChallengeResponse,  # of a client, by the follower that it was sent to
)


_is_position = as_python(is_position)


@dataclass(eq=False)
class Admission:
    """What one member takes of the others."""

    _app_version: int
    _log: MemberLog
    _replica: ReplicatedState
    _status: MemberStatus
    _promises: PromiseKeeper
    _termination: Termination
    _present_leader: Callable[[], tuple[int, int]]  # (term, leader), in an election too; -1 without a leader

    def fault_of(self, member_id: int, message: Message) -> str | None:
        """Why a message of ``member_id`` cannot be right; None when it can."""
        kind = type(message)
        if kind not in _POSITIONS and kind not in _OTHERS:
            return "no message between members"
        sender = sender_of(message)
        if sender is not None and sender != member_id:
            return f"speaks as member {sender}"
        for name in _POSITIONS.get(kind, ()):
            if not _is_position(getattr(message, name)):
                return f"{name} is no position of a log"
        if kind in _POSITIONS:
            term_id = max(getattr(message, name, NULL_VALUE) for name in _TERMS)
            if (fault := self._fault_of_term_id(member_id, term_id)) is not None:
                return fault
        match message:
            case NewLeadershipTerm(leadership_term_id=term_id):
                return self._fault_of_leader(member_id, term_id) or _fault_of_term(message, self._app_version)
            case CommitPosition():
                return self.fault_of_commit(member_id, message.leadership_term_id, message.log_position)
            case StopCatchup(leadership_term_id=term_id):
                return self._fault_of_leader(member_id, term_id)
            case TerminationPosition(leadership_term_id=term_id):
                return self._fault_of_leader(member_id, term_id) or self._fault_of_end(message)
            case AppendPosition():
                return self.fault_of_report(message.leadership_term_id, message.log_position)
            case TerminationAck() if self._status.is_leading and self._termination.position == NULL_POSITION:
                return "nobody asked for an end"
            case LogGeometry() if not (is_term_length(message.term_length) and is_mtu(message.mtu)):
                return "no shape of a log"
            case ClockReply() if message.clock_ns < 0:
                return "no time since the epoch"
        return None

    def fault_of_report(self, leadership_term_id: int, log_position: int) -> str | None:
        """Why no follower's log can be safe up to there; None when one can."""
        if not _is_position(log_position):
            return "no position of a log"
        term_id, leader_id = self._present_leader()
        if leader_id == self._status.member_id and leadership_term_id == term_id:
            recording = self._log.recording
            if recording is None or log_position > recording.append_position:
                return f"beyond the log of term {term_id}"
        return None

    def fault_of_commit(self, member_id: int, leadership_term_id: int, log_position: int) -> str | None:
        """Why no leader can have committed up to there; None when one can."""
        if not _is_position(log_position):
            return "no position of a log"
        return self._fault_of_leader(member_id, leadership_term_id) or self._fault_of_term_id(
            member_id, leadership_term_id
        )

    def _fault_of_term_id(self, member_id: int, term_id: int) -> str | None:
        """A term is accepted only near what others report: no single flipped bit or frame raises it far."""
        if term_id <= self._replica.leadership_term_id:
            return None
        limit = self._promises.term_limit(member_id)
        return None if term_id <= limit else f"term {term_id}, {limit} is the highest that is believed"

    def _fault_of_leader(self, member_id: int, leadership_term_id: int) -> str | None:
        """A term has one leader: the one that was led by, or followed, in it."""
        term_id, leader_id = self._present_leader()
        if leader_id not in (NULL_VALUE, member_id) and leadership_term_id == term_id:
            return f"member {leader_id} leads term {term_id}"
        return None

    def _fault_of_end(self, message: TerminationPosition) -> str | None:
        """A leader that ends writes nothing more: nobody is beyond its end."""
        if (
            self._status.is_following
            and message.leadership_term_id == self._replica.leadership_term_id
            and message.log_position < self._log.commit_position
        ):
            return f"the log is processed to {self._log.commit_position}"
        return None


def _fault_of_term(message: NewLeadershipTerm, own_version: int) -> str | None:
    if message.app_version >> 16 != own_version >> 16:
        return f"app version {message.app_version:#x}, this member has {own_version:#x}"
    if not -1 <= message.log_leadership_term_id <= message.leadership_term_id:
        return "no such terms"
    if message.term_base_log_position > message.log_position:
        return "a log that ends before its last term begins"
    if not 0 <= (message.commit_position or 0) <= message.log_position:
        return "more committed than there is"
    log_term_id, next_id = message.log_leadership_term_id, message.next_leadership_term_id
    if next_id == NULL_VALUE or next_id == log_term_id == message.leadership_term_id:
        return None  # the latter says a leader of Aeron's that has recorded its own term
    if not log_term_id < next_id <= message.leadership_term_id:
        return "no next term"
    end = message.next_log_position
    if end == NULL_POSITION:
        end = message.log_position
    if not 0 <= message.next_term_base_log_position <= min(end, message.term_base_log_position):
        return "a term that ends before it begins, or begins after the last one"
    return None
