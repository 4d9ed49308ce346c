"""Everything the election asks of the outside. A list of actions is carried out in its order.

Two promises make the rest safe. ``ProposeTerm``, ``KeepPromises``, ``RecordTerm`` and ``TruncateLog`` are
on the disk, file and folder, before a later action of the same list is carried out. ``Send`` may be lost;
nothing relies on it.
"""

from dataclasses import dataclass

from cluster.consensus.context import NULL_POSITION
from cluster.protocol.enums import ElectionState, Role
from cluster.protocol.sbe import Message


@dataclass(frozen=True, slots=True)
class Action:
    """Base of all actions."""


@dataclass(frozen=True, slots=True)
class Send(Action):
    """Send one message to one member; report an accepted one back with ``Election.on_sent``."""

    member_id: int
    message: Message


@dataclass(frozen=True, slots=True)
class ProposeTerm(Action):
    """Make ``candidate_term_id`` durable in node-state.dat: no vote may be spoken of before."""

    candidate_term_id: int
    log_position: int


@dataclass(frozen=True, slots=True)
class KeepPromises(Action):
    """Make durable that this member has a say again (``Promises.stored``)."""


@dataclass(frozen=True, slots=True)
class RecordTerm(Action):
    """Make the term's entry durable in recording.log, empty terms before it included."""

    leadership_term_id: int
    term_base_log_position: int
    log_position: int = NULL_POSITION  # end of the term; null while it is open


@dataclass(frozen=True, slots=True)
class TruncateLog(Action):
    """Cut the recording to ``log_position``, and drop the entries of the removed terms first."""

    log_position: int
    first_removed_term_id: int


@dataclass(frozen=True, slots=True)
class SetApart(Action):
    """Take nothing of this leader any more: its log differs from ``log_position`` on, below our commit."""

    leader_member_id: int
    log_position: int
    committed_position: int


@dataclass(frozen=True, slots=True)
class PrepareForNewLeadership(Action):
    """Undo what an earlier leadership left: answered by ``Election.on_prepared``.

    Streams, replays and joins end; the recording stops and is synced; uncommitted state goes back to
    ``log_position``, which is the commit position.
    """

    log_position: int


@dataclass(frozen=True, slots=True)
class SetRole(Action):
    role: Role


@dataclass(frozen=True, slots=True)
class ChangeState(Action):
    """Show the new state in the counters and report it; ``reason`` is for people."""

    old: ElectionState
    new: ElectionState
    reason: str


@dataclass(frozen=True, slots=True)
class CreateLogPublication(Action):
    """Begin a log of ``leadership_term_id`` at ``log_position`` under a session id of its own."""

    leadership_term_id: int
    log_position: int
    log_session_id: int


@dataclass(frozen=True, slots=True)
class StartReplay(Action):
    """Process the log ``[log_position, stop_position)``; answered by ``Election.on_log_position``."""

    log_position: int
    stop_position: int


@dataclass(frozen=True, slots=True)
class StopReplay(Action):
    pass


@dataclass(frozen=True, slots=True)
class StartReplication(Action):
    """Fetch the leader's closed terms ``[log_position, stop_position)``; ``Election.on_append_position``."""

    leader_member_id: int
    leadership_term_id: int
    log_position: int
    stop_position: int


@dataclass(frozen=True, slots=True)
class StopReplication(Action):
    pass


@dataclass(frozen=True, slots=True)
class FetchSnapshot(Action):
    """Start again from the leader's snapshot: its log begins after our end. The election rests until then."""

    leader_member_id: int


@dataclass(frozen=True, slots=True)
class SubscribeToLog(Action):
    """Take the log of ``leadership_term_id`` from the leader, from ``log_position`` on.

    Its image comes back with ``Election.on_log_image``; bytes are taken once the log is joined. In a
    catch-up the request itself is the CatchupPosition that follows.
    """

    leader_member_id: int
    leadership_term_id: int
    log_session_id: int
    log_position: int
    is_catchup: bool


@dataclass(frozen=True, slots=True)
class JoinServicesToLog(Action):
    """Have recording and services join the log at ``log_position``: answered by ``on_log_joined``."""

    leadership_term_id: int
    log_position: int
    log_session_id: int
    is_startup: bool
    role: Role


@dataclass(frozen=True, slots=True)
class AppendNewLeadershipTermEvent(Action):
    """First entry of the term; ``on_term_event_appended`` when the log took it, else asked again."""

    leadership_term_id: int
    term_base_log_position: int


@dataclass(frozen=True, slots=True)
class CompleteElection(Action):
    """The election is over and its object can go: lead, or follow ``leader_member_id``."""

    leadership_term_id: int
    term_base_log_position: int
    log_position: int
    leader_member_id: int
    notified_commit_position: int
    is_leader_startup: bool
