"""Snapshots that standbys announce: recorded when the log reaches them, fetched by a start or an operator.

    StandbySnapshot ──▶ announced ── commit position reaches it ──▶ STANDBY_SNAPSHOT in recording.log
    a start, REPLICATE_STANDBY_SNAPSHOT ──▶ newest of each standby ── recordings fetched, checked ──▶ SNAPSHOT

A member starts from its own SNAPSHOT entries alone (C-314). Source: ConsensusModuleAgent and
StandbySnapshotReplicator of Aeron.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from cluster.archive.archive import Archive
from cluster.archive.snapshot_archive import STREAM_IDS
from cluster.consensus.context import ConsensusModuleContext
from cluster.errors import ClusterError, ConfigurationError, RemoteProtocolError, StorageError
from cluster.member.counters import MemberCounters
from cluster.member.disk.fetched_recording import FetchedSnapshot
from cluster.member.disk.snapshots import read_fetched
from cluster.member.log.member_log import MemberLog
from cluster.member.ports import FetchedRecordings, FetchRecordings
from cluster.member.reporter import Reporter
from cluster.protocol.backup import StandbySnapshotRecording
from cluster.protocol.frame import FRAME_ALIGNMENT
from cluster.protocol.recording_log import (
    CONSENSUS_MODULE_SERVICE_ID,
    ENDPOINT_LENGTH_MAX,
    NULL_POSITION,
    STANDBY_SNAPSHOT,
    RecordingLogEntry,
)
from cluster.transport.endpoint import Medium, parse_endpoint

ANNOUNCED_MAX = 16  # snapshots that wait for the log
STANDBYS_MAX = 16  # archives that recording.log names
ANSWERS_PER_TURN = 4

SnapshotSet = tuple[RecordingLogEntry, ...]  # the module's, then of services 0, 1, …


@dataclass(eq=False)
class StandbySnapshots:
    """Those that one member knows of."""

    _context: ConsensusModuleContext
    _log: MemberLog
    _archive: Archive
    _counters: MemberCounters
    _fetch: FetchRecordings
    _reporter: Reporter
    _announced: list[SnapshotSet] = field(default_factory=list)
    _candidates: list[SnapshotSet] = field(default_factory=list)  # to fetch, the best first
    _copy: "_Fetched | None" = None

    # ---- announcements

    def on_announced(self, recordings: Sequence[StandbySnapshotRecording]) -> str:
        """A standby has a snapshot. Returns why it is not taken, empty when it is."""
        if not self._context.accept_standby_snapshots:
            return "standby snapshots are not accepted"
        if why := _fault_of(recordings, self._context.service_count):
            return why
        if len(self._announced) >= ANNOUNCED_MAX:
            return f"{ANNOUNCED_MAX} standby snapshots wait for the log to reach them, as many as may"
        snapshot = tuple(
            RecordingLogEntry.of(one, STANDBY_SNAPSHOT, archive_endpoint=one.archive_endpoint)
            for one in sorted(recordings, key=lambda recording: recording.service_id)
        )
        position = snapshot[0].log_position
        if position <= self._log.commit_position and (why := self._mismatch(snapshot)):
            return why
        known = {entry.archive_endpoint for entry in self._recorded()}
        if len(known | {snapshot[0].archive_endpoint}) > STANDBYS_MAX:
            return f"recording.log names {STANDBYS_MAX} standbys, as many as it may"
        self._announced.append(snapshot)
        return ""

    def _recorded(self) -> list[RecordingLogEntry]:
        return [
            entry
            for entry in self._log.recording_log.entries
            if entry.is_valid and entry.entry_type is STANDBY_SNAPSHOT
        ]

    def _mismatch(self, snapshot: SnapshotSet) -> str:
        """Why a snapshot at a committed position is none of this log; empty when it may be one."""
        module = snapshot[0]
        term = self._log.recording_log.find_term(module.leadership_term_id)
        place = f"the snapshot at {module.log_position} of term {module.leadership_term_id}"
        if term is None:
            return f"{place}: the log has no such term"
        base, end = term.term_base_log_position, term.log_position
        if module.term_base_log_position != base:
            return f"{place}: the term begins at {base}, and not at {module.term_base_log_position}"
        if module.log_position <= base or (end != NULL_POSITION and module.log_position > end):
            return f"{place}: the term goes from {base} to {'now' if end == NULL_POSITION else end}"
        return ""

    def do_work(self) -> int:
        """Record what the log has reached, and go on with what is fetched; with a leader (C-15, C-334)."""
        work_count = 0
        for snapshot in [s for s in self._announced if s[0].log_position <= self._log.commit_position]:
            self._announced.remove(snapshot)
            self._record(snapshot)
            work_count += 1
        return work_count + self.go_on()

    def _record(self, snapshot: SnapshotSet) -> None:
        recording_log, module = self._log.recording_log, snapshot[0]
        if why := self._mismatch(snapshot):
            self._reporter.error(ClusterError(f"standby at {module.archive_endpoint}: {why}"))
            return
        of_standby = [
            entry for entry in self._recorded() if entry.archive_endpoint == module.archive_endpoint
        ]
        if any(entry.log_position > module.log_position for entry in of_standby):
            return
        same = [entry for entry in of_standby if entry.log_position == module.log_position]
        if sorted(map(_identity, same)) == sorted(map(_identity, snapshot)):
            return
        for entry in same:  # of a standby that has lost its directory
            recording_log.remove(entry)
        for entry in reversed(snapshot):
            recording_log.append_snapshot(*entry[:6], entry.archive_endpoint)
        assert self._counters.standby_snapshots_received is not None
        self._counters.standby_snapshots_received.get_and_add(1)
        self._reporter.event(
            f"the standby at {module.archive_endpoint} has a snapshot at {module.log_position}"
        )

    # ---- replication

    @property
    def is_replicating(self) -> bool:
        """Whether a snapshot is on its way."""
        return self._copy is not None or bool(self._candidates)

    def replicate(self) -> None:
        """Begin to fetch the newest snapshot, unless that is under way; the next standby's if one fails."""
        if not self.is_replicating and not self.begin():
            self._reporter.error(ClusterError("no standby has a snapshot that is newer than the own"))

    def begin(self) -> bool:
        """Begin to fetch if a standby has a newer snapshot, as a start does; whether that is so."""
        if self._context.accept_standby_snapshots:
            self._candidates = self._newest_of_standbys()
        return bool(self._candidates)

    def _newest_of_standbys(self) -> list[SnapshotSet]:
        """The newest whole one of each, as far as it is newer than the own; highest position first."""
        service_ids = range(CONSENSUS_MODULE_SERVICE_ID, self._context.service_count)
        sets: dict[tuple[str, int, int], dict[int, RecordingLogEntry]] = {}
        for entry in self._recorded():
            if entry.log_position > self._own_position:
                key = entry.archive_endpoint, entry.log_position, entry.leadership_term_id
                sets.setdefault(key, {})[entry.service_id] = entry
        whole = [
            tuple(found[i] for i in service_ids) for found in sets.values() if set(service_ids) <= set(found)
        ]
        newest: dict[str, SnapshotSet] = {}
        for snapshot in sorted(whole, key=lambda snapshot: snapshot[0].log_position):
            newest[snapshot[0].archive_endpoint] = snapshot
        return sorted(newest.values(), key=lambda s: (-s[0].log_position, s[0].archive_endpoint))

    @property
    def _own_position(self) -> int:
        own = self._log.recording_log.latest_snapshot()
        return 0 if own is None else own.log_position

    def go_on(self) -> int:
        """Take what is on its way further; returns how much was done. Raises StorageError."""
        if not self.is_replicating:
            return 0
        if self._copy is None:
            self._begin(self._candidates.pop(0))
            return 1
        try:
            work_count = self._copy.do_work()
            if self._copy.copy.is_complete:
                self._install(self._copy)
        except StorageError:
            raise
        except ClusterError as error:
            self._give_up(error)
            return 1
        return work_count

    def _begin(self, snapshot: SnapshotSet) -> None:
        module = snapshot[0]
        self._reporter.event(f"fetches the snapshot at {module.log_position} of {module.archive_endpoint}")
        try:
            fetched = self._fetch(module.archive_endpoint, [entry.recording_id for entry in snapshot])
        except ClusterError as error:
            self._give_up(error)
            return
        self._copy = _Fetched(snapshot, fetched, self._archive)

    def _give_up(self, error: ClusterError) -> None:
        """The present one will not do; the next is tried."""
        if self._copy is not None:
            self._copy.discard()
            self._copy = None
        self._reporter.error(error)
        if not self._candidates:
            self._reporter.event("no snapshot of a standby was replicated")

    def _install(self, fetched: "_Fetched") -> None:
        """Let recording.log name what is whole. Raises RemoteProtocolError."""
        copy = fetched.copy
        snapshot = copy.entries(fetched.snapshot)
        module = snapshot[0]
        name = fetched.snapshot[0].archive_endpoint
        place, context = read_fetched(name, self._archive, snapshot).place, self._context
        assert place is not None
        found = place.log_position, place.leadership_term_id, place.time_unit, place.app_version >> 16
        expected = (
            module.log_position,
            module.leadership_term_id,
            context.time_unit,
            context.app_version >> 16,
        )
        if found != expected:
            raise RemoteProtocolError(
                f"{name}: its snapshot has position, term, time unit and major version {found}, expected "
                f"{expected}"
            )
        fetched.close()
        self._copy = None
        self._candidates = []
        if module.log_position <= self._own_position:  # the member has taken one meanwhile
            copy.discard()
            return
        for entry in reversed(snapshot):
            self._log.recording_log.append_snapshot(*entry[:6])
        self._counters.snapshot_count.get_and_add(1)
        self._reporter.event(f"has the snapshot at {module.log_position} of {name}")

    def close(self) -> None:
        """What is on its way is dropped; a start removes what is here of it."""
        if self._copy is not None:
            self._copy.close()


class _Fetched:
    """A standby's snapshot on its way."""

    def __init__(self, snapshot: SnapshotSet, answers: FetchedRecordings, archive: Archive) -> None:
        self.snapshot = snapshot
        self._answers = answers
        streams = [STREAM_IDS[entry.service_id == CONSENSUS_MODULE_SERVICE_ID] for entry in snapshot]
        recording_ids = [entry.recording_id for entry in snapshot]
        self.copy = FetchedSnapshot(snapshot[0].archive_endpoint, recording_ids, archive, streams)

    def do_work(self) -> int:
        for work_count in range(ANSWERS_PER_TURN):
            if self.copy.is_complete or (answer := self._answers.poll()) is None:
                return work_count
            self.copy.take(answer)
        return ANSWERS_PER_TURN

    def close(self) -> None:
        self._answers.close()

    def discard(self) -> None:
        """Remove what is here. Raises StorageError."""
        self.close()
        self.copy.discard()


def _fault_of(recordings: Sequence[StandbySnapshotRecording], service_count: int) -> str:
    """Why these are not the recordings of one snapshot; empty when they are."""
    wanted = list(range(CONSENSUS_MODULE_SERVICE_ID, service_count))
    found = sorted(recording.service_id for recording in recordings)
    if found != wanted:
        return f"a snapshot of services {found}, expected {wanted}, of which -1 is the consensus module"
    first = recordings[0]
    place = first.leadership_term_id, first.term_base_log_position, first.log_position, first.archive_endpoint
    for recording in recordings:
        of_this = (
            recording.leadership_term_id,
            recording.term_base_log_position,
            recording.log_position,
            recording.archive_endpoint,
        )
        if of_this != place:
            return f"recordings of two snapshots: {of_this} and {place}"
        if recording.recording_id < 0:
            return f"recording {recording.recording_id}, expected an id of at least 0"
    term_id, base, position, endpoint = place
    if not (term_id >= 0 and 0 <= base < position and position % FRAME_ALIGNMENT == 0):
        return (
            f"a snapshot at {position} of term {term_id} from {base}, expected a multiple of "
            f"{FRAME_ALIGNMENT} within a term"
        )
    return _fault_of_endpoint(endpoint)


def _fault_of_endpoint(text: str) -> str:
    if not (text.isascii() and text.isprintable() and len(text) <= ENDPOINT_LENGTH_MAX):
        return f"archive endpoint {text[:64]!r}: expected host:port, at most {ENDPOINT_LENGTH_MAX} characters"
    try:
        is_file = parse_endpoint(text).medium is Medium.IPC
    except ConfigurationError as error:
        return f"archive {error}"
    return f"archive endpoint {text!r}: expected host:port, not a file" if is_file else ""


def _identity(entry: RecordingLogEntry) -> tuple[int, int, int]:
    return entry.service_id, entry.recording_id, entry.leadership_term_id
