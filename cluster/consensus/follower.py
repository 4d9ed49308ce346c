"""A follower once the election is over: what its leader says, and whether it has fallen silent.

What is called in every turn takes and returns plain numbers. Other handlers return why to enter an election,
as a line for the log, or None. A follower that hears its leader does not answer RequestVote: a healthy leader
must not be deposed. In Aeron: handlers of ConsensusModuleAgent.
"""

import numpy as np

from cluster.consensus import quorum
from cluster.consensus.context import NULL_POSITION, ConsensusModuleContext
from cluster.log.kernel import as_python
from cluster.log.words import Word
from cluster.protocol.consensus import CanvassPosition, NewLeadershipTerm, RequestVote

_take_commit, _is_report_due = as_python(quorum.take_commit), as_python(quorum.is_report_due)
_on_report_sent = as_python(quorum.on_report_sent)


class Follower:
    """What an established follower knows of its leader; ``words`` goes to kernels (``quorum.py``)."""

    leadership_term_id = Word(quorum.FOLLOWED_TERM_ID)
    leader_member_id = Word(quorum.FOLLOWED_LEADER)
    notified_commit_position = Word(quorum.NOTIFIED_COMMIT_POSITION)
    time_of_last_leader_message_ns = Word(quorum.LAST_LEADER_MESSAGE_NS)
    sent_position = Word(quorum.SENT_POSITION)
    next_append_position_ns = Word(quorum.REPORT_DUE_NS)  # although nothing happens

    def __init__(
        self,
        context: ConsensusModuleContext,
        *,
        leadership_term_id: int,
        leader_member_id: int,
        notified_commit_position: int,
        candidate_term_id: int,
        now_ns: int,
    ) -> None:
        assert leader_member_id != context.member_id
        assert leadership_term_id <= candidate_term_id  # what a vote has promised (I-9)
        self.words = np.zeros(quorum.FOLLOWER_WORDS, np.int64)
        self._words = self.words.data
        self.leadership_term_id = leadership_term_id
        self.leader_member_id = leader_member_id
        self.notified_commit_position = notified_commit_position
        self.candidate_term_id = candidate_term_id
        self.time_of_last_leader_message_ns = now_ns
        self._context = context
        self.sent_position = NULL_POSITION
        self.next_append_position_ns = now_ns
        self._words[quorum.REPORT_INTERVAL_NS] = context.leader_heartbeat_interval_ns

    def on_commit_position(
        self, leadership_term_id: int, log_position: int, leader_member_id: int, now_ns: int
    ) -> str | None:
        if leadership_term_id == self.leadership_term_id:
            if leader_member_id == self.leader_member_id:
                _take_commit(self._words, log_position, now_ns)
        elif leadership_term_id > self.leadership_term_id:
            return f"member {leader_member_id} leads term {leadership_term_id}"
        return None

    def on_new_leadership_term(self, message: NewLeadershipTerm, now_ns: int) -> str | None:
        return self.on_commit_position(
            message.leadership_term_id, message.commit_position or 0, message.leader_member_id, now_ns
        )

    def on_canvass_position(self, message: CanvassPosition) -> str | None:
        """The leader stood down, if it led this term's log (Aeron's followers see its log image close)."""
        if (
            message.follower_member_id != self.leader_member_id
            or message.log_leadership_term_id < self.leadership_term_id
        ):
            return None
        return f"member {self.leader_member_id}, leader of term {self.leadership_term_id}, stood down"

    def on_request_vote(self, message: RequestVote, now_ns: int) -> str | None:
        """Why to hold an election: a vote in a higher term, and no leader that is heard (C-94, C-95)."""
        is_heard = now_ns - self.time_of_last_leader_message_ns < self._context.election_timeout_ns
        if message.candidate_term_id <= self.leadership_term_id or is_heard:
            return None
        return f"member {message.candidate_member_id} asks for a vote in term {message.candidate_term_id}"

    def is_leader_silent(self, now_ns: int) -> bool:
        """Whether the leader was silent for the heartbeat timeout (C-22); log data does not count (C-23)."""
        return now_ns - self.time_of_last_leader_message_ns >= self._context.leader_heartbeat_timeout_ns

    def is_append_position_due(self, synced_position: int, now_ns: int) -> bool:
        """Whether our position is to be reported: it grew, or the interval passed (C-38, C-39)."""
        return _is_report_due(self._words, synced_position, now_ns)

    def on_append_position_sent(self, synced_position: int, now_ns: int) -> None:
        assert synced_position >= self.sent_position  # what was reported stays on the disk (I-3)
        _on_report_sent(self._words, synced_position, now_ns)
