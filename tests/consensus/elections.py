"""A small language for tests of elections: one member in the hands of the test, the others played by it.

member = Member(terms=[(0, 0, 96)], append_position=96)
member.work(at=100 * MS)
member.hears(canvass_position(1, 0, 96))
assert member.state is State.NOMINATE
"""

from __future__ import annotations

from random import Random

from cluster.consensus import actions
from cluster.consensus.cluster_member import ClusterMember
from cluster.consensus.context import NULL_POSITION, ConsensusModuleContext
from cluster.consensus.election import Election
from cluster.consensus.leadership_terms import LeadershipTerm, LeadershipTerms
from cluster.protocol.consensus import (
    AppendPosition,
    CanvassPosition,
    CommitPosition,
    NewLeadershipTerm,
    RequestVote,
    StopCatchup,
    Vote,
)
from cluster.protocol.enums import ElectionState as State
from cluster.protocol.sbe import Message

MS = 1_000_000
SECOND = 1_000_000_000

__all__ = ["MS", "SECOND", "Member", "State"]


class Member:
    """One election, driven by hand. The outside does everything at once, unless told to wait."""

    def __init__(
        self,
        member_id: int = 0,
        *,
        members: int = 3,
        terms: list[tuple[int, int, int]] | None = None,
        append_position: int = 0,
        log_position: int | None = None,
        candidate_term_id: int = -1,
        is_node_startup: bool = True,
        is_wiped: bool = False,
        last_leader_message_ns: int = 0,
        graceful_closed_leader_id: int = -1,
        gone: set[int] | None = None,
        seed: int = 1,
        **settings: int,
    ) -> None:
        self.context = ConsensusModuleContext(
            member_id=member_id, member_ids=tuple(range(members)), **settings
        )
        self.members = {i: ClusterMember(i) for i in range(members)}
        self.gone = set() if gone is None else gone
        self.election = Election(
            self.context,
            self.members,
            LeadershipTerms(LeadershipTerm(*term) for term in terms or []),
            Random(seed),
            candidate_term_id=candidate_term_id,
            log_position=append_position if log_position is None else log_position,
            append_position=append_position,
            is_node_startup=is_node_startup,
            is_wiped=is_wiped,
            graceful_closed_leader_id=graceful_closed_leader_id,
            time_of_last_leader_message_ns=last_leader_message_ns,
            gone_member_ids=self.gone,
        )
        self.now_ns = 0
        self.unreachable: set[int] = set()
        self.states = [self.election.state]
        self.reasons: list[str] = []
        self.done: list[actions.Action] = []

    # ---- what happens to it

    def work(self, at: int | None = None, cycles: int = 1) -> list[actions.Action]:
        """Take cycles at a time; returns what was wanted in them."""
        if at is not None:
            self.now_ns = at
        begin = len(self.done)
        for _ in range(cycles):
            self._carry_out(self.election.do_work(self.now_ns, 0))
        return self.done[begin:]

    def work_until(self, end_ns: int, interval_ns: int = 10 * MS) -> list[actions.Action]:
        """Take a cycle each interval up to a time, excluded."""
        begin = len(self.done)
        while self.now_ns + interval_ns < end_ns:
            self.work(at=self.now_ns + interval_ns)
        return self.done[begin:]

    def hears(self, message: Message) -> list[actions.Action]:
        """A message of another member comes; returns what it makes this one want."""
        election = self.election
        handler = {
            CanvassPosition: election.on_canvass_position,
            RequestVote: election.on_request_vote,
            Vote: election.on_vote,
            NewLeadershipTerm: election.on_new_leadership_term,
            CommitPosition: election.on_commit_position,
            AppendPosition: election.on_append_position_of,
            StopCatchup: election.on_stop_catchup,
        }[type(message)]
        begin = len(self.done)
        self._carry_out(handler(message, self.now_ns))
        return self.done[begin:]

    def does(self, wanted: list[actions.Action]) -> list[actions.Action]:
        """Carry out what another call of the election returned."""
        begin = len(self.done)
        self._carry_out(wanted)
        return self.done[begin:]

    def _carry_out(self, wanted: list[actions.Action]) -> None:
        for action in wanted:
            self.done.append(action)
            match action:
                case actions.ChangeState():
                    self.states.append(action.new)
                    self.reasons.append(action.reason)
                case actions.Send() if action.member_id not in self.unreachable:
                    self.election.on_sent(action.member_id, action.message)
                case actions.PrepareForNewLeadership():
                    self._carry_out(self.election.on_prepared(self.election.append_position, self.now_ns))

    # ---- what is seen of it

    @property
    def state(self) -> State:
        return self.election.state

    def sent(self, kind: type[Message], to: int | None = None) -> list[Message]:
        """All messages of a kind so far, to everyone or to one member."""
        return sent(self.done, kind, to)

    def forget(self) -> None:
        """Look only at what comes from now on."""
        self.done.clear()
        self.states = [self.election.state]

    # ---- shortcuts into states

    def canvasses(self) -> Member:
        """INIT is left."""
        self.work(at=self.now_ns)
        assert self.state is State.CANVASS
        return self

    def stands(self) -> Member:
        """All others canvass with the same log, and the nomination deadline passes."""
        self.canvasses()
        end = self.election.append_position
        for other in self.members:
            if other != self.context.member_id:
                self.hears(canvass_position(other, self.election.terms.last_term_id, end))
        self.work()
        assert self.state is State.NOMINATE
        self.work(at=self.now_ns + 500 * MS)
        assert self.state is State.CANDIDATE_BALLOT
        self.work()
        return self

    def wins(self) -> Member:
        """And everyone votes for it."""
        self.stands()
        term_id = self.election.candidate_term_id
        for other in self.members:
            if other != self.context.member_id:
                self.hears(vote(other, term_id, candidate=self.context.member_id))
        self.work()
        assert self.state is State.LEADER_LOG_REPLICATION
        return self

    def follows(self, message: NewLeadershipTerm) -> Member:
        """From CANVASS, behind a leader whose log it is proven to begin; answers its questions."""
        self.canvasses()
        self.hears(message)
        return self


def sent(wanted: list[actions.Action], kind: type[Message], to: int | None = None) -> list[Message]:
    """Messages of a kind among actions."""
    return [
        action.message
        for action in wanted
        if isinstance(action, actions.Send)
        and isinstance(action.message, kind)
        and (to is None or action.member_id == to)
    ]


def of_kind(wanted: list[actions.Action], kind: type[actions.Action]) -> list[actions.Action]:
    return [action for action in wanted if isinstance(action, kind)]


def canvass_position(member_id: int, log_term_id: int, position: int, term_id: int = -1) -> CanvassPosition:
    return CanvassPosition(log_term_id, position, term_id, member_id, 1 << 16)


def request_vote(member_id: int, candidate_term_id: int, log_term_id: int, position: int) -> RequestVote:
    return RequestVote(log_term_id, position, candidate_term_id, member_id, 1 << 16)


def vote(member_id: int, candidate_term_id: int, is_granted: bool = True, *, candidate: int = 0) -> Vote:
    return Vote(candidate_term_id, 0, 0, candidate, member_id, is_granted)


def append_position(member_id: int, term_id: int, position: int, flags: int = 0) -> AppendPosition:
    return AppendPosition(term_id, position, member_id, flags)


def commit_position(leader_id: int, term_id: int, position: int) -> CommitPosition:
    return CommitPosition(term_id, position, leader_id)


class LeaderLog:
    """A leader's recording log, from which it answers canvassing members.

    ``terms`` are (term, base, end); the last one is the leader's own, open, up to ``append_position``.
    """

    def __init__(
        self, member_id: int, terms: list[tuple[int, int]], append_position: int, commit_position: int = 0
    ) -> None:
        self.member_id = member_id
        self.terms = terms
        self.append_position = append_position
        self.commit_position = commit_position

    @property
    def leadership_term_id(self) -> int:
        return self.terms[-1][0]

    def reply(self, log_term_id: int) -> NewLeadershipTerm:
        """What it tells a member whose log ends in this term (§2.8)."""
        bases = dict(self.terms)
        next_term = log_term_id + 1
        is_known = next_term in bases
        following = bases.get(next_term + 1, NULL_POSITION)
        return NewLeadershipTerm(
            log_leadership_term_id=log_term_id,
            next_leadership_term_id=next_term if is_known else -1,
            next_term_base_log_position=bases[next_term] if is_known else NULL_POSITION,
            next_log_position=following if is_known else NULL_POSITION,
            leadership_term_id=self.leadership_term_id,
            term_base_log_position=self.terms[-1][1],
            log_position=self.append_position,
            leader_recording_id=0,
            timestamp=0,
            leader_member_id=self.member_id,
            log_session_id=77,
            app_version=1,
            is_startup=False,
            commit_position=self.commit_position,
        )

    def answer(self, member: Member, message: NewLeadershipTerm | None = None) -> None:
        """Talk with a canvassing member until it asks no more questions."""
        wanted = member.hears(self.reply(member.election.terms.last_term_id) if message is None else message)
        for _ in range(100):
            questions = sent(wanted, CanvassPosition, self.member_id)
            if not questions:
                return
            wanted = member.hears(self.reply(questions[0].log_leadership_term_id))
        raise AssertionError("the member never stops asking")
