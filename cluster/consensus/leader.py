"""A leader once the election is over: reports, commit, and when it leads no more.

What is called in every turn takes and returns plain numbers. Other handlers return why to enter an election,
as a line for the log, or None.

A healthy leader must not be deposed: one that a majority hears does not answer RequestVote. A member that has
voted in a later term answers with Vote(FALSE) of that term, which makes the leader step down.

In Aeron: handlers of ConsensusModuleAgent.
"""

from cluster.consensus import quorum
from cluster.consensus.cluster_member import MemberTable
from cluster.consensus.context import NULL_POSITION, ConsensusModuleContext
from cluster.consensus.leadership import Leadership
from cluster.log.words import Flag, Word
from cluster.protocol.consensus import CanvassPosition, CommitPosition, NewLeadershipTerm, RequestVote, Vote


class Leader:
    """What an established leader knows; ``has_news`` of reports since the last update.

    ``is_commit_unsent``: the commit position has risen, and the followers have not heard it.
    """

    commit_position = Word(quorum.COMMIT_POSITION)
    has_news = Flag(quorum.HAS_NEWS)
    is_commit_unsent = Flag(quorum.IS_COMMIT_UNSENT)
    _append_position = Word(quorum.APPEND_POSITION)

    def __init__(
        self,
        context: ConsensusModuleContext,
        members: MemberTable,
        leadership: Leadership,
        *,
        commit_position: int,
        candidate_term_id: int,
    ) -> None:
        assert leadership.leadership_term_id <= candidate_term_id  # it has stood for it (I-9)
        assert leadership.term_base <= commit_position  # it has processed all that came before its term
        self.leadership = leadership
        self._words = leadership.words.data
        self.leadership_term_id = leadership.leadership_term_id
        self.commit_position = commit_position
        self.candidate_term_id = candidate_term_id
        self.has_news = True
        self._context = context
        self._members = members
        self._this = members[context.member_id]
        self._append_position = NULL_POSITION
        self._regression_reported_at = NULL_POSITION
        self.regression: str | None = None  # set once per commit position, for the error log
        leadership.make_commit_due()

    def on_append_position(
        self, member_id: int, leadership_term_id: int, log_position: int, now_ns: int
    ) -> None:
        """A follower's log is safe up to ``log_position``; of another term it proves nothing."""
        quorum.on_report(
            self.leadership.words, self._members.words, member_id, leadership_term_id, log_position, now_ns
        )

    def on_link_down(self, member_id: int) -> None:
        """Only the current connection of a link proves anything."""
        self._members[member_id].clear_report()
        self.has_news = True

    def update(self, synced_position: int, now_ns: int) -> bool:
        """Take in our own position; True when CommitPosition is to be sent (``leadership`` knows which)."""
        assert synced_position >= self._append_position  # a leader only appends (Raft's Leader Append-Only)
        commit_position = self.commit_position
        assert synced_position >= commit_position  # never more than is on our own disk (I-3)
        position = quorum.update(self.leadership.words, self._members.words, synced_position, now_ns)
        if position == quorum.NOTHING_TO_REPORT:
            return False
        if position < commit_position != self._regression_reported_at:
            self._regression_reported_at = commit_position
            self.regression = f"quorum position fell to {position} below commit position {commit_position}"
        return True

    def has_active_quorum(self, now_ns: int) -> bool:
        """Whether a majority is heard and follows; always for a single member (C-20)."""
        if len(self._members) == 1:
            return True
        timeout_ns = self._context.leader_heartbeat_timeout_ns
        is_followed = self.leadership.is_followed(now_ns)
        return is_followed and self.leadership.has_active_quorum(now_ns, timeout_ns)

    def on_request_vote(self, message: RequestVote, now_ns: int) -> str | None:
        """Why to hold an election: a vote in a higher term, and no majority that reports (C-94, C-95)."""
        if message.candidate_term_id <= self.leadership_term_id or self.leadership.has_active_quorum(
            now_ns, self._context.election_timeout_ns
        ):
            return None
        return f"member {message.candidate_member_id} asks for a vote in term {message.candidate_term_id}"

    def on_vote(self, message: Vote) -> str | None:
        """A member has voted in a later term and will not follow this one."""
        if message.vote or message.candidate_term_id <= max(self.leadership_term_id, self.candidate_term_id):
            return None
        self.candidate_term_id = message.candidate_term_id
        return f"member {message.follower_member_id} has voted in term {message.candidate_term_id}"

    def on_new_leadership_term(self, message: NewLeadershipTerm) -> str | None:
        if message.leadership_term_id <= self.leadership_term_id:
            return None
        return f"member {message.leader_member_id} leads term {message.leadership_term_id}"

    def on_commit_position(self, message: CommitPosition) -> str | None:
        if message.leadership_term_id <= self.leadership_term_id:
            return None
        return f"member {message.leader_member_id} leads term {message.leadership_term_id}"

    def on_canvass_position(
        self, message: CanvassPosition, append_position: int, timestamp: int, now_ns: int
    ) -> NewLeadershipTerm | None:
        """The answer for a member that looks for a leader; None when it stands above this term."""
        member = self._members.get(message.follower_member_id)
        if member is None or member is self._this or message.log_leadership_term_id > self.leadership_term_id:
            return None
        member.time_of_last_activity_ns = now_ns
        member.clear_report()
        self.has_news = True
        return self.leadership.new_leadership_term(
            message.log_leadership_term_id, append_position, timestamp, commit_position=self.commit_position
        )
