"""What the log determines of a member (Raft's state machine): the same wherever as much of it is processed.

    apply                  an entry of the committed log, read by whoever does not lead
    sweep                  what a leader wrote is committed: it cannot be undone any more
    restore_uncommitted    its leadership is lost: what is not committed was never written
    capture, load          a snapshot of it, and a start from one

A leader does not apply its entries, it acts on them when it appends them (C-239). So each part remembers
what it did for an entry that is not committed, until ``sweep`` or ``restore_uncommitted``. Session messages
are no entries here: a kernel takes runs of them into ``sessions.table`` (cluster/log/follow.py).
"""

import numpy as np

from cluster.consensus.authentication import Security
from cluster.consensus.cluster_time import STAMPED
from cluster.consensus.context import NULL_VALUE, ConsensusModuleContext
from cluster.consensus.kept_answers import KeptAnswers
from cluster.consensus.module import ModuleState
from cluster.consensus.module_snapshot import CapturedModule, ModuleSnapshot, SnapshotPlace
from cluster.consensus.service_messages import PendingServiceMessageTracker
from cluster.consensus.session_events import KnownLeader
from cluster.consensus.sessions import SessionManager, SessionPort
from cluster.consensus.timers import PriorityHeapTimerService
from cluster.errors import AgentTermination
from cluster.log.words import Word
from cluster.protocol.enums import ClusterAction, ClusterTimeUnit, ConsensusModuleState, takes_snapshot
from cluster.protocol.log import (
    ClusterActionRequest,
    NewLeadershipTermEvent,
    SessionCloseEvent,
    SessionOpenEvent,
    TimerEvent,
)
from cluster.protocol.sbe import Message

_STATE_OF_ACTION = {
    ClusterAction.SUSPEND: ConsensusModuleState.SUSPENDED,
    ClusterAction.RESUME: ConsensusModuleState.ACTIVE,
    ClusterAction.SNAPSHOT: ConsensusModuleState.SNAPSHOT,
}


class ReplicatedState:
    """Sessions and answers to them, timers, pending service messages and state of the consensus module.

    ``cluster_time`` is in the log's unit: the last timestamp that was read or, by a leader, stamped.
    0 in a new log; it never falls.
    ``leadership_term_id`` is that of the log that is read or written; NULL_VALUE before the first.
    ``sessions`` and ``module`` hold besides what is of this member alone: its clients' connections, its end.
    """

    cluster_time = Word(STAMPED)

    def __init__(
        self, context: ConsensusModuleContext, port: SessionPort, security: Security | None = None
    ) -> None:
        self.words = np.zeros(1, np.int64)  # for kernels
        self._words = self.words.data
        self.leadership_term_id = NULL_VALUE
        self._term_id_of_log = (
            NULL_VALUE  # that wrote what is processed; a join comes before its term is read
        )
        self.module = ModuleState()
        self.sessions = SessionManager(context, port, security)
        self.answers = KeptAnswers(context.supervised_bytes_max, self.sessions.table)
        self.timers = PriorityHeapTimerService()
        self.trackers = [
            PendingServiceMessageTracker(service_id) for service_id in range(context.service_count)
        ]
        self._context = context

    def advance_time(self, cluster_time: int) -> None:
        """A leader stamps this time, or the log shows it; an earlier one changes nothing."""
        if cluster_time > self.cluster_time:
            self.cluster_time = cluster_time

    def enter_term(self, leadership_term_id: int) -> None:
        """The log goes on in this term: it is joined, or its first entry is read."""
        self.leadership_term_id = leadership_term_id

    # ---- the committed log, on every member that does not lead

    def apply(self, entry: Message | None, log_position: int) -> ClusterAction | None:
        """Take an entry that ends at ``log_position``; return the action that it makes this member take.

        One of an unknown template (None) changes nothing, nor does one that is no entry of a log.
        Raises AgentTermination for a log in another time unit, or of another major app version.
        """
        match entry:
            case TimerEvent():
                self.advance_time(entry.timestamp)
                self.timers.on_replay_timer_event(entry.correlation_id, entry.timestamp, log_position)
            case SessionOpenEvent():
                self.advance_time(entry.timestamp)
                self.sessions.on_replay_session_open(entry, log_position)
            case SessionCloseEvent():
                self.advance_time(entry.timestamp)
                self.sessions.on_replay_session_close(entry)
            case NewLeadershipTermEvent():
                self._check_log(entry, log_position)
                self.advance_time(entry.timestamp)
                self.enter_term(entry.leadership_term_id)
                self._term_id_of_log = entry.leadership_term_id
            case ClusterActionRequest():
                self.advance_time(entry.timestamp)
                return self._apply_action(entry)
        return None

    def _check_log(self, event: NewLeadershipTermEvent, log_position: int) -> None:
        context = self._context
        time_unit = ClusterTimeUnit.MILLIS if event.time_unit is None else event.time_unit
        if time_unit is not context.time_unit:
            raise AgentTermination(
                f"the log at {log_position} counts time in {time_unit.name}, "
                f"this member in {context.time_unit.name}"
            )
        if event.app_version >> 16 != context.app_version >> 16:
            raise AgentTermination(
                f"the log at {log_position} is of app version {event.app_version:#x}, "
                f"this member of {context.app_version:#x}"
            )

    def _apply_action(self, request: ClusterActionRequest) -> ClusterAction | None:
        """An action of another term than wrote the log here is none, nor is a snapshot for others (flags).

        The term that is joined may be a later one: what is left of the log before it is read after the join,
        and services act on it, too.
        """
        is_ours = request.action is not ClusterAction.SNAPSHOT or takes_snapshot(
            request.flags, is_standby=self._context.is_standby
        )
        if request.leadership_term_id != self._term_id_of_log or not is_ours:
            return None
        self.module.change(_STATE_OF_ACTION[request.action])
        return request.action

    def drop_logged_service_messages(self) -> None:
        """The log is processed: messages of services that it shows need not be appended any more."""
        for tracker in self.trackers:
            # Even if nothing is pending: a service that replays later than we do sends its messages again.
            seen = int(self.sessions.table.service_message_ids[tracker.service_id])
            if seen:
                tracker.sweep_follower(seen)

    # ---- what a leader wrote

    def sweep(self, commit_position: int) -> None:
        """Forget how to undo what is committed; the first of it began this leader's term."""
        self._term_id_of_log = self.leadership_term_id
        self.timers.sweep(commit_position)
        self.sessions.sweep(commit_position)
        self.module.sweep(commit_position)
        for tracker in self.trackers:
            tracker.sweep_leader(commit_position)

    def restore_uncommitted(self, commit_position: int, now_ns: int) -> None:
        """Undo all that came with entries after the commit position; ``now_ns`` is a monotonic clock's."""
        nobody = KnownLeader(self.leadership_term_id, NULL_VALUE)
        self.sessions.prepare_for_new_election(commit_position, nobody, now_ns)
        self.timers.restore_uncommitted(commit_position)
        self.module.restore_uncommitted(commit_position)
        for tracker in self.trackers:
            tracker.restore_uncommitted(commit_position)

    # ---- snapshots

    def capture(self, log_position: int) -> CapturedModule:
        """The state as it is now, at ``log_position``: there the same on every member."""
        context = self._context
        place = SnapshotPlace(log_position, self.leadership_term_id, context.time_unit, context.app_version)
        return CapturedModule(place, self.sessions, self.timers, self.trackers, self.answers)

    def load(
        self, snapshot: ModuleSnapshot, *, leadership_term_id: int, log_position: int, timestamp: int
    ) -> None:
        """Begin from a snapshot that stands at ``log_position`` of this log (C-320). Raises LogDamaged."""
        assert self.leadership_term_id == NULL_VALUE, "something of the log is in it already"
        self.advance_time(timestamp)
        self.enter_term(leadership_term_id)
        self._term_id_of_log = leadership_term_id
        snapshot.load(self.sessions, self.timers, self.trackers, log_position)
        self.answers.load(snapshot.answers)
