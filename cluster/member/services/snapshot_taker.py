"""The member's snapshots, taken where the log says so, while the log goes on.

    SNAPSHOT in the log, committed        module state SNAPSHOT: nothing moves past this position
      services ── ServiceAck(recording id) ── all at the position
      the module's state captured         sessions, timers, pending messages of the services
    module state ACTIVE                   the log goes on
      services ── ServiceSnapshot ──        what they wrote is safe
      the module's own recording          a little in each turn
      log synced, then recording.log      services from the highest id to 0, then the module: it counts now

A snapshot that cannot be taken costs nothing but itself: there are no entries. One is made at a time: the
next one's position holds the log until then. (Aeron's module is in state SNAPSHOT until the entries are
written; here it is before the end of the cluster alone, after which nothing comes.)
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from cluster.archive.recording import Recording
from cluster.archive.recording_log import RecordingLog
from cluster.archive.snapshot_archive import SnapshotArchive
from cluster.consensus.context import NULL_POSITION, ConsensusModuleContext
from cluster.consensus.replica import ReplicatedState
from cluster.counters import Counter
from cluster.errors import ClusterError, StorageError
from cluster.member.reporter import Reporter
from cluster.member.services.service_adapter import ServiceAdapter
from cluster.member.services.snapshot_in_making import SnapshotAction, SnapshotInMaking
from cluster.member.turn import Turn
from cluster.protocol.link import PartDigest, ServiceSnapshot
from cluster.protocol.recording_log import CONSENSUS_MODULE_SERVICE_ID
from cluster.protocol.service import ServiceAck
from cluster.protocol.snapshot import SnapshotRecording

# The log may go on past this position.
OnCaptured = Callable[[int], None]
# (position, digests to be compared), of which None: no snapshot was taken here now.
OnDone = Callable[[int, tuple[PartDigest, ...] | None], None]


class SnapshotLog(Protocol):
    """The log that snapshots are of, and where they are named."""

    @property
    def recording(self) -> Recording | None: ...

    @property
    def recording_log(self) -> RecordingLog: ...


class SnapshotCounters(Protocol):
    """What counters show of snapshots."""

    @property
    def snapshot_count(self) -> Counter: ...

    @property
    def max_snapshot_duration_ns(self) -> Counter: ...

    @property
    def snapshot_duration_exceeded(self) -> Counter: ...


@dataclass(eq=False)
class SnapshotTaker:
    """Takes snapshots that the log asks for; nothing passes ``position`` while one ``is_holding``."""

    _context: ConsensusModuleContext
    archive: SnapshotArchive
    _log: SnapshotLog
    _replica: ReplicatedState
    _services: ServiceAdapter
    _counters: SnapshotCounters
    _turn: Turn
    _reporter: Reporter
    _on_captured: OnCaptured  # called, as ``on_done``, whether there is a snapshot or not
    _on_done: OnDone
    position: int = NULL_POSITION
    is_holding: bool = False
    _timestamp: int = 0
    _begin_ns: int = 0
    _next: SnapshotAction | None = None  # all services are there
    _making: SnapshotInMaking | None = None

    @property
    def is_making(self) -> bool:
        """Whether one is captured and not done."""
        return self._making is not None

    def is_busy_at(self, log_position: int) -> bool:
        """Whether one is asked for, or the one at this position is being made."""
        making = self._making
        return self.is_holding or (making is not None and making.action.log_position == log_position)

    # ---- the action in the log

    def on_appended(self, log_position: int) -> None:
        """The leader wrote the action; nothing is taken before it is committed."""
        self.position, self.is_holding = log_position, True
        self._timestamp = self._replica.cluster_time
        self._begin_ns = self._turn.now_ns

    def on_committed(self, commit_position: int) -> None:
        """On the leader: let the services take theirs, once, when the action is committed."""
        if self.position != NULL_POSITION and commit_position >= self.position:
            self._await_services()

    def on_read(self, log_position: int, timestamp: int) -> None:
        """Anywhere else: the action was read from the committed log, and the module's state is SNAPSHOT."""
        self.position, self.is_holding = log_position, True
        self._timestamp = timestamp
        self._begin_ns = self._turn.now_ns
        self._await_services()

    def restore_uncommitted(self) -> None:
        """Leadership is lost, and with it an action that was not committed."""
        if self.position != NULL_POSITION:
            self.position, self.is_holding = NULL_POSITION, False

    def _await_services(self) -> None:
        position, self.position = self.position, NULL_POSITION
        timestamp = self._timestamp

        def on_acked(acks: list[ServiceAck]) -> None:
            self._next = SnapshotAction(
                position,
                self._replica.leadership_term_id,
                timestamp,
                self._begin_ns,
                tuple(ack.relevant_id for ack in acks),
            )

        self._services.await_snapshot(position, on_acked)

    # ---- all services are there

    def do_work(self) -> int:
        """Go on with the snapshot that is being made, or begin the next; returns how much was done."""
        making, action = self._making, self._next
        if making is not None:
            return self._go_on(making)
        if action is None:
            return 0
        self._next, self.is_holding = None, False
        why_not = self._why_not(action)
        captured = None if why_not else self._replica.capture(action.log_position)
        self._making = SnapshotInMaking(self.archive, action, captured, why_not)
        self._on_captured(action.log_position)
        return 1

    def _why_not(self, action: SnapshotAction) -> str:
        known = self._log.recording_log.snapshot_sets(self._context.service_count)
        if any(entries[0].log_position == action.log_position for entries in known):
            return "it is there already, from before this replay"
        return "" if len(action.awaited_ids) == len(action.recording_ids) else "a service took none"

    def _go_on(self, making: SnapshotInMaking) -> int:
        try:
            count = making.do_work()
        except ClusterError as error:
            self._on_failure(making, error)
            count = 1
        written = self._services.written_snapshots
        if making.is_written and all(id_ in written for id_ in making.action.awaited_ids):
            self._finish(making, [written.pop(id_) for id_ in making.action.awaited_ids])
            count += 1
        return count

    def _on_failure(self, making: SnapshotInMaking, error: ClusterError) -> None:
        making.why_not = str(error)
        self._reporter.error(ClusterError(f"no snapshot at {making.action.log_position}: {error}"))

    # ---- all of it is written

    def _finish(self, making: SnapshotInMaking, written: list[ServiceSnapshot]) -> None:
        self._making = None
        position = making.action.log_position
        making.why_not = making.why_not or self._why_not(making.action)
        failed = next((snapshot for snapshot in written if snapshot.why), None)
        if failed is not None:
            making.why_not = f"service {failed.service_id} took none: {failed.why.decode(errors='replace')}"
        digests = None
        if not making.why_not and self._complete(making, written):
            digests = _digests(making, written)
        else:
            self._reporter.warning(f"no snapshot at {position}: {making.why_not}")
            self._discard(making, written)
        self._on_done(position, digests)

    def _complete(self, making: SnapshotInMaking, written: list[ServiceSnapshot]) -> bool:
        """End the recording and write the entries; False without one. Raises StorageError."""
        recordings = [SnapshotRecording(part.service_id, part.length, part.checksum) for part in written]
        try:
            module_id = making.complete(recordings)
        except ClusterError as error:
            self._on_failure(making, error)
            return False
        self._record(making.action, [*making.action.recording_ids, module_id])
        return True

    def _record(self, action: SnapshotAction, recording_ids: list[int]) -> None:
        """Write the entries down; the log up to the snapshot is safe before they are."""
        if self._log.recording is not None and self._log.recording.is_active:
            self._log.recording.sync()
        term = self._log.recording_log.find_term(action.leadership_term_id)
        assert term is not None
        # The module's recording is the last; as service -1 it follows service 0.
        for service_id in range(len(recording_ids) - 2, CONSENSUS_MODULE_SERVICE_ID - 1, -1):
            self._log.recording_log.append_snapshot(
                recording_ids[service_id],
                term.leadership_term_id,
                term.term_base_log_position,
                action.log_position,
                action.timestamp,
                service_id,
            )
        self._count(self._turn.now_ns - action.begin_ns)
        self._reporter.event(f"snapshot at {action.log_position}: recordings {recording_ids}")

    def _count(self, duration_ns: int) -> None:
        counters = self._counters
        counters.snapshot_count.get_and_add(1)
        if duration_ns > counters.max_snapshot_duration_ns.get():
            counters.max_snapshot_duration_ns.set(duration_ns)
        if duration_ns > self._context.total_snapshot_threshold_ns:
            counters.snapshot_duration_exceeded.get_and_add(1)

    def _discard(self, making: SnapshotInMaking, written: list[ServiceSnapshot]) -> None:
        """Remove what was recorded; a service's that failed is removed already."""
        unwanted = [snapshot.recording_id for snapshot in written if not snapshot.why]
        if making.recording_id is not None:
            unwanted.append(making.recording_id)
        for recording_id in unwanted:
            try:
                self.archive.discard(recording_id)
            except StorageError as error:
                self._reporter.error(error)


def _digests(making: SnapshotInMaking, written: list[ServiceSnapshot]) -> tuple[PartDigest, ...]:
    """The module's, and those of the services that are to be compared."""
    services = [PartDigest(part.service_id, part.digest) for part in written if part.digest >= 0]
    return (PartDigest(CONSENSUS_MODULE_SERVICE_ID, making.digest), *services)
