"""Member directories as our archive code writes them, around any log."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster.archive.archive import Archive
from cluster.archive.files import OsFiles
from cluster.archive.mark_files import ClusterMarkFile
from cluster.archive.node_state_file import NodeStateFile
from cluster.archive.recording_log import RecordingLog
from cluster.archive.snapshot_archive import SnapshotArchive
from cluster.consensus.module_snapshot import CONSENSUS_MODULE_TYPE_ID, SnapshotPlace
from cluster.counters import Counter, CountersFile
from cluster.protocol import decode, streams
from cluster.protocol.counter_types import CounterTypeId
from cluster.protocol.enums import (
    ClusterComponentType,
    ClusterTimeUnit,
    ConsensusModuleState,
    ElectionState,
    Role,
    SnapshotMark,
)
from cluster.protocol.log import NewLeadershipTermEvent
from cluster.transport.clock import epoch_ms
from tests.archive.logs import SEGMENT_LENGTH, LogWriter, append_term

MEMBER_ID = 0
CLUSTER_ID = 3


class Member:
    """A member that is being written; ``stop`` in order, or ``kill``."""

    def __init__(
        self,
        directory: Path,
        *,
        checksum: str | None = None,
        segment_length: int = SEGMENT_LENGTH,
        file_sync_level: int = 1,
        is_after_failure: bool = False,
        clock: Callable[[], int] = epoch_ms,
        kind: ClusterComponentType = ClusterComponentType.CONSENSUS_MODULE,
        member_id: int = MEMBER_ID,
        cluster_id: int = CLUSTER_ID,
    ) -> None:
        files = OsFiles()
        self.directory = directory
        self.clock = clock
        cluster, driver = str(directory / "cluster"), str(directory / "driver")
        self.archive = Archive.open(
            str(directory / "archive"),
            segment_length=segment_length,
            file_sync_level=file_sync_level,
            checksum=checksum,
            is_after_failure=is_after_failure,
            epoch_ms=clock,
        )
        self.marks = [
            self.archive.create_mark_file(
                aeron_directory=driver, control_channel="aeron:udp?endpoint=localhost:1"
            ),
            *(
                ClusterMarkFile.create(
                    cluster,
                    files=files,
                    component_type=component_type,
                    now_ms=clock(),
                    cluster_id=cluster_id,
                    member_id=member_id,
                    service_id=service_id,
                    aeron_directory=driver,
                    service_name="" if service_id < 0 else "clustered-service-3-0",
                    services_cluster_dir="" if service_id >= 0 else cluster,
                )
                for component_type, service_id in (
                    (kind, -1),
                    (ClusterComponentType.CONTAINER, 0),
                )
            ),
        ]
        self.node_state = NodeStateFile.open(cluster, files=files)
        self.recording_log = RecordingLog.open(cluster, files=files)

    def take_snapshot(self, log: LogWriter, position: int) -> None:
        """Record one of a service with some state, and of a module without sessions and timers."""
        place = SnapshotPlace(position, 0, ClusterTimeUnit.MILLIS, 0)
        marks = [
            place.marker(CONSENSUS_MODULE_TYPE_ID, mark) for mark in (SnapshotMark.BEGIN, SnapshotMark.END)
        ]
        snapshots = SnapshotArchive(self.archive, term_length=log.params.term_length, mtu=log.params.mtu)
        for service_id, stream_id, records in (
            (0, streams.SERVICE_SNAPSHOT, [b"state"]),
            (-1, streams.CONSENSUS_MODULE_SNAPSHOT, marks),
        ):
            snapshot = snapshots.create(stream_id, service_id, position)
            for record in records:
                snapshot.offer(record)
            recording_id = snapshots.complete(snapshot)
            self.recording_log.append_snapshot(recording_id, 0, 0, position, 0, service_id)

    def write(self, log: LogWriter, end: int | None = None) -> None:
        """Record the log up to ``end``, term by term and batch by batch, as a leader does."""
        end = log.position if end is None else end
        if self.archive.recordings():
            self.recording = self.archive.recording(0)
        else:
            self.recording = self.archive.create_recording(
                stream_id=100,
                session_id=log.params.session_id,
                initial_term_id=log.params.initial_term_id,
                term_length=log.params.term_length,
                mtu=log.params.mtu,
                start_position=log.start,
                channel=f"aeron:udp?session-id={log.params.session_id}|alias=log",
            )
        known = {entry.leadership_term_id for entry in self.recording_log.entries}
        ends = sorted({entry_end for _, entry_end in log.entries if entry_end <= end})
        bases = {begin: term_id for begin, term_id in _terms(log) if begin < end}
        for entry_end in [*ends[39::40], ends[-1]]:
            position = self.recording.append_position
            for base, term_id in bases.items():
                if position <= base < entry_end and term_id not in known:
                    self.node_state.propose(term_id, base, self.clock())
                    append_term(self.recording_log, 0, term_id, base, log.time)
            if entry_end > position:
                self.recording.append(position, log.frames(position, entry_end))
                self.recording.sync()

    def stop(self) -> None:
        self.archive.close()
        for mark in self.marks:
            mark.close()

    def kill(self) -> None:
        self.archive.abandon()
        for mark in self.marks:
            mark.abandon()


def _terms(log: LogWriter) -> list[tuple[int, int]]:
    """Begin and id of the log's leadership terms."""
    found = []
    for begin, end in log.entries:
        if end - begin == 96:
            message = decode(log.frames(begin + 32, end))
            if isinstance(message, NewLeadershipTermEvent):
                found.append((message.term_base_log_position, message.leadership_term_id))
    return found


def write_member(directory: Path, log: LogWriter, *, is_clean: bool = True, **options: object) -> None:
    """A member that recorded the log; not ``is_clean`` ends as SIGKILL would."""
    member = Member(directory, **options)  # type: ignore[arg-type]
    member.write(log)
    if is_clean:
        member.stop()
    else:
        member.kill()


def allocate_counters(counters: CountersFile, *, is_leader: bool = True, commit_position: int = 0) -> Counter:
    """What a consensus module shows of itself; return the commit position's counter."""
    for type_id, value in (
        (CounterTypeId.CONSENSUS_MODULE_ERRORS, 0),
        (CounterTypeId.CONSENSUS_MODULE_STATE, ConsensusModuleState.ACTIVE),
        (CounterTypeId.ELECTION_STATE, ElectionState.CLOSED),
        (CounterTypeId.NODE_ROLE, Role.LEADER if is_leader else Role.FOLLOWER),
        (CounterTypeId.CONTROL_TOGGLE, 1 if is_leader else 0),
        (CounterTypeId.NODE_CONTROL_TOGGLE, 1),
        (CounterTypeId.SNAPSHOT_COUNT, 0),
    ):
        counters.allocate_cluster_counter(type_id, CLUSTER_ID, int(value))
    return counters.allocate_cluster_counter(CounterTypeId.COMMIT_POSITION, CLUSTER_ID, commit_position)


@contextmanager
def live_counters(directory: Path, *, is_leader: bool = True) -> Iterator[CountersFile]:
    """The member's counters file, kept fresh and drained as its duty cycle would."""
    path = str(directory / "driver" / "cnc.dat")
    counters = CountersFile.create(path, pid=OsFiles().process_id(), now_ms=epoch_ms())
    allocate_counters(counters, is_leader=is_leader)
    is_over = threading.Event()

    def beat() -> None:
        while not is_over.wait(0.01):
            counters.update_heartbeat(epoch_ms())
            counters.drain_commands()

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        yield counters
    finally:
        is_over.set()
        thread.join()
        counters.close()
