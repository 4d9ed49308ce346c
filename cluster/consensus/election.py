"""How one member comes to lead a term, or to follow its leader.

Aeron: Election. Every state is here, in the order of their numbers. Each
reads as: on entry (``_enter_*``), each cycle (``_work_*``), on message, exits; what a message does in which
state is written once, in its handler ``on_*`` after the states. Every change passes through
``_change_state``, along ``TRANSITIONS``.

    INIT ── CANVASS ── NOMINATE ── CANDIDATE_BALLOT ── LEADER_LOG_REPLICATION ── LEADER_REPLAY ─┐
               │  └────────┴── FOLLOWER_BALLOT               CLOSED ── LEADER_READY ── LEADER_INIT
               │                      │
               ├──────────────────────┴── FOLLOWER_LOG_REPLICATION ── back to CANVASS, once per term
               └── FOLLOWER_REPLAY ─┬── FOLLOWER_CATCHUP_INIT ── _AWAIT ── FOLLOWER_CATCHUP ─┐
                                    └── FOLLOWER_LOG_INIT ── FOLLOWER_LOG_AWAIT ─────────────┤
                                                                   CLOSED ── FOLLOWER_READY ─┘

    Whatever goes wrong in any state: back to INIT, which undoes it.

Where this is stricter than the reference (each with the reason at its place):

    - A member follows a leader only when its log is known to be a prefix of the leader's (log_matching.py).
    - Before it says so it has recorded (term, base), and stands with that from then on.
    - Nothing beyond a member's own commit position is processed until a majority holds (term, base): a commit
      position below the base says how far others have come, it commits nothing (Raft §5.4.2, figure 8).
    - A term below one that this member has voted in is never followed: its leader is asked to step down.
    - A member that has lost its promises has no say until it has followed a leader to the end, and follows
      none before enough others have reported their terms (promises.py).
    - One whose log was cut where it is damaged votes as if it still had all that it acknowledged, and does
      not stand.
    - And less strict: a refusal defeats a majority (C-81), but not for ever; nomination.py about C-64.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from random import Random

from cluster.consensus.actions import (
    Action,
    AppendNewLeadershipTermEvent,
    ChangeState,
    CompleteElection,
    CreateLogPublication,
    FetchSnapshot,
    JoinServicesToLog,
    KeepPromises,
    PrepareForNewLeadership,
    ProposeTerm,
    RecordTerm,
    Send,
    SetApart,
    SetRole,
    StartReplay,
    StartReplication,
    StopReplay,
    StopReplication,
    SubscribeToLog,
    TruncateLog,
)
from cluster.consensus.cluster_member import (
    ClusterMember,
    LogEnd,
    MemberTable,
    describe_ballot,
    has_majority,
    is_quorum_candidate,
    is_quorum_leader,
    is_refused_candidate,
    is_unanimous_candidate,
    is_unanimous_leader,
)
from cluster.consensus.context import NULL_POSITION, NULL_VALUE, ConsensusModuleContext
from cluster.consensus.leadership import Leadership
from cluster.consensus.leadership_terms import LeadershipTerms
from cluster.consensus.log_matching import Ask, Cut, LogMatching, NotThere, can_record
from cluster.consensus.module import ModuleState
from cluster.consensus.nomination import comes_first, nomination_delay_ns
from cluster.consensus.promises import Promises
from cluster.protocol.consensus import (
    AppendPosition,
    CanvassPosition,
    CatchupPosition,
    CommitPosition,
    NewLeadershipTerm,
    RequestVote,
    StopCatchup,
    Vote,
)
from cluster.protocol.enums import AppendPositionFlags, ElectionState, Role
from cluster.protocol.link import CatchupProgress, TransferLeadership
from cluster.protocol.sbe import Message
from cluster.protocol.versions import CONSENSUS_PROTOCOL_VERSION


def _states(first: ElectionState, last: ElectionState) -> frozenset[ElectionState]:
    return frozenset(ElectionState(code) for code in range(first, last + 1))


BALLOTS = {ElectionState.CANDIDATE_BALLOT, ElectionState.FOLLOWER_BALLOT}
VOTING_STATES = _states(ElectionState.CANVASS, ElectionState.FOLLOWER_BALLOT)
LEADER_STATES = _states(ElectionState.LEADER_LOG_REPLICATION, ElectionState.LEADER_READY)
FOLLOWING_STATES = _states(ElectionState.FOLLOWER_LOG_REPLICATION, ElectionState.FOLLOWER_READY)
# The answer to a CatchupPosition may be here before the cycle that takes note of its sending.
LOG_AWAITING_STATES = {
    ElectionState.FOLLOWER_CATCHUP_INIT,
    ElectionState.FOLLOWER_CATCHUP_AWAIT,
    ElectionState.FOLLOWER_LOG_AWAIT,
}
CATCHUP_STATES = _states(ElectionState.FOLLOWER_CATCHUP_INIT, ElectionState.FOLLOWER_CATCHUP)

# Every change of state that there is, and why. Besides these: from any state but CLOSED to INIT.
TRANSITIONS: Mapping[ElectionState, Mapping[ElectionState, str]] = {
    ElectionState.INIT: {
        ElectionState.CANVASS: "several members",
        ElectionState.LEADER_LOG_REPLICATION: "the only member",
    },
    ElectionState.CANVASS: {
        ElectionState.NOMINATE: "no better log among all, or in a majority at the deadline",
        ElectionState.CANDIDATE_BALLOT: "its leader hands over to it",
        ElectionState.FOLLOWER_BALLOT: "voted",
        ElectionState.FOLLOWER_LOG_REPLICATION: "a leader, log ends below its base",
        ElectionState.FOLLOWER_REPLAY: "a leader, log reaches its base",
    },
    ElectionState.NOMINATE: {
        ElectionState.CANDIDATE_BALLOT: "nomination deadline",
        ElectionState.CANVASS: "nomination deadline, a leader was heard",
        ElectionState.FOLLOWER_BALLOT: "voted",
    },
    ElectionState.CANDIDATE_BALLOT: {
        ElectionState.LEADER_LOG_REPLICATION: "votes of all, or of a majority at the timeout",
        ElectionState.CANVASS: "refused, timeout, a later term, or a leader of another log term",
        ElectionState.FOLLOWER_BALLOT: "voted in a later term",
        ElectionState.FOLLOWER_LOG_REPLICATION: "a leader, log ends below its base",
        ElectionState.FOLLOWER_REPLAY: "a leader, log reaches its base",
    },
    ElectionState.FOLLOWER_BALLOT: {
        ElectionState.CANVASS: "timeout, or a leader of another log term",
        ElectionState.FOLLOWER_LOG_REPLICATION: "a leader, log ends below its base",
        ElectionState.FOLLOWER_REPLAY: "a leader, log reaches its base",
    },
    ElectionState.LEADER_LOG_REPLICATION: {ElectionState.LEADER_REPLAY: "a majority holds the log"},
    ElectionState.LEADER_REPLAY: {ElectionState.LEADER_INIT: "log processed"},
    ElectionState.LEADER_INIT: {ElectionState.LEADER_READY: "log joined"},
    ElectionState.LEADER_READY: {ElectionState.CLOSED: "a majority follows, first entry written"},
    ElectionState.FOLLOWER_LOG_REPLICATION: {ElectionState.CANVASS: "term replicated"},
    ElectionState.FOLLOWER_REPLAY: {
        ElectionState.CANVASS: "all that is committed is processed",
        ElectionState.FOLLOWER_CATCHUP_INIT: "log processed, the leader is ahead",
        ElectionState.FOLLOWER_LOG_INIT: "log processed, level with the leader",
    },
    ElectionState.FOLLOWER_CATCHUP_INIT: {ElectionState.FOLLOWER_CATCHUP_AWAIT: "position sent"},
    ElectionState.FOLLOWER_CATCHUP_AWAIT: {ElectionState.FOLLOWER_CATCHUP: "log joined"},
    ElectionState.FOLLOWER_CATCHUP: {ElectionState.FOLLOWER_LOG_INIT: "level, and told to stop"},
    ElectionState.FOLLOWER_LOG_INIT: {
        ElectionState.FOLLOWER_LOG_AWAIT: "live log requested",
        ElectionState.FOLLOWER_READY: "subscribed by the catch-up",
    },
    ElectionState.FOLLOWER_LOG_AWAIT: {ElectionState.FOLLOWER_READY: "log joined"},
    ElectionState.FOLLOWER_READY: {ElectionState.CLOSED: "append position sent"},
    ElectionState.CLOSED: {},
}

EMPTY_LOG = LogEnd(NULL_VALUE, 0)
REFUSED_BALLOTS_MAX = 3  # in one election, that a single refusal defeats


class _Undoing(Enum):
    """In INIT: of what leading or following has left."""

    NONE = auto()
    DUE = auto()
    ASKED = auto()


@dataclass(slots=True)
class _Offer:
    """A leader that is heard while we vote, and what is known of its log."""

    matching: LogMatching
    term: NewLeadershipTerm | None = None  # what it has after our last term, once it has reported it


@dataclass(slots=True)
class _Voting:
    """What the voting states keep from one to the next; made on entry of INIT."""

    nomination_deadline_ns: int = 0
    is_leader_heard: bool = False  # since the nomination
    refused_ballots: int = 0
    offer: _Offer | None = None


@dataclass(slots=True, kw_only=True)
class _Term:
    """The term that is led or followed, from when it is adopted until the next canvass."""

    leader_member_id: int
    term_base: int
    log_session_id: int
    is_startup: bool  # the leader's node has just started
    replay_stop_position: int = NULL_POSITION  # while a replay runs
    is_log_joined: bool = False


@dataclass(slots=True, kw_only=True)
class _Led(_Term):
    """A term of ours."""

    leadership: Leadership
    previous_term_id: int  # of the log that is led: what most others hold, too


@dataclass(slots=True)
class _Replication:
    """What FOLLOWER_LOG_REPLICATION fetches: the bytes of one closed term, or the rest of them."""

    leadership_term_id: int
    term_base: int
    stop_position: int
    has_fetched: bool = field(default=False, init=False)  # any byte at all: an empty term is only recorded
    deadline_ns: int = field(default=0, init=False)


@dataclass(slots=True, kw_only=True)
class _Followed(_Term):
    """A term of another member, and how far we have come on the way to its live log."""

    join_position: int  # where the leader's log ended: below it we catch up
    notified_commit_position: int = 0
    replication: _Replication | None = None  # in FOLLOWER_LOG_REPLICATION
    sent_append_position: int = NULL_POSITION
    growth_ns: int = 0  # when bytes of the leader's log came last
    is_catchup_requested: bool = False
    is_catchup_stopped: bool = False
    has_log_image: bool = False
    is_ready_reported: bool = False


class Election:
    """One election of one member, from INIT to CLOSED. Not to be used after CLOSED.

    ``members``, ``promises``, ``module``, ``gone_member_ids`` and ``unrelated_ids`` belong to the caller and
    outlive the election; the gone are those whose process is known to be dead, the unrelated are not heard.
    ``terms`` is its own. ``committed_position``: what an earlier life has known to be committed.
    ``acknowledged_end``: where the log ended before damage cut it, or beyond; None for a whole log.
    ``successor_id``: whom the leader hands over to; the others leave it the first ballot.

    What does not last as long as the election is in ``_voting`` and ``_term``.
    """

    def __init__(
        self,
        context: ConsensusModuleContext,
        members: MemberTable,
        terms: LeadershipTerms,
        promises: Promises,
        random: Random,
        *,
        module: ModuleState,
        candidate_term_id: int = NULL_VALUE,
        log_position: int = 0,
        append_position: int = 0,
        log_recording_id: int = NULL_VALUE,
        is_node_startup: bool = True,
        acknowledged_end: LogEnd | None = None,
        graceful_closed_leader_id: int = NULL_VALUE,
        time_of_last_leader_message_ns: int = 0,
        gone_member_ids: Collection[int] = (),
        unrelated_ids: Iterable[int] = (),
        committed_position: int = 0,
        successor_id: int = NULL_VALUE,
    ) -> None:
        assert log_position <= append_position
        assert tuple(members) == context.member_ids
        self.state = ElectionState.INIT
        self.terms = terms
        self.leadership_term_id = terms.last_term_id  # the last one that was led, followed or recorded
        self._acknowledged_end = acknowledged_end or EMPTY_LOG  # whatever it has ever reported lies before
        self.candidate_term_id = max(
            candidate_term_id, terms.last_term_id, self._acknowledged_end.leadership_term_id
        )
        self.log_position = log_position  # processed, hence committed: nothing below is ever cut off
        self.append_position = append_position  # recorded, and safe on the disk
        self.graceful_closed_leader_id = graceful_closed_leader_id

        self._context = context
        self._members = members
        self._module = module
        self._promises = promises
        self._random = random
        self._gone = gone_member_ids
        self._unrelated = unrelated_ids
        self._committed_position = committed_position
        self._log_recording_id = log_recording_id
        self._is_node_startup = is_node_startup
        self._undoing = _Undoing.NONE if is_node_startup else _Undoing.DUE
        self._is_extended_canvass = is_node_startup
        self._successor_id = successor_id  # until this member has stood
        self._is_first_ballot = True  # until it has stood or voted
        self._actions: list[Action] = []
        self._cluster_time = 0
        self._time_of_last_leader_message_ns = time_of_last_leader_message_ns
        self._time_of_state_change_ns = 0
        self._time_of_last_send_ns: int | None = None
        self._voting = _Voting()
        self._term: _Led | _Followed | None = None

    # ---- what the owner reads ----------------------------------------------------------------------------

    @property
    def leader_member_id(self) -> int:
        """Of the term that is led or followed; NULL_VALUE without one."""
        return NULL_VALUE if self._term is None else self._term.leader_member_id

    @property
    def log_session_id(self) -> int:
        """Of the log of that term; NULL_VALUE without one."""
        return NULL_VALUE if self._term is None else self._term.log_session_id

    @property
    def leadership(self) -> Leadership:
        """What is led: in the leader states, and when it has closed as leader."""
        return self._led.leadership

    @property
    def effective_commit_position(self) -> int:
        """The commit position that the leader has sent, 0 while it proves no majority for (term, base)."""
        term = self._term
        if isinstance(term, _Followed) and term.notified_commit_position >= term.term_base:
            return term.notified_commit_position
        return 0

    # ---- what the owner calls besides the messages ------------------------------------------------------

    def do_work(self, now_ns: int, cluster_time: int) -> list[Action]:
        """Take one cycle of the current state."""
        assert self.state is not ElectionState.CLOSED
        self._cluster_time = cluster_time
        if self.state not in LEADER_STATES or self._publish_leadership(now_ns):
            self._WORK[self.state](self, now_ns)
        return self._take()

    def on_prepared(self, append_position: int, now_ns: int) -> list[Action]:
        """PrepareForNewLeadership is done; the recording has stopped at ``append_position``, synced."""
        assert self.state is ElectionState.INIT
        assert append_position >= self.log_position
        self.append_position = append_position
        self._leave_init(now_ns)
        return self._take()

    def on_sent(self, member_id: int, message: Message) -> None:
        """A ``Send`` was taken by the link. Those that matter are sent again until this is called."""
        match message:
            case RequestVote(candidate_term_id=term_id) if term_id == self.candidate_term_id:
                self._members[member_id].is_ballot_sent = True
            case CatchupPosition() if self.state is ElectionState.FOLLOWER_CATCHUP_INIT:
                self._followed.is_catchup_requested = True
            case AppendPosition() if self.state is ElectionState.FOLLOWER_READY:
                self._followed.is_ready_reported = True

    def on_log_position(self, log_position: int, now_ns: int) -> None:
        """The log is processed, and commit-pos raised, up to ``log_position``."""
        assert self.log_position <= log_position <= self.append_position  # I-2, I-3
        self.log_position = log_position

    def on_append_position(self, append_position: int, now_ns: int) -> None:
        """The recording is safe on the disk up to ``append_position``."""
        if append_position > self.append_position:
            self.append_position = append_position
            if isinstance(self._term, _Followed):
                self._term.growth_ns = now_ns

    def on_log_created(self, log_recording_id: int) -> None:
        """There was no log; this is its recording."""
        self._log_recording_id = log_recording_id
        if isinstance(self._term, _Led):
            self._term.leadership.log_recording_id = log_recording_id

    def on_log_image(self, leadership_term_id: int, join_position: int, now_ns: int) -> list[Action]:
        """The leader's log is about to come, from ``join_position`` on."""
        if (
            self.state in LOG_AWAITING_STATES
            and leadership_term_id == self.leadership_term_id
            and not self._followed.has_log_image
        ):
            if join_position != self.append_position:
                self._restart(now_ns, f"log joins at {join_position}, expected {self.append_position}")
            else:
                self._followed.has_log_image = True
                self._join_log(self._followed, self.append_position, Role.FOLLOWER)
        return self._take()

    def on_log_joined(self, now_ns: int) -> None:
        """All services acknowledged the JoinLog."""
        assert self._term is not None, "nothing was joined"
        self._term.is_log_joined = True

    def on_term_event_appended(self, log_position: int, now_ns: int) -> list[Action]:
        """The NewLeadershipTermEvent is in the log, which now ends at ``log_position``."""
        assert self.state is ElectionState.LEADER_READY
        assert log_position > self._led.term_base  # the term has bytes: others can be proven against it
        self._complete(self._led, now_ns, "term event appended")
        return self._take()

    def on_error(self, reason: str, commit_position: int, now_ns: int) -> list[Action]:
        """Whatever was going on failed: begin again from the commit position (C-44)."""
        assert commit_position >= self.log_position  # I-2
        self.log_position = commit_position
        if self.state is ElectionState.INIT:
            self._enter_init(now_ns)  # what failed is the undoing itself: it is asked for again
        self._restart(now_ns, reason)
        return self._take()

    def on_link_up(self, member_id: int, now_ns: int) -> list[Action]:
        """The member can hear us: what it needs in order to judge does not wait for the next interval."""
        if self.state in (ElectionState.CANVASS, ElectionState.NOMINATE):
            self._ask(member_id, self.terms.last_term_id)
        return self._take()

    def on_link_down(self, member_id: int, now_ns: int) -> list[Action]:
        """What the member reported over that link proves nothing any more, and its log stream is cut."""
        member = self._members[member_id]
        member.clear_report()
        if member.vote is None:  # the request may be lost; a voter asked twice would refuse (C-85)
            member.is_ballot_sent = False
        if member_id == self.leader_member_id and self.state in FOLLOWING_STATES:
            self._restart(now_ns, f"the link to leader {member_id} broke")
        return self._take()

    def on_member_gone(self, member_id: int, now_ns: int) -> list[Action]:
        """The member's process is dead: do not wait for what it was to send."""
        if member_id == self.leader_member_id and self.state in FOLLOWING_STATES:
            self._restart(now_ns, f"leader {member_id} is gone")
        return self._take()

    # ---- INIT --------------------------------------------------------------------------------------------
    # entry     what leading or following has left is to be undone; nothing at the start of a node
    # cycle     PrepareForNewLeadership, once; on_prepared leads on
    # message   none is taken
    # exits     CANVASS; LEADER_LOG_REPLICATION for the only member

    def _enter_init(self, now_ns: int) -> None:
        self._undoing = _Undoing.DUE
        self._voting = _Voting()

    def _work_init(self, now_ns: int) -> None:
        if self._undoing is _Undoing.NONE:
            self._leave_init(now_ns)
        elif self._undoing is _Undoing.DUE:
            self._undoing = _Undoing.ASKED
            self._do(SetRole(Role.FOLLOWER))
            self._do(PrepareForNewLeadership(self.log_position))

    def _leave_init(self, now_ns: int) -> None:
        assert self._undoing is not _Undoing.DUE  # entries that are not committed would count as processed
        self.leadership_term_id = self.terms.last_term_id
        self.candidate_term_id = max(self.candidate_term_id, self.leadership_term_id)
        if self._others:
            self._change_state(ElectionState.CANVASS, now_ns, "several members")
        else:
            self._propose(self.candidate_term_id + 1)
            self._lead(now_ns, "the only member")

    # ---- CANVASS: exchange how good the logs are ---------------------------------------------------------
    # entry     forget what members said; role FOLLOWER
    # cycle     CanvassPosition to all; nominate when all, or at the deadline a majority, are no better. Where
    #           the leader hands over: stand at once, and say so to all
    # message   CanvassPosition: how good its sender's log is. RequestVote: a vote, unless our log is better.
    #           NewLeadershipTerm: follow, once our log is known to be a prefix of the leader's
    # exits     NOMINATE; CANDIDATE_BALLOT; FOLLOWER_BALLOT; FOLLOWER_LOG_REPLICATION or FOLLOWER_REPLAY

    def _enter_canvass(self, now_ns: int) -> None:
        self._do(SetRole(Role.FOLLOWER))
        for member in self._members.values():
            member.reset()
        self._this.standing = self._standing
        self._term = None

    def _work_canvass(self, now_ns: int) -> None:
        if self._successor_id == self._this.id and self._may_stand():
            self._successor_id = NULL_VALUE
            self._send_others(
                TransferLeadership(self.leadership_term_id, self.append_position, self._this.id)
            )
            self._change_state(ElectionState.CANDIDATE_BALLOT, now_ns, "its leader hands over to it")
            return
        self._send_canvass_position(now_ns)
        self._find_promises()
        if self._context.appointed_leader_id not in (NULL_VALUE, self._this.id) or not self._may_stand():
            return
        members, standing = self._members.values(), self._standing
        if is_unanimous_candidate(members, standing, self._exempt, self._context.quorum_threshold):
            self._nominate(now_ns, f"unanimous candidate: has {standing}", are_all_heard=True)
        elif now_ns >= self._canvass_deadline_ns and is_quorum_candidate(
            members, standing, self._context.quorum_threshold
        ):
            self._nominate(now_ns, f"quorum candidate: has {standing}", are_all_heard=False)

    def _nominate(self, now_ns: int, reason: str, *, are_all_heard: bool) -> None:
        is_first, appointed_id = None, self._context.appointed_leader_id
        if are_all_heard and self._is_first_ballot:
            # A successor that has just started may still count as gone: so its being silent says nothing.
            is_first = self._successor_id == NULL_VALUE and comes_first(
                self._this, self._others, self._exempt, appointed_id
            )
        delay_ns = nomination_delay_ns(self._random, self._context.election_timeout_ns, is_first=is_first)
        self._voting.nomination_deadline_ns = now_ns + delay_ns
        self._voting.is_leader_heard = False
        self._change_state(ElectionState.NOMINATE, now_ns, reason)

    @property
    def _canvass_deadline_ns(self) -> int:
        if self._is_extended_canvass:
            return self._time_of_state_change_ns + self._context.startup_canvass_timeout_ns
        return self._time_of_last_leader_message_ns + self._context.leader_heartbeat_timeout_ns

    def _may_stand(self) -> bool:
        """Whether it leads at all, and its log is all that it has ever reported; else another must lead."""
        is_whole = self._standing >= self._acknowledged_end
        return self._context.may_lead and is_whole and self._promises.has_say

    def _find_promises(self) -> None:
        """Without promises: take note of what the others have answered."""
        promises = self._promises
        if promises.has_say:
            return
        term_id = promises.confirmed_term_id
        if term_id is not None and term_id > self.candidate_term_id:
            self._propose(term_id)
        elif promises.is_new_cluster(self.candidate_term_id, self.terms.last_term_id):
            promises.keep_nothing()
            self._do(KeepPromises())

    # ---- NOMINATE: let the deadline pass -----------------------------------------------------------------
    # entry     a deadline was set, so that one of several candidates comes first
    # cycle     CanvassPosition goes on; at the deadline stand
    # message   RequestVote as in CANVASS. NewLeadershipTerm: only remembered (C-76)
    # exits     CANDIDATE_BALLOT; CANVASS when a leader was heard meanwhile; FOLLOWER_BALLOT

    def _work_nominate(self, now_ns: int) -> None:
        if now_ns < self._voting.nomination_deadline_ns:
            self._send_canvass_position(now_ns)
        elif self._voting.is_leader_heard:
            # The reference stands against a leader that it has just heard (C-76). We look again.
            self._change_state(ElectionState.CANVASS, now_ns, "a leader was heard")
        else:
            term_id = self.candidate_term_id + 1
            self._change_state(ElectionState.CANDIDATE_BALLOT, now_ns, f"stands for term {term_id}")

    # ---- CANDIDATE_BALLOT: ask for votes -----------------------------------------------------------------
    # entry     the next term is ours to stand for, on the disk before anyone hears of it; role CANDIDATE
    # cycle     RequestVote to whoever was not sent one; count the votes
    # message   Vote. RequestVote of a higher term as in CANVASS. NewLeadershipTerm: follow, as in CANVASS
    # exits     LEADER_LOG_REPLICATION; CANVASS; FOLLOWER_BALLOT; FOLLOWER_LOG_REPLICATION or FOLLOWER_REPLAY

    def _enter_candidate_ballot(self, now_ns: int) -> None:
        assert self._may_stand()  # what it may have promised, or acknowledged, it still has (I-3, I-9)
        self._do(SetRole(Role.CANDIDATE))
        self._propose(self.candidate_term_id + 1)
        for member in self._members.values():
            member.vote = member.promises = None
            member.candidate_term_id = NULL_VALUE
            member.is_ballot_sent = False
        self._this.vote = self._this.is_ballot_sent = True
        self._this.candidate_term_id = self.candidate_term_id

    def _work_candidate_ballot(self, now_ns: int) -> None:
        members, term_id = self._members.values(), self.candidate_term_id
        for voter in self._promises.void_votes(members):
            voter.vote = None  # given by a life that it has forgotten
        quorum_threshold = self._context.quorum_threshold
        is_refused = is_refused_candidate(members, term_id)
        if is_unanimous_leader(members, term_id, self._exempt, quorum_threshold):
            self._lead(now_ns, f"unanimous leader of term {term_id}")
        elif is_refused and self._voting.refused_ballots < REFUSED_BALLOTS_MAX:
            # Nobody leads with a refusal (C-81), so there is nothing to wait for: as a rule two have stood at
            # once after a leader's death, and the sooner they draw again, the shorter is the gap.
            self._voting.refused_ballots += 1
            self._change_state(ElectionState.CANVASS, now_ns, describe_ballot(members, term_id))
        elif is_refused and has_majority(members, term_id, quorum_threshold):
            # Who refuses has a better log, and had its chances. It must reach too few to be elected itself.
            self._lead(now_ns, f"leader of term {term_id}, {describe_ballot(members, term_id)} once more")
        elif self._is_past(self._context.election_timeout_ns, now_ns):
            if is_quorum_leader(members, term_id, quorum_threshold):
                self._lead(now_ns, f"quorum leader of term {term_id}")
            else:
                self._change_state(ElectionState.CANVASS, now_ns, describe_ballot(members, term_id))
        else:
            request = RequestVote(
                log_leadership_term_id=self.terms.last_term_id,
                log_position=self.append_position,
                candidate_term_id=term_id,
                candidate_member_id=self._this.id,
                protocol_version=CONSENSUS_PROTOCOL_VERSION,
            )
            for member in self._others:
                if not member.is_ballot_sent:
                    self._send(member.id, request)

    # ---- FOLLOWER_BALLOT: voted; wait for the leader -----------------------------------------------------
    # cycle     nothing but the timeout
    # message   RequestVote of a higher term: another vote. NewLeadershipTerm: follow, as in CANVASS
    # exits     CANVASS; FOLLOWER_LOG_REPLICATION or FOLLOWER_REPLAY

    def _work_follower_ballot(self, now_ns: int) -> None:
        if self._is_past(self._context.election_timeout_ns, now_ns):
            self._change_state(
                ElectionState.CANVASS, now_ns, f"no leader of term {self.candidate_term_id} in time"
            )

    # ---- LEADER_LOG_REPLICATION: until a majority holds the whole log, and the term's start --------------
    # entry     all hear of the term; it is recorded before their reports count, not older ones; role LEADER
    # cycle     NewLeadershipTerm and CommitPosition each interval, here and in all leader states
    # message   CanvassPosition: answered with the term after its sender's. AppendPosition: a follower's log.
    #           A higher term from anybody: back to INIT, in all leader states
    # exits     LEADER_REPLAY

    def _lead(self, now_ns: int, reason: str) -> None:
        assert self._promises.has_say  # it counts for its own majority (I-9)
        assert self.candidate_term_id > self.terms.last_term_id  # terms rise along the Log (I-9)
        self.leadership_term_id = self.candidate_term_id
        leadership = Leadership(
            self._context,
            self._members,
            self.terms,
            leadership_term_id=self.leadership_term_id,
            term_base=self.append_position,
            log_session_id=self._draw_log_session_id(),
            log_recording_id=self._log_recording_id,
            now_ns=now_ns,
        )
        self._term = _Led(
            leader_member_id=self._this.id,
            term_base=leadership.term_base,
            log_session_id=leadership.log_session_id,
            is_startup=False,
            leadership=leadership,
            previous_term_id=self.terms.last_term_id,
        )
        self._change_state(ElectionState.LEADER_LOG_REPLICATION, now_ns, reason)

    def _draw_log_session_id(self) -> int:
        session_id = self._random.randrange(-(2**31), 2**31)
        return 0 if session_id == NULL_VALUE else session_id

    def _enter_leader_log_replication(self, now_ns: int) -> None:
        for member in self._members.values():
            member.clear_report()
        led = self._led
        self.terms.record(self.leadership_term_id, led.term_base)
        if self._log_recording_id != NULL_VALUE:  # others hear of it; a new log gets one with its term
            self._time_of_last_send_ns = now_ns
            self._send_others(self._new_leadership_term(led.previous_term_id, led.leadership.quorum_position))
        self._do(RecordTerm(self.leadership_term_id, led.term_base, NULL_POSITION))
        self._do(SetRole(Role.LEADER))
        self._do(CreateLogPublication(self.leadership_term_id, led.term_base, led.log_session_id))

    def _work_leader_log_replication(self, now_ns: int) -> None:
        if self.leadership.has_quorum(now_ns):
            self._change_state(
                ElectionState.LEADER_REPLAY, now_ns, f"a majority holds the log to {self._led.term_base}"
            )

    # ---- LEADER_REPLAY: process what is recorded ---------------------------------------------------------
    # cycle     as before; module and services process what is recorded and not processed yet (LogReplay)
    # message   as before
    # exits     LEADER_INIT

    def _enter_leader_replay(self, now_ns: int) -> None:
        self._led.is_startup = self._is_node_startup

    def _work_leader_replay(self, now_ns: int) -> None:
        led = self._led
        if led.replay_stop_position == NULL_POSITION and self.log_position < self.append_position:
            self._start_replay(led, self.append_position)
        elif self.log_position == self.append_position and not self._module.is_in_snapshot:
            self._stop_replay(led)
            self._change_state(ElectionState.LEADER_INIT, now_ns, f"log processed to {self.log_position}")

    # ---- LEADER_INIT: recording and services join the log ------------------------------------------------
    # entry     JoinLog to the services, as leader
    # cycle     as before, until all have acknowledged
    # message   as before
    # exits     LEADER_READY

    def _enter_leader_init(self, now_ns: int) -> None:
        assert self.log_position == self.append_position == self._led.term_base  # it appends there (I-3)
        self._join_log(self._led, self.log_position, Role.LEADER)

    def _work_leader_init(self, now_ns: int) -> None:
        if self._led.is_log_joined:
            self._change_state(ElectionState.LEADER_READY, now_ns, "log joined")

    # ---- LEADER_READY: a majority follows; write the first entry of the term -----------------------------
    # cycle     as before; with a majority at (term, base) the NewLeadershipTermEvent is appended
    # message   as before
    # exits     CLOSED

    def _work_leader_ready(self, now_ns: int) -> None:
        if self.leadership.has_quorum(now_ns):
            self._do(AppendNewLeadershipTermEvent(self.leadership_term_id, self._led.term_base))

    # ---- FOLLOWER_LOG_REPLICATION: fetch one closed term, or the rest of one -----------------------------
    # entry     the term is recorded, then its bytes are asked for; role FOLLOWER
    # cycle     AppendPosition; done when all is here and covered by the leader's commit
    # message   CommitPosition, NewLeadershipTerm: how far the leader's commit is. A higher term: INIT, in all
    #           follower states
    # exits     CANVASS, to hear of the term after this one

    def _enter_follower_log_replication(self, now_ns: int) -> None:
        followed = self._followed
        replication = followed.replication
        assert replication is not None
        assert self.append_position < followed.term_base  # a closed term ends at the base, or below
        self._do(SetRole(Role.FOLLOWER))
        replication.deadline_ns = now_ns + self._context.leader_heartbeat_timeout_ns
        if self.append_position < replication.stop_position:
            replication.has_fetched = True
            # Recorded before its bytes come: else a crash in between leaves bytes of an unknown term.
            self._record_term(replication.leadership_term_id, replication.term_base)
            begin, end = self.append_position, replication.stop_position
            self._do(StartReplication(followed.leader_member_id, self.leadership_term_id, begin, end))

    def _work_follower_log_replication(self, now_ns: int) -> None:
        followed = self._followed
        replication = followed.replication
        assert replication is not None
        is_ended = self.append_position >= replication.stop_position
        # C-140; where no byte was fetched there is nothing to be covered. Neither is there at the leader's
        # own base: no commit can reach it before a majority has recorded it, which we have not yet.
        is_covered = (
            not replication.has_fetched
            or replication.stop_position >= followed.term_base
            or followed.notified_commit_position >= replication.stop_position
        )
        if is_ended and is_covered:
            if replication.has_fetched:
                self._do(StopReplication())
            self._record_term(
                replication.leadership_term_id, replication.term_base, replication.stop_position
            )
            self._change_state(
                ElectionState.CANVASS, now_ns, f"has term {replication.leadership_term_id} whole"
            )
        elif is_ended and now_ns >= replication.deadline_ns:
            self._restart(now_ns, "the leader did not cover the replicated log in time")
        elif not is_ended and self._is_silence(followed.growth_ns, now_ns):
            self._restart(now_ns, "replication does not progress")
        elif self.append_position < followed.term_base:
            # At the base it would say that (term, base) is recorded (I-19).
            self._send_append_position(now_ns, AppendPositionFlags.NONE)

    # ---- FOLLOWER_REPLAY: process what is recorded and committed -----------------------------------------
    # entry     (term, base) is recorded: from here on this member counts for the leader; role FOLLOWER
    # cycle     AppendPosition; module and services process what is recorded and committed (LogReplay)
    # message   CommitPosition, NewLeadershipTerm: the bound of what may be processed
    # exits     FOLLOWER_LOG_INIT, level; FOLLOWER_CATCHUP_INIT, lagging; CANVASS, not all of it committed

    def _enter_follower_replay(self, now_ns: int) -> None:
        assert self.append_position >= self._followed.term_base
        assert self.terms.last_term_id == self.leadership_term_id  # I-19: reports of this term follow
        self._do(SetRole(Role.FOLLOWER))

    def _work_follower_replay(self, now_ns: int) -> None:
        # From here on this member holds (term, base) and says so: a leader that is not there yet, and a
        # commit that waits for this member, both depend on it.
        self._send_append_position(now_ns, AppendPositionFlags.NONE)
        if self._module.is_in_snapshot:
            return  # what it has read is not done with (C-113)
        followed = self._followed
        if followed.replay_stop_position != NULL_POSITION:
            if self.log_position >= followed.replay_stop_position:
                self._stop_replay(followed)
                if self.log_position >= self.append_position:
                    self._join_leader(now_ns, f"log processed to {self.log_position}")
                else:
                    self._change_state(
                        ElectionState.CANVASS, now_ns, f"processed what is committed, to {self.log_position}"
                    )
        elif self.log_position >= self.append_position:
            self._join_leader(now_ns, "nothing to replay")
        elif self.effective_commit_position == 0:
            if self._is_silence(self._time_of_last_leader_message_ns, now_ns):
                self._restart(now_ns, "no commit position came in time")
        elif self.log_position >= self.effective_commit_position:
            # One interval, so that the report above can make the commit grow before the canvass voids it.
            if self._is_past(self._context.leader_heartbeat_interval_ns, now_ns):
                self._change_state(ElectionState.CANVASS, now_ns, "committed part is processed")
        else:
            self._start_replay(followed, min(self.append_position, self.effective_commit_position))

    def _join_leader(self, now_ns: int, reason: str) -> None:
        assert self.log_position == self.append_position  # the live log is processed from its end on
        is_lagging = self._followed.join_position > self.append_position
        state = ElectionState.FOLLOWER_CATCHUP_INIT if is_lagging else ElectionState.FOLLOWER_LOG_INIT
        self._change_state(state, now_ns, reason)

    # ---- FOLLOWER_CATCHUP_INIT: ask for the log of the term so far ---------------------------------------
    # entry     ready for log bytes
    # cycle     CatchupPosition until the link has taken it
    # message   the start of the log: recording and services join it
    # exits     FOLLOWER_CATCHUP_AWAIT

    def _enter_follower_catchup_init(self, now_ns: int) -> None:
        self._subscribe_to_log(is_catchup=True)

    def _work_follower_catchup_init(self, now_ns: int) -> None:
        if self._followed.is_catchup_requested:
            self._change_state(ElectionState.FOLLOWER_CATCHUP_AWAIT, now_ns, "catch-up requested")
        elif self._is_past(self._context.leader_heartbeat_timeout_ns, now_ns):
            self._restart(now_ns, "the catch-up position could not be sent in time")
        else:
            self._send(
                self.leader_member_id,
                CatchupPosition(
                    leadership_term_id=self.leadership_term_id,
                    log_position=self.append_position,
                    follower_member_id=self._this.id,
                ),
            )

    # ---- FOLLOWER_CATCHUP_AWAIT: until the log comes -----------------------------------------------------
    # cycle     nothing but the timeout
    # message   the start of the log: recording and services join it
    # exits     FOLLOWER_CATCHUP

    def _work_follower_catchup_await(self, now_ns: int) -> None:
        if self._followed.is_log_joined:
            self._change_state(ElectionState.FOLLOWER_CATCHUP, now_ns, "log joined")
        elif self._is_past(self._context.leader_heartbeat_timeout_ns, now_ns):
            self._restart(now_ns, "the log did not come in time")

    # ---- FOLLOWER_CATCHUP: record and process until level with the leader --------------------------------
    # cycle     AppendPosition, flagged; the owner processes up to the commit position
    # message   CommitPosition: how far. StopCatchup: the leader sends its live log from here on
    # exits     FOLLOWER_LOG_INIT

    def _work_follower_catchup(self, now_ns: int) -> None:
        self._send_append_position(now_ns, AppendPositionFlags.CATCHUP)
        followed = self._followed
        target = max(followed.join_position, followed.notified_commit_position)
        reached = self.log_position
        if not self._promises.has_say and reached >= self.effective_commit_position:
            reached = self.append_position  # the rest may wait for it to be committed
        if followed.is_catchup_stopped and reached >= target and not self._module.is_in_snapshot:
            self._change_state(ElectionState.FOLLOWER_LOG_INIT, now_ns, f"level with the leader at {reached}")
        elif self._is_silence(followed.growth_ns, now_ns) and not self._module.is_in_snapshot:
            self._restart(now_ns, "the catch-up does not progress")

    # ---- FOLLOWER_LOG_INIT: take the live log ------------------------------------------------------------
    # cycle     ask for the live log, unless the catch-up has ended with it
    # message   CommitPosition, NewLeadershipTerm
    # exits     FOLLOWER_LOG_AWAIT; FOLLOWER_READY

    def _work_follower_log_init(self, now_ns: int) -> None:
        if self._followed.has_log_image:
            self._change_state(ElectionState.FOLLOWER_READY, now_ns, "subscribed by the catch-up")
        else:
            self._subscribe_to_log(is_catchup=False)
            self._change_state(ElectionState.FOLLOWER_LOG_AWAIT, now_ns, "live log requested")

    # ---- FOLLOWER_LOG_AWAIT: until it comes --------------------------------------------------------------
    # cycle     AppendPosition on growth and each interval
    # message   the start of the log: recording and services join it
    # exits     FOLLOWER_READY

    def _work_follower_log_await(self, now_ns: int) -> None:
        if self._followed.is_log_joined:
            self._change_state(ElectionState.FOLLOWER_READY, now_ns, "log joined")
        elif self._is_past(self._context.leader_heartbeat_timeout_ns, now_ns):
            self._restart(now_ns, "the live log did not come in time")
        else:
            # Repeated, because a leader that is not there yet needs a report that its link has not lost.
            self._send_append_position(now_ns, AppendPositionFlags.NONE)

    # ---- FOLLOWER_READY: say so --------------------------------------------------------------------------
    # entry     this member holds what the leader holds: it has a say again if it had lost it
    # cycle     AppendPosition until the link has taken it
    # message   CommitPosition, NewLeadershipTerm
    # exits     CLOSED

    def _enter_follower_ready(self, now_ns: int) -> None:
        assert self._followed.has_log_image and self._followed.is_log_joined
        # It holds what the leader holds: from now on it has a say, also after a restart.
        self._acknowledged_end = EMPTY_LOG
        self._propose(self.candidate_term_id)
        if not self._promises.has_say:
            self._promises.keep(self.candidate_term_id)
            self._do(KeepPromises())

    def _work_follower_ready(self, now_ns: int) -> None:
        if self._followed.is_ready_reported:
            self._complete(self._followed, now_ns, "append position sent")
        elif self._is_past(self._context.leader_heartbeat_timeout_ns, now_ns):
            self._restart(now_ns, "the append position could not be sent in time")
        else:
            self._send(self.leader_member_id, self._append_position_message(AppendPositionFlags.NONE))

    # ---- CLOSED ------------------------------------------------------------------------------------------
    # the owner leads or follows, and drops this object

    def _complete(self, term: _Term, now_ns: int, reason: str) -> None:
        assert self._promises.has_say  # from now on it counts (I-9)
        assert self.terms.last_term_id == self.leadership_term_id <= self.candidate_term_id  # I-9, I-19
        self._do(
            CompleteElection(
                leadership_term_id=self.leadership_term_id,
                term_base_log_position=term.term_base,
                log_position=self.log_position,
                leader_member_id=term.leader_member_id,
                notified_commit_position=max(self.effective_commit_position, self.log_position),
                is_leader_startup=term.is_startup,
            )
        )
        self._change_state(ElectionState.CLOSED, now_ns, reason)

    # ---- messages: canvass and votes ---------------------------------------------------------------------

    def on_canvass_position(self, message: CanvassPosition, now_ns: int) -> list[Action]:
        """A member looks for a leader and says how good its log is."""
        member = self._other(message.follower_member_id)
        if member is None or self.state is ElectionState.INIT:
            return []
        if member.id == self.graceful_closed_leader_id:
            self.graceful_closed_leader_id = NULL_VALUE
        member.standing = LogEnd(message.log_leadership_term_id, message.log_position)
        member.time_of_last_activity_ns = now_ns
        member.clear_report()  # whatever it proved before, it is looking for a leader again
        if self.state in LEADER_STATES:
            if message.log_leadership_term_id > self.leadership_term_id:
                self._restart(now_ns, f"member {member.id} holds a later term")
            else:
                self._send_new_leadership_term(member.id, message.log_leadership_term_id)
        return self._take()

    def on_request_vote(self, message: RequestVote, now_ns: int) -> list[Action]:
        """A candidate asks for this member's vote (C-84 to C-93)."""
        member = self._other(message.candidate_member_id)
        if member is None or self.state is ElectionState.INIT:
            return []
        self._find_promises()
        candidate = LogEnd(message.log_leadership_term_id, message.log_position)
        member.standing = candidate
        term_id = message.candidate_term_id
        if term_id <= self.candidate_term_id:
            self._send_vote(member.id, self.candidate_term_id, False)
        elif max(self._standing, self._acknowledged_end) > candidate:
            if not self._may_stand():
                return []  # a refusal defeats the candidate (C-81), and here is no better one
            # Leading or following, a refusal adopts nothing: a stale candidate must not end what works.
            if self.state in VOTING_STATES:
                self._propose(term_id)
            self._send_vote(member.id, term_id, False)
            if self.state in LEADER_STATES:
                self._send_new_leadership_term(member.id, message.log_leadership_term_id)
        elif self.state in VOTING_STATES and self._promises.has_say:
            self._propose(term_id)
            self._send_vote(member.id, term_id, True)
            self._change_state(
                ElectionState.FOLLOWER_BALLOT,
                now_ns,
                f"voted for member {member.id} in term {term_id}, which has {candidate}",
            )
        return self._take()

    def on_vote(self, message: Vote, now_ns: int) -> list[Action]:
        """A voter answered, or a member refuses our term because it has voted in a later one."""
        member = self._other(message.follower_member_id)
        if member is None or self.state is ElectionState.INIT:
            return []
        term_id = message.candidate_term_id
        is_leading = self.state in LEADER_STATES
        if term_id > self.candidate_term_id and (is_leading or self.state is ElectionState.CANDIDATE_BALLOT):
            self._propose(term_id)
            state = ElectionState.INIT if is_leading else ElectionState.CANVASS
            self._change_state(state, now_ns, f"member {member.id} has voted in term {term_id}")
        elif (
            self.state is ElectionState.CANDIDATE_BALLOT
            and message.candidate_member_id == self._this.id
            and term_id == self.candidate_term_id
        ):
            member.candidate_term_id = term_id
            member.vote = message.vote
            member.promises = self._promises.statement_of(member.id)
            member.standing = LogEnd(message.log_leadership_term_id, message.log_position)
            member.time_of_last_activity_ns = now_ns
        return self._take()

    # ---- messages: a leader ------------------------------------------------------------------------------

    def on_new_leadership_term(self, message: NewLeadershipTerm, now_ns: int) -> list[Action]:
        """A leader announces its term; ``next_*`` is what its log has after ``log_leadership_term_id``."""
        leader = self._other(message.leader_member_id)
        if leader is None or self.state is ElectionState.INIT:
            return []
        if leader.id == self.graceful_closed_leader_id:
            self.graceful_closed_leader_id = NULL_VALUE
        self._find_promises()
        leadership_term_id = message.leadership_term_id
        if not self._promises.may_follow:
            return self._take()
        if leadership_term_id < self.candidate_term_id:
            self._send_vote(leader.id, self.candidate_term_id, False)
            return self._take()
        self._hear_leader(now_ns)

        if self.state is ElectionState.NOMINATE:
            pass  # looked at again when its deadline is over (C-76)
        elif self.state in VOTING_STATES:
            self._consider_leader(message, now_ns)
        elif leadership_term_id > self.leadership_term_id:
            self._restart(now_ns, f"member {leader.id} leads term {leadership_term_id}")
        elif leader.id == self.leader_member_id and self.state in FOLLOWING_STATES:
            self._notify_commit(self._followed, message.commit_position, now_ns)
        return self._take()

    def _consider_leader(self, message: NewLeadershipTerm, now_ns: int) -> None:
        """A new leader is heard, and our log is known to be a prefix of the leader's."""
        offer = self._voting.offer
        if offer is None or not offer.matching.is_about(message):
            offer = self._voting.offer = _Offer(LogMatching(message, self.terms.last_term_id))
        matching = offer.matching
        if message.log_leadership_term_id == self.terms.last_term_id:
            offer.term = message
        elif matching.is_done or message.log_leadership_term_id != matching.asked_term_id:
            # Neither our term nor an answer: our next canvass earns a direct one (C-73, C-75).
            self._change_state(ElectionState.CANVASS, now_ns, "the leader told of another log term")
        if self._match(matching, message, now_ns):
            term, offer.term = offer.term, None
            if term is None:
                self._ask(message.leader_member_id, self.terms.last_term_id)
            elif can_record(term, self.terms, self.append_position):
                self._follow(term, now_ns)
            else:
                self._restart(now_ns, f"member {message.leader_member_id} contradicts itself about a term")

    def _match(self, matching: LogMatching, message: NewLeadershipTerm, now_ns: int) -> bool:
        """Whether our log is known to be a prefix of the leader's; else ask, or cut off what is not."""
        match matching.compare(message, self.terms, self.append_position):
            case None:
                return True
            case Ask(log_term_id):
                self._ask(message.leader_member_id, log_term_id)
            case Cut(position, _) if position < (known := max(self.log_position, self._committed_position)):
                self._do(SetApart(message.leader_member_id, position, known))
            case Cut(position, first_removed_term_id):
                self._truncate(position, first_removed_term_id, now_ns)
            case NotThere():
                self._do(FetchSnapshot(message.leader_member_id))
        return False

    def _truncate(self, log_position: int, first_removed_term_id: int, now_ns: int) -> None:
        """Cut off what the leader does not have, and begin again."""
        position = min(log_position, self.append_position)
        assert position >= self.log_position  # nothing that is committed is ever cut
        self.terms.truncate(position, first_removed_term_id)
        assert self.terms.last_term_id < first_removed_term_id  # else the same cut is made for ever
        self._do(TruncateLog(position, first_removed_term_id))
        self.append_position = position
        self._restart(now_ns, f"log cut to {position}")

    def _follow(self, message: NewLeadershipTerm, now_ns: int) -> None:
        """Adopt the leader; what is missing of its log decides the way there."""
        assert self._promises.may_follow  # else this leader may be one that we have helped to replace
        assert message.leadership_term_id >= self.candidate_term_id  # what a vote has promised (I-9)
        self.leadership_term_id = message.leadership_term_id
        self.candidate_term_id = max(self.candidate_term_id, message.leadership_term_id)
        followed = self._term = _Followed(
            leader_member_id=message.leader_member_id,
            term_base=message.term_base_log_position,
            log_session_id=message.log_session_id,
            is_startup=message.is_startup,
            join_position=message.log_position,
        )
        self._notify_commit(followed, message.commit_position, now_ns)

        if self.append_position >= message.term_base_log_position:
            reason = (
                f"follows member {followed.leader_member_id}, leader of term {self.leadership_term_id} at "
                f"{message.log_position}; has {self._standing}"
            )
            self._record_term(message.leadership_term_id, message.term_base_log_position)
            self._change_state(ElectionState.FOLLOWER_REPLAY, now_ns, reason)
            return
        next_base, next_end = message.next_term_base_log_position, message.next_log_position
        own = self.terms.find(self.terms.last_term_id)
        if message.next_leadership_term_id == NULL_VALUE or (
            own is None and self.append_position < next_base
        ):
            self._do(FetchSnapshot(followed.leader_member_id))  # its log begins after the end of ours
            return
        if own is not None and self.append_position < next_base:
            replication = _Replication(own.leadership_term_id, own.term_base_log_position, next_base)
        elif next_end != NULL_POSITION:
            replication = _Replication(message.next_leadership_term_id, next_base, next_end)
        else:
            return  # the leader does not know yet where that term ends: it will say more
        followed.replication = replication
        self._change_state(
            ElectionState.FOLLOWER_LOG_REPLICATION,
            now_ns,
            f"behind member {followed.leader_member_id} of term {self.leadership_term_id}: fetches term "
            f"{replication.leadership_term_id} from {self.append_position} to {replication.stop_position}",
        )

    def on_commit_position(self, message: CommitPosition, now_ns: int) -> list[Action]:
        """A majority has the leader's log up to this position."""
        if self.state is ElectionState.INIT or self._other(message.leader_member_id) is None:
            return []
        leadership_term_id = message.leadership_term_id
        if self.state in VOTING_STATES:
            if leadership_term_id >= self.candidate_term_id:
                self._hear_leader(now_ns)
        elif leadership_term_id > self.leadership_term_id:
            self._restart(now_ns, f"member {message.leader_member_id} leads term {leadership_term_id}")
        elif (
            leadership_term_id == self.leadership_term_id
            and message.leader_member_id == self.leader_member_id
        ):
            self._hear_leader(now_ns)
            self._notify_commit(self._followed, message.log_position, now_ns)
        return self._take()

    def on_stop_catchup(self, message: StopCatchup, now_ns: int) -> list[Action]:
        """The leader has merged this member into its live log."""
        if (
            self.state in CATCHUP_STATES
            and message.leadership_term_id == self.leadership_term_id
            and message.follower_member_id == self._this.id
        ):
            self._followed.is_catchup_stopped = True
        return []

    # ---- messages: a follower ----------------------------------------------------------------------------

    def on_append_position_of(self, message: AppendPosition, now_ns: int) -> list[Action]:
        """A follower has this leader's log up to a position; of any other term it proves nothing."""
        member = self._other(message.follower_member_id)
        if member is not None and message.leadership_term_id <= self.leadership_term_id:
            member.report(message.leadership_term_id, message.log_position, now_ns)
        return []

    # ---- shared by several states ------------------------------------------------------------------------

    @property
    def _this(self) -> ClusterMember:
        return self._members[self._context.member_id]

    @property
    def _others(self) -> list[ClusterMember]:
        return [member for member in self._members.values() if member.id != self._context.member_id]

    @property
    def _led(self) -> _Led:
        assert isinstance(self._term, _Led)
        return self._term

    @property
    def _followed(self) -> _Followed:
        assert isinstance(self._term, _Followed)
        return self._term

    @property
    def _standing(self) -> LogEnd:
        return LogEnd(self.terms.last_term_id, self.append_position)

    @property
    def _exempt(self) -> set[int]:
        """Members that nobody waits for: gone, of something else, or closed in order (C-62)."""
        return {*self._gone, *self._unrelated, self.graceful_closed_leader_id} - {self._this.id}

    def _other(self, member_id: int) -> ClusterMember | None:
        return None if member_id == self._this.id else self._members.get(member_id)

    def _is_past(self, timeout_ns: int, now_ns: int) -> bool:
        return now_ns - self._time_of_state_change_ns >= timeout_ns

    def _is_due(self, interval_ns: int, now_ns: int) -> bool:
        last_ns = self._time_of_last_send_ns
        return last_ns is None or now_ns - last_ns >= interval_ns

    def _is_silence(self, since_ns: int, now_ns: int) -> bool:
        """Whether nothing has come for the heartbeat timeout, all of it in this state."""
        begin_ns = max(since_ns, self._time_of_state_change_ns)
        return now_ns - begin_ns >= self._context.leader_heartbeat_timeout_ns

    def _hear_leader(self, now_ns: int) -> None:
        """A leader of a term that we may follow is there: nobody needs another one now."""
        self._time_of_last_leader_message_ns = now_ns
        self._voting.is_leader_heard = True

    def _notify_commit(self, followed: _Followed, commit_position: int | None, now_ns: int) -> None:
        followed.notified_commit_position = max(followed.notified_commit_position, commit_position or 0)
        if followed.replication is not None:
            followed.replication.deadline_ns = now_ns + self._context.leader_heartbeat_timeout_ns

    def _propose(self, candidate_term_id: int) -> None:
        """Adopt a candidate term, durably, before anything of it is spoken of."""
        assert candidate_term_id >= self.candidate_term_id
        self.candidate_term_id = candidate_term_id
        self._do(ProposeTerm(candidate_term_id, self.append_position))

    def _record_term(self, leadership_term_id: int, term_base: int, term_end: int = NULL_POSITION) -> None:
        self.terms.record(leadership_term_id, term_base, term_end)
        self._do(RecordTerm(leadership_term_id, term_base, term_end))

    def _send_canvass_position(self, now_ns: int) -> None:
        if self._is_due(self._context.election_status_interval_ns, now_ns):
            self._time_of_last_send_ns = now_ns
            for member in self._others:
                self._ask(member.id, self.terms.last_term_id)

    def _ask(self, member_id: int, log_leadership_term_id: int) -> None:
        """Canvass; a leader answers with what comes after ``log_leadership_term_id`` in its log."""
        self._send(
            member_id,
            CanvassPosition(
                log_leadership_term_id=log_leadership_term_id,
                log_position=self.append_position,
                leadership_term_id=self.leadership_term_id,
                follower_member_id=self._this.id,
                protocol_version=CONSENSUS_PROTOCOL_VERSION,
            ),
        )

    def _send_vote(self, candidate_member_id: int, candidate_term_id: int, vote: bool) -> None:
        assert candidate_term_id == self.candidate_term_id or not vote  # on the disk before it is sent (I-9)
        assert self._promises.has_say or not vote  # else it may be the second one in this term (I-9)
        self._send(
            candidate_member_id,
            Vote(
                candidate_term_id=candidate_term_id,
                log_leadership_term_id=self.terms.last_term_id,
                log_position=self.append_position,
                candidate_member_id=candidate_member_id,
                follower_member_id=self._this.id,
                vote=vote,
            ),
        )

    def _send_append_position(self, now_ns: int, flags: AppendPositionFlags) -> None:
        """Report on growth, and each interval; without promises only the progress of a catch-up."""
        followed = self._followed
        has_grown = self.append_position > followed.sent_append_position
        if not has_grown and not self._is_due(self._context.leader_heartbeat_interval_ns, now_ns):
            return
        self._time_of_last_send_ns = now_ns
        followed.sent_append_position = self.append_position
        if self._promises.has_say:
            self._send(followed.leader_member_id, self._append_position_message(flags))
        elif flags == AppendPositionFlags.CATCHUP:
            progress = CatchupProgress(self.leadership_term_id, self.append_position)
            self._send(followed.leader_member_id, progress)

    def _append_position_message(self, flags: AppendPositionFlags) -> AppendPosition:
        return AppendPosition(
            leadership_term_id=self.leadership_term_id,
            log_position=self.append_position,
            follower_member_id=self._this.id,
            flags=flags,
        )

    def _publish_leadership(self, now_ns: int) -> bool:
        """NewLeadershipTerm each interval; CommitPosition when it changed, and each interval.

        False when no majority is heard any more: then others must be free to elect. One that can send and
        not hear would keep their canvass waiting for ever by what it sends (Aeron leaves it there).
        """
        leadership = self.leadership
        self._this.report(self.leadership_term_id, self.append_position, now_ns)
        timeout_ns = self._context.leader_heartbeat_timeout_ns
        is_followed = leadership.is_followed(now_ns)
        if self._is_past(timeout_ns, now_ns) and not leadership.has_active_quorum(now_ns, timeout_ns):
            self._restart(now_ns, "no majority is heard")
            return False
        if not is_followed:
            self._restart(now_ns, "a majority is heard, but does not follow")
            return False
        position = leadership.quorum_position_at(self.append_position, now_ns)
        if self._is_due(self._context.leader_heartbeat_interval_ns, now_ns):
            self._time_of_last_send_ns = now_ns
            self._send_others(self._new_leadership_term(self._led.previous_term_id, position))
        if position != leadership.quorum_position or leadership.is_commit_due(now_ns):
            leadership.on_commit_reported(position, now_ns)
            self._send_others(leadership.commit_position_message())
        return True

    def _new_leadership_term(self, log_term_id: int, commit_position: int) -> NewLeadershipTerm:
        """The answer to a member whose log ends in ``log_term_id``; this term ends where our log does now."""
        return self.leadership.new_leadership_term(
            log_term_id,
            self.append_position,
            self._cluster_time,
            commit_position=commit_position,
            is_startup=self._led.is_startup,
            open_end=self.append_position,
        )

    def _send_new_leadership_term(self, member_id: int, log_term_id: int) -> None:
        self._send(member_id, self._new_leadership_term(log_term_id, self.leadership.quorum_position))

    def _start_replay(self, term: _Term, stop_position: int) -> None:
        assert self.log_position < stop_position <= self.append_position
        term.replay_stop_position = stop_position
        self._do(StartReplay(self.log_position, stop_position))

    def _stop_replay(self, term: _Term) -> None:
        if term.replay_stop_position != NULL_POSITION:
            term.replay_stop_position = NULL_POSITION
            self._do(StopReplay())

    def _subscribe_to_log(self, *, is_catchup: bool) -> None:
        assert not self._followed.has_log_image  # two streams would write one recording
        self._do(
            SubscribeToLog(
                self.leader_member_id,
                self.leadership_term_id,
                self.log_session_id,
                self.append_position,
                is_catchup,
            )
        )

    def _join_log(self, term: _Term, log_position: int, role: Role) -> None:
        assert not term.is_log_joined  # services read a log once (I-5)
        self._do(
            JoinServicesToLog(
                self.leadership_term_id, log_position, term.log_session_id, term.is_startup, role
            )
        )

    def _restart(self, now_ns: int, reason: str) -> None:
        self._change_state(ElectionState.INIT, now_ns, reason)

    def _change_state(self, state: ElectionState, now_ns: int, reason: str) -> None:
        """The only place where the state changes; to the state that it is in is no change."""
        old = self.state
        if state is old:
            return
        assert old is not ElectionState.CLOSED
        assert state is ElectionState.INIT or state in TRANSITIONS[old], f"{old.name} -> {state.name}"
        if old is ElectionState.CANVASS:
            self._is_extended_canvass = False  # only the first canvass of a node waits a minute (C-60)
        self._is_first_ballot &= state not in BALLOTS
        self.state = state
        self._time_of_state_change_ns = now_ns
        self._time_of_last_send_ns = None  # whatever goes out each interval goes out in the first cycle
        self._do(ChangeState(old, state, reason))
        entry = self._ENTER.get(state)
        if entry is not None:
            entry(self, now_ns)

    def _send(self, member_id: int, message: Message) -> None:
        self._actions.append(Send(member_id, message))

    def _send_others(self, message: Message) -> None:
        for member in self._others:
            self._send(member.id, message)

    def _do(self, action: Action) -> None:
        self._actions.append(action)

    def _take(self) -> list[Action]:
        actions, self._actions = self._actions, []
        return actions

    _ENTER: Mapping[ElectionState, Callable[["Election", int], None]] = {
        ElectionState.INIT: _enter_init,
        ElectionState.CANVASS: _enter_canvass,
        ElectionState.CANDIDATE_BALLOT: _enter_candidate_ballot,
        ElectionState.LEADER_LOG_REPLICATION: _enter_leader_log_replication,
        ElectionState.LEADER_REPLAY: _enter_leader_replay,
        ElectionState.LEADER_INIT: _enter_leader_init,
        ElectionState.FOLLOWER_LOG_REPLICATION: _enter_follower_log_replication,
        ElectionState.FOLLOWER_REPLAY: _enter_follower_replay,
        ElectionState.FOLLOWER_CATCHUP_INIT: _enter_follower_catchup_init,
        ElectionState.FOLLOWER_READY: _enter_follower_ready,
    }
    _WORK: Mapping[ElectionState, Callable[["Election", int], None]] = {
        ElectionState.INIT: _work_init,
        ElectionState.CANVASS: _work_canvass,
        ElectionState.NOMINATE: _work_nominate,
        ElectionState.CANDIDATE_BALLOT: _work_candidate_ballot,
        ElectionState.FOLLOWER_BALLOT: _work_follower_ballot,
        ElectionState.LEADER_LOG_REPLICATION: _work_leader_log_replication,
        ElectionState.LEADER_REPLAY: _work_leader_replay,
        ElectionState.LEADER_INIT: _work_leader_init,
        ElectionState.LEADER_READY: _work_leader_ready,
        ElectionState.FOLLOWER_LOG_REPLICATION: _work_follower_log_replication,
        ElectionState.FOLLOWER_REPLAY: _work_follower_replay,
        ElectionState.FOLLOWER_CATCHUP_INIT: _work_follower_catchup_init,
        ElectionState.FOLLOWER_CATCHUP_AWAIT: _work_follower_catchup_await,
        ElectionState.FOLLOWER_CATCHUP: _work_follower_catchup,
        ElectionState.FOLLOWER_LOG_INIT: _work_follower_log_init,
        ElectionState.FOLLOWER_LOG_AWAIT: _work_follower_log_await,
        ElectionState.FOLLOWER_READY: _work_follower_ready,
    }
