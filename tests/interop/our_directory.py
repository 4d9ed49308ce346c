"""A member's directory as our archive code writes it: thousands of entries, two terms, several segments."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster.archive import Archive, ClusterMarkFile, NodeStateFile, OsFiles, RecordingLog
from cluster.archive.clock import epoch_ms
from cluster.counters import CountersFile
from cluster.protocol.counter_types import CounterTypeId
from cluster.protocol.enums import ClusterComponentType, ConsensusModuleState, ElectionState, Role
from tests.archive.logs import LogWriter, log_params

TERM_LENGTH = 64 * 1024
SEGMENT_LENGTH = 256 * 1024
MEMBER_ID = 0
CLUSTER_ID = 3


def write_log() -> LogWriter:
    """Two leadership terms of eight sessions, with fragmented messages, padding and timers."""
    log = LogWriter(log_params(TERM_LENGTH))
    log.term(0, MEMBER_ID)
    for seed in range(5):
        log.walk(seed, 300)
    log.term(1, MEMBER_ID)
    for seed in range(5, 8):
        log.walk(seed, 300)
    return log


def write_member(directory: Path, *, checksum: str | None = None, is_clean: bool = True) -> LogWriter:
    """Write cluster/ and archive/ as a member does; not ``is_clean`` ends as SIGKILL would."""
    log = write_log()
    files = OsFiles()
    cluster, archive_dir = str(directory / "cluster"), str(directory / "archive")
    archive = Archive.open(archive_dir, segment_length=SEGMENT_LENGTH, checksum=checksum, epoch_ms=epoch_ms)
    archive_mark = archive.create_mark_file(
        aeron_directory=str(directory / "driver"), control_channel="aeron:udp?endpoint=localhost:1"
    )
    marks = [
        ClusterMarkFile.create(
            cluster,
            files=files,
            component_type=component_type,
            now_ms=epoch_ms(),
            cluster_id=CLUSTER_ID,
            member_id=MEMBER_ID,
            service_id=service_id,
            aeron_directory=str(directory / "driver"),
            service_name="" if service_id < 0 else "clustered-service-3-0",
            services_cluster_dir="" if service_id >= 0 else cluster,
        )
        for component_type, service_id in (
            (ClusterComponentType.CONSENSUS_MODULE, -1),
            (ClusterComponentType.CONTAINER, 0),
        )
    ]
    node_state = NodeStateFile.open(cluster, files=files)
    recording_log = RecordingLog.open(cluster, files=files)
    recording = archive.create_recording(
        stream_id=100,
        session_id=log.params.session_id,
        initial_term_id=log.params.initial_term_id,
        term_length=log.params.term_length,
        mtu=log.params.mtu,
        channel=f"aeron:udp?session-id={log.params.session_id}|alias=log",
    )
    data = log.frames()
    step = 48 * 1024
    terms = [begin for begin, end in log.entries if end - begin == 96 and begin in (0, _second_term(log))]
    for term_id, base in enumerate(terms):
        node_state.propose(term_id, base, epoch_ms())
        recording_log.append_term(recording.recording_id, term_id, base, log.time)
        position = base
        end = terms[term_id + 1] if term_id + 1 < len(terms) else log.position
        while position < end:
            cut = min(position + step, end)
            cut = max(boundary for _, boundary in log.entries if boundary <= cut)
            recording.append(position, data[position:cut])
            recording.sync()
            position = cut
    if is_clean:
        marks[0].record_error("a test's error: nothing is wrong", epoch_ms())
        archive.close()
        for mark in (*marks, archive_mark):
            mark.close()
    else:
        archive.abandon()
        for mark in (*marks, archive_mark):
            mark.abandon()
    return log


def _second_term(log: LogWriter) -> int:
    return next(
        begin
        for begin, _ in log.entries[1:]
        if log.frames(begin, begin + 64)[34:36].tobytes() == (24).to_bytes(2, "little")
    )


@contextmanager
def live_counters(directory: Path, *, is_leader: bool) -> Iterator[CountersFile]:
    """The member's counters file, kept fresh and drained as its duty cycle would."""
    counters = CountersFile.create(str(directory / "driver" / "cnc.dat"), pid=os.getpid(), now_ms=epoch_ms())
    for type_id, value in (
        (CounterTypeId.CONSENSUS_MODULE_ERRORS, 0),
        (CounterTypeId.CONSENSUS_MODULE_STATE, ConsensusModuleState.ACTIVE),
        (CounterTypeId.ELECTION_STATE, ElectionState.CLOSED),
        (CounterTypeId.NODE_ROLE, Role.LEADER if is_leader else Role.FOLLOWER),
        (CounterTypeId.COMMIT_POSITION, 0),
        (CounterTypeId.CONTROL_TOGGLE, 1 if is_leader else 0),
        (CounterTypeId.NODE_CONTROL_TOGGLE, 1),
    ):
        counters.allocate_cluster_counter(type_id, CLUSTER_ID, int(value))
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
