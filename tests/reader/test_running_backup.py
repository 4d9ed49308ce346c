"""The directory of a real ClusterBackup: it has no commit position, and records only what is committed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.archive.files import OsFiles
from cluster.counters import CountersFile
from cluster.protocol.counter_types import CounterTypeId
from cluster.protocol.enums import ClusterBackupState, ClusterComponentType
from cluster.reader import LogReader
from cluster.transport.clock import epoch_ms
from tests.archive.logs import SESSION_ID, LogWriter, a_log
from tests.archive.members import CLUSTER_ID, Member

LOG = a_log(200)


class Backup:
    """A ClusterBackup in a driver of its own; its turns are the test's."""

    def __init__(self, directory: Path, marked_cluster_id: int = CLUSTER_ID) -> None:
        self.directory = directory
        self.marked_cluster_id = marked_cluster_id
        self.now_ms = epoch_ms()
        self.start()

    def start(self, *, is_after_failure: bool = False) -> None:
        self.is_running = True
        self.member = Member(
            self.directory,
            clock=lambda: self.now_ms,
            kind=ClusterComponentType.BACKUP,
            is_after_failure=is_after_failure,
            cluster_id=self.marked_cluster_id,
        )
        for lock in self.directory.rglob("*.lock"):
            lock.unlink()  # Aeron has none
        cnc = str(self.directory / "driver" / "cnc.dat")
        self.counters = CountersFile.create(cnc, pid=OsFiles().process_id(), now_ms=self.now_ms)
        self.counters.allocate_cluster_counter(
            CounterTypeId.BACKUP_STATE, CLUSTER_ID, ClusterBackupState.BACKING_UP
        )
        # It shows no progress before the log is level, and none of a connection that came after.
        self.counters.allocate_cluster_counter(CounterTypeId.BACKUP_LIVE_LOG_POSITION, CLUSTER_ID, -1)

    def copy(self, end: int, log: LogWriter = LOG) -> None:
        """Record the log up to ``end``."""
        self.member.write(log, end)
        recording = self.member.recording
        if recording.position_counter is None:
            recording.position_counter = self.counters.allocate_recording_position(
                0, recording.session_id, 100, position=recording.append_position
            )

    def lose_its_member(self) -> None:
        """No image any more: the recording stops, and its counter is freed."""
        recording = self.member.recording
        self.member.archive.stop_recording(recording.recording_id)
        counter = self.counters.find(CounterTypeId.RECORDING_POSITION)
        assert counter is not None
        self.counters.free(counter)
        recording.position_counter = None

    def find_another(self, session_id: int) -> None:
        """Another member replays to it, in a session of its own."""
        self.member.recording = self.member.archive.extend(0, session_id)

    def end(self, *, is_orderly: bool) -> None:
        self.is_running = False
        (self.member.stop if is_orderly else self.member.kill)()
        self.counters.close(orderly=is_orderly)
        if not is_orderly:
            self.now_ms += 60_000

    def reader(self) -> LogReader:
        return LogReader.open(dir=str(self.directory), now_ms=lambda: self.now_ms)


@pytest.fixture
def backup(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Backup]:
    backup = Backup(tmp_path, getattr(request, "param", CLUSTER_ID))
    yield backup
    if backup.is_running:
        backup.end(is_orderly=True)


def read(reader: LogReader) -> list[int]:
    """Positions of what a stream sees now, and nothing else is there."""
    assert reader.commit_position() == reader.end_position()
    assert reader.warnings == []
    return [entry["position"] for entry in reader.entries()]


def first(count: int) -> list[int]:
    return [begin for begin, _ in LOG.entries[:count]]


def end_of(count: int) -> int:
    return LOG.entries[count - 1][1]


@pytest.mark.parametrize("backup", [CLUSTER_ID, 0], ids=["marked", "not marked"], indirect=True)
def test_a_stream_over_a_running_backup_advances_as_it_records(backup):
    """Aeron's names its cluster in its counters, and not in its mark file."""
    backup.copy(end_of(40))
    with backup.reader() as reader:
        assert reader.is_live
        assert read(reader) == first(40)
        backup.copy(end_of(90))
        assert read(reader) == first(90)


def test_it_goes_on_when_the_backup_has_lost_its_member_and_found_another(backup):
    backup.copy(end_of(40))
    with backup.reader() as reader:
        assert read(reader) == first(40)
        backup.lose_its_member()
        assert reader.is_live
        assert read(reader) == first(40)
        backup.find_another(SESSION_ID + 1)
        assert read(reader) == first(40)
        backup.copy(end_of(90))
        assert read(reader) == first(90)


@pytest.mark.parametrize("is_orderly", [True, False], ids=["in order", "killed"])
def test_it_goes_on_when_the_backup_was_started_again(backup, is_orderly):
    backup.copy(end_of(40))
    with backup.reader() as reader:
        assert read(reader) == first(40)
        backup.copy(end_of(60))
        backup.end(is_orderly=is_orderly)
        assert not reader.is_live
        assert read(reader) == first(60), "what a backup has recorded is committed, whatever became of it"
        backup.start(is_after_failure=not is_orderly)
        assert read(reader) == first(60)
        backup.find_another(SESSION_ID + 1)
        backup.copy(end_of(90))
        assert reader.is_live
        assert read(reader) == first(90)


def test_the_counters_of_a_backup_of_another_cluster_are_not_believed(backup):
    """The host may run several, under the same names."""
    backup.copy(end_of(40))
    backup.counters.free(backup.counters.find(CounterTypeId.BACKUP_STATE))
    backup.counters.allocate_cluster_counter(CounterTypeId.BACKUP_STATE, CLUSTER_ID + 1)
    with backup.reader() as reader:
        assert not reader.is_live
