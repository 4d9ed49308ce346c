"""Whether a member's log is a prefix of a leader's, found out before the leader is followed.

From our last term down: the leader is asked for the term after t-1, and its base of t is compared with ours.

    another base                            nothing of t is common: cut where ours begins, and begin again
    the same base, bytes of t in both       one leader wrote both: equal to the end of the shorter. Done
    the same base, no bytes of t in one     t proves nothing, it may have been filled in: on to the last of
                                            our terms that begins before it

Terms of ours that begin at one base are compared at once, for there may be thousands, and bases never fall:
where the leader's base of t is ours, those of the others are too, once the term before them is the same.
Where it lies after ours the leader is asked what it has from our base on: what it passes over is empty
there, too, and what follows its answer is another log's.

The reference compares only ends of terms, and keeps bytes of a term that the leader knows as an empty
one. Why the comparison is enough: ``LeadershipTerms``.

A cut is where one of our frames begins: at the own base of a term, or where the leader's bytes end of a term
that one leader wrote for both. The leader's base of a term that begins elsewhere with us may lie within a
frame of ours; what is not common before our base is found at the next term below.
"""

from typing import NamedTuple

from cluster.consensus.context import NULL_POSITION, NULL_VALUE
from cluster.consensus.leadership_terms import LeadershipTerms
from cluster.protocol.consensus import NewLeadershipTerm


class Ask(NamedTuple):
    """Canvass the leader with this log term: it reports the next one after that is not empty, or its own."""

    log_leadership_term_id: int


class Cut(NamedTuple):
    """From ``log_position`` on, with ``first_removed_term_id`` and later, our log is another one."""

    log_position: int
    first_removed_term_id: int


class NotThere(NamedTuple):
    """The leader has no entry of our term: its log begins later, and a snapshot stands for what was."""


class LogMatching:
    """How far down our log has been compared with that of one leader in one term."""

    __slots__ = ("asked_term_id", "is_done", "leader_member_id", "leadership_term_id", "term_in_question")

    def __init__(self, message: NewLeadershipTerm, last_term_id: int) -> None:
        self.leader_member_id = message.leader_member_id
        self.leadership_term_id = message.leadership_term_id
        self.term_in_question = last_term_id
        self.asked_term_id = last_term_id - 1  # what the leader has after it is to be compared
        self.is_done = last_term_id == NULL_VALUE

    def is_about(self, message: NewLeadershipTerm) -> bool:
        """Whether the message is of the same leader in the same term."""
        return (
            self.leader_member_id == message.leader_member_id
            and self.leadership_term_id == message.leadership_term_id
        )

    def compare(
        self, message: NewLeadershipTerm, terms: LeadershipTerms, append_position: int
    ) -> Ask | Cut | NotThere | None:
        """Compare what the leader reports with our log; None: our log is known to be a prefix of its."""
        while not self.is_done:
            term_id = self.term_in_question
            own = terms.find(term_id)
            if own is None:  # below the first term that is kept: a snapshot stands for it
                self.is_done = True
                break
            assert self.asked_term_id < term_id  # the leader is asked what comes after it
            if message.log_leadership_term_id != self.asked_term_id:
                return Ask(self.asked_term_id)
            next_id = message.next_leadership_term_id
            if next_id == NULL_VALUE:
                return NotThere()
            own_base, own_end = own.term_base_log_position, terms.end_of(own, append_position)
            first_id = terms.first_from(own_base).leadership_term_id
            leader_base = message.next_term_base_log_position
            leader_end = message.next_log_position if next_id == term_id else leader_base
            if leader_base > own_base and self.asked_term_id >= first_id:
                self.asked_term_id = first_id - 1
                return Ask(self.asked_term_id)
            if leader_base != own_base:
                return Cut(own_base, first_id)
            if next_id < term_id:
                return Cut(own_base, next_id + 1)
            if leader_end != NULL_POSITION and term_id < message.leadership_term_id and own_end > leader_end:
                return Cut(leader_end, term_id + 1)
            have_both_bytes = own_end > own_base and (
                leader_end == NULL_POSITION
                or leader_end > leader_base
                or term_id == message.leadership_term_id
            )
            if have_both_bytes:
                self.is_done = True
            else:
                self.term_in_question = first_id - 1
                self.asked_term_id = first_id - 2
        return None


def can_record(message: NewLeadershipTerm, terms: LeadershipTerms, append_position: int) -> bool:
    """Whether our log has room for the terms that begin in it, as the leader reports them."""
    reported = (
        (message.leadership_term_id, message.term_base_log_position),
        (message.next_leadership_term_id, message.next_term_base_log_position),
    )
    return all(
        terms.has_room_for(term_id, base)
        for term_id, base in reported
        if term_id != NULL_VALUE and base <= append_position
    )
