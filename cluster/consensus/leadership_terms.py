"""Which leadership term wrote which part of the log: the term entries of recording.log, as values.

    term   0         1         2    3            4
           |=========|=========|    |============|======...
    base   0       400       900  900          1200   end of the last: open

Terms are ascending without a gap: terms that nobody led are there as empty ones. A base is chosen once, by
the term's only leader, and is recorded by others only when their log up to it is known to be the leader's.
So two members that hold *bytes* of one term from the same base hold the same log up to the end of the
shorter (Raft's log matching, with the entry (term, base) in the place of the term's first log entry). Empty
terms prove nothing: they may have been filled in.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple

from cluster.consensus.context import NULL_POSITION, NULL_VALUE


class LeadershipTerm(NamedTuple):
    """``log_position`` is the end of the term's bytes, exclusive; NULL_POSITION while it is open."""

    leadership_term_id: int
    term_base_log_position: int
    log_position: int


_base_of = attrgetter("term_base_log_position")


class LeadershipTerms:
    """The terms of one member's log; kept equal to its recording.log by the actions of the election."""

    __slots__ = ("_terms",)

    def __init__(self, terms: Iterable[LeadershipTerm] = ()) -> None:
        self._terms = list(terms)
        for before, after in zip(self._terms, self._terms[1:], strict=False):
            assert after.leadership_term_id == before.leadership_term_id + 1
            assert after.term_base_log_position >= before.term_base_log_position

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(self._terms)

    def __len__(self) -> int:
        return len(self._terms)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LeadershipTerms) and self._terms == other._terms

    __hash__ = None  # type: ignore[assignment]

    @property
    def last_term_id(self) -> int:
        """The term of the log's last entry; NULL_VALUE without one."""
        return self._terms[-1].leadership_term_id if self._terms else NULL_VALUE

    def find(self, leadership_term_id: int) -> LeadershipTerm | None:
        """The entry of this term, None when there is none."""
        if not self._terms:
            return None
        index = leadership_term_id - self._terms[0].leadership_term_id
        return self._terms[index] if 0 <= index < len(self._terms) else None

    def first_from(self, term_base: int) -> LeadershipTerm:
        """The first entry that begins at or after ``term_base``; there is one."""
        return self._terms[bisect_left(self._terms, term_base, key=_base_of)]

    def after(self, leadership_term_id: int, open_end: int = NULL_POSITION) -> LeadershipTerm:
        """The next entry, without empty terms, as a leader reports it: nulls without one."""
        term = self.find(leadership_term_id + 1)
        if term is None:
            return LeadershipTerm(NULL_VALUE, NULL_POSITION, NULL_POSITION)
        term = self._terms[bisect_right(self._terms, term.term_base_log_position, key=_base_of) - 1]
        return term._replace(log_position=open_end) if term.log_position == NULL_POSITION else term

    def end_of(self, term: LeadershipTerm, append_position: int) -> int:
        """Where the bytes of ``term`` end in a log that ends at ``append_position``."""
        return append_position if term.log_position == NULL_POSITION else term.log_position

    def has_room_for(self, leadership_term_id: int, term_base: int) -> bool:
        """Whether the term is known with this base, or can be the next one."""
        known = self.find(leadership_term_id)
        if known is not None or not self._terms:
            return known is None or known.term_base_log_position == term_base
        last = self._terms[-1]
        if last.log_position == NULL_POSITION:
            is_next = term_base >= last.term_base_log_position
        else:
            is_next = term_base == last.log_position
        return is_next and leadership_term_id > last.leadership_term_id

    def record(self, leadership_term_id: int, term_base: int, term_end: int = NULL_POSITION) -> None:
        """Make the entry of a term known (Aeron: RecordingLog.ensureCoherent).

        A new term closes the one before it and fills in empty ones for those in between. Of a known
        term only the end is set; without one the last term is open again: bytes are about to follow.
        """
        assert leadership_term_id >= 0
        assert self.has_room_for(leadership_term_id, term_base)  # a term has one base (I-1)
        assert term_end == NULL_POSITION or term_end >= term_base >= 0
        last_term_id = self.last_term_id
        if leadership_term_id <= last_term_id:
            known = self.find(leadership_term_id)
            assert known is not None
            if term_end != NULL_POSITION or leadership_term_id == last_term_id:
                index = leadership_term_id - self._terms[0].leadership_term_id
                self._terms[index] = known._replace(log_position=term_end)
            return
        if self._terms:
            self._terms[-1] = self._terms[-1]._replace(log_position=term_base)
        first_missing = last_term_id + 1 if self._terms else (0 if term_base == 0 else leadership_term_id)
        for missing in range(first_missing, leadership_term_id):
            self._terms.append(LeadershipTerm(missing, term_base, term_base))
        self._terms.append(LeadershipTerm(leadership_term_id, term_base, term_end))

    def truncate(self, log_position: int, first_removed_term_id: int) -> None:
        """The log now ends at ``log_position`` and holds nothing of ``first_removed_term_id`` or later."""
        terms = self._terms
        while terms and (
            terms[-1].leadership_term_id >= first_removed_term_id
            or terms[-1].term_base_log_position > log_position
        ):
            terms.pop()
        if terms:
            terms[-1] = terms[-1]._replace(log_position=log_position)
