"""Mistakes that seeds do not find: each shows in one order of events alone, which a test brings about.

As in mistakes.py, each is given a ``patch(owner, name, value)``. Two more of their kind are not here, because
nothing can show them:

- A leader that counts its own append position before its sync commits nothing early: both are in one turn,
  and the reports of those bytes come in a later one.
- A truncation below the own commit position is refused by an assertion behind the rules that forbid it:
  without one of those it is that one which shows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cluster.archive import recording
from cluster.archive.archive import Archive
from cluster.backup.standby import StandbyLife
from cluster.consensus.cluster_member import ClusterMember
from cluster.consensus.election import Election, _Replication
from cluster.consensus.leader import Leader
from cluster.consensus.log_matching import Cut, LogMatching
from cluster.consensus.promises import Promises
from cluster.consensus.service_messages import PendingServiceMessageTracker
from cluster.consensus.sessions import SessionManager
from cluster.log.session_table import SessionTable
from cluster.member.disk import log_repair
from cluster.member.disk.member_files import RepairNote
from cluster.member.services.service_adapter import ServiceAdapter
from cluster.protocol.enums import ElectionState
from cluster.protocol.frame import FRAME_ALIGNMENT
from cluster.protocol.log import SessionCloseEvent
from tests.simulation.lane_mistakes import lanes_not_in_the_snapshot
from tests.simulation.mistakes import Patch
from tests.simulation.supervised_mistakes import (
    answer_counts_not_in_the_snapshot,
    answers_forgotten_when_sent,
    answers_not_in_the_snapshot,
    answers_not_kept_on_followers,
)


def report_of_an_older_term(patch: Patch) -> None:
    """An AppendPosition counts for the term that its leader leads now, whatever term it names."""
    on_append_position = Leader.on_append_position

    def generous(self: Any, member_id: int, leadership_term_id: int, log_position: int, now_ns: int) -> None:
        on_append_position(self, member_id, self.leadership_term_id, log_position, now_ns)

    patch(Leader, "on_append_position", generous)


def reports_outlive_their_connection(patch: Patch) -> None:
    """What a member has reported counts on when its link breaks, and when it canvasses."""
    patch(ClusterMember, "clear_report", lambda self: None)


def last_term_alone_compared(patch: Patch) -> None:
    """A last term without bytes counts as proof of all that is before it."""
    compare = LogMatching.compare

    def hasty(self: Any, message: Any, terms: Any, append_position: int) -> Any:
        found = compare(self, message, terms, append_position)
        if self.term_in_question < terms.last_term_id:
            self.is_done = True
            return None
        return found

    patch(LogMatching, "compare", hasty)


def cut_at_the_leaders_base(patch: Patch) -> None:
    """Where two logs have a term with other bases, ours is cut at the leader's: within a frame, maybe."""
    compare = LogMatching.compare

    def hasty(self: Any, message: Any, terms: Any, append_position: int) -> Any:
        found = compare(self, message, terms, append_position)
        if isinstance(found, Cut):
            smaller = min(found.log_position, message.next_term_base_log_position)
            return found._replace(log_position=smaller)
        return found

    patch(LogMatching, "compare", hasty)


def append_position_told_as_committed(patch: Patch) -> None:
    """NewLeadershipTerm names the end of the leader's log where it should name its commit position."""
    on_canvass_position = Leader.on_canvass_position

    def boastful(self: Any, message: Any, append_position: int, timestamp: int, now_ns: int) -> Any:
        answer = on_canvass_position(self, message, append_position, timestamp, now_ns)
        return None if answer is None else answer.replace(commit_position=append_position)

    patch(Leader, "on_canvass_position", boastful)


def closed_term_replicated_too_far(patch: Patch) -> None:
    """Of a term that is over, a frame more than its end is fetched: the first of the next one."""
    init = _Replication.__init__

    def greedy(self: Any, leadership_term_id: int, term_base: int, stop_position: int) -> None:
        init(self, leadership_term_id, term_base, stop_position + FRAME_ALIGNMENT)

    patch(_Replication, "__init__", greedy)


def tail_left_behind_a_cut(patch: Patch) -> None:
    """A truncation moves the end, and leaves what was behind it in the file."""
    patch(recording, "zero_tail", lambda file, offset, length: 0)


def truncation_not_finished(patch: Patch) -> None:
    """What a truncation had not zeroed when its member died stays there for ever."""
    extend = Archive.extend

    def trusting(self: Any, recording_id: int, session_id: int) -> Any:
        self.recording(recording_id).is_tail_clean = True
        return extend(self, recording_id, session_id)

    patch(Archive, "extend", trusting)


def frames_of_any_term_given(patch: Patch) -> None:
    """Who asks for frames of a term is given what stands at that position, of whatever term."""
    frames_for = log_repair.frames_for

    def generous(files: Any, request: Any) -> Any:
        recording_id = files.recording_log.find_last_recording_id()
        if recording_id is not None and files.archive.has_recording(recording_id):
            end = files.archive.recording(recording_id).synced_position
            found = log_repair._bytes_of_term(files.recording_log, request.from_position, end)
            if found is not None:
                term, _ = found
                request = request.replace(
                    leadership_term_id=term.leadership_term_id,
                    term_base_log_position=term.term_base_log_position,
                )
        return frames_for(files, request)

    patch(log_repair, "frames_for", generous)


def last_cut_alone_remembered(patch: Patch) -> None:
    """Of a log that is cut twice, only the end before the second cut is noted."""
    write = RepairNote.write

    def forgetful(self: Any, text: str, held: Any) -> None:
        if self.is_there and held is not None:
            self.remove()
        write(self, text, held)

    patch(RepairNote, "write", forgetful)


def damaged_member_stands(patch: Patch) -> None:
    """A member whose log was cut stands for leader with what is left."""
    patch(Election, "_may_stand", lambda self: self._promises.has_say)


def service_messages_lost_with_their_leader(patch: Patch) -> None:
    """What a leader appended and never committed is not appended again."""

    def sweep_only(self: Any, commit_position: int) -> None:
        self.sweep_leader(commit_position)

    patch(PendingServiceMessageTracker, "restore_uncommitted", sweep_only)


def message_counts_not_taken_back(patch: Patch) -> None:
    """A session's messages that were appended and never committed count when its client comes back."""
    patch(SessionTable, "restart_appended", lambda self: None)


def votes_of_an_older_ballot_count(patch: Patch) -> None:
    """A vote that comes late counts for the ballot that is on."""
    on_vote = Election.on_vote

    def generous(self: Any, message: Any, now_ns: int) -> Any:
        if (
            self.state is ElectionState.CANDIDATE_BALLOT
            and message.candidate_term_id < self.candidate_term_id
        ):
            message = message.replace(candidate_term_id=self.candidate_term_id)
        return on_vote(self, message, now_ns)

    patch(Election, "on_vote", generous)


def higher_term_in_a_vote_ignored(patch: Patch) -> None:
    """A refusal that names a later term tells its candidate nothing, nor a leader."""
    on_vote = Election.on_vote

    def deaf(self: Any, message: Any, now_ns: int) -> Any:
        return [] if message.candidate_term_id > self.candidate_term_id else on_vote(self, message, now_ns)

    patch(Election, "on_vote", deaf)
    patch(Leader, "on_vote", lambda self, message: None)


def ack_of_an_overtaken_join_taken(patch: Patch) -> None:
    """A service's ack of a JoinLog that an election has overtaken counts for the next one."""
    close_log = ServiceAdapter.close_log

    def forgetful(self: Any, log_position: int) -> None:
        waiting = [awaited.on_acked for awaited in self._awaited]
        close_log(self, log_position)
        for awaited, on_acked in zip(self._awaited, waiting):
            awaited.on_acked = on_acked

    def careless(self: Any, acks: Any) -> None:
        awaited = self._awaited.popleft()
        if awaited.on_acked is not None:
            awaited.on_acked(acks)

    patch(ServiceAdapter, "close_log", forgetful)
    patch(ServiceAdapter, "_on_all_acked", careless)


def forgotten_votes_count(patch: Patch) -> None:
    """A candidate counts a vote that its giver has forgotten, and may have acted against since."""
    patch(Promises, "void_votes", lambda self, members: [])


def closed_sessions_in_the_snapshots_of_a_standby(patch: Patch) -> None:
    """It shows in a history when a member has begun with such a snapshot, which is rare."""
    load = StandbyLife._load

    def forgetful(self: Any, snapshot: Any) -> Any:
        apply = self.replica.apply
        self.replica.apply = lambda entry, log_position: (
            None if isinstance(entry, SessionCloseEvent) else apply(entry, log_position)
        )
        return load(self, snapshot)

    patch(StandbyLife, "_load", forgetful)


def groups_are_forgotten_by_a_jump(patch: Patch) -> None:
    """Where cluster time jumps forward, reports are as old as that."""

    def keep_lanes_longer(self: Any, jumped: int) -> None:
        self.lanes.jumped = jumped

    patch(SessionManager, "keep_longer", keep_lanes_longer)


# Each with the test that finds it.
QUIET_MISTAKES: dict[Callable[[Patch], None], str] = {
    report_of_an_older_term: "consensus/test_established.py::test_a_report_of_another_term_commits_nothing",
    reports_outlive_their_connection: "consensus/test_safety.py::"
    "test_a_report_holds_until_its_sender_is_lost_or_looks_for_a_leader",
    last_term_alone_compared: "consensus/test_log_matching.py::"
    "test_empty_terms_prove_nothing_so_the_question_goes_on_below",
    cut_at_the_leaders_base: "member/test_cut_logs.py::"
    "test_a_log_is_not_cut_within_its_own_frame_where_the_leader_knows_a_term_from_there_on",
    append_position_told_as_committed: "consensus/test_established.py::"
    "test_a_member_that_asks_is_told_of_the_term_after_its_last",
    closed_term_replicated_too_far: "consensus/test_follower_path.py::"
    "test_the_missing_end_of_the_own_last_term_is_fetched_up_to_the_next_terms_base",
    tail_left_behind_a_cut: "archive/test_recording.py::"
    "test_a_truncated_recording_ends_there_and_the_old_tail_never_joins_on",
    truncation_not_finished: "archive/test_disk_faults.py::"
    "test_a_process_killed_at_any_moment_loses_nothing_that_it_was_told",
    frames_of_any_term_given: "member/test_damaged_members.py::"
    "test_bytes_of_another_term_are_not_taken_though_they_have_the_same_place",
    last_cut_alone_remembered: "member/test_damaged_members.py::"
    "test_of_several_ends_that_were_held_the_note_keeps_the_best",
    damaged_member_stands: "consensus/test_damaged_members.py::"
    "test_a_third_that_lacks_what_the_damaged_ones_held_is_not_elected",
    service_messages_lost_with_their_leader: "consensus/test_service_messages.py::"
    "test_uncommitted_messages_are_appended_again_after_a_loss_of_leadership",
    message_counts_not_taken_back: "consensus/test_session_counts.py::"
    "test_messages_that_were_appended_and_never_committed_are_not_counted_any_more",
    votes_of_an_older_ballot_count: "consensus/test_ballots.py::"
    "test_a_vote_of_another_term_or_for_another_candidate_is_not_counted",
    higher_term_in_a_vote_ignored: "consensus/test_safety.py::"
    "test_a_leader_that_hears_of_such_a_promise_makes_it_its_own_and_begins_anew",
    ack_of_an_overtaken_join_taken: "member/test_service_acks.py::"
    "test_a_join_that_an_election_has_overtaken_is_acknowledged_to_nobody_and_a_snapshot_still_is",
    forgotten_votes_count: "consensus/test_promises.py::"
    "test_a_vote_counts_no_more_when_another_voter_knows_that_it_is_forgotten",
    closed_sessions_in_the_snapshots_of_a_standby: "backup/test_standby.py::"
    "test_at_a_snapshot_for_standbys_the_standby_alone_takes_one_of_the_members_state",
    groups_are_forgotten_by_a_jump: "member/test_retention.py::"
    "test_a_jump_of_the_clocks_forgets_no_consumer_group_and_drops_none_of_its_log",
    answers_not_kept_on_followers: "member/test_supervised_sessions.py::"
    "test_what_a_leader_had_sent_before_it_died_and_nobody_got_comes_from_the_next",
    answers_not_in_the_snapshot: "member/test_supervised_sessions.py::"
    "test_answers_that_nobody_has_taken_survive_the_restart_of_every_member_from_a_snapshot",
    answer_counts_not_in_the_snapshot: "member/test_supervised_sessions.py::"
    "test_answers_that_nobody_has_taken_survive_the_restart_of_every_member_from_a_snapshot",
    answers_forgotten_when_sent: "member/test_supervised_sessions.py::"
    "test_what_a_leader_had_sent_before_it_died_and_nobody_got_comes_from_the_next",
    lanes_not_in_the_snapshot: "member/test_lanes.py::"
    "test_what_a_lane_has_outlives_its_session_a_snapshot_and_the_restart_of_every_member",
}
