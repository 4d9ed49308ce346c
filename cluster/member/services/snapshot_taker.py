"""The member's snapshots, taken where the log says so.

    SNAPSHOT in the log, committed        module state SNAPSHOT: nothing moves behind this position
      services ── ServiceAck(recording id) ── all at the position
      the module's own recording          sessions, timers, pending messages of the services
      log synced, then recording.log      services from the highest id to 0, then the module: it counts now
    module state ACTIVE

A snapshot that cannot be taken costs nothing but itself: there are no entries, and the log goes on.
"""

from collections.abc import Callable

from cluster.archive.snapshot_archive import SnapshotArchive, digest
from cluster.consensus.context import NULL_POSITION, NULL_VALUE, ConsensusModuleContext
from cluster.consensus.replica import ReplicatedState
from cluster.errors import ClusterError, StorageError
from cluster.member.counters import MemberCounters
from cluster.member.log.member_log import MemberLog
from cluster.member.reporter import Reporter
from cluster.member.services.service_adapter import ServiceAdapter
from cluster.member.turn import Turn
from cluster.protocol import streams
from cluster.protocol.recording_log import CONSENSUS_MODULE_SERVICE_ID
from cluster.protocol.service import ServiceAck
from cluster.protocol.snapshot import SnapshotChecksum, SnapshotRecording

# (position, digest of the module's state), of which None: no snapshot was taken here now.
OnDone = Callable[[int, int | None], None]


class SnapshotTaker:
    """Takes the snapshots that the log asks for; ``position`` is that of the one being taken."""

    def __init__(
        self,
        context: ConsensusModuleContext,
        archive: SnapshotArchive,
        log: MemberLog,
        replica: ReplicatedState,
        services: ServiceAdapter,
        counters: MemberCounters,
        turn: Turn,
        reporter: Reporter,
        on_done: OnDone,
    ) -> None:
        """``on_done`` is called when the log may go on, whether there is a snapshot or not."""
        self.archive = archive
        self._context = context
        self._log = log
        self._replica = replica
        self._services = services
        self._counters = counters
        self._turn = turn
        self._reporter = reporter
        self._on_done = on_done
        self.position = NULL_POSITION
        self._timestamp = 0
        self._begin_ns = 0

    # ---- the action in the log

    def on_appended(self, log_position: int) -> None:
        """The leader wrote the action; nothing is taken before it is committed."""
        self.position = log_position
        self._timestamp = self._replica.cluster_time
        self._begin_ns = self._turn.now_ns

    def on_committed(self, commit_position: int) -> None:
        """On the leader: let the services take theirs, once, when the action is committed."""
        if self.position != NULL_POSITION and commit_position >= self.position:
            self._await_services()

    def on_read(self, log_position: int, timestamp: int) -> None:
        """Anywhere else: the action was read from the committed log, and the module's state is SNAPSHOT."""
        self.position, self._timestamp = log_position, timestamp
        self._begin_ns = self._turn.now_ns
        self._await_services()

    def restore_uncommitted(self) -> None:
        """Leadership is lost, and with it an action that was not committed."""
        self.position = NULL_POSITION

    def _await_services(self) -> None:
        position, self.position = self.position, NULL_POSITION
        timestamp = self._timestamp
        self._services.await_snapshot(position, lambda acks: self._on_acked(position, timestamp, acks))

    # ---- all services have theirs

    def _on_acked(self, log_position: int, timestamp: int, acks: list[ServiceAck]) -> None:
        module_digest: int | None = None
        taken = [ack.relevant_id for ack in acks if ack.relevant_id != NULL_VALUE]
        if any(
            entries[0].log_position == log_position
            for entries in self._log.recording_log.snapshot_sets(self._context.service_count)
        ):
            self._reporter.event(f"the snapshot at {log_position} is there already, from before this replay")
        elif len(taken) < len(acks):
            self._reporter.event(f"no snapshot at {log_position}: a service took none")
        else:
            module_id = self._take(log_position, taken)
            if module_id is not None:
                self._record(log_position, timestamp, [*taken, module_id])
                module_digest = self._digest()
                taken = []
        for recording_id in taken:
            self._discard(recording_id)
        self._on_done(log_position, module_digest)

    def _digest(self) -> int:
        """Of the state in the snapshot: nothing moves while it is taken."""
        value = 0
        for record in self._replica.records():
            value = digest(record, value)
        return value

    def _take(self, log_position: int, service_recording_ids: list[int]) -> int | None:
        """Record the module's own state; None, and told, when that failed."""
        archive = self.archive
        publication = None
        try:
            recordings = [
                SnapshotRecording(
                    service_id, archive.open(recording_id).length, archive.checksum(recording_id)
                )
                for service_id, recording_id in enumerate(service_recording_ids)
            ]
            publication = archive.create(
                streams.CONSENSUS_MODULE_SNAPSHOT, CONSENSUS_MODULE_SERVICE_ID, log_position
            )
            for record in self._replica.snapshot_records(log_position, recordings):
                publication.offer(record)
            publication.offer(SnapshotChecksum(publication.flush()).encode())
            return archive.complete(publication)
        except ClusterError as error:
            self._reporter.error(ClusterError(f"no snapshot at {log_position}: {error}"))
            if publication is not None:
                self._discard(publication.recording_id)
            return None

    def _record(self, log_position: int, timestamp: int, recording_ids: list[int]) -> None:
        """Write the entries down; the log up to the snapshot is safe before they are.

        Raises StorageError: then the member cannot go on.
        """
        if self._log.recording is not None and self._log.recording.is_active:
            self._log.recording.sync()
        term = self._log.recording_log.find_term(self._replica.leadership_term_id)
        assert term is not None
        # The module's recording is the last; as service -1 it follows service 0.
        for service_id in range(len(recording_ids) - 2, CONSENSUS_MODULE_SERVICE_ID - 1, -1):
            self._log.recording_log.append_snapshot(
                recording_ids[service_id],
                term.leadership_term_id,
                term.term_base_log_position,
                log_position,
                timestamp,
                service_id,
            )
        counters = self._counters
        counters.snapshot_count.get_and_add(1)
        duration_ns = self._turn.now_ns - self._begin_ns
        if duration_ns > counters.max_snapshot_duration_ns.get():
            counters.max_snapshot_duration_ns.set(duration_ns)
        if duration_ns > self._context.total_snapshot_threshold_ns:
            counters.snapshot_duration_exceeded.get_and_add(1)
        self._reporter.event(f"snapshot at {log_position}: recordings {recording_ids}")

    def _discard(self, recording_id: int) -> None:
        try:
            self.archive.discard(recording_id)
        except StorageError as error:
            self._reporter.error(error)
