"""The states of a backup (Aeron: ClusterBackupAgent).

    BACKUP_QUERY ──▶ SNAPSHOT_RETRIEVE ──▶ LIVE_LOG_RECORD ──▶ LIVE_LOG_REPLAY ──▶ UPDATE_RECORDING_LOG
      ▲   ▲ next        if it is new        checks the log     copies up to the            │
      │   │ member                          it goes on with    snapshot at least           ▼
      │   └──────────────────────────── each ``interval`` ─────────────────────────── BACKING_UP
      └── RESET_BACKUP ◀── any error: all connections are dropped, and after a pause another member is asked

A member that knows no leader for ``response_timeout`` commits nothing, whatever the others do: the next one
is asked, without a pause.

Differences from Aeron's: nothing is replayed to a backup. It reads what its supplier has committed, as every
reader of the log does, so the copy never passes the commit position. Terms are recorded as the copy comes to
them, and not only at UPDATE_RECORDING_LOG: a copy that was killed on its way goes on where it was.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

import numpy as np

from cluster.backup.copied_log import COMPARED_BYTES
from cluster.backup.counters import BackupCounters
from cluster.backup.directory import BackupDirectory
from cluster.errors import ClusterError, ConfigurationError, LogDamaged, StorageError
from cluster.member.disk.fetched_recording import FetchedSnapshot
from cluster.protocol.backup import BackupQuery, BackupResponse, BackupSnapshotRecording
from cluster.protocol.enums import ClusterBackupState, ClusterTimeUnit, Role
from cluster.protocol.link import LogStatus, RecordingStatus
from cluster.protocol.recording_log import RecordingLogEntry
from cluster.protocol.session import SessionEvent
from cluster.protocol.streams import CONSENSUS
from cluster.protocol.versions import CLIENT_PROTOCOL_VERSION
from cluster.reader.supplier import SourceType, Supplier, described, event_error, frames_of

# The least position that somebody reads here; None when nobody does.
NeededPosition = Callable[[], int | None]

LATEST_POSITION = 2**63 - 1
BLOCKS_PER_TURN = 16
MS = 1_000_000
ROOM_INTERVAL_NS = 1_000 * MS


@dataclass(slots=True)
class BackupContext:
    """What is configured (ClusterBackup.Context), with Aeron's defaults. Some of it changes while it runs."""

    cluster_id: int = 0
    source_type: SourceType = SourceType.ANY
    interval_ns: int = 3_600_000 * MS
    response_timeout_ns: int = 5_000 * MS
    cool_down_interval_ns: int = 30_000 * MS
    retained_snapshots: int = 0  # with neither of the two everything stays that the disk has room for
    retained_for_ns: int = 0


class _Retrieval(NamedTuple):
    """A snapshot on its way, or here and not named yet."""

    offered: Sequence[BackupSnapshotRecording]
    copy: FetchedSnapshot

    @property
    def log_position(self) -> int:
        return self.offered[0].log_position

    @property
    def entries(self) -> tuple[RecordingLogEntry, ...]:
        """Once it is here, as recording.log is to have them, the module's first."""
        return self.copy.entries(self.offered)


class ClusterBackupAgent:
    """One backup. Raises StorageError and LogDamaged of its directory; other errors go to ``on_error``."""

    def __init__(
        self,
        context: BackupContext,
        directory: BackupDirectory,
        suppliers: Sequence[Supplier],
        counters: BackupCounters,
        random: Random,
        *,
        on_event: Callable[[str], None],
        on_error: Callable[[ClusterError], None],
        needed_position: NeededPosition = lambda: None,
    ) -> None:
        self._context = context
        self._needed_position = needed_position
        self._time_unit = ClusterTimeUnit.MILLIS  # of the cluster, as members say
        self._directory = directory
        self._log = directory.log
        self._suppliers = list(suppliers)
        random.shuffle(self._suppliers)
        self._counters = counters
        self._on_event = on_event
        self._on_error = on_error
        self.state = ClusterBackupState.BACKUP_QUERY
        self._supplier: Supplier | None = None  # the present one
        self._unsuited = 0  # members in a row that did not answer, or are not of the source type
        self._led_ns = 0  # when it was last known to have a leader
        self._correlation_id = 0
        self._deadline_ns: int | None = None  # of the query that is out, or of the pause after a reset
        self._next_query_ns = self._next_query_ms = 0  # by the monotonic and by the wall clock
        self._next_room_ns = 0
        self._response: BackupResponse | None = None
        self._retrieval: _Retrieval | None = None
        self._source: RecordingStatus | None = None  # the log of the supplier
        self._frames: Iterator[np.ndarray] | None = None  # of the log, on their way
        self._show_position()

    @property
    def is_retrieving(self) -> bool:
        """Whether a snapshot is on its way that is not named yet."""
        return self._retrieval is not None

    @property
    def position(self) -> int:
        """Up to here the log is copied, and safe."""
        return self._log.synced_position

    def do_work(self, now_ns: int, now_ms: int) -> int:
        """Take one turn; returns how much was done. ``now_ms`` is epoch time."""
        try:
            match self.state:
                case ClusterBackupState.BACKUP_QUERY:
                    return self._query(now_ns)
                case ClusterBackupState.SNAPSHOT_RETRIEVE:
                    return self._retrieve()
                case ClusterBackupState.LIVE_LOG_RECORD:
                    return self._record()
                case ClusterBackupState.LIVE_LOG_REPLAY:
                    return self._replay(now_ns)
                case ClusterBackupState.UPDATE_RECORDING_LOG:
                    return self._update(now_ns, now_ms)
                case ClusterBackupState.BACKING_UP:
                    return self._back_up(now_ns, now_ms)
                case ClusterBackupState.RESET_BACKUP:
                    return self._cool_down(now_ns)
        except (StorageError, LogDamaged):
            raise
        except ClusterError as error:
            self._reset(error, now_ns)
        return 1

    def _enter(self, state: ClusterBackupState) -> int:
        """The only place where the state changes."""
        self.state = state
        self._counters.state.set(state)
        return 1

    # ---- whom to copy from

    def _query(self, now_ns: int) -> int:
        if self._deadline_ns is None:
            self._ask(now_ns)
        assert self._supplier is not None and self._deadline_ns is not None
        supplier, answer, why = self._supplier, None, "no answer to the backup query"
        try:
            answer = supplier.poll()
        except ClusterError as error:
            if self._unsuited + 1 >= len(self._suppliers):
                raise
            why, self._deadline_ns = str(error), now_ns
        if answer is not None:
            self._deadline_ns = None
            return self._on_answer(supplier, answer, now_ns)
        if now_ns < self._deadline_ns:
            return 0
        self._next_supplier(f"{supplier.name}: {why}")
        return 1

    def _ask(self, now_ns: int) -> None:
        if self._supplier is None:
            self._supplier = self._suppliers[0]
        self._correlation_id = now_ns
        self._deadline_ns = now_ns + self._context.response_timeout_ns
        query = BackupQuery(
            self._correlation_id, CONSENSUS, CLIENT_PROTOCOL_VERSION, LATEST_POSITION, "backup"
        )
        self._supplier.ask(query)

    def _next_supplier(self, why: str) -> None:
        """The present one will not do: ask the next, or rest when none of them would. Raises ClusterError."""
        self._let_go()
        self._suppliers.append(self._suppliers.pop(0))
        self._unsuited += 1
        if self._unsuited >= len(self._suppliers):
            raise ClusterError(f"no member will do, the last: {why}")
        self._on_event(why)

    def _on_answer(self, supplier: Supplier, answer: BackupResponse | SessionEvent, now_ns: int) -> int:
        if isinstance(answer, SessionEvent):
            raise event_error(supplier.name, answer)
        if answer.member_id is None:
            raise ClusterError(
                f"{supplier.name}: the answer names no member, expected one of Aeron 1.44 or later"
            )
        if not self._context.source_type.accepts(is_leader=answer.member_id == answer.leader_member_id):
            self._next_supplier(f"{supplier.name}: it is no {self._context.source_type}")
            return 1
        self._unsuited = 0
        self._led_ns = now_ns
        self._response = answer
        if self._directory.lacks(answer.snapshots):
            recording_ids = [offered.recording_id for offered in answer.snapshots]
            copy = FetchedSnapshot(supplier.name, recording_ids, self._directory.archive)
            self._retrieval = _Retrieval(answer.snapshots, copy)
            return self._enter(ClusterBackupState.SNAPSHOT_RETRIEVE)
        return self._enter(ClusterBackupState.LIVE_LOG_RECORD)

    # ---- its snapshot

    def _retrieve(self) -> int:
        supplier, retrieval = self._supplier, self._retrieval
        assert supplier is not None and retrieval is not None
        for _ in range(BLOCKS_PER_TURN):
            if retrieval.copy.is_complete:
                self._directory.check_snapshot(supplier.name, retrieval.entries)
                self._on_event(f"has the snapshot at {retrieval.log_position} from {supplier.name}")
                return self._enter(ClusterBackupState.LIVE_LOG_RECORD)
            retrieval.copy.go_on(supplier.read_recording)
        return 1

    # ---- its log

    def _record(self) -> int:
        """Begin, or go on, once it is certain that the supplier's log is the one that is here."""
        supplier, response = self._supplier, self._response
        assert supplier is not None and response is not None
        status = supplier.status()
        self._check(status)
        self._source = described(supplier.name, supplier.read_recording(response.log_recording_id))
        self._check_history(supplier, self._source, status.commit_position)
        begin, end = self._source.start_position, self._log.position
        if begin > end:
            if self._retrieval is None:
                raise ClusterError(
                    f"{supplier.name}: the log begins at {begin}, and there is no snapshot of it"
                )
            self._on_event(
                f"the log of {supplier.name} begins at {begin}, the copy ended at {end}: begins anew"
            )
        self._log.start(self._source)
        assert self._log.recording is not None
        self._counters.show(self._log.recording)
        return self._enter(ClusterBackupState.LIVE_LOG_REPLAY)

    def _check(self, status: LogStatus) -> None:
        """Raise ClusterError where a member is not, or no more, one to copy from."""
        assert self._supplier is not None
        name, context = self._supplier.name, self._context
        self._time_unit = status.time_unit
        if status.cluster_id != context.cluster_id:
            raise ConfigurationError(
                f"{name} is of cluster {status.cluster_id}, expected {context.cluster_id} (cluster_id)"
            )
        if not context.source_type.accepts(is_leader=status.role == Role.LEADER):
            raise ClusterError(f"{name} is no {context.source_type} any more")

    def _check_history(self, supplier: Supplier, source: RecordingStatus, committed: int) -> None:
        self._log.check_terms(supplier.name, source.terms)
        position = self._log.place_to_compare(source.start_position, source.terms)
        if position is None:
            return
        end = min(position + COMPARED_BYTES, self._log.position, committed)
        if end <= position:
            raise ClusterError(f"{supplier.name} has committed {committed} here, this backup {self.position}")
        theirs = list(frames_of(supplier.name, supplier.read(position, end)))
        self._log.check_frames(supplier.name, position, theirs[0] if theirs else np.empty(0, np.uint8))

    def _replay(self, now_ns: int) -> int:
        """Copy until the log reaches the snapshot that waits to be named."""
        work_count = self._copy(now_ns)
        if self._supplier is None:
            return work_count
        wanted = 0 if self._retrieval is None else self._retrieval.log_position
        if self._log.recording is not None and self._frames is None and self.position >= wanted:
            return self._enter(ClusterBackupState.UPDATE_RECORDING_LOG)
        return work_count

    def _copy(self, now_ns: int) -> int:
        """Take the next part of what the supplier has committed. Raises ClusterError."""
        supplier, source = self._supplier, self._source
        assert supplier is not None and source is not None
        if self._frames is None and not self._follow(supplier, now_ns):
            return 0
        assert self._frames is not None
        for _ in range(BLOCKS_PER_TURN):
            frames = next(self._frames, None)
            if frames is None:
                self._frames = None
                break
            self._log.append(supplier.name, source, frames)
        self._log.sync()
        self._show_position()
        return 1

    def _follow(self, supplier: Supplier, now_ns: int) -> bool:
        """Ask in one stream for what is committed and not here; False when nothing is."""
        status = supplier.status()
        self._check(status)
        if status.leader_member_id >= 0:
            self._led_ns = now_ns
        elif now_ns - self._led_ns >= self._context.response_timeout_ns:
            self._next_supplier(f"{supplier.name} knows no leader")
            self._drop_retrieval()
            self._enter(ClusterBackupState.BACKUP_QUERY)
            return False
        known = self._counters.members_commit_position
        known.set(max(known.get(), status.commit_position))
        if status.commit_position <= self._log.position:
            return False
        self._frames = frames_of(supplier.name, supplier.read(self._log.position, status.commit_position))
        return True

    # ---- what is known of it

    def _update(self, now_ns: int, now_ms: int) -> int:
        if self._retrieval is not None:
            entries = self._retrieval.entries
            self._retrieval = None
            self._directory.name(entries)
            self._show_position()
            self._counters.snapshots_retrieved.get_and_add(1)
        self._next_query_ns = now_ns + self._context.interval_ns
        self._next_query_ms = now_ms + self._context.interval_ns // MS
        self._counters.next_query_deadline_ms.set(self._next_query_ms)
        self._on_event(f"is level at {self.position}")
        self._prune(now_ms)
        return self._enter(ClusterBackupState.BACKING_UP)

    def _prune(self, now_ms: int) -> None:
        """Drop what is not to be retained: neither among the newest snapshots nor young enough."""
        if self._keeps_everything:
            return
        count, age_ns = self._context.retained_snapshots, self._context.retained_for_ns
        since = (now_ms * MS - age_ns) // self._time_unit.nanoseconds if age_ns else None
        begin = self._directory.prune(max(count, 1), since, self._needed_position())
        if begin is not None:
            self._on_event(f"the log begins at {begin} now")

    @property
    def _keeps_everything(self) -> bool:
        return self._context.retained_snapshots == self._context.retained_for_ns == 0

    def _make_room(self) -> None:
        """Where nobody has said what is to be retained, what is oldest goes while the disk is short."""
        begin = self._directory.make_room(self._needed_position())
        if begin is not None:
            self._on_event(f"the log begins at {begin} now: the disk is short of room")

    def _back_up(self, now_ns: int, now_ms: int) -> int:
        if now_ns >= self._next_room_ns and self._keeps_everything:
            self._next_room_ns = now_ns + ROOM_INTERVAL_NS
            self._make_room()
        deadline_ms = self._counters.next_query_deadline_ms.get()
        is_ours = deadline_ms == self._next_query_ms  # else a tool's; and a clock may be set back
        is_due = now_ms >= deadline_ms or (is_ours and now_ns >= self._next_query_ns)
        if self._frames is None and is_due:
            return self._enter(ClusterBackupState.BACKUP_QUERY)
        return self._copy(now_ns)

    def _show_position(self) -> None:
        """A log that starts over is nobody's to read, and is not restored, before recording.log names it."""
        if self._log.is_replacement:
            return
        self._counters.live_log_position.set(self.position)
        self._counters.commit_position.set(self.position)

    # ---- when something is wrong

    def _reset(self, error: ClusterError, now_ns: int) -> None:
        """Drop everything that is on its way; another member is asked after a pause."""
        self._counters.errors.get_and_add(1)
        self._on_error(error)
        self._let_go()
        self._suppliers.append(self._suppliers.pop(0))
        self._unsuited = 0
        self._drop_retrieval()
        self._deadline_ns = now_ns + self._context.cool_down_interval_ns
        self._enter(ClusterBackupState.RESET_BACKUP)

    def _drop_retrieval(self) -> None:
        if self._retrieval is not None:
            self._retrieval.copy.discard()
            self._retrieval = None

    def _let_go(self) -> None:
        if self._supplier is not None:
            self._supplier.close()
        self._supplier = self._response = self._source = self._frames = self._deadline_ns = None

    def _cool_down(self, now_ns: int) -> int:
        assert self._deadline_ns is not None
        if now_ns < self._deadline_ns:
            return 0
        self._deadline_ns = None
        return self._enter(ClusterBackupState.BACKUP_QUERY)

    def close(self) -> None:
        """End: connections are dropped, the directory is its owner's to close. Raises StorageError."""
        self._let_go()
        self._drop_retrieval()
        self._enter(ClusterBackupState.CLOSED)

    def abandon(self) -> None:
        """As a process that dies: connections are dropped, and nothing is written."""
        self._let_go()
