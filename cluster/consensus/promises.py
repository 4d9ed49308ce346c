"""What a member has promised and may have forgotten; what it asks the others then, and what it answers them.

A vote promises not to follow an older term, a report promises to keep the log up to its position. A member
that has lost its disk may have promised anything. It has no say until it has all that a leader has, and that
leader's term must be at least as high as any term it may have promised:

    lost its promises
            ── asks all others, under a new promises id ──▶ each stores the id, and answers with its terms
            ◀─ n - q + 1 answers of others that have theirs, and agree on the cluster that they are of
    highest term heard: stored as the own candidate term, no leader below it is followed
            ── FOLLOWER_READY ──▶ has a say again, under the new id

With q members a majority of n, q - 1 others took part in whatever this member helped to elect or to commit,
so at least one of n - q + 1 others was among them, and reports that term or a later one. It may also vote
after it has answered; then it names the new id with its vote, and the candidate drops the vote that this
member gave under the old one. If all members are empty, the cluster is new.

A term is accepted from a member only if it is near what others report, however high it is.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from cluster.consensus.cluster_member import ClusterMember
from cluster.consensus.context import NULL_VALUE
from cluster.consensus.identity import agreement
from cluster.protocol.identity import ClusterIdentity
from cluster.protocol.link import KnownPromises, PromiseState, PromiseStatement

TERM_JUMP_MAX = 1 << 16  # terms that pass without a leader; each is an entry in recording.log
STATED_JUMP_MAX = TERM_JUMP_MAX * 3 // 2  # of one that its member states, too: room for ballots


class StoredPromises(NamedTuple):
    """What is on the disk of it. ``known`` are (member, promises id) of others that had lost theirs."""

    promises_id: int
    state: PromiseState  # LOST; EMPTY: of a new cluster, and had promised nothing; KEPT
    candidate_term_id: int  # that node-state.dat had when this was written: it never falls
    known: frozenset[tuple[int, int]] = frozenset()


def recall(
    stored: StoredPromises | None, candidate_term_id: int, *, is_lost: bool, draw_id: Callable[[], int]
) -> StoredPromises:
    """The promises after a start; ``is_lost``: nor does anybody know what is missing of the log.

    ``stored`` is None in a directory that is new or older than promises ids; ``candidate_term_id`` is that of
    node-state.dat, negative in a file that was just made.
    """
    if stored is None:
        state = PromiseState.LOST if is_lost or candidate_term_id < 0 else PromiseState.KEPT
        return StoredPromises(draw_id(), state, max(candidate_term_id, NULL_VALUE))
    if stored.state is not PromiseState.LOST and (is_lost or candidate_term_id < stored.candidate_term_id):
        return stored._replace(promises_id=draw_id(), state=PromiseState.LOST)
    return stored


class Promises:
    """A member's own promises, and what the others report of theirs over their present links.

    ``stored`` must be on the disk before anything is sent. ``had_log``: there was a log on this disk, so an
    empty one is damage. Statements of members of another cluster must not get here.
    """

    def __init__(
        self,
        member_id: int,
        member_ids: Iterable[int],
        quorum_threshold: int,
        stored: StoredPromises,
        *,
        had_log: bool = False,
    ) -> None:
        self.stored = stored
        self.confirmed_term_id: int | None = None  # once enough have answered: the highest reported
        self.confirmed_cluster: ClusterIdentity | None = None  # that they agreed on, if they reported any
        self._member_id = member_id
        self._other_ids = tuple(id_ for id_ in member_ids if id_ != member_id)
        self._answers_needed = len(self._other_ids) + 2 - quorum_threshold
        # Of the others that took part in anything that this member helped to decide, one at least answers.
        assert quorum_threshold - 1 + self._answers_needed > len(self._other_ids)
        self._had_log = had_log
        self._statements: dict[int, PromiseStatement] = {}
        if not self._other_ids:
            self.keep(stored.candidate_term_id)  # nobody to ask, and nobody to break a promise to

    # ---- the own promises

    @property
    def has_say(self) -> bool:
        """Whether this member may vote, stand, and report."""
        return self.stored.state is not PromiseState.LOST

    @property
    def may_follow(self) -> bool:
        """Whether it may follow a leader: of ``confirmed_term_id`` or later while it has no say."""
        return self.has_say or self.confirmed_term_id is not None

    def keep(self, candidate_term_id: int) -> None:
        """From here on it knows what it promises; ``candidate_term_id`` is on the disk."""
        self.stored = self.stored._replace(state=PromiseState.KEPT, candidate_term_id=candidate_term_id)

    def keep_nothing(self) -> None:
        """It is a member of a new cluster: it has promised nothing yet."""
        assert not self.has_say, "what was promised is never taken back"
        self.stored = self.stored._replace(state=PromiseState.EMPTY)

    def statement(
        self, candidate_term_id: int, leadership_term_id: int, *, asks: bool = False
    ) -> PromiseStatement:
        """The statement to send to others, given the own terms (-1: none)."""
        stored = self.stored
        state = stored.state
        if state is not PromiseState.KEPT:
            if max(candidate_term_id, leadership_term_id) < 0 and not self._had_log:
                state = PromiseState.EMPTY
            elif state is PromiseState.EMPTY:
                state = PromiseState.KEPT  # it has made its first ones
        known = tuple(KnownPromises(id_, member_id) for member_id, id_ in sorted(stored.known))
        return PromiseStatement(stored.promises_id, candidate_term_id, leadership_term_id, state, asks, known)

    # ---- what others report

    def on_statement(self, member_id: int, statement: PromiseStatement) -> bool:
        """Take a statement; True when ``stored`` has changed, and is to be stored before it is answered."""
        assert member_id in self._other_ids  # an answer of its own would count towards its majority
        self._statements[member_id] = statement
        stored, known = self.stored, self.stored.known
        of_this = {pair for pair in known if pair[0] == member_id}
        if of_this or statement.state is not PromiseState.KEPT or not self.has_say:
            known = known - of_this | {(member_id, statement.promises_id)}
        if not self.has_say:  # what it had stored of third ones may be forgotten, too
            third = {(k.member_id, k.promises_id) for k in statement.known if k.member_id in self._other_ids}
            known |= {pair for pair in third if pair[0] != member_id}
            self._confirm()
        self.stored = stored._replace(known=known)
        return known != stored.known

    def on_link_down(self, member_id: int) -> None:
        """What comes next over this link may come from another life."""
        self._statements.pop(member_id, None)

    @property
    def waits_for(self) -> list[int]:
        """Others whose answers may end the waiting; none while it may follow."""
        if self.may_follow:
            return []
        return [id_ for id_ in self._other_ids if id_ not in self._answers()] or list(self._other_ids)

    def is_new_cluster(self, candidate_term_id: int, leadership_term_id: int) -> bool:
        """Whether every configured member has reported, in this life of this one, that its disk is empty."""
        own = self.statement(candidate_term_id, leadership_term_id)
        return own.state is PromiseState.EMPTY and all(
            (statement := self._statements.get(id_)) is not None
            and statement.state is PromiseState.EMPTY
            and self._is_answer(statement)
            for id_ in self._other_ids
        )

    def void_votes(self, members: Iterable[ClusterMember]) -> list[ClusterMember]:
        """Voters of a ballot that are known to have lost the promises that they have voted with."""
        voters = [member for member in members if member.vote and member.id != self._member_id]
        known = set(self.stored.known) | {
            (id_, statement.promises_id) for id_, statement in self._statements.items()
        }
        for voter in voters:
            if voter.promises is not None:
                known |= {(k.member_id, k.promises_id) for k in voter.promises.known}
        return [
            voter
            for voter in voters
            if any(
                id_ == voter.id and (voter.promises is None or promises_id != voter.promises.promises_id)
                for id_, promises_id in known
            )
        ]

    def statement_of(self, member_id: int) -> PromiseStatement | None:
        """The last statement over the member's present link."""
        return self._statements.get(member_id)

    # ---- bounds of terms

    def term_limit(self, member_id: int, candidate_term_id: int, leadership_term_id: int) -> int:
        """The highest term that is believed of ``member_id``, given the own terms.

        What was led lies in logs, and is not made up by one bit or frame; candidate terms grow by one. What
        the member itself has stated counts up to a bound of its own: nobody else may be there to confirm it.
        """
        statements = [statement for id_, statement in self._statements.items() if id_ != member_id]
        if len(self._other_ids) == 1 and not self.has_say and member_id in self._statements:
            statements = [self._statements[member_id]]  # there is nobody else to compare it with
        terms = [(candidate_term_id, leadership_term_id), *map(_terms_of, statements)]
        limit = _limit(terms, TERM_JUMP_MAX)
        if (stated := self._statements.get(member_id)) is not None:
            limit = max(limit, min(max(_terms_of(stated)) + 1, _limit(terms, STATED_JUMP_MAX)))
        return limit

    def is_beyond_others(self, candidate_term_id: int) -> bool:
        """Whether the own candidate term is so far above those of enough others that it cannot be true."""
        kept = [
            _terms_of(statement)
            for statement in self._statements.values()
            if statement.state is PromiseState.KEPT
        ]
        if not self.has_say or len(kept) < self._answers_needed:
            return False
        return candidate_term_id > _limit(kept, STATED_JUMP_MAX)

    # ---- answers

    def _is_answer(self, statement: PromiseStatement) -> bool:
        return KnownPromises(self.stored.promises_id, self._member_id) in statement.known

    def _answers(self) -> Mapping[int, int]:
        """The highest term of each other that has its promises and stored our id."""
        return {
            id_: max(_terms_of(statement))
            for id_, statement in self._statements.items()
            if statement.state is PromiseState.KEPT and self._is_answer(statement)
        }

    def _confirm(self) -> None:
        assert not self.has_say  # a term that was confirmed is a bound for whoever has none of its own
        answers = self._answers()
        clusters = {id_: next(iter(self._statements[id_].cluster), None) for id_ in answers}
        agreeing, cluster = agreement(clusters, self._answers_needed)
        answers = {id_: answers[id_] for id_ in agreeing}
        believed = [
            term_id
            for id_, term_id in answers.items()
            if len(self._other_ids) == 1
            or any(term_id <= other + TERM_JUMP_MAX for i, other in answers.items() if i != id_)
        ]
        if len(believed) >= self._answers_needed:
            self.confirmed_term_id = max(*believed, self.confirmed_term_id or NULL_VALUE)
            self.confirmed_cluster = cluster


def _terms_of(statement: PromiseStatement) -> tuple[int, int]:
    return statement.candidate_term_id, statement.leadership_term_id


def _limit(terms: Iterable[tuple[int, int]], jump: int) -> int:
    """One above the highest candidate term, or ``jump`` above the highest that was led."""
    candidate_ids, led_ids = zip(*terms, strict=True)
    return int(max(max(candidate_ids) + 1, max(led_ids) + jump))
