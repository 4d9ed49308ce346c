"""What a member knows of each member, and the predicates over all of them (Aeron: ClusterMember).

Two things that are easily confused are kept apart:

    standing   how good a log is, by canvass and votes: decides who may lead, never what is committed
    report     what an AppendPosition of the current term proves: the only thing that counts towards a quorum

Reports are words, which compiled turns take too: what follows from them is in ``quorum.py``.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

import numpy as np

from cluster.consensus import quorum
from cluster.consensus.context import NULL_POSITION, NULL_VALUE
from cluster.log.kernel import as_python
from cluster.log.words import Word
from cluster.protocol.link import PromiseStatement

_is_heard = as_python(quorum.is_heard)


class LogEnd(NamedTuple):
    """Where a log ends; "a log at least as good" is ``>=`` (Raft §5.4.1)."""

    leadership_term_id: int
    log_position: int

    def __str__(self) -> str:
        if self == (NULL_VALUE, 0):
            return "no log"
        return f"a log to {self.log_position} of term {self.leadership_term_id}"


class ClusterMember:
    """One configured member, ourselves included."""

    report_term_id = Word(quorum.REPORT_TERM_ID)
    report_position = Word(quorum.REPORT_POSITION)
    time_of_last_activity_ns = Word(quorum.LAST_ACTIVITY_NS)  # NEVER_HEARD

    def __init__(self, member_id: int, members: np.ndarray, row: int) -> None:
        """``members[row:]`` are its words."""
        self.id = member_id
        self.row = row
        self._words = members.data[row : row + quorum.ROW_WORDS]
        self._words[quorum.ID] = member_id
        self.standing: LogEnd | None = None  # None: not heard from since this election canvasses
        self.candidate_term_id = NULL_VALUE  # that ``vote`` is for
        self.vote: bool | None = None
        self.promises: PromiseStatement | None = None  # that came beside ``vote``
        self.is_ballot_sent = False
        self.clear_report()
        self.time_of_last_activity_ns = quorum.NEVER_HEARD
        self.has_terminated = False

    def reset(self) -> None:
        """Forget everything that an earlier election or leadership knew of this member."""
        self.standing = None
        self.candidate_term_id = NULL_VALUE
        self.vote = None
        self.is_ballot_sent = False
        self.has_terminated = False
        self.clear_report()

    def clear_report(self) -> None:
        """What the member proved holds no more: its link broke, or it looks for a leader again."""
        self.report_term_id = NULL_VALUE
        self.report_position = NULL_POSITION
        self.serves_clients = False  # its services are there and its log has room, it said last

    def report(self, leadership_term_id: int, log_position: int, now_ns: int) -> None:
        """The member holds the log of ``leadership_term_id`` up to ``log_position``, safe on its disk."""
        self.report_term_id = leadership_term_id
        self.report_position = log_position
        self.time_of_last_activity_ns = now_ns

    def is_active(self, now_ns: int, timeout_ns: int) -> bool:
        """Whether the member was heard less than ``timeout_ns`` ago."""
        return _is_heard(self._words, 0, now_ns, timeout_ns)

    def would_vote_for(self, standing: LogEnd) -> bool:
        """Whether the member's log, as last reported, is no better than ``standing``."""
        return self.standing is not None and self.standing <= standing


class MemberTable(dict[int, ClusterMember]):
    """All configured members by ascending id; ``words`` has a row of each, for kernels."""

    def __init__(self, member_ids: Iterable[int]) -> None:
        ids = sorted(member_ids)
        self.words = np.zeros(len(ids) * quorum.ROW_WORDS, np.int64)
        super().__init__(
            (id_, ClusterMember(id_, self.words, place * quorum.ROW_WORDS)) for place, id_ in enumerate(ids)
        )


Members = Iterable[ClusterMember]


def is_unanimous_candidate(
    members: Members, candidate: LogEnd, exempt: Collection[int], quorum_threshold: int
) -> bool:
    """Whether every member that is not ``exempt`` would vote for a log ending at ``candidate``."""
    votes = 0
    for member in members:
        if member.would_vote_for(candidate):
            votes += 1
        elif member.id not in exempt:
            return False
    return votes >= quorum_threshold


def is_quorum_candidate(members: Members, candidate: LogEnd, quorum_threshold: int) -> bool:
    """Whether a majority would vote for a log ending at ``candidate``."""
    return sum(member.would_vote_for(candidate) for member in members) >= quorum_threshold


def is_unanimous_leader(
    members: Members, candidate_term_id: int, exempt: Collection[int], quorum_threshold: int
) -> bool:
    """Whether every member voted TRUE in this candidate term; the ``exempt`` may be silent, not refuse."""
    votes = 0
    for member in members:
        has_voted = member.candidate_term_id == candidate_term_id
        if has_voted and member.vote is True:
            votes += 1
        elif has_voted or member.id not in exempt:
            return False
    return votes >= quorum_threshold


def is_quorum_leader(members: Members, candidate_term_id: int, quorum_threshold: int) -> bool:
    """Whether a majority voted TRUE, and nobody FALSE, in this candidate term."""
    votes = 0
    for member in members:
        if member.candidate_term_id == candidate_term_id:
            if member.vote is False:
                return False
            votes += member.vote is True
    return votes >= quorum_threshold


def is_refused_candidate(members: Members, candidate_term_id: int) -> bool:
    """Whether anybody voted FALSE in this candidate term."""
    return any(member.vote is False and member.candidate_term_id == candidate_term_id for member in members)


def has_majority(members: Members, candidate_term_id: int, quorum_threshold: int) -> bool:
    """Whether a majority voted TRUE in this candidate term, whoever voted FALSE."""
    votes = sum(member.vote is True and member.candidate_term_id == candidate_term_id for member in members)
    return votes >= quorum_threshold


def describe_ballot(members: Members, candidate_term_id: int) -> str:
    """How many voted TRUE in this candidate term, and who voted FALSE."""
    members = list(members)
    votes = {m.id: m.vote for m in members if m.candidate_term_id == candidate_term_id}
    against = ", ".join(str(id_) for id_, vote in votes.items() if vote is False)
    refused = f", refused by {against}" if against else ""
    return f"{sum(vote is True for vote in votes.values())} of {len(members)} votes{refused}"


def has_active_quorum(members: Members, now_ns: int, timeout_ns: int, quorum_threshold: int) -> bool:
    """Whether a majority was heard less than ``timeout_ns`` ago."""
    return sum(member.is_active(now_ns, timeout_ns) for member in members) >= quorum_threshold
