"""The Log of one member, alone: an archive, counters and a state that its entries change."""

import pytest

from cluster.archive.archive import Archive
from cluster.archive.files import OsFiles
from cluster.archive.node_state_file import NodeStateFile
from cluster.archive.recording_log import RecordingLog
from cluster.consensus.context import ConsensusModuleContext
from cluster.consensus.replica import ReplicatedState
from cluster.counters import CountersFile
from cluster.member.counters import MemberCounters
from cluster.member.member_files import MemberFiles
from cluster.member.member_log import MemberLog
from cluster.protocol.enums import ConsensusModuleState
from cluster.protocol.link import LogGeometry
from tests.archive.logs import LogWriter

CONTEXT = ConsensusModuleContext(log_term_length=64 * 1024)


class Entries:
    """What is no session message, by its position; ``stops_at`` is an action."""

    def __init__(self):
        self.ends = []
        self.stops_at = None

    def on_log_message(self, message, log_position):
        self.ends.append(log_position)
        return log_position == self.stops_at


class NoSessions:
    """No part of these tests is written to or sent."""


@pytest.fixture
def entries():
    return Entries()


@pytest.fixture
def counters():
    return MemberCounters(CountersFile.in_memory(), CONTEXT)


@pytest.fixture
def replica():
    state = ReplicatedState(CONTEXT, NoSessions())
    state.module.change(ConsensusModuleState.ACTIVE)
    return state


@pytest.fixture
def log(tmp_path, counters, replica, entries):
    archive = Archive.open(
        str(tmp_path / "archive"), files=OsFiles(), segment_length=128 * 1024, epoch_ms=lambda: 0
    )
    recording_log = RecordingLog.open(str(tmp_path / "cluster"), files=OsFiles())
    node_state = NodeStateFile.open(str(tmp_path / "cluster"), files=OsFiles())
    files = MemberFiles(archive, recording_log, node_state)
    log = MemberLog(CONTEXT, files, counters, replica, entries)
    yield log
    log.stop(now_ms=0)
    archive.close()
    recording_log.close()
    node_state.close()


def write(log, timers, session_id=7):
    """Append that many entries to the recording; return their ends."""
    log.extend(session_id, now_ms=0)
    writer = LogWriter(log.params(session_id), start=log.append_position, leadership_term_id=0, time=0)
    begin, ends = writer.position, []
    for number in range(timers):
        writer.timer(number)
        ends.append(writer.position)
    log.recording.append(begin, writer.frames())
    return ends


def test_without_a_recording_nothing_is_processed_and_it_ends_where_it_is_processed(log, counters):
    log.start(None, 4096)
    assert (log.process(10_000), log.commit_position, log.append_position) == (0, 4096, 4096)
    assert counters.commit_position.get() == 4096


def test_what_is_processed_is_shown_and_the_rest_is_not(log, counters, entries):
    log.create(7, None)
    ends = write(log, 10)
    assert log.process(ends[3]) == ends[3]
    assert entries.ends == ends[:4]
    assert log.commit_position == counters.commit_position.get() == ends[3] < log.append_position == ends[-1]


def test_nothing_beyond_the_recording_is_processed_whatever_the_limit(log):
    log.create(7, None)
    ends = write(log, 3)
    assert log.process(1 << 40) == ends[-1]
    assert log.process(1 << 40) == 0


def test_an_action_ends_the_poll_and_the_next_one_goes_on(log, entries):
    log.create(7, None)
    ends = write(log, 5)
    entries.stops_at = ends[1]
    assert log.process(ends[-1], length=1 << 20) == ends[1] == log.commit_position
    assert log.process(ends[-1], length=1 << 20) == ends[-1] - ends[1]
    assert entries.ends == ends


def test_a_module_that_has_ended_reads_no_log(log, replica):
    log.create(7, None)
    ends = write(log, 2)
    replica.module.change(ConsensusModuleState.CLOSED)
    assert log.process(ends[-1]) == 0


def test_the_commit_position_never_falls(log):
    log.start(None, 4096)
    with pytest.raises(AssertionError):
        log.commit(4095)


def test_a_new_log_has_the_shape_of_its_leaders(log):
    recording = log.create(7, LogGeometry(5, 128 * 1024, 1024))
    assert (recording.initial_term_id, recording.term_length, recording.mtu) == (5, 128 * 1024, 1024)
    params = log.params(9)
    assert (params.session_id, params.initial_term_id, params.mtu) == (9, 5, 1024)


def test_another_leaders_session_goes_on_in_the_same_recording(log):
    first = log.create(7, None)
    end = write(log, 2, session_id=7)[-1]
    assert log.extend(7, now_ms=0) is first
    second = log.extend(8, now_ms=0)
    assert (second.recording_id, second.session_id, second.append_position) == (0, 8, end)
    assert second.position_counter is not None
