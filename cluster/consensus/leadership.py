"""A term as its leader sees it: how far a majority has its log, and what is sent to the other members.

An election makes it when it is won (LEADER_LOG_REPLICATION), and the established leader goes on with it. In
Aeron: Election.publishNewLeadershipTerm, ConsensusModuleAgent.updateLeaderPosition.
"""

import numpy as np

from cluster.consensus import quorum
from cluster.consensus.cluster_member import MemberTable, has_active_quorum
from cluster.consensus.context import NULL_POSITION, NULL_VALUE, ConsensusModuleContext
from cluster.consensus.leadership_terms import LeadershipTerms
from cluster.log.kernel import as_python
from cluster.log.words import Word
from cluster.protocol.consensus import CommitPosition, NewLeadershipTerm

_is_heartbeat_due, _on_commit_sent = as_python(quorum.is_heartbeat_due), as_python(quorum.on_commit_sent)


class Leadership:
    """The term that this member leads; ``members`` and ``terms`` belong to the caller.

    ``quorum_position`` is what CommitPosition said last. It may fall (C-170), a commit position does not.
    ``commit_due_ns`` is when CommitPosition is to be sent although nothing has changed. ``words`` goes to
    kernels (``quorum.py``).
    """

    quorum_position = Word(quorum.QUORUM_POSITION)
    commit_due_ns = Word(quorum.COMMIT_DUE_NS)

    def __init__(
        self,
        context: ConsensusModuleContext,
        members: MemberTable,
        terms: LeadershipTerms,
        *,
        leadership_term_id: int,
        term_base: int,
        log_session_id: int,
        log_recording_id: int,
        now_ns: int,
    ) -> None:
        assert leadership_term_id >= 0
        assert term_base >= 0
        assert log_session_id != NULL_VALUE, "which says that no log is led"
        self.leadership_term_id = leadership_term_id
        self.term_base = term_base
        self.log_session_id = log_session_id
        self.log_recording_id = log_recording_id
        self._context = context
        self._members = members.values()
        self._this = members[context.member_id]
        self._terms = terms
        self._reports = members.words
        self.words = np.zeros(quorum.LEADERSHIP_WORDS, np.int64)
        self._words = self.words.data
        self._words[quorum.LEADERSHIP_TERM_ID] = leadership_term_id
        self._words[quorum.QUORUM] = context.quorum_threshold
        self._words[quorum.TIMEOUT_NS] = context.leader_heartbeat_timeout_ns
        self._words[quorum.HEARTBEAT_NS] = context.leader_heartbeat_interval_ns
        self._words[quorum.OWN_ROW] = self._this.row
        self._time_of_last_following_ns = now_ns  # that a majority was seen to follow

    # ---- who follows

    def has_active_quorum(self, now_ns: int, timeout_ns: int) -> bool:
        """Whether a majority was heard less than ``timeout_ns`` ago."""
        return has_active_quorum(self._members, now_ns, timeout_ns, self._context.quorum_threshold)

    def is_followed_since(self, time_ns: int, now_ns: int) -> bool:
        """Whether a majority, ourselves included, has reported in this term since ``time_ns``."""
        assert time_ns <= now_ns
        followers = sum(
            member.report_term_id == self.leadership_term_id
            and member.is_active(now_ns, now_ns - time_ns + 1)
            for member in self._members
            if member is not self._this
        )
        return followers + 1 >= self._context.quorum_threshold

    def is_followed(self, now_ns: int) -> bool:
        """Whether a majority was seen to follow within twice the heartbeat timeout.

        Who only canvasses is heard (C-19), but maybe cannot hear us, and so never follows; those that do
        follow vote for nobody else. To be asked in every slow tick, or it sees nothing.
        """
        timeout_ns = self._context.leader_heartbeat_timeout_ns
        if self.is_followed_since(now_ns - timeout_ns, now_ns):
            self._time_of_last_following_ns = now_ns
        return now_ns - self._time_of_last_following_ns < 2 * timeout_ns

    # ---- how far

    def has_quorum(self, now_ns: int) -> bool:
        """Whether a majority of active members has recorded this term, and holds the whole log up to it."""
        return bool(quorum.has_quorum_at(self.words, self._reports, self.term_base, now_ns))

    def quorum_position_at(self, synced_position: int, now_ns: int) -> int:
        """The position that a majority has proven in this term, at most our own ``synced_position``."""
        return int(quorum.quorum_position(self.words, self._reports, synced_position, now_ns))

    # ---- what is sent to others

    def is_commit_due(self, now_ns: int) -> bool:
        """Whether CommitPosition is to be sent although nothing has changed."""
        return _is_heartbeat_due(self._words, now_ns)

    def on_commit_reported(self, log_position: int, now_ns: int) -> None:
        """CommitPosition with this position goes to all others."""
        _on_commit_sent(self._words, log_position, now_ns)

    def make_commit_due(self) -> None:
        """The next CommitPosition does not wait for its interval."""
        self.commit_due_ns = 0

    def commit_position_message(self) -> CommitPosition:
        """What was sent last, as a message."""
        return CommitPosition(self.leadership_term_id, self.quorum_position, self._this.id)

    def new_leadership_term(
        self,
        log_leadership_term_id: int,
        append_position: int,
        timestamp: int,
        *,
        commit_position: int,
        is_startup: bool = False,
        open_end: int = NULL_POSITION,
    ) -> NewLeadershipTerm:
        """The answer to a member whose log ends in that term: this term, and the one after its own.

        ``append_position`` is the end of our log, ``timestamp`` cluster time. A term that is still written
        ends at ``open_end``.
        """
        assert append_position >= self.term_base  # Raft's Leader Append-Only
        next_term = self._terms.after(log_leadership_term_id, open_end)
        return NewLeadershipTerm(
            log_leadership_term_id=log_leadership_term_id,
            next_leadership_term_id=next_term.leadership_term_id,
            next_term_base_log_position=next_term.term_base_log_position,
            next_log_position=next_term.log_position,
            leadership_term_id=self.leadership_term_id,
            term_base_log_position=self.term_base,
            log_position=append_position,
            leader_recording_id=self.log_recording_id,
            timestamp=timestamp,
            leader_member_id=self._this.id,
            log_session_id=self.log_session_id,
            app_version=self._context.app_version,
            is_startup=is_startup,
            commit_position=commit_position,
        )
