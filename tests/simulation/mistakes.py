"""Mistakes of known kinds, put into production code one at a time: what the simulator is to find.

Each is a function that is given a ``patch(owner, name, value)``; most are bugs that another implementation,
or this one, has had.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from cluster.archive import node_state_file, recording_damage, recording_end, stored_recording
from cluster.archive.node_state_file import NodeStateFile
from cluster.archive.recording import Recording
from cluster.archive.segments import Segments
from cluster.archive.snapshot_archive import SnapshotArchive
from cluster.consensus import election, promises, quorum, service_messages
from cluster.consensus.context import MS, ConsensusModuleContext
from cluster.consensus.election import Election
from cluster.consensus.leader import Leader
from cluster.consensus.leadership import Leadership
from cluster.consensus.module_snapshot import ModuleSnapshot
from cluster.consensus.replica import ReplicatedState
from cluster.consensus.service_messages import PendingServiceMessageTracker
from cluster.consensus.sessions import SessionManager
from cluster.consensus.timers import PriorityHeapTimerService
from cluster.errors import StorageError
from cluster.log.session_table import SessionTable
from cluster.member.clients.client_requests import ClientRequests
from cluster.member.clocks import MemberClocks
from cluster.member.disk import promise_keeper
from cluster.member.disk.repair import Repair
from cluster.member.log.processing import LogProcessing
from cluster.member.log.retention import Retention
from cluster.member.phases.election_actions import ElectionActions
from cluster.member.phases.leading import Leading
from cluster.member.services.service_adapter import ServiceAdapter
from cluster.protocol.enums import AppendPositionFlags, CloseReason, ElectionState
from cluster.protocol.link import PromiseState
from cluster.protocol.service import ServiceAck
from cluster.reader.directory import DirectoryLog
from cluster.reader.extent import Extent, MemberState
from cluster.service.agent import ClusteredServiceAgent
from cluster.service.bounded_log_adapter import BoundedLogAdapter
from cluster.service.channel import RecoveryState
from tests.log.naive import scan

Patch = Callable[[Any, str, Any], None]


def vote_not_synced(patch: Patch) -> None:
    """The term is written, and spoken of before it is on the disk."""
    propose = NodeStateFile.propose

    def unsynced(self: Any, *arguments: Any) -> int:
        level, self._sync_level = self._sync_level, 0
        try:
            return propose(self, *arguments)
        finally:
            self._sync_level = level

    patch(NodeStateFile, "propose", unsynced)


def vote_not_persisted(patch: Patch) -> None:
    patch(NodeStateFile, "propose", lambda self, term_id, *_: term_id)


def second_vote_in_a_term(patch: Patch) -> None:
    """A term that was voted in counts as new for the next candidate."""
    on_request_vote = Election.on_request_vote

    def forgetful(self: Any, message: Any, now_ns: int) -> Any:
        if message.candidate_term_id == self.candidate_term_id:
            self.candidate_term_id -= 1
        return on_request_vote(self, message, now_ns)

    patch(Election, "on_request_vote", forgetful)


def vote_for_a_worse_log(patch: Patch) -> None:
    """Whoever asks is voted for, whatever its log lacks (Raft §5.4.1)."""
    on_request_vote = Election.on_request_vote

    def generous(self: Any, message: Any, now_ns: int) -> Any:
        standing = self._standing
        better = message.replace(
            log_leadership_term_id=max(message.log_leadership_term_id, standing.leadership_term_id),
            log_position=max(message.log_position, standing.log_position),
        )
        return on_request_vote(self, better, now_ns)

    patch(Election, "on_request_vote", generous)
    for name in ("is_quorum_candidate", "is_unanimous_candidate"):
        patch(election, name, _whoever_is_heard)


def _whoever_is_heard(members: Any, candidate: Any, *rest: Any) -> bool:
    """A majority that was heard will do, whatever it holds."""
    return sum(member.standing is not None for member in members) >= rest[-1]


def quorum_one_too_small(patch: Patch) -> None:
    """A commit needs one member less than a majority."""
    made = Leadership.__init__

    def wrong(self: Any, *arguments: Any, **options: Any) -> None:
        made(self, *arguments, **options)
        self.words[quorum.QUORUM] = max(self.words[quorum.QUORUM] - 1, 1)

    patch(Leadership, "__init__", wrong)


def quorum_counts_a_stale_term(patch: Patch) -> None:
    """Positions of any term count (aeron PR 2147)."""
    for owner, name in ((Leadership, "quorum_position_at"), (Leader, "update")):
        patch(owner, name, _counting_any_term(getattr(owner, name)))


def _counting_any_term(right: Any) -> Any:
    def wrong(self: Any, synced_position: int, now_ns: int) -> Any:
        led = getattr(self, "leadership", self)
        others = [member for member in led._members if member is not led._this]
        told = [(member.report_term_id, member.report_position) for member in others]
        for member in others:
            if member.report_term_id != led.leadership_term_id and member.standing is not None:
                member.report_position = max(member.report_position, member.standing.log_position)
            member.report_term_id = led.leadership_term_id
        result = right(self, synced_position, now_ns)
        for member, report in zip(others, told):
            member.report_term_id, member.report_position = report
        return result

    return wrong


def replay_beyond_commit(patch: Patch) -> None:
    """A follower processes all that it has recorded (aeron PR 1898)."""
    process = LogProcessing.process

    def eager(self: Any, limit: int, *length: int) -> int:
        return process(self, max(limit, self._log.append_position), *length)

    patch(LogProcessing, "process", eager)


def truncation_skipped(patch: Patch) -> None:
    """The entries of the removed terms go, their bytes stay."""
    patch(Recording, "truncate", lambda self, position: None)


def term_not_recorded(patch: Patch) -> None:
    """(T, P) is followed without an entry in recording.log."""
    record_term = ElectionActions._record_term

    def leader_only(self: Any, action: Any) -> None:
        if self._election.leader_member_id == self._ports.context.member_id:
            record_term(self, action)
        else:
            self._recording()

    patch(ElectionActions, "_record_term", leader_only)


def commit_of_an_older_term(patch: Patch) -> None:
    """Entries of older terms are processed before a majority holds the new one (Raft, figure 8)."""

    def unproven(self: Any) -> int:
        return max(getattr(self._term, "notified_commit_position", 0), self.append_position)

    patch(Election, "effective_commit_position", property(unproven))


def acknowledged_before_the_sync(patch: Patch) -> None:
    """What is written counts as safe."""

    def pretend(self: Any) -> int:
        self.synced_position = self.append_position
        return self.append_position

    patch(Recording, "sync", pretend)


def readable_is_safe(patch: Patch) -> None:
    """What recovery can read counts as synced, though the cache alone may have it."""
    patch(Segments, "write_again", lambda self, position, end: None)


def service_messages_forgotten(patch: Patch) -> None:
    """What the log has shown of a service's messages is not taken note of."""
    patch(PendingServiceMessageTracker, "sweep_follower", lambda self, service_session_id: None)


def one_timer_request_for_each_event(patch: Patch) -> None:
    """An event that is read ahead of the service swallows one request, however often the timer was moved."""
    early: dict[tuple[int, int], int] = {}

    def on_event(self: Any, correlation_id: int, timestamp: int, log_position: int) -> None:
        if not self.cancel(correlation_id):
            key = id(self), correlation_id
            early[key] = early.get(key, 0) + 1

    def on_schedule(self: Any, correlation_id: int, deadline: int, log_position: int) -> None:
        key = id(self), correlation_id
        if early.get(key, 0) > 0:
            early[key] -= 1
        else:
            self.schedule(correlation_id, deadline)

    patch(PriorityHeapTimerService, "on_replay_timer_event", on_event)
    patch(PriorityHeapTimerService, "on_schedule", on_schedule)


def snapshot_recorded_before_the_sync(patch: Patch) -> None:
    """recording.log has the entries, and the cache alone the recordings."""
    complete = SnapshotArchive.complete

    def unsynced(self: Any, publication: Any) -> int:
        publication._recording.file_sync_level = 0
        return complete(self, publication)

    patch(SnapshotArchive, "complete", unsynced)


def snapshot_before_the_service_is_there(patch: Patch) -> None:
    """The service writes down what it has when it is asked, and moves on behind that."""
    take_snapshot = ClusteredServiceAgent._take_snapshot

    def early(self: Any) -> int:
        service = self._callbacks._service
        chain, service.chain = service.chain, 0
        try:
            return take_snapshot(self)
        finally:
            service.chain = chain

    patch(ClusteredServiceAgent, "_take_snapshot", early)


def snapshot_captured_when_it_is_written(patch: Patch) -> None:
    """The log goes on at once, and the module's state is taken when there is time to write it."""
    capture = ReplicatedState.capture

    class Late:
        def __init__(self, captured_now: Callable[[], Any]) -> None:
            self._captured_now = captured_now

        def sort(self) -> Any:
            yield
            self._captured = self._captured_now()
            yield from self._captured.sort()

        def __getattr__(self, name: str) -> Any:
            return getattr(self._captured, name)

    patch(ReplicatedState, "capture", lambda self, log_position: Late(lambda: capture(self, log_position)))


def log_purged_beyond_the_snapshot(patch: Patch) -> None:
    """What nothing stands for is dropped."""
    limit = Retention._limit

    def greedy(self: Any) -> int | None:
        found = limit(self)
        return None if found is None else self._log.append_position

    patch(Retention, "_limit", greedy)


def clock_goes_back(patch: Patch) -> None:
    """A new leader stamps by its own clock, however slow it is."""
    begin = MemberClocks.begin

    def by_own_clock(self: Any) -> None:
        begin(self)
        self._replica.cluster_time -= 2_000

    patch(MemberClocks, "begin", by_own_clock)


def failed_sync_trusted(patch: Patch) -> None:
    """A sync that failed is tried again, and what it says then is believed (fsyncgate)."""
    sync = Recording.sync

    def retried(self: Any) -> int:
        try:
            return sync(self)
        except StorageError:
            self._failure = None
            return sync(self)

    patch(Recording, "sync", retried)


def frames_behind_the_proof_lost(patch: Patch) -> None:
    """The newest slot of the proof file ends the log, although single frames followed it."""
    proven_end = recording_end._proven_end
    patch(
        recording_end,
        "_proven_end",
        lambda segments, descriptor, proof: proven_end(segments, descriptor, replace(proof, checksum=None)),
    )


def checksums_not_verified(patch: Patch) -> None:
    """They are written, and nobody looks at them."""
    for module in (recording_damage, stored_recording, recording_end):
        patch(module, "verify_checksums", lambda checksum, run, start, end: scan(run, start, end))


def torn_pages_served(patch: Patch) -> None:
    """Of a power cut without syncs: what it has torn of acknowledged frames is taken as it reads."""
    checksums_not_verified(patch)


def damage_forgotten(patch: Patch) -> None:
    """What was cut off a damaged log counts as if it had never been there."""
    patch(Repair, "acknowledged_end", property(lambda self: election.EMPTY_LOG))


def close_request_dropped(patch: Patch) -> None:
    """What a client closes ends by time-out."""
    close_session = ClientRequests.close_session

    def lazy(self: Any, session_id: int, reason: CloseReason) -> None:
        if reason is not CloseReason.CLIENT_ACTION:
            close_session(self, session_id, reason)

    patch(ClientRequests, "close_session", lazy)


def service_close_forgotten(patch: Patch) -> None:
    """A member that does not lead takes no note of sessions that its service closes."""
    close = ClientRequests.on_service_close_session

    def forgetful(self: Any, session_id: int) -> None:
        if self.publication is not None:
            close(self, session_id)

    patch(ClientRequests, "on_service_close_session", forgetful)


def sessions_never_time_out(patch: Patch) -> None:
    patch(SessionTable, "inactive_since", lambda self, time_ns: [])


def sessions_time_out_with_their_leader(patch: Patch) -> None:
    """A new leader closes those that it has not heard itself."""
    prepare_for_new_term = SessionManager.prepare_for_new_term

    def hasty(self: Any, now_ns: int, *, is_startup: bool) -> None:
        prepare_for_new_term(self, now_ns, is_startup=is_startup)
        self.table.slots["active_ns"] = 0

    patch(SessionManager, "prepare_for_new_term", hasty)


def a_jump_is_silence(patch: Patch) -> None:
    """Of clients: where cluster time jumps forward, sessions are as old as that."""
    advance = MemberClocks.advance

    def older(self: Any) -> None:
        before = self._replica.cluster_time
        advance(self)
        if (jumped := self._replica.cluster_time - before) > 1_000:
            self._replica.sessions.table.slots["active_ns"] -= jumped * MS

    patch(MemberClocks, "advance", older)


def cancelled_timers_fire(patch: Patch) -> None:
    patch(PriorityHeapTimerService, "on_cancel", lambda self, correlation_id: None)


def snapshot_without_timers(patch: Patch) -> None:
    """They are written, and not loaded."""
    load = ModuleSnapshot.load

    def partial(self: Any, *arguments: Any) -> None:
        self._timers = []
        load(self, *arguments)

    patch(ModuleSnapshot, "load", partial)


def service_reads_all_that_is_there(patch: Patch) -> None:
    poll = BoundedLogAdapter.poll

    def eager(self: Any, commit_position: int) -> int:
        return poll(self, commit_position if self._log is None else self._log.append_position)

    patch(BoundedLogAdapter, "poll", eager)


def majority_of_five_is_two(patch: Patch) -> None:
    right = ConsensusModuleContext.quorum_threshold.fget  # type: ignore[attr-defined]

    def wrong(self: Any) -> int:
        return 2 if len(self.member_ids) == 5 else right(self)

    patch(ConsensusModuleContext, "quorum_threshold", property(wrong))


def term_on_no_other_disk(patch: Patch) -> None:
    """A leader processes its log before a majority holds it, and the term."""
    patch(Leadership, "has_quorum", lambda self, now_ns: True)


def bad_sector_ends_the_member(patch: Patch) -> None:
    """What cannot be read of the files beside the log is no damage, but a failure of the disk."""
    patch(node_state_file, "read_at_rest", lambda file, length: file.pread(length, 0))


def wiped_member_votes(patch: Patch) -> None:
    """An empty disk is as good as one that never had anything."""
    right = promises.recall

    def careless(*arguments: Any, **options: Any) -> Any:
        return right(*arguments, **options)._replace(state=PromiseState.KEPT)

    patch(promise_keeper, "recall", careless)


def wiped_member_follows_anybody(patch: Patch) -> None:
    """It does not wait for what the others tell: the leader may have been replaced with its help."""
    patch(promises.Promises, "may_follow", property(lambda self: True))


def catch_up_counts_without_promises(patch: Patch) -> None:
    """A member that has lost its promises reports how far it has caught up, so that it counts."""

    def boastful(self: Any, now_ns: int, flags: AppendPositionFlags) -> None:
        if self.append_position > self._followed.sent_append_position:
            self._followed.sent_append_position = self.append_position
            self._send(self.leader_member_id, self._append_position_message(flags))

    patch(Election, "_send_append_position", boastful)


def base_reported_before_its_term(patch: Patch) -> None:
    """A follower that has fetched all that is before a term reports the base before it records the term."""
    state = ElectionState.FOLLOWER_LOG_REPLICATION
    work = Election._WORK[state]

    def hasty(self: Any, now_ns: int) -> None:
        if self.append_position >= self._followed.term_base:
            self._send_append_position(now_ns, AppendPositionFlags.NONE)
        work(self, now_ns)

    patch(Election, "_WORK", {**Election._WORK, state: hasty})


def first_service_acks_for_all(patch: Patch) -> None:
    """The consensus module waits for one service, and never asks what the others have."""

    def hasty(self: Any, ack: ServiceAck) -> None:
        if ack.service_id == 0:
            self._on_all_acked([ack])

    patch(ServiceAdapter, "_on_service_ack", hasty)


def services_load_the_first_ones_snapshot(patch: Patch) -> None:
    load_snapshot = ClusteredServiceAgent._load_snapshot

    def confused(self: Any, recovery: RecoveryState) -> Any:
        ids = recovery.snapshot_recording_ids
        return load_snapshot(self, replace(recovery, snapshot_recording_ids=ids[:1] * len(ids)))

    patch(ClusteredServiceAgent, "_load_snapshot", confused)


def services_share_message_ids(patch: Patch) -> None:
    """What the log shows of the first service's messages is taken for that of the others."""
    right = service_messages.service_session_id
    patch(service_messages, "service_session_id", lambda service_id, number: right(0, number))


def reader_goes_to_the_end_of_the_file(patch: Patch) -> None:
    """A stream is given all that is written, committed or not."""
    extent = MemberState.extent

    def eager(self: Any, checksum: Any) -> Extent:
        written = extent(self, checksum).written
        return Extent(written, written, written)

    patch(MemberState, "extent", eager)


def reader_passes_over_what_was_purged(patch: Patch) -> None:
    """Who asks for what is not there any more is given what follows, and told nothing."""
    blocks = DirectoryLog.blocks

    def clamped(self: Any, from_position: int, *arguments: Any, **options: Any) -> Any:
        return blocks(self, max(from_position, self.start_position), *arguments, **options)

    patch(DirectoryLog, "blocks", clamped)


class Sought(NamedTuple):
    """How a mistake shows: by which invariants, under which faults (none: the seed's)."""

    invariants: tuple[str, ...]
    faults: tuple[str, ...] = ()


CUT_AT_LEVEL_0 = ("power cut at level 0", "slow paths", "pause", "kill", "isolate the leader")
LEADERS_GO = ("isolate the leader", "pause the leader", "partition", "deaf", "mute")
MEMBERS_DIE = ("kill", "kill all", "kill new leaders", "isolate the leader", "partition")
POWER_GOES = ("kill", "kill in a turn", "power cut in a turn", "power cut of all", "slow disk")


def leader_sleeps_on_what_services_have_sent(patch: Patch) -> None:
    """Their messages wait until a client comes, or the slow tick."""
    patch(Leading, "awaits_events", property(lambda self: not self.leader.is_commit_unsent))


MISTAKES: dict[Callable[[Patch], None], Sought] = {
    vote_not_synced: Sought(("I-9",)),
    vote_not_persisted: Sought(("I-9",)),
    second_vote_in_a_term: Sought(("I-9",)),
    vote_for_a_worse_log: Sought(("I-3",)),
    quorum_one_too_small: Sought(("I-3",)),
    quorum_counts_a_stale_term: Sought(("I-3",), MEMBERS_DIE),
    replay_beyond_commit: Sought(("I-3",)),
    truncation_skipped: Sought(("I-4", "I-3", "I-5"), LEADERS_GO),
    term_not_recorded: Sought(("I-19",)),
    commit_of_an_older_term: Sought(("I-3",), MEMBERS_DIE),
    acknowledged_before_the_sync: Sought(("I-3",)),
    readable_is_safe: Sought(("I-3",), POWER_GOES),
    service_messages_forgotten: Sought(("I-3",)),
    one_timer_request_for_each_event: Sought(("I-6", "I-8")),
    snapshot_recorded_before_the_sync: Sought(("I-3",)),
    snapshot_before_the_service_is_there: Sought(("I-6",)),
    snapshot_captured_when_it_is_written: Sought(("I-6",)),
    leader_sleeps_on_what_services_have_sent: Sought(("I-24",)),
    log_purged_beyond_the_snapshot: Sought(("I-12", "I-14")),
    clock_goes_back: Sought(("I-20",)),
    failed_sync_trusted: Sought(("I-3",), ("failed sync",)),
    frames_behind_the_proof_lost: Sought(("I-3",), POWER_GOES),
    checksums_not_verified: Sought(("I-5", "I-12"), ("bit flip", "kill")),
    torn_pages_served: Sought(("I-4", "I-5"), CUT_AT_LEVEL_0),
    damage_forgotten: Sought(("I-3",), ("all but one damaged",)),
    bad_sector_ends_the_member: Sought(("I-17", "I-14"), ("damaged file", "kill")),
    wiped_member_follows_anybody: Sought(("I-4",), ("stale leader",)),
    wiped_member_votes: Sought(("I-3", "I-9"), ("wipe a witness",)),
    close_request_dropped: Sought(("I-7",)),
    service_close_forgotten: Sought(("I-6", "I-14")),
    sessions_never_time_out: Sought(("I-14",)),
    sessions_time_out_with_their_leader: Sought(("I-7",)),
    a_jump_is_silence: Sought(("I-7",), ("clock jump",)),
    cancelled_timers_fire: Sought(("I-8",)),
    snapshot_without_timers: Sought(("I-6", "I-8")),
    service_reads_all_that_is_there: Sought(("I-10",)),
    majority_of_five_is_two: Sought(("I-3",)),
    term_on_no_other_disk: Sought(("I-3",)),
    catch_up_counts_without_promises: Sought(("I-3",), ("wipe",)),
    base_reported_before_its_term: Sought(("I-19",), MEMBERS_DIE),
    first_service_acks_for_all: Sought(("I-6",)),
    services_load_the_first_ones_snapshot: Sought(("I-5",)),
    reader_goes_to_the_end_of_the_file: Sought(("I-10",)),
    reader_passes_over_what_was_purged: Sought(("I-11",)),
    services_share_message_ids: Sought(("I-3",)),
}
