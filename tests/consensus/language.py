"""A small language for tests of the core: an election with its clock, what others say, ways into each state.

Our member is 0 of 3 unless a test says otherwise, and leads or follows in term 5. A log is told by the ends
of its terms: ``a_log(400, 1000)`` has term 0 in [0, 400) and term 1, still open, in [400, 1000).
"""

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any, TypeVar

from cluster.consensus.actions import Action, ChangeState, Send
from cluster.consensus.cluster_member import LogEnd, MemberTable
from cluster.consensus.context import MS, NULL_POSITION, NULL_VALUE, SECOND, ConsensusModuleContext
from cluster.consensus.election import Election
from cluster.consensus.leadership_terms import LeadershipTerm, LeadershipTerms
from cluster.consensus.module import ModuleState
from cluster.consensus.promises import Promises, StoredPromises
from cluster.protocol.consensus import (
    AppendPosition,
    CanvassPosition,
    CommitPosition,
    NewLeadershipTerm,
    RequestVote,
    StopCatchup,
    Vote,
)
from cluster.protocol.enums import AppendPositionFlags, ElectionState
from cluster.protocol.link import KnownPromises, PromiseState, PromiseStatement
from cluster.protocol.sbe import Message

START_NS = 1_000 * SECOND
CLUSTER_TIME = 1_700_000_000_000
LEADER_ID, OTHER_ID = 1, 2
TERM = 5  # that is led or followed, where a test does not name one
SESSION_ID = 77
OWN_PROMISES = 7  # the id of those of our member; the others have 1,000 and their own id

Kind = TypeVar("Kind", bound=Message)
Doing = TypeVar("Doing", bound=Action)


def a_context(member_id: int = 0, members: int = 3, **changed: Any) -> ConsensusModuleContext:
    return ConsensusModuleContext(member_id=member_id, member_ids=tuple(range(members)), **changed)


def a_log(*ends: int) -> LeadershipTerms:
    """Terms 0, 1, ... without a gap between them; the last one is open and ends with the log."""
    bases = (0, *ends)
    return LeadershipTerms(
        LeadershipTerm(term, base, NULL_POSITION if term == len(ends) - 1 else end)
        for term, (base, end) in enumerate(zip(bases, ends, strict=False))
    )


# ---- what others say


def canvass(
    member_id: int, log_term: int, position: int, leadership_term: int | None = None
) -> CanvassPosition:
    return CanvassPosition(
        log_leadership_term_id=log_term,
        log_position=position,
        leadership_term_id=log_term if leadership_term is None else leadership_term,
        follower_member_id=member_id,
    )


def request_vote(member_id: int, term: int, log: tuple[int, int]) -> RequestVote:
    return RequestVote(
        log_leadership_term_id=log[0],
        log_position=log[1],
        candidate_term_id=term,
        candidate_member_id=member_id,
    )


def vote(member_id: int, term: int, granted: bool = True, candidate: int = 0) -> Vote:
    return Vote(
        candidate_term_id=term,
        log_leadership_term_id=0,
        log_position=0,
        candidate_member_id=candidate,
        follower_member_id=member_id,
        vote=granted,
    )


def appended(
    member_id: int, term: int, position: int, flags: AppendPositionFlags = AppendPositionFlags.NONE
) -> AppendPosition:
    return AppendPosition(
        leadership_term_id=term, log_position=position, follower_member_id=member_id, flags=flags
    )


def committed(member_id: int, term: int, position: int) -> CommitPosition:
    return CommitPosition(leadership_term_id=term, log_position=position, leader_member_id=member_id)


class ALeader:
    """Another member that leads, as far as a follower can tell: it answers for any log term."""

    def __init__(
        self,
        *ends: int,
        member_id: int = LEADER_ID,
        term: int = TERM,
        position: int | None = None,
        commit: int = 0,
        is_startup: bool = False,
    ) -> None:
        """Its log ended at ``ends[-1]`` when it came to lead; ``position`` is where it is now."""
        self.member_id = member_id
        self.term = term
        self.base = ends[-1] if ends else 0
        self.position = self.base if position is None else position
        self.commit = commit
        self.is_startup = is_startup
        self.terms = a_log(*ends)
        self.log_term = self.terms.last_term_id
        self.terms.record(term, self.base)

    def answer(self, log_term: int) -> NewLeadershipTerm:
        after = self.terms.after(log_term, self.position)
        return NewLeadershipTerm(
            log_leadership_term_id=log_term,
            next_leadership_term_id=after.leadership_term_id,
            next_term_base_log_position=after.term_base_log_position,
            next_log_position=after.log_position,
            leadership_term_id=self.term,
            term_base_log_position=self.base,
            log_position=self.position,
            leader_recording_id=0,
            timestamp=CLUSTER_TIME,
            leader_member_id=self.member_id,
            log_session_id=SESSION_ID,
            app_version=1,
            is_startup=self.is_startup,
            commit_position=self.commit,
        )

    def broadcast(self) -> NewLeadershipTerm:
        return self.answer(self.log_term)

    def commits(self, position: int) -> CommitPosition:
        self.commit = position
        return committed(self.member_id, self.term, position)


# ---- an election and its clock


class Driven:
    """An election under test. Links take every message, except to those in ``blocked``."""

    def __init__(
        self, election: Election, context: ConsensusModuleContext, promises: Promises, module: ModuleState
    ) -> None:
        self.election = election
        self.module = module
        self.context = context
        self.promises = promises
        self.now_ns = START_NS
        self.blocked: set[int] = set()
        self.actions: list[Action] = []  # all that were ever asked for
        self.path: list[ElectionState] = [election.state]

    @property
    def state(self) -> ElectionState:
        return self.election.state

    @property
    def other_ids(self) -> list[int]:
        return [id_ for id_ in self.context.member_ids if id_ != self.context.member_id]

    def work(self, after: int = 0) -> list[Action]:
        """One cycle, ``after`` nanoseconds later."""
        self.now_ns += after
        return self._took(self.election.do_work(self.now_ns, CLUSTER_TIME))

    def work_for(self, duration_ns: int, step_ns: int = 50 * MS) -> list[Action]:
        """Cycles every ``step_ns``, the last one ``duration_ns`` from now; all that they asked for."""
        actions = []
        for _ in range(duration_ns // step_ns):
            actions += self.work(after=step_ns)
        return actions

    def hears(self, *messages: Message) -> list[Action]:
        """Messages come in; all that they made the election ask for."""
        actions: list[Action] = []
        for message in messages:
            handler = _HANDLERS[type(message)]
            actions += self._took(handler(self.election, message, self.now_ns))
        return actions

    def meets(self, leader: ALeader) -> list[Action]:
        """The leader tells of its term, and answers whatever it is asked until nothing is asked any more."""
        actions = self.hears(leader.answer(self.election.terms.last_term_id))
        pending = sent(actions, CanvassPosition, to=leader.member_id)
        for _ in range(50):
            if not pending or self.state is ElectionState.INIT:
                return actions
            more = self.hears(leader.answer(pending[0].log_leadership_term_id))
            pending = pending[1:] + sent(more, CanvassPosition, to=leader.member_id)
            actions += more
        raise AssertionError("the election asks for ever")

    def prepared(self, append_position: int | None = None) -> list[Action]:
        """What an earlier leadership left is undone."""
        position = self.election.append_position if append_position is None else append_position
        return self._took(self.election.on_prepared(position, self.now_ns))

    def takes_image(self, join_position: int | None = None) -> list[Action]:
        """The leader's log is about to come."""
        position = self.election.append_position if join_position is None else join_position
        return self._took(self.election.on_log_image(self.election.leadership_term_id, position, self.now_ns))

    def joined(self) -> None:
        self.election.on_log_joined(self.now_ns)

    def grows(self, position: int) -> None:
        """The recording is safe up to ``position``."""
        self.election.on_append_position(position, self.now_ns)

    def processes(self, position: int) -> None:
        self.election.on_log_position(position, self.now_ns)

    def appends_term_event(self, length: int = 96) -> list[Action]:
        end = self.election.append_position + length
        return self._took(self.election.on_term_event_appended(end, self.now_ns))

    def fails(self, reason: str = "a broken disk") -> list[Action]:
        return self._took(self.election.on_error(reason, self.election.log_position, self.now_ns))

    def link_up(self, member_id: int) -> list[Action]:
        return self._took(self.election.on_link_up(member_id, self.now_ns))

    def link_down(self, member_id: int) -> list[Action]:
        return self._took(self.election.on_link_down(member_id, self.now_ns))

    def member_gone(self, member_id: int) -> list[Action]:
        return self._took(self.election.on_member_gone(member_id, self.now_ns))

    def _took(self, actions: list[Action]) -> list[Action]:
        for action in actions:
            if isinstance(action, Send) and action.member_id not in self.blocked:
                self.election.on_sent(action.member_id, action.message)
            elif isinstance(action, ChangeState):
                assert action.old is self.path[-1]
                self.path.append(action.new)
        self.actions += actions
        return actions


_HANDLERS: dict[type[Message], Callable[[Election, Any, int], list[Action]]] = {
    CanvassPosition: Election.on_canvass_position,
    RequestVote: Election.on_request_vote,
    Vote: Election.on_vote,
    NewLeadershipTerm: Election.on_new_leadership_term,
    AppendPosition: Election.on_append_position_of,
    CommitPosition: Election.on_commit_position,
    StopCatchup: Election.on_stop_catchup,
}


def sent(actions: Iterable[Action], kind: type[Kind], to: int | None = None) -> list[Kind]:
    """Messages of one kind that go out by ``actions``, to one member or to all."""
    return [
        action.message
        for action in actions
        if isinstance(action, Send)
        and isinstance(action.message, kind)
        and (to is None or action.member_id == to)
    ]


def receivers(actions: Iterable[Action], kind: type[Message]) -> list[int]:
    """To whom messages of one kind go out, in order."""
    return [a.member_id for a in actions if isinstance(a, Send) and isinstance(a.message, kind)]


def of_kind(actions: Iterable[Action], kind: type[Doing]) -> list[Doing]:
    return [action for action in actions if isinstance(action, kind)]


def the_one(actions: Iterable[Action], kind: type[Doing]) -> Doing:
    found = of_kind(actions, kind)
    assert len(found) == 1, f"{len(found)} of {kind.__name__}"
    return found[0]


# ---- ways into each state


def an_election(
    *ends: int,
    member_id: int = 0,
    members: int = 3,
    processed: int | None = None,
    terms: LeadershipTerms | None = None,
    append: int | None = None,
    candidate_term: int = NULL_VALUE,
    is_startup: bool = False,
    is_wiped: bool = False,
    had_log: bool = False,
    told: Iterable[PromiseStatement] | None = None,
    acknowledged_end: tuple[int, int] | None = None,
    closed_leader: int = NULL_VALUE,
    gone: Sequence[int] = (),
    successor: int = NULL_VALUE,
    seed: int = 0,
    **changed: Any,
) -> Driven:
    """An election with a log like ``a_log(*ends)``, all of it processed unless ``processed`` says less.

    ``acknowledged_end``: (term, position) of a log that was cut. ``is_wiped``: it has lost its promises; the
    others have ``told`` of theirs, unless that says otherwise that they have them, and no terms.
    """
    append = (ends[-1] if ends else 0) if append is None else append
    context = a_context(member_id, members, **changed)
    promises = some_promises(context, told, is_wiped=is_wiped, had_log=had_log)
    module = ModuleState()
    election = Election(
        context,
        MemberTable(context.member_ids),
        a_log(*ends) if terms is None else terms,
        promises,
        Random(seed),
        module=module,
        candidate_term_id=candidate_term,
        log_position=append if processed is None else processed,
        append_position=append,
        is_node_startup=is_startup,
        acknowledged_end=None if acknowledged_end is None else LogEnd(*acknowledged_end),
        graceful_closed_leader_id=closed_leader,
        time_of_last_leader_message_ns=START_NS,
        gone_member_ids=set(gone),
        successor_id=successor,
    )
    return Driven(election, context, promises, module)


def some_promises(
    context: ConsensusModuleContext,
    told: Iterable[PromiseStatement] | None,
    *,
    is_wiped: bool,
    had_log: bool,
) -> Promises:
    """Those of a member, kept or lost, after all others have told of theirs."""
    state = PromiseState.LOST if is_wiped else PromiseState.KEPT
    held = StoredPromises(OWN_PROMISES, state, NULL_VALUE)
    promises = Promises(
        context.member_id, context.member_ids, context.quorum_threshold, held, had_log=had_log
    )
    others = [id_ for id_ in context.member_ids if id_ != context.member_id]
    if told is None:
        told = [stated(context.member_id, id_) for id_ in others]
    for id_, statement in zip(others, told, strict=False):
        promises.on_statement(id_, statement)
    return promises


def stated(
    asker_id: int,
    member_id: int,
    terms: tuple[int, int] = (NULL_VALUE, NULL_VALUE),
    state: PromiseState = PromiseState.KEPT,
    asked_as: int = OWN_PROMISES,
) -> PromiseStatement:
    """How ``member_id`` answers a member that has asked; ``terms``: its candidate term, and that it led."""
    return PromiseStatement(1_000 + member_id, *terms, state, False, (KnownPromises(asked_as, asker_id),))


def in_canvass(*ends: int, **options: Any) -> Driven:
    driven = an_election(*ends, **options)
    driven.work()
    if driven.state is ElectionState.INIT:
        driven.prepared()
    assert driven.state is ElectionState.CANVASS
    return driven


def in_nominate(*ends: int, **options: Any) -> Driven:
    """Heard from all others, whose logs are empty."""
    driven = in_canvass(*ends, **options)
    driven.hears(*(canvass(id_, NULL_VALUE, 0) for id_ in driven.other_ids))
    driven.work()
    assert driven.state is ElectionState.NOMINATE
    return driven


def in_candidate_ballot(*ends: int, **options: Any) -> Driven:
    """Stands in term 5, unless the candidate term is given."""
    driven = in_nominate(*ends, **{"candidate_term": TERM - 1, **options})
    driven.work(after=500 * MS)
    assert driven.state is ElectionState.CANDIDATE_BALLOT
    return driven


def in_follower_ballot(*ends: int, **options: Any) -> Driven:
    """Voted for member 1 in term 5."""
    driven = in_canvass(*ends, **options)
    driven.hears(request_vote(LEADER_ID, TERM, log=(TERM - 1, 10_000)))
    assert driven.state is ElectionState.FOLLOWER_BALLOT
    return driven


def in_leader_log_replication(*ends: int, **options: Any) -> Driven:
    driven = in_candidate_ballot(*ends, **options)
    term = driven.election.candidate_term_id
    driven.hears(*(vote(id_, term, candidate=driven.context.member_id) for id_ in driven.other_ids))
    driven.work()
    assert driven.state is ElectionState.LEADER_LOG_REPLICATION
    return driven


def in_leader_replay(*ends: int, **options: Any) -> Driven:
    driven = in_leader_log_replication(*ends, **options)
    driven.work()
    driven.hears(appended(OTHER_ID, TERM, driven.election.append_position))
    driven.work()
    assert driven.state is ElectionState.LEADER_REPLAY
    return driven


def in_leader_init(*ends: int, **options: Any) -> Driven:
    driven = in_leader_replay(*ends, **options)
    driven.work()
    assert driven.state is ElectionState.LEADER_INIT
    return driven


def in_leader_ready(*ends: int, **options: Any) -> Driven:
    driven = in_leader_init(*ends, **options)
    driven.joined()
    driven.work()
    assert driven.state is ElectionState.LEADER_READY
    return driven


def in_follower_log_replication(*ends: int, leader: ALeader | None = None, **options: Any) -> Driven:
    """Lacks the end of its own last term, unless the leader says otherwise."""
    ends = ends or (400, 700)
    driven = in_canvass(*ends, **options)
    driven.meets(leader or ALeader(400, 1000, 1600))
    assert driven.state is ElectionState.FOLLOWER_LOG_REPLICATION
    return driven


def in_follower_replay(*ends: int, leader: ALeader | None = None, **options: Any) -> Driven:
    """Holds all of the leader's log that was there when its term began; has processed 400 of it."""
    ends = ends or (400, 1000)
    driven = in_canvass(*ends, **{"processed": min(400, ends[-1]), **options})
    driven.meets(leader or ALeader(*ends))
    assert driven.state is ElectionState.FOLLOWER_REPLAY
    return driven


def in_follower_log_init(*ends: int, leader: ALeader | None = None, **options: Any) -> Driven:
    ends = ends or (400, 1000)
    driven = in_follower_replay(*ends, leader=leader, **{"processed": ends[-1], **options})
    driven.work()
    assert driven.state is ElectionState.FOLLOWER_LOG_INIT
    return driven


def in_follower_log_await(*ends: int, **options: Any) -> Driven:
    driven = in_follower_log_init(*ends, **options)
    driven.work()
    assert driven.state is ElectionState.FOLLOWER_LOG_AWAIT
    return driven


def in_follower_ready(*ends: int, **options: Any) -> Driven:
    driven = in_follower_log_await(*ends, **options)
    driven.takes_image()
    driven.joined()
    driven.work()
    assert driven.state is ElectionState.FOLLOWER_READY
    return driven


def in_catchup_init(*ends: int, leader: ALeader | None = None, **options: Any) -> Driven:
    """The leader is at 1600 already, this member at the base of the term."""
    ends = ends or (400, 1000)
    leader = leader or ALeader(*ends, position=ends[-1] + 600)
    driven = in_follower_replay(*ends, leader=leader, **{"processed": ends[-1], **options})
    driven.work()
    assert driven.state is ElectionState.FOLLOWER_CATCHUP_INIT
    return driven


def in_catchup_await(*ends: int, **options: Any) -> Driven:
    driven = in_catchup_init(*ends, **options)
    driven.work()
    driven.work()
    assert driven.state is ElectionState.FOLLOWER_CATCHUP_AWAIT
    return driven


def in_catchup(*ends: int, **options: Any) -> Driven:
    driven = in_catchup_await(*ends, **options)
    driven.takes_image()
    driven.joined()
    driven.work()
    assert driven.state is ElectionState.FOLLOWER_CATCHUP
    return driven


WAYS: dict[ElectionState, Callable[..., Driven]] = {
    ElectionState.INIT: an_election,
    ElectionState.CANVASS: in_canvass,
    ElectionState.NOMINATE: in_nominate,
    ElectionState.CANDIDATE_BALLOT: in_candidate_ballot,
    ElectionState.FOLLOWER_BALLOT: in_follower_ballot,
    ElectionState.LEADER_LOG_REPLICATION: in_leader_log_replication,
    ElectionState.LEADER_REPLAY: in_leader_replay,
    ElectionState.LEADER_INIT: in_leader_init,
    ElectionState.LEADER_READY: in_leader_ready,
    ElectionState.FOLLOWER_LOG_REPLICATION: in_follower_log_replication,
    ElectionState.FOLLOWER_REPLAY: in_follower_replay,
    ElectionState.FOLLOWER_CATCHUP_INIT: in_catchup_init,
    ElectionState.FOLLOWER_CATCHUP_AWAIT: in_catchup_await,
    ElectionState.FOLLOWER_CATCHUP: in_catchup,
    ElectionState.FOLLOWER_LOG_INIT: in_follower_log_init,
    ElectionState.FOLLOWER_LOG_AWAIT: in_follower_log_await,
    ElectionState.FOLLOWER_READY: in_follower_ready,
}


def an_election_in(state: ElectionState) -> Driven:
    """An election in this state, with a log of two terms, that stays there while nothing is heard or done."""
    if state is ElectionState.FOLLOWER_LOG_REPLICATION:
        return in_follower_log_replication(400, 700)
    if state is ElectionState.LEADER_REPLAY:
        return in_leader_replay(400, 1000, processed=320)
    return WAYS[state](400, 1000)
